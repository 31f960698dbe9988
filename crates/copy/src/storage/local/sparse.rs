//! Sparse files: writes the data of a block and leaves holes for its zeros.
//!
//! Holes are punched even where the file should be empty: an interrupted copy may have written there before.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::work_meter::WorkMeter;

/// Minimum length of a hole, in bytes. Most file systems allocate pages of this size.
const PAGE: usize = 4096;

/// Writes `bytes` at `offset`. The file must be at least that long already.
pub(super) fn write_sparse(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let zeros = is_zeros(page(bytes, at));
        let mut end = at;
        while end < bytes.len() && is_zeros(page(bytes, end)) == zeros {
            end += page(bytes, end).len();
        }
        let start = offset + at as u64;
        if !zeros || punch_hole(file, start, (end - at) as u64).is_err() {
            file.write_all_at(&bytes[at..end], start)?;
        }
        at = end;
    }
    Ok(())
}

/// Makes a range a hole. Writes zeros if the file system cannot do this, unless the range `contains_zeros` already. The
/// file must be at least that long already.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] if the copy is stopped.
pub(super) fn write_hole(
    file: &File,
    offset: u64,
    length: u64,
    contains_zeros: bool,
    meter: &WorkMeter,
) -> io::Result<()> {
    if punch_hole(file, offset, length).is_ok() || contains_zeros {
        return Ok(());
    }
    let zeros = [0; 64 << 10];
    let mut at = 0;
    while at < length {
        if meter.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let part = zeros.len().min(usize::try_from(length - at).unwrap_or(zeros.len()));
        file.write_all_at(&zeros[..part], offset + at)?;
        at += part as u64;
    }
    Ok(())
}

fn punch_hole(file: &File, offset: u64, length: u64) -> rustix::io::Result<()> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
}

fn page(bytes: &[u8], at: usize) -> &[u8] {
    &bytes[at..bytes.len().min(at + PAGE)]
}

fn is_zeros(page: &[u8]) -> bool {
    page.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_is_read_back() {
        let file = tempfile::tempfile().unwrap();
        let mut whole = vec![7u8; 1 << 20];
        file.write_all_at(&whole, 0).unwrap();
        let mut bytes = vec![0; 300_001];
        for (from, to) in [(0, 1), (5_000, 5_001), (100_000, 170_000), (300_000, 300_001)] {
            bytes[from..to].fill(9);
        }
        write_sparse(&file, 4_096, &bytes).unwrap();
        whole[4_096..][..bytes.len()].copy_from_slice(&bytes);
        let mut read = vec![0; whole.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == whole);
        write_hole(&file, 10_000, 200_000, false, &WorkMeter::default()).unwrap();
        whole[10_000..210_000].fill(0);
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == whole);
        write_sparse(&file, 0, &[]).unwrap();
    }
}
