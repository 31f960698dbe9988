//! Settings of a link, and the checks that refuse bad ones.
//!
//! The settings of one direction are one flat record. The readers of flags and profiles fill the record.
//! [`Link::new`](super::Link::new) creates the chain from it and is the only place that knows the order of the stages.

use std::time::Duration;

use super::stages::{LinkJitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use super::timetable::{Timetable, TimetableError};
use super::{Discipline, DisciplineError, QueueLimit};
use crate::framing::Layer;
use crate::time::Instant;
use crate::units::{BitRate, Bytes, Ratio, show_duration};

/// Settings of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Line rate, counted in bytes of `layer`. A step of a timetable may be zero: the line is stalled until the next
    /// step.
    pub rate: Timetable<BitRate>,
    /// Layer at which the line counts bytes. The layer defines the overhead that each virtual packet adds to its IP
    /// length. The default counts frames as `tc` does (Ethernet header, without checksum and preamble).
    pub layer: Layer,
    /// One-way delay after the last bit was sent. The value at that instant applies.
    pub delay: Timetable<Duration>,
    /// Variation of the delay from packet to packet.
    pub jitter: LinkJitter,
    /// Maximum queue length. The packet on the line counts until its last bit is sent, so no packet waits longer than
    /// the time to send this queue. A packet that finds the link idle is always accepted.
    pub queue: QueueLimit,
    /// Order of sending, early drops and marks.
    pub discipline: Discipline,
    /// Whether the discipline marks ECN-capable packets instead of dropping them (RFC 3168). A full queue drops
    /// ECN-capable packets too.
    pub ecn: bool,
    /// Longer IP packets are dropped. `None` means no limit.
    pub path_mtu: Option<PathMtu>,
    pub outage: Outages,
    pub loss: LossModel,
    /// Drops packets that exceed a rate and a burst.
    pub policer: Option<Policer>,
    /// Delays packets that exceed a rate and a burst, ahead of the line and its queue.
    pub shaper: Option<Shaper>,
    /// Packets that wait until later packets have passed them.
    pub reorder: Reorder,
    /// Probability that a virtual packet comes out twice. The copy follows immediately.
    pub duplicate: Ratio,
    /// Probability that a bit of a virtual packet is flipped so that the receiver's checksum detects it.
    pub corrupt: Ratio,
    /// Probability that a bit of the payload is flipped and the checksum is corrected, so that only the application can
    /// detect it. Packets without payload and frames of other protocols are not changed.
    pub corrupt_hidden: Ratio,
    /// Maximum packet length with the Ethernet header. CoDel does not treat one such packet as a queue, and the memory
    /// for a queue limited in packets is computed from it.
    pub largest_packet: Bytes,
    /// Seed of every random generator. The same seed and arrivals cause the same drops.
    pub seed: u64,
    /// Gives each direction its own random generators.
    pub direction: LinkDirection,
    /// Gives links in series and in parallel their own random generators.
    pub hop: u32,
    /// Start of all timetables.
    pub epoch: Instant,
    /// Maximum line time of the virtual packets of one range. Super-packets are cut to this time. Zero cuts every
    /// super-packet into single packets. With super-packets, at most two ranges per slice leave on average: a caller
    /// that can forward `n` ranges per second needs a slice of at least `2/n` seconds.
    pub slice: Duration,
}

/// Direction in which a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkDirection {
    /// From the near side to the far side.
    #[default]
    Forward,
    /// From the far side to the near side.
    Return,
}

impl LinkDirection {
    /// Returns the opposite direction.
    pub fn other(self) -> LinkDirection {
        match self {
            LinkDirection::Forward => LinkDirection::Return,
            LinkDirection::Return => LinkDirection::Forward,
        }
    }
}

