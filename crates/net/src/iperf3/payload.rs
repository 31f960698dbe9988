//! What is sent: bytes without a pattern, or the digits iperf 2 sent; in memory, or in a file of memory for sendfile.

use std::fs::File;
use std::io::{self, Write};

use rustix::fs::{MemfdFlags, memfd_create};

/// One block's worth of bytes.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    /// The same bytes, where they are sent without copying.
    pub(super) file: Option<File>,
}

impl Payload {
    pub(super) fn new(length: usize, repeating: bool, in_file: bool) -> io::Result<Self> {
        let mut bytes: Vec<u8> = b"0123456789".iter().copied().cycle().take(length).collect();
        if !repeating {
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        }
        let file = match in_file {
            true => Some(file_of(&bytes)?),
            false => None,
        };
        Ok(Payload { bytes, file })
    }
}

fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("lfn-payload", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeating_payload_is_digits_and_the_other_is_not() {
        assert_eq!(Payload::new(12, true, false).unwrap().bytes, b"012345678901");
        let payload = Payload::new(4096, false, true).unwrap();
        assert_eq!(payload.file.unwrap().metadata().unwrap().len(), 4096);
        assert!(payload.bytes.iter().any(|byte| !byte.is_ascii_digit()));
    }
}
