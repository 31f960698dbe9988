//! Block timings: when the blocks of a test were sent and received, and the figures of the 1995 report.
//!
//! A block is a record of the test. Each end keeps one [`BlockTimes`] per stream while the test runs: a few numbers,
//! independent of the number of blocks. [`ReceivedBlocks`] combines the streams of a receiver. The report of 1995 (000,
//! Raw HiPPI Tests) gives the delay until the first block, the fastest and the slowest block, and the rate with and
//! without this delay.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

/// The blocks of one stream at one end; times count from the start of that end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct BlockTimes {
    /// Number of complete blocks.
    pub blocks: u64,
    /// Bytes of the complete blocks.
    pub bytes: u64,
    /// Completion time of the first block.
    #[serde(rename = "first_seconds", with = "seconds")]
    pub first: Duration,
    /// Completion time of the last block.
    #[serde(rename = "last_seconds", with = "seconds")]
    pub last: Duration,
    /// Bytes of the first block.
    pub first_bytes: u64,
    /// Rate of the fastest block; absent if no block took measurable time.
    #[serde(default, rename = "fastest_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub fastest: Option<BitRate>,
    /// Rate of the slowest block.
    #[serde(default, rename = "slowest_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub slowest: Option<BitRate>,
}

impl BlockTimes {
    /// Records a block of `bytes` that took from `begin` to `end`.
    pub fn record(&mut self, begin: Duration, end: Duration, bytes: u64) {
        if self.blocks == 0 {
            (self.first, self.first_bytes) = (end, bytes);
        }
        self.blocks += 1;
        self.bytes += bytes;
        self.last = end;
        let took = end.saturating_sub(begin);
        // A time below the resolution of the clock gives no rate.
        if !took.is_zero() {
            let rate = Bytes(bytes).per(took);
            self.fastest = self.fastest.max(Some(rate));
            self.slowest = Some(self.slowest.map_or(rate, |slowest| slowest.min(rate)));
        }
    }

    /// Records a block that the receiver completed at `now`. The block took the time since the previous one. The first
    /// block has no rate, because its own time cannot be separated from the delay.
    pub fn record_received(&mut self, now: Duration, bytes: u64) {
        let begin = if self.blocks == 0 { now } else { self.last };
        self.record(begin, now, bytes);
    }
}

/// Block figures of a receiver over all streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReceivedBlocks {
    /// Number of complete blocks.
    pub blocks: u64,
    /// Time from the sender's start to the first complete block at the receiver. Null if the sender's start is known
    /// less accurately than this time.
    #[serde(rename = "first_delay_seconds", default, with = "optional_seconds")]
    pub first_delay: Option<Duration>,
    /// Rate of the block with the shortest time since the previous block of its stream.
    #[serde(rename = "fastest_bits_per_second")]
    pub fastest: Option<BitRate>,
    /// Rate of the block with the longest time since the previous block.
    #[serde(rename = "slowest_bits_per_second")]
    pub slowest: Option<BitRate>,
    /// All blocks over the time from the sender's start to the last block.
    #[serde(rename = "with_delay_bits_per_second")]
    pub with_delay: Option<BitRate>,
    /// All blocks after the first, over the time after the first. (The report of 1995 counted the bytes of the first
    /// block too, which is 0.6 % too much with 160 blocks.)
    #[serde(rename = "without_delay_bits_per_second")]
    pub without_delay: Option<BitRate>,
}

impl ReceivedBlocks {
    /// Combines the streams of a receiver. `start` is the sender's start on the receiver's clock.
    pub fn from_streams<'a>(
        streams: impl Iterator<Item = &'a BlockTimes>,
        start: SenderStart,
    ) -> Option<ReceivedBlocks> {
        let streams: Vec<_> = streams.filter(|times| times.blocks > 0).collect();
        let first = streams.iter().min_by_key(|times| times.first)?;
        let last = streams.iter().map(|times| times.last).max()?;
        let bytes: u64 = streams.iter().map(|times| times.bytes).sum();
        let rate = |bytes: u64, time: Duration| (!time.is_zero() && bytes > 0).then(|| Bytes(bytes).per(time));
        Some(ReceivedBlocks {
            blocks: streams.iter().map(|times| times.blocks).sum(),
            first_delay: start.time_until(first.first),
            fastest: streams.iter().filter_map(|times| times.fastest).max(),
            slowest: streams.iter().filter_map(|times| times.slowest).min(),
            with_delay: start
                .time_until(first.first)
                .and_then(|delay| rate(bytes, delay + last.saturating_sub(first.first))),
            without_delay: rate(bytes - first.first_bytes, last.saturating_sub(first.first)),
        })
    }
}

