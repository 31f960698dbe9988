//! Pitch and catch: when the blocks of a test left and arrived, and the figures of 1995 made of that.
//!
//! A block is a record of the test. Each end keeps a [`BlockTimes`] a stream as it goes, a handful of numbers however
//! many blocks there are; [`Caught`] lays those of a receiver together. The report of 1995 (000, Raw HiPPI Tests) gives
//! the delay until the first block, the fastest and the slowest block, and the rate with that delay and without it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::{optional_seconds, seconds};
use crate::units::{BitRate, Bytes};

/// The blocks of one stream as one end saw them; times count from its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BlockTimes {
    /// Whole blocks.
    pub blocks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// When the first was done.
    #[serde(rename = "first_seconds", with = "seconds")]
    pub first: Duration,
    /// When the last was done.
    #[serde(rename = "last_seconds", with = "seconds")]
    pub last: Duration,
    /// Bytes of the first one.
    pub first_bytes: u64,
    /// The block that took the least time for its length; absent of blocks that took none.
    #[serde(default, rename = "fastest_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub fastest: Option<BitRate>,
    /// The block that took the most.
    #[serde(default, rename = "slowest_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub slowest: Option<BitRate>,
}

impl BlockTimes {
    /// A block of `bytes` that took from `begin` to `end`.
    pub fn add(&mut self, begin: Duration, end: Duration, bytes: u64) {
        if self.blocks == 0 {
            (self.first, self.first_bytes) = (end, bytes);
        }
        self.blocks += 1;
        self.bytes += bytes;
        self.last = end;
        let took = end.saturating_sub(begin);
        // What took less than the clock can tell has no rate.
        if !took.is_zero() {
            let rate = Bytes(bytes).per(took);
            self.fastest = self.fastest.max(Some(rate));
            self.slowest = Some(self.slowest.map_or(rate, |slowest| slowest.min(rate)));
        }
    }

    /// A block that a receiver had whole at `now`. It took since the one before; what the first took cannot be told
    /// from its delay, and so has no rate.
    pub fn caught(&mut self, now: Duration, bytes: u64) {
        let begin = if self.blocks == 0 { now } else { self.last };
        self.add(begin, now, bytes);
    }
}

/// What a receiver caught of all streams.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Caught {
    /// Whole blocks.
    pub blocks: u64,
    /// From the sender's start to the first block whole at the receiver; null where the sender's start is known less well
    /// than that.
    #[serde(rename = "first_delay_seconds", default, with = "optional_seconds")]
    pub first_delay: Option<Duration>,
    /// The block that took the least time since the one before it in its stream.
    #[serde(rename = "fastest_bits_per_second")]
    pub fastest: Option<BitRate>,
    /// The one that took the most.
    #[serde(rename = "slowest_bits_per_second")]
    pub slowest: Option<BitRate>,
    /// All blocks over all the time from the sender's start to the last block.
    #[serde(rename = "with_delay_bits_per_second")]
    pub with_delay: Option<BitRate>,
    /// What came after the first block over the time after it. (The report of 1995 left the first block among the bytes,
    /// which with 160 blocks is 0.6 % too much.)
    #[serde(rename = "without_delay_bits_per_second")]
    pub without_delay: Option<BitRate>,
}

impl Caught {
    /// Lays together the streams of a receiver, on whose clock the sender started at `start`.
    pub fn of<'a>(streams: impl Iterator<Item = &'a BlockTimes>, start: Start) -> Option<Caught> {
        let streams: Vec<_> = streams.filter(|times| times.blocks > 0).collect();
        let first = streams.iter().min_by_key(|times| times.first)?;
        let last = streams.iter().map(|times| times.last).max()?;
        let bytes: u64 = streams.iter().map(|times| times.bytes).sum();
        let rate = |bytes: u64, time: Duration| (!time.is_zero() && bytes > 0).then(|| Bytes(bytes).per(time));
        Some(Caught {
            blocks: streams.iter().map(|times| times.blocks).sum(),
            first_delay: start.until(first.first),
            fastest: streams.iter().filter_map(|times| times.fastest).max(),
            slowest: streams.iter().filter_map(|times| times.slowest).min(),
            with_delay: start
                .until(first.first)
                .and_then(|delay| rate(bytes, delay + last.saturating_sub(first.first))),
            without_delay: rate(bytes - first.first_bytes, last.saturating_sub(first.first)),
        })
    }
}

