//! What is sent: bytes without a pattern, or the digits iperf 2 sent; copied, or in pages for sendfile.

use std::io;

use lfn_sys::pages::Pages;

/// One block's worth of bytes.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) bytes: Vec<u8>,
    /// The same bytes, where they are sent without copying.
    pub(super) pages: Option<Pages>,
}

impl Payload {
    pub(super) fn new(length: usize, repeating: bool, in_pages: bool) -> io::Result<Self> {
        let mut bytes: Vec<u8> = b"0123456789".iter().copied().cycle().take(length).collect();
        if !repeating {
            getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        }
        let pages = in_pages.then(|| Pages::holding(&bytes)).transpose()?;
        Ok(Payload { bytes, pages })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeating_payload_is_digits_and_the_other_is_not() {
        assert_eq!(Payload::new(12, true, false).unwrap().bytes, b"012345678901");
        let payload = Payload::new(4096, false, true).unwrap();
        assert!(payload.pages.is_some());
        assert!(payload.bytes.iter().any(|byte| !byte.is_ascii_digit()));
    }
}
