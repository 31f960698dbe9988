//! Payload: random bytes, or the digits that iperf 2 sends; in a buffer, or in pages for sendfile.

use std::io;

use lfn_sys::pages::Pages;

/// Bytes of one block.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    /// The same bytes, for sending without copies.
    pub(super) pages: Option<Pages>,
}

impl Payload {
    pub(super) fn new(length: usize, repeating: bool, in_pages: bool) -> io::Result<Self> {
        let mut bytes: Vec<u8> = b"0123456789".iter().copied().cycle().take(length).collect();
        if !repeating {
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        }
        let pages = in_pages.then(|| Pages::new(&bytes)).transpose()?;
        Ok(Payload { bytes, pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeating_payload_is_digits() {
        assert_eq!(Payload::new(12, true, false).unwrap().bytes, b"012345678901");
        let payload = Payload::new(4096, false, true).unwrap();
        assert!(payload.pages.is_some());
        assert!(payload.bytes.iter().any(|byte| !byte.is_ascii_digit()));
    }
}
