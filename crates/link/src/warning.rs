//! Warnings about valid settings that are probably a mistake. They are printed before the link runs.

use std::time::Duration;

use lfn_base::framing::ETHERNET_HEADER;
use lfn_base::units::{BitRate, Bytes, Ratio, show_duration};

use super::{Discipline, JitterDistribution, LinkConfig, LossModel, QueueLimit};

/// Unusual setting of one hop. Contradictory settings are a [`LinkError`](super::LinkError).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkWarning {
    /// The percent sign is probably missing: 1 is 100 %.
    #[error("loss 1 means 100 %: write 1% for one per cent")]
    TotalLoss,
    /// The percent sign is probably missing: `tc` reads a number without a sign as per cent.
    #[error("loss {share} means {0}: write {share}% for {share} per cent", share = .0.to_argument())]
    HighLoss(Ratio),
    /// Every full packet is dropped, so TCP cannot get past its handshake. Remedy: set a burst of at least one packet.
    #[error("a {bucket} with a burst of {} drops every packet of {}", .burst.exact(), .packet.exact())]
    BurstBelowPacket {
        bucket: &'static str,
        burst: Bytes,
        /// Maximum length of a packet that reaches the bucket.
        packet: Bytes,
    },
    /// No packet can wait. Remedy: set a higher limit, or use a policer.
    #[error("a shaper limit of {} is below one packet of {}: no packet can wait", .limit.exact(), .packet.exact())]
    LimitBelowPacket {
        limit: Bytes,
        /// Maximum length of a packet that reaches the shaper.
        packet: Bytes,
    },
    /// No packet exceeds the path MTU. Remedy: set less than the MTU of the interfaces.
    #[error("a path MTU of {path_mtu} has no effect: the interface MTU is {mtu} bytes")]
    MtuWithoutEffect {
        path_mtu: u16,
        /// MTU of the interfaces.
        mtu: u64,
    },
    /// A full packet takes more than a second. The unit is probably missing, as in `10mbit`.
    #[error("a rate of {0} is very low: is the unit missing? (10mbit is ten million bits per second)")]
    SlowRate(BitRate),
    /// The average cannot exceed the queue limit.
    #[error("red: {threshold} {value} is not below the queue limit {queue}: {consequence}")]
    RedBeyondQueue { threshold: &'static str, value: QueueLimit, queue: QueueLimit, consequence: &'static str },
    /// A packet cannot arrive before it was sent. Negative delays become zero, so the mean delay is longer and the
    /// spread is narrower than set.
    #[error(
        "a jitter of {} exceeds the one-way delay of {}: many packets get a delay of zero",
        show_duration(*.jitter), show_duration(*.delay)
    )]
    JitterBeyondDelay {
        jitter: Duration,
        /// Minimum of the configured delay.
        delay: Duration,
    },
    /// No packet is left that could pass the packets that wait.
    #[error("reordering 100 % of the packets keeps their order: every packet waits")]
    AllReordered,
    /// Remedy: set a hold time in which later packets can arrive.
    #[error("a reordering hold of 0 s: only packets that arrive at the same time can pass")]
    ZeroReorderHold,
    /// IPv6 needs 1280 (RFC 8200 §5). Senders do not use smaller packets, even after a Packet Too Big message.
    #[error("a path MTU of {0} is below 1280 bytes, the minimum of IPv6")]
    MtuBelowIpv6(u16),
}

/// Random loss above which a missing percent sign is more probable than such a path.
const HIGH_LOSS: f64 = 0.05;
/// At a lower rate a full packet takes more than a second.
const SLOW_RATE: BitRate = BitRate(10_000);

impl LinkConfig {
    /// Returns the warnings about these settings.
    pub fn warnings(&self) -> Vec<LinkWarning> {
        let mut warnings = Vec::new();
        if self.loss.mean() == Ratio::ONE {
            warnings.push(LinkWarning::TotalLoss);
        } else if matches!(self.loss, LossModel::Independent(_)) && self.loss.mean().get() > HIGH_LOSS {
            warnings.push(LinkWarning::HighLoss(self.loss.mean()));
        }
        warnings.extend(self.rate_warnings());
        warnings.extend(self.order_warnings());
        let mut packet = self.largest_packet;
        if let Some(path_mtu) = self.path_mtu.map(|limit| limit.mtu) {
            let mtu = packet.0.saturating_sub(ETHERNET_HEADER.into());
            if u64::from(path_mtu) >= mtu {
                warnings.push(LinkWarning::MtuWithoutEffect { path_mtu, mtu });
            } else if path_mtu < 1280 {
                warnings.push(LinkWarning::MtuBelowIpv6(path_mtu));
            }
            packet = packet.min(Bytes(u64::from(path_mtu) + u64::from(ETHERNET_HEADER)));
        }
        let policer = self.policer.map(|policer| ("policer", policer.burst));
        let shaper = self.shaper.map(|shaper| ("shaper", shaper.burst));
        let small = policer.into_iter().chain(shaper).filter(|(_, burst)| *burst < packet);
        warnings.extend(small.map(|(bucket, burst)| LinkWarning::BurstBelowPacket { bucket, burst, packet }));
        if let Some(limit) = self.shaper.map(|shaper| shaper.limit).filter(|limit| *limit < packet) {
            warnings.push(LinkWarning::LimitBelowPacket { limit, packet });
        }
        warnings
    }

    fn rate_warnings(&self) -> impl Iterator<Item = LinkWarning> {
        let rate = self.max_rate();
        let slow = (rate < SLOW_RATE).then_some(LinkWarning::SlowRate(rate));
        slow.into_iter().chain(self.red_warning())
    }

    fn red_warning(&self) -> Option<LinkWarning> {
        let Discipline::Red(red) = self.discipline else { return None };
        let bytes = |limit: QueueLimit| limit.max_bytes(self.largest_packet);
        let thresholds = [
            ("min", red.min, "red drops nothing early"),
            ("max", red.max, "the queue overflows before red drops every packet"),
        ];
        thresholds.into_iter().find_map(|(threshold, value, consequence)| {
            let value = value.filter(|value| bytes(*value) >= bytes(self.queue))?;
            Some(LinkWarning::RedBeyondQueue { threshold, value, queue: self.queue, consequence })
        })
    }

    fn order_warnings(&self) -> impl Iterator<Item = LinkWarning> {
        let jitter = self.jitter.spread;
        let delay = self.delay.values().min().unwrap_or_default();
        // Of normal draws, 1 in 44 is more than two spreads below the mean. No Pareto draw is a whole spread below it.
        let below = match self.jitter.distribution {
            JitterDistribution::Uniform => jitter,
            JitterDistribution::Normal => jitter.saturating_mul(2),
            JitterDistribution::Pareto => jitter.mul_f64(0.64),
        };
        let jitter = (below > delay).then_some(LinkWarning::JitterBeyondDelay { jitter, delay });
        let order = match self.reorder {
            reorder if reorder.share == Ratio::ZERO => None,
            reorder if reorder.share == Ratio::ONE => Some(LinkWarning::AllReordered),
            reorder => reorder.hold.is_zero().then_some(LinkWarning::ZeroReorderHold),
        };
        jitter.into_iter().chain(order)
    }
}
