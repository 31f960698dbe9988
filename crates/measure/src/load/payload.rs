//! Payload of a stream, and its verification.
//!
//! Without verification every block is the same buffer, filled once. With verification every byte is a function of its
//! position and of the stream's number. Altered, lost, duplicated and misplaced bytes are then detected, also bytes of
//! another stream. With zeros as payload only altered bytes are detected.

use std::io;

use lfn_base::random_data::{compare_random, fill_random};
use lfn_results::measure::PayloadCheck;

use super::state::{LoadState, PayloadKind};

/// Source of the sender's blocks.
#[derive(Debug)]
pub(super) struct PayloadSource {
    buffer: Vec<u8>,
    /// Seed of position-dependent payload.
    seed: Option<u64>,
    /// Position of the buffer's content.
    at: Option<u64>,
}

impl PayloadSource {
    pub(super) fn new(load: &LoadState, stream: u16) -> io::Result<Self> {
        let buffer = fill_payload(load.options.payload, load.options.block_bytes, stream)?;
        let seed = (load.options.check && load.options.payload == PayloadKind::Seeded).then(|| seed(stream));
        Ok(PayloadSource { buffer, seed, at: None })
    }

    /// Returns the block of this length at this position.
    pub(super) fn at(&mut self, at: u64, length: usize) -> &[u8] {
        if let (Some(seed), true) = (self.seed, self.at != Some(at)) {
            fill_random(seed, at, &mut self.buffer[..length]);
            self.at = Some(at);
        }
        &self.buffer[..length]
    }
}

/// Returns the first `length` bytes of a stream's payload.
pub(crate) fn fill_payload(kind: PayloadKind, length: usize, stream: u16) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    match kind {
        PayloadKind::Zero => {}
        PayloadKind::Seeded => fill_random(seed(stream), 0, &mut bytes),
        PayloadKind::Unpredictable => getrandom::fill(&mut bytes).map_err(io::Error::other)?,
        PayloadKind::Digits => {
            bytes.iter_mut().zip(b"0123456789".iter().cycle()).for_each(|(byte, &digit)| *byte = digit)
        }
    }
    Ok(bytes)
}

/// Verifies the received payload.
#[derive(Debug)]
pub(super) struct PayloadVerifier {
    check: Option<PayloadCheck>,
    kind: PayloadKind,
    seed: u64,
}

impl PayloadVerifier {
    pub(super) fn new(load: &LoadState, stream: u16) -> Self {
        let options = &load.options;
        PayloadVerifier { check: options.check.then(PayloadCheck::default), kind: options.payload, seed: seed(stream) }
    }

    /// Compares bytes with the payload of this position.
    pub(super) fn verify(&mut self, at: u64, bytes: &[u8]) {
        let Some(check) = &mut self.check else { return };
        let found = match self.kind {
            // Only the tests of this program verify payload, and they send no other kinds.
            PayloadKind::Seeded | PayloadKind::Unpredictable | PayloadKind::Digits => {
                compare_random(self.seed, at, bytes)
            }
            PayloadKind::Zero => bytes
                .iter()
                .position(|&byte| byte != 0)
                .map(|first| (first, bytes.iter().filter(|&&byte| byte != 0).count())),
        };
        check.add(at, bytes.len(), found);
    }

    pub(super) fn result(self) -> Option<PayloadCheck> {
        self.check
    }
}

fn seed(stream: u16) -> u64 {
    // The seeds are far apart, so that one stream's bytes are not a shifted copy of another stream's.
    u64::from(stream).wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_payload_have_their_bytes() {
        let fill = |kind| fill_payload(kind, 4096, 1).unwrap();
        assert_eq!(fill(PayloadKind::Digits)[..12], *b"012345678901");
        assert!(fill(PayloadKind::Zero).iter().all(|&byte| byte == 0));
        assert_eq!(fill(PayloadKind::Seeded), fill(PayloadKind::Seeded));
        assert_ne!(fill(PayloadKind::Unpredictable), fill(PayloadKind::Unpredictable));
    }
}
