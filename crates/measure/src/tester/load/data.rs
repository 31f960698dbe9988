//! Payload of a stream, and its verification.
//!
//! Without verification every record is the same buffer, filled once. With verification every byte is a function of its
//! position and of the stream's number. Altered, lost, duplicated and misplaced bytes are then detected, also bytes of
//! another stream. With zeros as payload only altered bytes are detected.

use lfn_base::random_data::{compare_random, fill_random};
use lfn_results::measure::{PayloadCheck, PayloadData};

use super::LoadState;

/// Source of the sender's records.
#[derive(Debug)]
pub(super) struct PayloadSource {
    buffer: Vec<u8>,
    /// Seed of position-dependent payload.
    seed: Option<u64>,
    /// Position of the buffer's content.
    at: Option<u64>,
}

impl PayloadSource {
    pub(super) fn new(shared: &LoadState, stream: u16) -> Self {
        let mut buffer = vec![0; shared.record_bytes];
        if shared.data == PayloadData::Random {
            fill_random(seed(stream), 0, &mut buffer);
        }
        let seed = (shared.check && shared.data == PayloadData::Random).then(|| seed(stream));
        PayloadSource { buffer, seed, at: None }
    }

    /// Returns the record of this length at this position.
    pub(super) fn at(&mut self, at: u64, length: usize) -> &[u8] {
        if let (Some(seed), true) = (self.seed, self.at != Some(at)) {
            fill_random(seed, at, &mut self.buffer[..length]);
            self.at = Some(at);
        }
        &self.buffer[..length]
    }
}

/// Verifies the received payload.
#[derive(Debug)]
pub(super) struct PayloadVerifier {
    check: Option<PayloadCheck>,
    data: PayloadData,
    seed: u64,
}

impl PayloadVerifier {
    pub(super) fn new(shared: &LoadState, stream: u16) -> Self {
        PayloadVerifier { check: shared.check.then(PayloadCheck::default), data: shared.data, seed: seed(stream) }
    }

    /// Compares bytes with the payload of this position.
    pub(super) fn verify(&mut self, at: u64, bytes: &[u8]) {
        let Some(check) = &mut self.check else { return };
        let found = match self.data {
            PayloadData::Random => compare_random(self.seed, at, bytes),
            PayloadData::Zero => bytes
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
