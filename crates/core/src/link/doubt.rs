//! Settings that a link can do and nobody is likely to mean: to be said before it runs.

use std::time::Duration;

use super::{Discipline, Distribution, LinkConfig, QueueLimit};
use crate::units::{BitRate, Bytes, Ratio, show_duration};

/// What is odd about the settings of one hop. What contradicts itself is a [`LinkError`](super::LinkError).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkDoubt {
    /// Most likely a percent sign is missing: 1 is the whole.
    #[error("a loss of 100 % lets nothing through (1% is the hundredth part, 1 is the whole)")]
    AllLost,
    /// Full packets are all dropped; TCP gets no further than its handshake. Give at least one packet.
    #[error("a {what} with a burst of {} passes no packet of {}", .burst.exact(), .packet.exact())]
    BurstBelowPacket {
        /// Policer or shaper.
        what: &'static str,
        /// Its burst.
        burst: Bytes,
        /// The longest packet that gets so far.
        packet: Bytes,
    },
    /// Nothing can wait. Give it room for more, or set a policer.
    #[error("a shaper that holds {} has no room for a packet of {}: it only drops", .limit.exact(), .packet.exact())]
    NoRoomToWait {
        /// Most it holds back.
        limit: Bytes,
        /// The longest packet that gets so far.
        packet: Bytes,
    },
    /// Nothing is ever too big. Give less than the MTU of the interfaces.
    #[error("a path MTU of {path_mtu} has no effect: no longer packets come than {mtu} bytes")]
    MtuWithoutEffect {
        /// What was set.
        path_mtu: u16,
        /// The MTU of the interfaces.
        mtu: u64,
    },
    /// A full packet takes longer than a second: most likely `mbit` was meant.
    #[error("a rate of {0}: is a unit missing? (10mbit is ten million bits a second)")]
    SlowRate(BitRate),
    /// The average cannot rise above what the queue holds.
    #[error("red: {what} {threshold} is not below the queue's {queue}: {consequence}")]
    RedBeyondQueue {
        /// `min` or `max`.
        what: &'static str,
        /// What it was set to.
        threshold: QueueLimit,
        /// What the queue holds.
        queue: QueueLimit,
        /// What comes of it.
        consequence: &'static str,
    },
    /// What would come before it was sent comes at once: the mean is longer than the delay, the spread narrower.
    #[error(
        "a jitter of {} on a delay of {} one way: none is below zero, so many packets have none",
        show_duration(*.jitter), show_duration(*.delay)
    )]
    JitterBeyondDelay {
        /// Its spread.
        jitter: Duration,
        /// The shortest there is.
        delay: Duration,
    },
    /// Nothing is left to pass what is held back.
    #[error("a reordering of 100 % holds back every packet: none passes another")]
    AllHeld,
    /// Give it time for later packets to come.
    #[error("a reordering that holds packets for 0 s lets nothing pass them but what comes with them")]
    HeldForNothing,
    /// IPv6 needs 1280 (RFC 8200 §5): its senders do not go lower, whatever they are told.
    #[error("a path MTU of {0} is below 1280 bytes, which IPv6 needs")]
    MtuBelowIpv6(u16),
}

/// Bytes of the Ethernet header.
const HEADER: u64 = 14;
/// Nobody means less: a full packet would take more than a second.
const SLOW: BitRate = BitRate(10_000);

impl LinkConfig {
    /// What to ask back about.
    pub fn doubts(&self) -> Vec<LinkDoubt> {
        let mut doubts = Vec::new();
        if self.loss.mean() == Ratio::ALL {
            doubts.push(LinkDoubt::AllLost);
        }
        doubts.extend(self.doubts_of_rate());
        doubts.extend(self.doubts_of_order());
        let mut packet = self.largest_packet;
        if let Some(path_mtu) = self.path_mtu.map(|limit| limit.mtu) {
            let mtu = packet.0.saturating_sub(HEADER);
            if u64::from(path_mtu) >= mtu {
                doubts.push(LinkDoubt::MtuWithoutEffect { path_mtu, mtu });
            } else if path_mtu < 1280 {
                doubts.push(LinkDoubt::MtuBelowIpv6(path_mtu));
            }
            packet = packet.min(Bytes(u64::from(path_mtu) + HEADER));
        }
        let policer = self.policer.map(|policer| ("policer", policer.burst));
        let shaper = self.shaper.map(|shaper| ("shaper", shaper.burst));
        let small = policer.into_iter().chain(shaper).filter(|(_, burst)| *burst < packet);
        doubts.extend(small.map(|(what, burst)| LinkDoubt::BurstBelowPacket { what, burst, packet }));
        if let Some(limit) = self.shaper.map(|shaper| shaper.limit).filter(|limit| *limit < packet) {
            doubts.push(LinkDoubt::NoRoomToWait { limit, packet });
        }
        doubts
    }

    fn doubts_of_rate(&self) -> impl Iterator<Item = LinkDoubt> {
        let rate = self.highest_rate();
        let slow = (rate < SLOW).then_some(LinkDoubt::SlowRate(rate));
        slow.into_iter().chain(self.doubt_of_red())
    }

    fn doubt_of_red(&self) -> Option<LinkDoubt> {
        let Discipline::Red(red) = self.discipline else { return None };
        let bytes = |limit: QueueLimit| limit.most_bytes(self.largest_packet);
        let thresholds = [
            ("min", red.min, "it drops nothing early"),
            ("max", red.max, "the queue overflows before all is dropped early"),
        ];
        thresholds.into_iter().find_map(|(what, threshold, consequence)| {
            let threshold = threshold.filter(|threshold| bytes(*threshold) >= bytes(self.queue))?;
            Some(LinkDoubt::RedBeyondQueue { what, threshold, queue: self.queue, consequence })
        })
    }

    fn doubts_of_order(&self) -> impl Iterator<Item = LinkDoubt> {
        let jitter = self.jitter.spread;
        let delay = self.delay.values().min().unwrap_or_default();
        // Of normal draws 1 in 44 is two spreads below the middle; none of Pareto's is a whole one.
        let below = match self.jitter.distribution {
            Distribution::Uniform => jitter,
            Distribution::Normal => jitter.saturating_mul(2),
            Distribution::Pareto => jitter.mul_f64(0.64),
        };
        let jitter = (below > delay).then_some(LinkDoubt::JitterBeyondDelay { jitter, delay });
        let order = match self.reorder {
            reorder if reorder.share == Ratio::NONE => None,
            reorder if reorder.share == Ratio::ALL => Some(LinkDoubt::AllHeld),
            reorder => reorder.hold.is_zero().then_some(LinkDoubt::HeldForNothing),
        };
        jitter.into_iter().chain(order)
    }
}
