//! What a link is set to, and which settings are refused.
//!
//! One flat record a direction. Whoever reads flags or profiles fills it in; the chain is made from it in
//! [`Link::new`](super::Link::new), which is the one place that knows the order of the stages.

use std::time::Duration;

use crate::time::Instant;
use crate::units::{BitRate, Bytes, Ratio, show_duration};

/// Settings of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Line rate, counted in the bytes of the frames as `tc` counts them (Ethernet header, no checksum, no preamble).
    pub rate: BitRate,
    /// One-way delay, added after the last bit was sent.
    pub delay: Duration,
    /// Most bytes in the queue, the packet being sent included until its last bit is sent. So nothing waits longer than
    /// this takes to send; a packet that finds the link idle is always taken.
    pub queue: Bytes,
    /// Probability that a virtual packet is lost, each independently of the others.
    pub loss: Ratio,
    /// Seeds every generator; same seed and arrivals, same drops.
    pub seed: u64,
    /// Keeps the generators of the two directions apart.
    pub direction: Direction,
    /// Keeps the generators of links in a row, and beside each other, apart.
    pub hop: u32,
    /// When timetables begin.
    pub epoch: Instant,
    /// Most line time the virtual packets of one range take together: super-packets are cut to it. Zero cuts every
    /// super-packet into single packets.
    pub slice: Duration,
}

/// Which way a link carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the near side to the far side.
    #[default]
    Forward,
    /// From the far side back.
    Return,
}

/// Why a link cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nothing would ever leave. Give the line rate of the path.
    #[error("a link rate of 0 b/s never sends a packet")]
    ZeroRate,
    /// Faster than any line; most likely a slip of the unit.
    #[error("link rate {0} is above {most}", most = MOST_RATE)]
    RateTooHigh(BitRate),
    /// Longer than any path on or near the earth; most likely a slip of the unit.
    #[error("one-way delay {} is above {}", show_duration(*.0), show_duration(MOST_DELAY))]
    DelayTooLong(Duration),
    /// The last packet in a full queue would wait longer than anyone does. Give a smaller queue or a higher rate.
    #[error("a queue of {queue} takes more than {} to send at {rate}", show_duration(MOST_WAIT))]
    QueueTooLong {
        /// What was set.
        queue: Bytes,
        /// The rate it is sent at.
        rate: BitRate,
    },
    /// Slices so long would hold packets back for seconds.
    #[error("a slice of {} is above {}", show_duration(*.0), show_duration(MOST_SLICE))]
    SliceTooLong(Duration),
}

/// 10 Tb/s: a thousand times what one machine forwards, for virtual time.
const MOST_RATE: BitRate = BitRate(10_000_000_000_000);
/// Light takes 22 minutes from Mars at its farthest.
const MOST_DELAY: Duration = Duration::from_secs(3600);
const MOST_WAIT: Duration = Duration::from_secs(86_400);
const MOST_SLICE: Duration = Duration::from_secs(1);

impl Default for LinkConfig {
    /// Gigabit Ethernet with a shallow switch queue; no delay, no loss, slices of 150 µs: one 1,514-byte packet up to
    /// 161 Mb/s, a whole 64 KiB super-packet from 3.6 Gb/s.
    fn default() -> Self {
        LinkConfig {
            rate: BitRate(1_000_000_000),
            delay: Duration::ZERO,
            queue: Bytes(512 * 1024),
            loss: Ratio::default(),
            seed: 0,
            direction: Direction::Forward,
            hop: 0,
            epoch: Instant::ZERO,
            slice: Duration::from_micros(150),
        }
    }
}

impl LinkConfig {
    /// Refuses what the chain cannot carry.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        if self.rate.0 == 0 {
            return Err(LinkError::ZeroRate);
        }
        if self.rate > MOST_RATE {
            return Err(LinkError::RateTooHigh(self.rate));
        }
        if self.delay > MOST_DELAY {
            return Err(LinkError::DelayTooLong(self.delay));
        }
        if self.rate.time_for(self.queue) > MOST_WAIT {
            return Err(LinkError::QueueTooLong { queue: self.queue, rate: self.rate });
        }
        if self.slice > MOST_SLICE {
            return Err(LinkError::SliceTooLong(self.slice));
        }
        Ok(())
    }
}
