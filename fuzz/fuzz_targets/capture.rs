//! Any file as a capture: read to its end, and each frame decoded. Checks the bounds of the reader and of the decoder.

#![no_main]

use std::io::{self, Read};

use lfn_packet::capture::{CaptureReader, MAX_INTERFACES};
use lfn_packet::decode::{Decoded, decode};
use lfn_packet::{LinkLayer, MAX_SACK_RANGES};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes);
    // The size of the reads changes nothing.
    assert_eq!(whole, read(Bytewise(bytes)));
    // The bytes as one frame of each link layer.
    for number in [0, 1, 9, 101, 113, 228, 229, 276, 7] {
        check(LinkLayer::from_number(number), bytes, bytes.len() as u32);
    }
});

/// Reads a file, decodes its frames, and returns the number of frames with the message of an error.
fn read(input: impl Read) -> (u64, Option<String>) {
    let mut reader = match CaptureReader::new(input) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(error.to_string())),
    };
    let mut frames = 0;
    let error = loop {
        match reader.next() {
            Ok(Some(frame)) => {
                frames += 1;
                assert_eq!(frame.number, frames);
                assert!(frame.original_length as usize >= frame.bytes.len());
                check(frame.link, frame.bytes, frame.original_length);
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    assert!(matches!(reader.next(), Ok(None)));
    assert!(reader.interfaces().len() <= MAX_INTERFACES);
    (frames, error)
}

/// The same bytes give the same packet, and its ranges and length are bounded.
fn check(link: LinkLayer, bytes: &[u8], original_length: u32) {
    let decoded = decode(link, bytes, original_length);
    if let Decoded::Tcp(segment) = decoded.packet {
        assert!(segment.options.sack().len() <= MAX_SACK_RANGES);
        // A segment has a whole header of TCP, after a header of IP.
        assert!(bytes.len() >= 40);
    }
    assert_eq!(decode(link, bytes, original_length), decoded);
}

/// Reader that returns one byte at a time.
struct Bytewise<'a>(&'a [u8]);

impl Read for Bytewise<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(1);
        self.0.read(&mut out[..count])
    }
}
