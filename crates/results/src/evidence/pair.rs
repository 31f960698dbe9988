//! Comparison of two captures of the same packets: where packets were lost, and the one-way delays.

use std::time::Duration;

use lfn_base::figure::{Figure, finite};
use lfn_base::path::{optional_seconds, seconds};
use serde::{Deserialize, Serialize};

/// Comparison of a capture near the clients with a capture far from them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PairEvidence {
    /// Packets of TCP in the near capture.
    pub near_packets: u64,
    /// Packets of TCP in the far capture.
    pub far_packets: u64,
    /// Connections that are in both captures.
    pub connections: u64,
    /// Packets of connections that were not compared, because there were too many.
    pub skipped_packets: u64,
    /// Offset of the clocks of both captures; absent if no packet of either direction is in both captures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<PairClock>,
    /// From the near to the far capture.
    pub forward: PairDirection,
    /// From the far to the near capture.
    pub reverse: PairDirection,
}

/// Offset between the clocks of two captures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PairClock {
    /// Clock of the far capture minus the clock of the near capture, if the minimum delays of both directions are equal.
    pub offset_seconds: Figure,
    /// Maximum error of the offset and of the delays: half of the minimum RTT between the captures.
    #[serde(rename = "uncertainty_seconds", with = "seconds")]
    pub uncertainty: Duration,
    /// Minimum RTT between both captures. No clock affects it.
    #[serde(rename = "min_rtt_seconds", with = "seconds")]
    pub min_rtt: Duration,
}

/// Packets of one direction in both captures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PairDirection {
    /// Packets of the first capture in this direction. A super-packet (GSO) counts once.
    pub sent: u64,
    /// Packets of the second capture in this direction. A super-packet (GRO) counts once.
    pub arrived: u64,
    /// Payload that is in both captures. Retransmitted bytes count again.
    pub matched_bytes: u64,
    /// Packets of one MSS that the first capture has and that were lost before the second one.
    pub lost: u64,
    /// Payload of these packets.
    pub lost_bytes: u64,
    /// Acknowledgements without payload that were lost between the captures.
    pub lost_acknowledgements: u64,
    /// Lost packets divided by all packets with payload, each of one MSS.
    #[serde(with = "finite")]
    pub lost_share: f64,
    /// Groups of lost packets without a packet between them that arrived.
    pub loss_bursts: u64,
    /// Packets of the largest group.
    pub largest_burst: u64,
    /// First groups of lost packets, in order of time.
    pub losses: Vec<PairLoss>,
    /// Packets that only the second capture has: the first one missed them.
    pub missed_by_first: u64,
    /// Packets that only the first capture has and that arrived: the second one missed them.
    pub missed_by_second: u64,
    /// Packets that arrived after a packet that was sent later.
    pub reordered: u64,
    /// Maximum time by which a packet was late.
    #[serde(rename = "max_lateness_seconds", with = "seconds")]
    pub max_lateness: Duration,
    /// One-way delay between the captures; absent without matched packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<PairDelay>,
}

/// One-way delay from one capture to the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PairDelay {
    /// Minimum delay, with the uncertainty of the clock offset.
    #[serde(rename = "min_seconds", with = "seconds")]
    pub min: Duration,
    /// Median of the delay above its minimum. The clock offset does not affect it.
    #[serde(rename = "median_queueing_seconds", with = "seconds")]
    pub median_queueing: Duration,
    /// 95th percentile of the delay above its minimum.
    #[serde(rename = "p95_queueing_seconds", with = "seconds")]
    pub p95_queueing: Duration,
    /// Maximum of the delay above its minimum.
    #[serde(rename = "max_queueing_seconds", with = "seconds")]
    pub max_queueing: Duration,
}

/// A group of lost packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PairLoss {
    /// Sender, address and port.
    pub from: String,
    /// Receiver, address and port.
    pub to: String,
    /// Time since the first packet of the first capture; none if unknown.
    #[serde(rename = "time_seconds", with = "optional_seconds")]
    pub time: Option<Duration>,
    /// First lost byte of the stream, from 0.
    pub offset_bytes: u64,
    /// Lost payload of the group.
    pub bytes: u64,
    /// Lost packets of one MSS.
    pub packets: u64,
}

impl PairDelay {
    /// Returns the delay above its minimum, added to the minimum.
    pub fn total(&self, queueing: Duration) -> Duration {
        self.min + queueing
    }
}
