//! Counts of lengths: of loss bursts (loss periods of RFC 3357) and of reordering extents (RFC 4737 §4.2).
//!
//! Lengths up to 16 have their own counters; longer ones are counted between powers of two. So a hostile peer cannot
//! make the counts large.

use lfn_results::udp::figures::RunCount;

const MAX_EXACT: u64 = 16;
/// 17..=32, 33..=64 … up to 2^64.
const WIDE_BUCKETS: usize = 60;

/// Counters by run length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    counts: [u64; MAX_EXACT as usize + WIDE_BUCKETS],
    longest: u64,
}

impl Default for Runs {
    fn default() -> Self {
        Runs { counts: [0; MAX_EXACT as usize + WIDE_BUCKETS], longest: 0 }
    }
}

impl Runs {
    /// Counts a run; a length of zero is ignored.
    pub fn add(&mut self, length: u64) {
        if length == 0 {
            return;
        }
        self.longest = self.longest.max(length);
        let count = &mut self.counts[bucket(length)];
        *count = count.saturating_add(1);
    }

    /// Returns the longest run.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns the non-zero counts.
    pub fn counts(&self) -> Vec<RunCount> {
        let all = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(bucket, &count)| {
            let (from, to) = bucket_range(bucket);
            RunCount { from, to, count }
        })
        .collect()
    }
}

fn bucket(length: u64) -> usize {
    if length <= MAX_EXACT {
        return length as usize - 1;
    }
    // 17..=32 has 5 bits of length - 1.
    let bits = u64::BITS - (length - 1).leading_zeros();
    MAX_EXACT as usize + bits as usize - 5
}

fn bucket_range(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < MAX_EXACT {
        return (bucket + 1, bucket + 1);
    }
    let bits = bucket - MAX_EXACT + 5;
    let to = if bits >= 64 { u64::MAX } else { 1 << bits };
    ((1 << (bits - 1)) + 1, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_one_bucket() {
        let near_powers = (5..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for length in (1..100).chain(near_powers).chain([u64::MAX]) {
            let mut runs = Runs::default();
            runs.add(length);
            let [count] = runs.counts()[..] else { panic!("{length}") };
            assert!((count.from..=count.to).contains(&length) && count.count == 1, "{length}: {count:?}");
            assert_eq!(runs.longest(), length);
        }
        assert_eq!(bucket_range(0), (1, 1));
        assert_eq!(bucket_range(16), (17, 32));
        assert_eq!(bucket_range(17), (33, 64));
    }
}
