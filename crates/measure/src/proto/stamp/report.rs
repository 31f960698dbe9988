//! Results of a STAMP session, as they are printed and stored.

use core::net::SocketAddr;
use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::seconds;
use lfn_base::stats::nearest_rank;
use serde::{Deserialize, Serialize};

/// The document of `lfn test --stamp --json`, schema `lfn.stamp/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StampDocument {
    pub schema: StampSchema,
    /// Figures of the session.
    #[serde(flatten)]
    pub report: StampReport,
}

/// Name and version of the schema of a STAMP document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum StampSchema {
    #[default]
    #[serde(rename = "lfn.stamp/2")]
    V2,
}

/// Figures of one STAMP session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StampReport {
    /// Address of the reflector.
    pub reflector: SocketAddr,
    /// Bytes of a test packet, without IP and UDP headers.
    pub packet_bytes: u32,
    /// Interval between two packets.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// True if packets carry a keyed hash.
    pub authenticated: bool,
    /// Test packets that were sent.
    pub sent: u64,
    /// Packets with an answer.
    pub answered: u64,
    /// Packets without an answer.
    pub lost: u64,
    /// Lost packets that did not reach the reflector; unknown if the reflector does not count.
    pub lost_forward: Option<u64>,
    /// Lost packets with an answer that was lost on the way back.
    pub lost_back: Option<u64>,
    /// Meaning of the reflector's sequence numbers.
    pub sequence_numbers: ReflectorNumbering,
    /// Answers that were received again.
    pub duplicates: u64,
    /// Answers that arrived after the answer to a later packet.
    pub reordered: u64,
    /// Reordered packets that were already out of order at the reflector; unknown if the reflector does not count.
    pub reordered_forward: Option<u64>,
    /// Answers that the reflector sent in order and that were overtaken on the way back.
    pub reordered_back: Option<u64>,
    /// Datagrams that answered no sent packet.
    pub unmatched: u64,
    /// Round-trip times, without the time at the reflector.
    pub rtt: Option<DelayDistribution>,
    /// Time that packets spent at the reflector.
    pub reflector_delay: Option<DelayDistribution>,
    /// Forward one-way delay above its minimum, which needs no synchronised clocks (RFC 5481 §4.2).
    pub forward_variation: Option<DelayDistribution>,
    /// Return one-way delay above its minimum.
    pub back_variation: Option<DelayDistribution>,
    /// One-way delays, if both clocks are reported as synchronised.
    pub one_way: Option<OneWay>,
    /// Routers on the forward path: the sent TTL of 255 minus the TTL at the reflector.
    pub forward_hops: Option<u8>,
}

/// Meaning of the reflector's sequence numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReflectorNumbering {
    /// The reflector counts packets, so the direction of each loss is known.
    Counted,
    /// Copies of the sender's numbers.
    Copied,
    #[default]
    Unknown,
}

/// One-way delays, and the maximum error of both clocks together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct OneWay {
    /// From the sender to the reflector.
    pub forward: DelayDistribution,
    /// From the reflector to the sender.
    pub back: DelayDistribution,
    /// Sum of both ends' error estimates. A smaller delay may appear negative.
    pub error_seconds: Figure,
}

/// A distribution in seconds with nearest-rank percentiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DelayDistribution {
    pub min_seconds: Figure,
    pub mean_seconds: Figure,
    pub p50_seconds: Figure,
    pub p95_seconds: Figure,
    pub p99_seconds: Figure,
    pub max_seconds: Figure,
}

impl DelayDistribution {
    /// Computes the distribution of nanoseconds; `None` for an empty list.
    pub fn of(mut nanos: Vec<i64>) -> Option<DelayDistribution> {
        nanos.sort_unstable();
        let (&min, &max) = (nanos.first()?, nanos.last()?);
        let sum: i128 = nanos.iter().map(|&n| i128::from(n)).sum();
        let rank = |percent| nearest_rank(&nanos, percent).unwrap_or(max);
        let seconds = |nanos: f64| Figure::new(nanos / 1e9);
        Some(DelayDistribution {
            min_seconds: seconds(min as f64)?,
            mean_seconds: seconds(sum as f64 / nanos.len() as f64)?,
            p50_seconds: seconds(rank(50) as f64)?,
            p95_seconds: seconds(rank(95) as f64)?,
            p99_seconds: seconds(rank(99) as f64)?,
            max_seconds: seconds(max as f64)?,
        })
    }
}
