//! What a link is set to, and which settings are refused.
//!
//! One flat record a direction. Whoever reads flags or profiles fills it in; the chain is made from it in
//! [`Link::new`](super::Link::new), which is the one place that knows the order of the stages.

use std::time::Duration;

use super::stages::{Jitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use super::varying::{Varying, VaryingError};
use super::{Discipline, DisciplineError, QueueLimit};
use crate::framing::Layer;
use crate::time::Instant;
use crate::units::{BitRate, Bytes, Ratio, show_duration};

/// Settings of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Line rate, counted in bytes of `layer`. It may be zero in a step of a timetable: the line stands still until the
    /// next.
    pub rate: Varying<BitRate>,
    /// Where the bytes of the line are counted: what each virtual packet adds to its IP length on it. The usual one
    /// counts frames as `tc` does (Ethernet header, no checksum, no preamble).
    pub layer: Layer,
    /// One-way delay, added after the last bit was sent, as of then.
    pub delay: Varying<Duration>,
    /// How the delay differs from packet to packet.
    pub jitter: Jitter,
    /// Most in the queue, the packet being sent included until its last bit is sent. So nothing waits longer than this
    /// takes to send; a packet that finds the link idle is always taken.
    pub queue: QueueLimit,
    /// What the queue does with what waits.
    pub discipline: Discipline,
    /// Whether the discipline marks packets that are ECN-capable instead of dropping them (RFC 3168). A full queue drops
    /// all the same.
    pub ecn: bool,
    /// Longer IP packets do not pass; without it all do.
    pub path_mtu: Option<PathMtu>,
    /// When the link is down.
    pub outage: Outages,
    /// Which virtual packets are lost.
    pub loss: LossModel,
    /// Drops what exceeds a rate and a burst.
    pub policer: Option<Policer>,
    /// Delays what exceeds a rate and a burst, ahead of the line and its queue.
    pub shaper: Option<Shaper>,
    /// Which packets are held back until others have passed them.
    pub reorder: Reorder,
    /// Probability that a virtual packet comes out twice, the copy at once after it.
    pub duplicate: Ratio,
    /// Probability that a bit of a virtual packet is flipped where a checksum tells the receiver.
    pub corrupt: Ratio,
    /// Probability that a bit of a virtual packet's payload is flipped and the checksum made right again, so that only the
    /// application can tell. Packets without payload are left alone, whole frames of other protocols too.
    pub corrupt_hidden: Ratio,
    /// The longest packet that comes, with its Ethernet header: what CoDel takes for no queue yet, and what a queue limited
    /// in packets must have the memory for.
    pub largest_packet: Bytes,
    /// Seeds every generator; same seed and arrivals, same drops.
    pub seed: u64,
    /// Keeps the generators of the two directions apart.
    pub direction: Direction,
    /// Keeps the generators of links in a row, and beside each other, apart.
    pub hop: u32,
    /// When timetables begin.
    pub epoch: Instant,
    /// Most line time the virtual packets of one range take together: super-packets are cut to it. Zero cuts every
    /// super-packet into single packets. No more than two ranges a slice leave, on average, where super-packets come:
    /// whoever can forward `n` ranges a second wants at least `2/n`.
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

impl Direction {
    /// The opposite way.
    pub fn other(self) -> Direction {
        match self {
            Direction::Forward => Direction::Return,
            Direction::Return => Direction::Forward,
        }
    }
}

/// Why a link cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nothing would ever leave, or not from the last step of a timetable on. Give the line rate of the path.
    #[error("a link rate of 0 b/s never sends a packet")]
    ZeroRate,
    /// Faster than any line; most likely a slip of the unit.
    #[error("link rate {0} is above {most}", most = MOST_RATE)]
    RateTooHigh(BitRate),
    /// Longer than any path on or near the earth; most likely a slip of the unit.
    #[error("one-way delay {} is above {}", show_duration(*.0), show_duration(MOST_DELAY))]
    DelayTooLong(Duration),
    /// Longer than any path; most likely a slip of the unit.
    #[error("a jitter of {} is above {}", show_duration(*.0), show_duration(MOST_DELAY))]
    JitterTooLong(Duration),
    /// Such delays never change: add a constant to the delay instead.
    #[error("a jitter whose delays are all alike (a correlation of 100 %) is none")]
    JitterConstant,
    /// Nothing would ever be held back. Give a distance of at least 1.
    #[error("reordering by a distance of 0 packets has no meaning")]
    NoDistance,
    /// So long a wait is an outage.
    #[error("holding packets back for {} is above {}", show_duration(*.0), show_duration(MOST_HOLD))]
    HoldTooLong(Duration),
    /// The last packet in a full queue would wait longer than anyone does. Give a smaller queue or a higher rate.
    #[error("a queue of {queue} takes more than {} to send at {rate}", show_duration(MOST_WAIT))]
    QueueTooLong {
        /// What was set.
        queue: QueueLimit,
        /// The rate it is sent at.
        rate: BitRate,
    },
    /// The discipline cannot work with these parameters, or not with this queue.
    #[error(transparent)]
    Discipline(#[from] DisciplineError),
    /// Slices so long would hold packets back for seconds.
    #[error("a slice of {} is above {}", show_duration(*.0), show_duration(MOST_SLICE))]
    SliceTooLong(Duration),
    /// Not even the smallest IP packets pass. Give at least 68, and 1280 if IPv6 is to work.
    #[error("a path MTU of {0} is below 68, which every IP link carries (RFC 791)")]
    MtuTooSmall(u16),
    /// Give the entries of a schedule in order of time, each after the end of the one before.
    #[error("the entry at {} begins before the one ahead of it in the schedule has ended", show_duration(*.0))]
    ScheduleOrder(Duration),
    /// The link would never carry anything. Give a longer period or a shorter outage.
    #[error("an outage of {} every {} never ends", show_duration(*down), show_duration(*period))]
    NeverUp {
        /// From outage to outage.
        period: Duration,
        /// How long each lasts.
        down: Duration,
    },
    /// It would change its state between any two packets: that is loss, not an outage.
    #[error("a link that flaps every {} on average: the mean times up and down are at least 1 ms", show_duration(*.0))]
    FlapsTooFast(Duration),
    /// There is no such packet. Give 1 to lose all of them.
    #[error("cannot lose every 0th packet: count from 1")]
    NthOfZero,
    /// Nothing would be lost. Give a length of 1 for independent loss.
    #[error("bursts of 0 packets lose nothing: give a length of at least 1")]
    EmptyBurst,
    /// From the first bad time on the link would stay bad. Give r, which is 1 / the mean length of a bad time.
    #[error("a Gilbert model with p = {0} and r = 0 stays bad for ever")]
    GilbertStaysBad(Ratio),
    /// No chain of two states loses so much in bursts so short, or bursts shorter than a packet.
    #[error(
        "a loss of {loss} in bursts of {burst} packets on average is impossible: \
             the mean burst is at least 1 and at least loss / (1 - loss)"
    )]
    GilbertBurst {
        /// The share that is to be lost.
        loss: Ratio,
        /// The mean length of a burst.
        burst: String,
    },
    /// The steps of a loss that changes with time contradict each other.
    #[error(transparent)]
    Timetable(#[from] VaryingError),
    /// Nothing would ever pass after the first burst.
    #[error("a {0} at 0 b/s passes nothing")]
    BucketRate(&'static str),
    /// No packet would ever pass. Give at least the longest packet: 1514 bytes on Ethernet.
    #[error("a {0} with a burst of 0 bytes passes nothing: give at least the longest packet")]
    BucketBurst(&'static str),
}

/// 10 Tb/s: a thousand times what one machine forwards, for virtual time.
const MOST_RATE: BitRate = BitRate(10_000_000_000_000);
/// Light takes 22 minutes from Mars at its farthest.
pub(super) const MOST_DELAY: Duration = Duration::from_secs(3600);
pub(super) const MOST_HOLD: Duration = Duration::from_secs(60);
const MOST_WAIT: Duration = Duration::from_secs(86_400);
const MOST_SLICE: Duration = Duration::from_secs(1);

impl Default for LinkConfig {
    /// Gigabit Ethernet with a shallow switch queue; no delay, no loss, slices of 150 µs: one 1,514-byte packet up to
    /// 161 Mb/s, a whole 64 KiB super-packet from 3.6 Gb/s.
    fn default() -> Self {
        LinkConfig {
            rate: BitRate(1_000_000_000).into(),
            layer: Layer::EthernetHeader,
            delay: Varying::constant(Duration::ZERO),
            jitter: Jitter::default(),
            queue: QueueLimit::Bytes(Bytes(512 * 1024)),
            discipline: Discipline::DropTail,
            ecn: false,
            path_mtu: None,
            outage: Outages::None,
            loss: LossModel::None,
            policer: None,
            shaper: None,
            reorder: Reorder::default(),
            duplicate: Ratio::default(),
            corrupt: Ratio::default(),
            corrupt_hidden: Ratio::default(),
            largest_packet: Bytes(1514),
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
        let rate = self.highest_rate();
        if rate.0 == 0 || self.rate.period().is_none() && self.rate.values().last() == Some(BitRate(0)) {
            return Err(LinkError::ZeroRate);
        }
        check_rate(rate)?;
        if let Some(delay) = self.delay.values().find(|delay| *delay > MOST_DELAY) {
            return Err(LinkError::DelayTooLong(delay));
        }
        self.jitter.check()?;
        self.reorder.check()?;
        check_wait(self.queue, self.largest_packet, rate)?;
        self.discipline.check(self.queue)?;
        if self.slice > MOST_SLICE {
            return Err(LinkError::SliceTooLong(self.slice));
        }
        self.path_mtu.as_ref().map_or(Ok(()), PathMtu::check)?;
        self.outage.check()?;
        self.loss.check()?;
        self.policer.as_ref().map_or(Ok(()), Policer::check)?;
        self.shaper.as_ref().map_or(Ok(()), Shaper::check)
    }

    /// The least delay any packet has.
    pub fn least_delay(&self) -> Duration {
        let (shorter, _) = self.jitter.reach();
        self.delay.values().min().unwrap_or_default().saturating_sub(shorter)
    }

    /// Whether something in here goes by the time since the epoch and does not do so in `before` alike: a timetable, an
    /// outage, a loss at a set time.
    pub fn has_new_timetables(&self, before: &LinkConfig) -> bool {
        let timed_loss = match &self.loss {
            LossModel::Independent(ratio) => ratio.as_constant().is_none(),
            LossModel::Schedule(_) => true,
            _ => false,
        };
        self.rate.as_constant().is_none() && self.rate != before.rate
            || self.delay.as_constant().is_none() && self.delay != before.delay
            || timed_loss && self.loss != before.loss
            || self.outage != before.outage && self.outage != Outages::None
    }

    /// The longest any packet is on its way, once it is sent, if it is held back as well.
    pub fn longest_delay(&self) -> Duration {
        let (_, longer) = self.jitter.reach();
        let held = if self.reorder.share.get() > 0.0 { self.reorder.hold } else { Duration::ZERO };
        self.delay.values().max().unwrap_or_default().saturating_add(longer).saturating_add(held)
    }

    /// The highest rate there ever is.
    pub fn highest_rate(&self) -> BitRate {
        self.rate.values().max().unwrap_or_default()
    }
}

/// Of the line, or of a token bucket.
pub(super) fn check_rate(rate: BitRate) -> Result<(), LinkError> {
    if rate > MOST_RATE { Err(LinkError::RateTooHigh(rate)) } else { Ok(()) }
}

/// What is in a full queue has to leave before its senders give up.
pub(super) fn check_wait(queue: QueueLimit, largest: Bytes, rate: BitRate) -> Result<(), LinkError> {
    let wait = rate.time_for(queue.most_bytes(largest));
    if wait > MOST_WAIT { Err(LinkError::QueueTooLong { queue, rate }) } else { Ok(()) }
}
