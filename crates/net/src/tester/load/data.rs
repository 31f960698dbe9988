//! Which bytes a stream carries, and whether those that came are the ones.
//!
//! Unchecked, every record is the same buffer, made once. Checked, every byte is a function of its place and of the
//! stream's number: what is altered, lost, doubled or moved to another place or stream on the way is seen. Zeros are
//! zeros everywhere, so of those only what was altered is seen.

use lfn_core::transfer::content::{fill_random, random_differs};
use lfn_core::wire::test::{Check, Data};

use super::Shared;

/// What the sender sends.
#[derive(Debug)]
pub(super) struct Records {
    buffer: Vec<u8>,
    /// Of streams whose bytes differ from place to place.
    seed: Option<u64>,
    /// Where the buffer's content stands.
    at: Option<u64>,
}

impl Records {
    pub(super) fn new(shared: &Shared, stream: u16) -> Self {
        let mut buffer = vec![0; shared.record];
        if shared.data == Data::Random {
            fill_random(seed(stream), 0, &mut buffer);
        }
        let seed = (shared.check && shared.data == Data::Random).then(|| seed(stream));
        Records { buffer, seed, at: None }
    }

    /// The record of this length at this place.
    pub(super) fn at(&mut self, at: u64, length: usize) -> &[u8] {
        if let (Some(seed), true) = (self.seed, self.at != Some(at)) {
            fill_random(seed, at, &mut self.buffer[..length]);
            self.at = Some(at);
        }
        &self.buffer[..length]
    }
}

/// What the receiver should see.
#[derive(Debug)]
pub(super) struct Expected {
    check: Option<Check>,
    data: Data,
    seed: u64,
}

impl Expected {
    pub(super) fn new(shared: &Shared, stream: u16) -> Self {
        Expected { check: shared.check.then(Check::default), data: shared.data, seed: seed(stream) }
    }

    /// Looks at what stands at this place.
    pub(super) fn look(&mut self, at: u64, bytes: &[u8]) {
        let Some(check) = &mut self.check else { return };
        let found = match self.data {
            Data::Random => random_differs(self.seed, at, bytes),
            Data::Zero => bytes
                .iter()
                .position(|&byte| byte != 0)
                .map(|first| (first, bytes.iter().filter(|&&byte| byte != 0).count())),
        };
        check.add(at, bytes.len(), found);
    }

    pub(super) fn found(self) -> Option<Check> {
        self.check
    }
}

fn seed(stream: u16) -> u64 {
    // Far apart, so that one stream's bytes are not another's some words on.
    u64::from(stream).wrapping_add(1).wrapping_mul(0xd134_2543_de82_ef95)
}
