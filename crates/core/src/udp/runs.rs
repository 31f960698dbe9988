//! How often each length came: of loss bursts (RFC 3357's loss periods), of reordering extents (RFC 4737 §4.2).
//!
//! Lengths to 16 are counted one by one, longer ones between powers of two: what a hostile peer can make of it stays
//! small.

use serde::{Deserialize, Serialize};

const EXACT: u64 = 16;
/// 17..=32, 33..=64 … to 2^64.
const WIDE: usize = 60;

/// Counts of lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    counts: [u64; EXACT as usize + WIDE],
    longest: u64,
}

/// How many were of these lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunCount {
    /// From this length
    pub from: u64,
    /// to this one.
    pub to: u64,
    /// So many.
    pub count: u64,
}

impl Default for Runs {
    fn default() -> Self {
        Runs { counts: [0; EXACT as usize + WIDE], longest: 0 }
    }
}

impl Runs {
    /// Counts one; one of no length is none.
    pub fn add(&mut self, length: u64) {
        if length == 0 {
            return;
        }
        self.longest = self.longest.max(length);
        let count = &mut self.counts[place(length)];
        *count = count.saturating_add(1);
    }

    /// The longest.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// The lengths that came.
    pub fn counts(&self) -> Vec<RunCount> {
        let all = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(place, &count)| {
            let (from, to) = lengths(place);
            RunCount { from, to, count }
        })
        .collect()
    }
}

fn place(length: u64) -> usize {
    if length <= EXACT {
        return length as usize - 1;
    }
    // 17..=32 is 5 bits of length - 1.
    let bits = u64::BITS - (length - 1).leading_zeros();
    EXACT as usize + bits as usize - 5
}

fn lengths(place: usize) -> (u64, u64) {
    let place = place as u64;
    if place < EXACT {
        return (place + 1, place + 1);
    }
    let bits = place - EXACT + 5;
    let to = if bits >= 64 { u64::MAX } else { 1 << bits };
    ((1 << (bits - 1)) + 1, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_one_place() {
        let near_powers = (5..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for length in (1..100).chain(near_powers).chain([u64::MAX]) {
            let mut runs = Runs::default();
            runs.add(length);
            let [count] = runs.counts()[..] else { panic!("{length}") };
            assert!((count.from..=count.to).contains(&length) && count.count == 1, "{length}: {count:?}");
            assert_eq!(runs.longest(), length);
        }
        assert_eq!(lengths(0), (1, 1));
        assert_eq!(lengths(16), (17, 32));
        assert_eq!(lengths(17), (33, 64));
    }
}
