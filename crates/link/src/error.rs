//! Reasons why a link cannot be created, and the limits of its settings.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, Ratio, show_duration};

use super::stages::{DisciplineError, QueueLimit};
use super::timetable::TimetableError;

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
    /// An impairment refuses its setting for a reason that no other variant has.
    #[error("{key}: {reason}")]
    Impairment { key: &'static str, reason: String },
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
pub(super) const MAX_SLICE: Duration = Duration::from_secs(1);

/// Checks the rate of a line or of a token bucket.
pub(super) fn check_rate(rate: BitRate) -> Result<(), LinkError> {
    if rate > MAX_RATE { Err(LinkError::RateTooHigh(rate)) } else { Ok(()) }
}

/// Refuses a queue that takes longer to send than senders wait.
pub(super) fn check_queue_time(queue: QueueLimit, largest: Bytes, rate: BitRate) -> Result<(), LinkError> {
    let wait = rate.time_for(queue.max_bytes(largest));
    if wait > MAX_QUEUE_TIME { Err(LinkError::QueueTooLong { queue, rate }) } else { Ok(()) }
}
