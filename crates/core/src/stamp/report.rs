//! What a STAMP session found, as it is printed and stored.

use core::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::path::seconds;
use crate::stats::nearest_rank;

/// What `lfn test --stamp --json` prints, schema `lfn.stamp/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StampDocument {
    /// What this is.
    pub schema: StampSchema,
    /// The figures.
    #[serde(flatten)]
    pub report: StampReport,
}

/// The name and version of the schema of a STAMP session's figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum StampSchema {
    /// This one.
    #[default]
    #[serde(rename = "lfn.stamp/1")]
    One,
}

/// The figures of one session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StampReport {
    /// The reflector.
    pub reflector: SocketAddr,
    /// Bytes of a test packet, without IP and UDP headers.
    pub packet_bytes: u32,
    /// Time between two packets.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Packets carry a keyed hash.
    pub authenticated: bool,
    /// Packets sent.
    pub sent: u64,
    /// Packets of which an answer came.
    pub answered: u64,
    /// Packets without an answer.
    pub lost: u64,
    /// Of these, how many did not reach the reflector; unknown of one that does not count.
    pub lost_forward: Option<u64>,
    /// Of these, how many answers were lost on the way back.
    pub lost_back: Option<u64>,
    /// What the reflector's numbers are.
    pub numbers: Numbers,
    /// Answers that came again.
    pub duplicates: u64,
    /// Answers that came after that to a later packet.
    pub reordered: u64,
    /// Of these, how many were out of order at the reflector already; unknown of one that does not count.
    pub reordered_forward: Option<u64>,
    /// How many the reflector sent in order and were overtaken on the way back.
    pub reordered_back: Option<u64>,
    /// Datagrams that were no answer to anything sent.
    pub nonsense: u64,
    /// Round trips, without the time the reflector held the packet.
    pub rtt: Option<Distribution>,
    /// How long the reflector held packets.
    pub held: Option<Distribution>,
    /// One-way delay above the least one, which needs no clocks that agree (RFC 5481 §4.2).
    pub forward_variation: Option<Distribution>,
    /// The same on the way back.
    pub back_variation: Option<Distribution>,
    /// One-way delays, where both clocks are said to be synchronised.
    pub one_way: Option<OneWay>,
    /// Routers passed on the way there: TTL 255 as sent less that at the reflector.
    pub forward_hops: Option<u8>,
}

/// What the reflector's sequence numbers are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Its own count: losses of each direction can be told apart.
    Counted,
    /// The sender's again.
    Copied,
    /// It cannot be told.
    #[default]
    Unknown,
}

/// One-way delays, and how far both clocks together may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OneWay {
    /// From the sender to the reflector.
    pub forward: Distribution,
    /// From the reflector to the sender.
    pub back: Distribution,
    /// Sum of both ends' error estimates. A delay below it may come out negative.
    pub error_seconds: Figure,
}

/// A distribution in seconds. Percentiles are of the nearest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Distribution {
    /// The least.
    pub min_seconds: Figure,
    /// The mean.
    pub mean_seconds: Figure,
    /// Half are no larger.
    pub p50_seconds: Figure,
    /// 95 of 100 are no larger.
    pub p95_seconds: Figure,
    /// 99 of 100 are no larger.
    pub p99_seconds: Figure,
    /// The largest.
    pub max_seconds: Figure,
}

impl Distribution {
    /// Of these nanoseconds; `None` of nothing.
    pub fn of(mut nanos: Vec<i64>) -> Option<Distribution> {
        nanos.sort_unstable();
        let (&min, &max) = (nanos.first()?, nanos.last()?);
        let sum: i128 = nanos.iter().map(|&n| i128::from(n)).sum();
        let rank = |percent| nearest_rank(&nanos, percent).unwrap_or(max);
        let seconds = |nanos: f64| Figure::new(nanos / 1e9);
        Some(Distribution {
            min_seconds: seconds(min as f64)?,
            mean_seconds: seconds(sum as f64 / nanos.len() as f64)?,
            p50_seconds: seconds(rank(50) as f64)?,
            p95_seconds: seconds(rank(95) as f64)?,
            p99_seconds: seconds(rank(99) as f64)?,
            max_seconds: seconds(max as f64)?,
        })
    }
}