/// Reason why a link cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The link never sends, or not after the last step of its timetable. Remedy: set the line rate of the path.
    #[error("a link rate of 0 b/s never sends a packet")]
    ZeroRate,
    /// Faster than any line; most likely a slip of the unit.
    #[error("link rate {0} is above {max}", max = MAX_RATE)]
    RateTooHigh(BitRate),
    /// The delay exceeds every path on or near the earth; the unit is probably wrong.
    #[error("one-way delay {} is above {}", show_duration(*.0), show_duration(MAX_DELAY))]
    DelayTooLong(Duration),
    /// The jitter exceeds every path; the unit is probably wrong.
    #[error("a jitter of {} is above {}", show_duration(*.0), show_duration(MAX_DELAY))]
    JitterTooLong(Duration),
    /// With full correlation the delays never change. Remedy: add a constant to the delay instead.
    #[error("a jitter correlation of 100 % gives every packet the same delay")]
    JitterConstant,
    /// A distance of 0 reorders nothing. Remedy: set a distance of at least 1.
    #[error("reordering by a distance of 0 packets has no effect")]
    ZeroReorderDistance,
    /// A longer wait is an outage.
    #[error("a reordering hold of {} is above {}", show_duration(*.0), show_duration(MAX_HOLD))]
    HoldTooLong(Duration),
    /// The last packet of a full queue would wait too long. Remedy: set a smaller queue or a higher rate.
    #[error("a queue of {queue} takes more than {} to send at {rate}", show_duration(MAX_QUEUE_TIME))]
    QueueTooLong { queue: QueueLimit, rate: BitRate },
    /// The discipline cannot work with these parameters, or not with this queue.
    #[error(transparent)]
    Discipline(#[from] DisciplineError),
    /// Longer slices would delay packets by seconds.
    #[error("a slice of {} is above {}", show_duration(*.0), show_duration(MAX_SLICE))]
    SliceTooLong(Duration),
    /// The minimum IP packet would not pass. Remedy: set at least 68, or at least 1280 for IPv6.
    #[error("a path MTU of {0} is below 68, which every IP link carries (RFC 791)")]
    MtuTooSmall(u16),
    /// Remedy: list the entries of the schedule in order of time. Each entry must start after the end of the entry
    /// before it.
    #[error("the schedule entry at {} begins before the previous entry ends", show_duration(*.0))]
    ScheduleOrder(Duration),
    /// The link would never carry packets. Remedy: set a longer period or a shorter outage.
    #[error("an outage of {} every {} never ends", show_duration(*down), show_duration(*period))]
    NeverUp { period: Duration, down: Duration },
    /// The link would change its state between any two packets: use loss instead of an outage.
    #[error("a mean time of {} is too short for a flapping link: the minimum is 1 ms", show_duration(*.0))]
    FlapsTooFast(Duration),
    /// Packets are counted from 1. Remedy: set 1 to lose all packets.
    #[error("cannot lose every 0th packet: count from 1")]
    ZerothPacket,
    /// A burst of 0 packets loses nothing. Remedy: set a length of 1 for independent loss.
    #[error("bursts of 0 packets lose nothing: give a length of at least 1")]
    EmptyBurst,
    /// The link would stay in the bad state after entering it once. Remedy: set r to 1 / mean length of a bad state.
    #[error("a Gilbert model with p = {0} and r = 0 stays in the bad state for ever")]
    GilbertStaysBad(Ratio),
    /// No chain of two states has this loss with bursts this short, or the burst is shorter than a packet.
    #[error(
        "a loss of {loss} in bursts of {burst} packets on average is impossible: \
             the mean burst is at least 1 and at least loss / (1 - loss)"
    )]
    GilbertBurst {
        /// Share of packets to lose.
        loss: Ratio,
        /// Mean length of a burst, in packets.
        burst: String,
    },
    #[error(transparent)]
    Timetable(#[from] TimetableError),
    /// A rate of zero passes nothing after the first burst.
    #[error("a {0} at 0 b/s passes nothing")]
    ZeroBucketRate(&'static str),
    /// A burst of zero passes nothing. Remedy: set at least the maximum packet length, 1514 bytes on Ethernet.
    #[error("a {0} with a burst of 0 bytes passes nothing: give at least the longest packet")]
    ZeroBucketBurst(&'static str),
}

/// 10 Tb/s, for virtual time: one machine forwards a thousandth of this rate.
const MAX_RATE: BitRate = BitRate(10_000_000_000_000);
/// Light from Mars at its maximum distance takes 22 minutes.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(3600);
pub(super) const MAX_HOLD: Duration = Duration::from_secs(60);
const MAX_QUEUE_TIME: Duration = Duration::from_secs(86_400);
const MAX_SLICE: Duration = Duration::from_secs(1);

impl Default for LinkConfig {
    /// Returns Gigabit Ethernet with a shallow switch queue, without delay and loss, with slices of 150 µs. A slice is
    /// one 1,514-byte packet up to 161 Mb/s and a whole 64 KiB super-packet from 3.6 Gb/s.
    fn default() -> Self {
        LinkConfig {
            rate: BitRate(1_000_000_000).into(),
            layer: Layer::EthernetHeader,
            delay: Timetable::constant(Duration::ZERO),
            jitter: LinkJitter::default(),
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
            direction: LinkDirection::Forward,
            hop: 0,
            epoch: Instant::ZERO,
            slice: Duration::from_micros(150),
        }
    }
}

impl LinkConfig {
    /// Refuses settings that the chain cannot carry.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        let rate = self.max_rate();
        if rate.0 == 0 || self.rate.period().is_none() && self.rate.values().last() == Some(BitRate(0)) {
            return Err(LinkError::ZeroRate);
        }
        check_rate(rate)?;
        if let Some(delay) = self.delay.values().find(|delay| *delay > MAX_DELAY) {
            return Err(LinkError::DelayTooLong(delay));
        }
        self.jitter.check()?;
        self.reorder.check()?;
        check_queue_time(self.queue, self.largest_packet, rate)?;
        self.discipline.check(self.queue)?;
        if self.slice > MAX_SLICE {
            return Err(LinkError::SliceTooLong(self.slice));
        }
        self.path_mtu.as_ref().map_or(Ok(()), PathMtu::check)?;
        self.outage.check()?;
        self.loss.check()?;
        self.policer.as_ref().map_or(Ok(()), Policer::check)?;
        self.shaper.as_ref().map_or(Ok(()), Shaper::check)
    }

    /// Returns the minimum delay of a packet.
    pub fn min_delay(&self) -> Duration {
        let (shorter, _) = self.jitter.max_change();
        self.delay.values().min().unwrap_or_default().saturating_sub(shorter)
    }

    /// Reports whether this configuration has a setting that depends on the time since the epoch and differs from
    /// `before`: a timetable, an outage or a scheduled loss.
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

    /// Returns the maximum delay of a packet after it was sent, including the wait for reordering.
    pub fn max_delay(&self) -> Duration {
        let (_, longer) = self.jitter.max_change();
        let held = if self.reorder.share.get() > 0.0 { self.reorder.hold } else { Duration::ZERO };
        self.delay.values().max().unwrap_or_default().saturating_add(longer).saturating_add(held)
    }

    /// Returns the maximum rate over all time.
    pub fn max_rate(&self) -> BitRate {
        self.rate.values().max().unwrap_or_default()
    }
}

/// Checks the rate of a line or of a token bucket.
pub(super) fn check_rate(rate: BitRate) -> Result<(), LinkError> {
    if rate > MAX_RATE { Err(LinkError::RateTooHigh(rate)) } else { Ok(()) }
}

/// Refuses a queue that takes longer to send than senders wait.
pub(super) fn check_queue_time(queue: QueueLimit, largest: Bytes, rate: BitRate) -> Result<(), LinkError> {
    let wait = rate.time_for(queue.max_bytes(largest));
    if wait > MAX_QUEUE_TIME { Err(LinkError::QueueTooLong { queue, rate }) } else { Ok(()) }
}