/// When the sender started, on the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// So long before the clock's zero.
    Before(Duration),
    /// So long after it.
    After(Duration),
}

impl Start {
    fn until(self, time: Duration) -> Option<Duration> {
        match self {
            Start::Before(before) => Some(time + before),
            Start::After(after) => time.checked_sub(after).filter(|time| !time.is_zero()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_figures_of_1995_come_out() {
        // 000: block length, delay in µs, rate with it and without it in Mb/s; 10,485,760 bytes each.
        for (block, delay, with, without) in
            [(32_768u64, 20_876, 87.733, 89.691), (32_768, 19_809, 91.847, 93.883), (65_536, 21_504, 109.334, 112.486)]
        {
            let whole = 10_485_760u64;
            let first = Duration::from_micros(delay);
            let end = Duration::from_secs_f64(whole as f64 * 8.0 / (with * 1e6));
            let mut times = BlockTimes::default();
            let blocks = u32::try_from(whole / block).unwrap();
            (0..blocks).for_each(|n| times.caught(first + (end - first) * n / (blocks - 1), block));
            let caught = Caught::of([times].iter(), Start::After(Duration::ZERO)).unwrap();
            assert_eq!((caught.blocks, caught.first_delay), (u64::from(blocks), Some(first)));
            assert!((caught.with_delay.unwrap().as_f64() / (with * 1e6) - 1.0).abs() < 1e-5);
            // As they counted: with the first block among the bytes.
            let ours = caught.without_delay.unwrap().as_f64();
            let theirs = ours * whole as f64 / (whole - block) as f64;
            assert!((theirs / (without * 1e6) - 1.0).abs() < 1e-4, "{theirs} for {without}");
        }
    }

    #[test]
    fn fastest_and_slowest_are_of_single_blocks() {
        let mut times = BlockTimes::default();
        for at in [100, 101, 103, 104] {
            times.caught(MS * at, 1000);
        }
        let mut other = BlockTimes::default();
        [90, 100].iter().for_each(|&at| other.caught(MS * at, 1000));
        let caught = Caught::of([times, other, BlockTimes::default()].iter(), Start::Before(MS * 10)).unwrap();
        assert_eq!((caught.fastest, caught.slowest), (Some(BitRate(8_000_000)), Some(BitRate(800_000))));
        assert_eq!(caught.first_delay, Some(MS * 100), "of the stream that was first");
        assert_eq!(caught.with_delay, Some(Bytes(6000).per(MS * 114)));
        assert_eq!(caught.without_delay, Some(Bytes(5000).per(MS * 14)));
    }

    #[test]
    fn one_block_or_none_has_no_rates_beyond_its_delay() {
        assert_eq!(Caught::of([BlockTimes::default()].iter(), Start::After(MS)), None);
        let mut times = BlockTimes::default();
        times.caught(MS * 5, 1000);
        let caught = Caught::of([times].iter(), Start::After(MS)).unwrap();
        assert_eq!((caught.first_delay, caught.fastest, caught.without_delay), (Some(MS * 4), None, None));
        // Two at the same instant of a coarse clock.
        times.caught(MS * 5, 1000);
        assert_eq!(Caught::of([times].iter(), Start::After(MS)).unwrap().fastest, None);
        // A clock that puts the start after the arrival.
        let odd = Caught::of([times].iter(), Start::After(MS * 9)).unwrap();
        assert_eq!((odd.first_delay, odd.with_delay), (None, None));
    }
}