/// The sender's start on the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderStart {
    /// Time before zero of the clock.
    Before(Duration),
    /// Time after zero of the clock.
    After(Duration),
}

impl SenderStart {
    fn time_until(self, time: Duration) -> Option<Duration> {
        match self {
            SenderStart::Before(before) => Some(time + before),
            SenderStart::After(after) => time.checked_sub(after).filter(|time| !time.is_zero()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn figures_of_1995_are_reproduced() {
        // Report 000: block length, delay in µs, rates with and without it in Mb/s; 10,485,760 bytes each.
        for (block, delay, with, without) in
            [(32_768u64, 20_876, 87.733, 89.691), (32_768, 19_809, 91.847, 93.883), (65_536, 21_504, 109.334, 112.486)]
        {
            let whole = 10_485_760u64;
            let first = Duration::from_micros(delay);
            let end = Duration::from_secs_f64(whole as f64 * 8.0 / (with * 1e6));
            let mut times = BlockTimes::default();
            let blocks = u32::try_from(whole / block).unwrap();
            (0..blocks).for_each(|n| times.record_received(first + (end - first) * n / (blocks - 1), block));
            let caught = ReceivedBlocks::from_streams([times].iter(), SenderStart::After(Duration::ZERO)).unwrap();
            assert_eq!((caught.blocks, caught.first_delay), (u64::from(blocks), Some(first)));
            assert!((caught.with_delay.unwrap().as_f64() / (with * 1e6) - 1.0).abs() < 1e-5);
            // The report counts the first block among the bytes.
            let ours = caught.without_delay.unwrap().as_f64();
            let theirs = ours * whole as f64 / (whole - block) as f64;
            assert!((theirs / (without * 1e6) - 1.0).abs() < 1e-4, "{theirs} for {without}");
        }
    }

    #[test]
    fn fastest_and_slowest_are_single_blocks() {
        let mut times = BlockTimes::default();
        for at in [100, 101, 103, 104] {
            times.record_received(MS * at, 1000);
        }
        let mut other = BlockTimes::default();
        [90, 100].iter().for_each(|&at| other.record_received(MS * at, 1000));
        let caught =
            ReceivedBlocks::from_streams([times, other, BlockTimes::default()].iter(), SenderStart::Before(MS * 10))
                .unwrap();
        assert_eq!((caught.fastest, caught.slowest), (Some(BitRate(8_000_000)), Some(BitRate(800_000))));
        assert_eq!(caught.first_delay, Some(MS * 100), "of the earliest stream");
        assert_eq!(caught.with_delay, Some(Bytes(6000).per(MS * 114)));
        assert_eq!(caught.without_delay, Some(Bytes(5000).per(MS * 14)));
    }

    #[test]
    fn single_block_has_only_a_delay() {
        assert_eq!(ReceivedBlocks::from_streams([BlockTimes::default()].iter(), SenderStart::After(MS)), None);
        let mut times = BlockTimes::default();
        times.record_received(MS * 5, 1000);
        let caught = ReceivedBlocks::from_streams([times].iter(), SenderStart::After(MS)).unwrap();
        assert_eq!((caught.first_delay, caught.fastest, caught.without_delay), (Some(MS * 4), None, None));
        // Two blocks at the same instant of a coarse clock.
        times.record_received(MS * 5, 1000);
        assert_eq!(ReceivedBlocks::from_streams([times].iter(), SenderStart::After(MS)).unwrap().fastest, None);
        // A clock that puts the start after the arrival.
        let odd = ReceivedBlocks::from_streams([times].iter(), SenderStart::After(MS * 9)).unwrap();
        assert_eq!((odd.first_delay, odd.with_delay), (None, None));
    }
}
