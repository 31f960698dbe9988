//! Holes of files: hashes a file without reading its holes, and finds out where they end.

use std::io;
use std::ops::RangeInclusive;

use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::digest::{BlockHash, Digest, HashTree};
use lfn_session::wire::copy::options::Verify;

use super::FileData;
use crate::proto::zeros::{hash_zeros, split_hole};
use crate::work_meter::{Activity, WorkMeter};

/// Computes the digest of a file. A file that is shorter than `layout` gets a wrong digest.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] if the copy is stopped.
pub(crate) fn digest_of(
    file: &dyn FileData,
    layout: Layout,
    verify: Verify,
    meter: &WorkMeter,
) -> io::Result<Option<Digest>> {
    let mut tree = HashTree::new(layout);
    if let Some(last) = layout.blocks().checked_sub(1) {
        hash_blocks(file, layout, verify, 0..=last, meter, |subtree, hash| {
            tree.insert_subtree(subtree, hash);
        })?;
    }
    Ok(tree.digest())
}

/// Hashes the blocks of a range. Several blocks in a hole have one hash.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] if the copy is stopped.
pub(crate) fn hash_blocks(
    file: &dyn FileData,
    layout: Layout,
    verify: Verify,
    blocks: RangeInclusive<u64>,
    meter: &WorkMeter,
    mut take: impl FnMut(Subtree, BlockHash),
) -> io::Result<()> {
    let (mut next, last) = blocks.into_inner();
    let mut buffer = Vec::new();
    while let Some(block) = layout.block(next).filter(|block| block.index <= last) {
        if let Some(end) = last_block_in_hole(file, layout, next) {
            let end = end.min(last);
            for subtree in split_hole(layout, verify, next, end) {
                check_running(meter)?;
                take(subtree, meter.measure(Activity::Hash, || hash_zeros(&layout, verify, subtree)));
            }
            next = end + 1;
            continue;
        }
        check_running(meter)?;
        buffer.resize(block.length as usize, 0);
        meter.measure(Activity::Disk, || file.read_exact_at(&mut buffer, block.offset))?;
        take(Subtree::of_block(next), meter.measure(Activity::Hash, || verify.hash(&layout, block, &buffer)));
        next += 1;
    }
    Ok(())
}

fn check_running(meter: &WorkMeter) -> io::Result<()> {
    if meter.is_stopped() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}

/// Returns the last block that is completely in the same hole as the block `first`, or `None` if that block contains
/// data. In a file that became shorter, the missing part counts as a hole.
pub(crate) fn last_block_in_hole(file: &dyn FileData, layout: Layout, first: u64) -> Option<u64> {
    let offset = first.checked_mul(layout.block_size().0)?;
    // A read reports the error, if there is one.
    let end = file.next_data(offset).ok()?.unwrap_or(u64::MAX);
    let blocks = if end >= layout.bytes().0 { layout.blocks() } else { end / layout.block_size().0 };
    blocks.checked_sub(1).filter(|last| *last >= first)
}

/// Returns whether a range contains only zeros. Holes are not read.
pub(crate) fn is_zero_range(file: &dyn FileData, offset: u64, length: u64, meter: &WorkMeter) -> io::Result<bool> {
    let (mut at, end) = (offset, offset.saturating_add(length));
    let mut buffer = Vec::new();
    while let Some(data) = file.next_data(at)?.filter(|data| *data < end) {
        check_running(meter)?;
        buffer.resize((end - data).min(1 << 20) as usize, 0);
        meter.measure(Activity::Disk, || file.read_exact_at(&mut buffer, data))?;
        if !is_zeros(&buffer) {
            return Ok(false);
        }
        at = data + buffer.len() as u64;
    }
    Ok(true)
}

/// Returns whether all bytes are zeros.
pub(crate) fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<32>();
    words.iter().all(|word| *word == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use lfn_base::units::Bytes;

    use super::*;

    /// Creates a file with data at these offsets.
    fn sparse_file(length: u64, data: &[u64]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(length).unwrap();
        data.iter().for_each(|offset| file.write_all_at(b"data", *offset).unwrap());
        file
    }

    #[test]
    fn digest_equals_that_of_the_whole_content() {
        const LENGTH: u64 = 5_000_001;
        let meter = WorkMeter::default();
        let layout = Layout::new(Bytes(LENGTH), Bytes(16 << 10)).unwrap();
        for data in [&[][..], &[0], &[LENGTH - 4], &[1_000_000, 1_200_000, 3_999_998]] {
            let file = sparse_file(LENGTH, data);
            let mut content = vec![0; LENGTH as usize];
            FileExt::read_exact_at(&file, &mut content, 0).unwrap();
            let mut reads = 0;
            for verify in [Verify::Blake3, Verify::Xxh3] {
                let mut tree = HashTree::new(layout);
                for block in (0..layout.blocks()).filter_map(|index| layout.block(index)) {
                    let bytes = &content[block.offset as usize..][..block.length as usize];
                    tree.insert(block.index, verify.hash(&layout, block, bytes));
                }
                assert_eq!(digest_of(&file, layout, verify, &meter).unwrap(), tree.digest(), "{data:?}");
                let all = 0..=layout.blocks() - 1;
                hash_blocks(&file, layout, verify, all, &meter, |_, _| reads += 1).unwrap();
            }
            assert!(reads < 200, "{reads} hashes for 306 blocks, twice");
        }
        meter.stop();
        let stopped = digest_of(&sparse_file(LENGTH, &[]), layout, Verify::Blake3, &meter);
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn end_of_a_hole_is_found() {
        let layout = Layout::new(Bytes(1_000_000), Bytes(65_536)).unwrap();
        let file = sparse_file(1_000_000, &[500_000]);
        let last = |first| last_block_in_hole(&file, layout, first);
        assert_eq!([0, 6, 7, 8, 15, 16].map(last), [Some(6), Some(6), None, Some(15), Some(15), None]);
    }

    #[test]
    fn data_in_a_range_is_found() {
        let (file, meter) = (sparse_file(1 << 40, &[1 << 30]), WorkMeter::default());
        let is_zero = |offset, length| is_zero_range(&file, offset, length, &meter).unwrap();
        assert!(is_zero(0, 1 << 30) && !is_zero(0, (1 << 30) + 1) && !is_zero(1 << 20, 1 << 40));
        assert!(is_zero((1 << 30) + 4, (1 << 40) - (1 << 30) - 4), "zeros in the page of the data");
    }
}
