//! Document of `lfn emulate --dry-run`.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::{PathProfile, optional_seconds, seconds};
use lfn_base::tcp_model::{Congestion, GoodputLimit};
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_link::DropCause;
use serde::Serialize;

use super::schema_name::schema_name;

/// A simulated transfer and its prediction, schema `lfn.dry-run/2`. The figures do not depend on the machine or the
/// time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DryRunDocument {
    /// Name and version of the schema.
    pub schema: DryRunSchema,
    /// Figures of the path, with the MTU that the senders know.
    pub path: PathProfile,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Payload bytes of the transfer.
    pub size_bytes: Bytes,
    /// Number of parallel streams.
    pub streams: u32,
    /// Congestion control of the senders.
    pub congestion: Congestion,
    /// Receive window of each stream.
    pub window_bytes: Bytes,
    /// Payload bytes of a full segment.
    pub mss_bytes: u32,
    /// Maximum number of segments that are simulated as one.
    pub max_merged_segments: u32,
    /// True if all bytes arrived.
    pub complete: bool,
    /// Figures of the simulation.
    pub simulated: ModelledTransfer,
    /// Figures of the formulas.
    pub predicted: PredictedTransfer,
    /// Counters of the senders.
    pub senders: SenderCounts,
    /// Counters from near to far.
    pub forward: SimulatedDirection,
    /// Counters from far to near.
    pub back: SimulatedDirection,
    /// Delay in the queues of the forward direction.
    pub queueing_delay: QueueingDelayFigures,
    /// Steps of the model.
    pub steps: u64,
}

/// Figures of a simulated transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModelledTransfer {
    /// From the first SYN to the arrival of the last byte.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
    /// Payload bytes that the receiver got.
    pub received_bytes: Bytes,
    /// Received bytes divided by the time.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Goodput after start-up; null if the transfer is too short for a steady part.
    #[serde(rename = "steady_goodput_bits_per_second")]
    pub steady_goodput: Option<BitRate>,
    /// Time before the steady part; null without a steady part.
    #[serde(rename = "start_up_seconds", with = "optional_seconds")]
    pub start_up: Option<Duration>,
    /// Utilisation of the busiest line in the forward direction.
    pub utilisation: Ratio,
}

/// Figures of the formulas for the same transfer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PredictedTransfer {
    /// Time of the transfer; null if the transfer never ends.
    #[serde(rename = "seconds", with = "optional_seconds")]
    pub time: Option<Duration>,
    /// Size divided by the time; null if the transfer never ends.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Goodput of the steady part, after start-up.
    #[serde(rename = "steady_goodput_bits_per_second")]
    pub steady_goodput: BitRate,
    /// Limit of the steady goodput.
    pub limited_by: GoodputLimit,
    /// Handshake and slow start; null if the transfer never ends.
    #[serde(rename = "start_up_seconds", with = "optional_seconds")]
    pub start_up: Option<Duration>,
}

/// Counters of the simulated senders.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SenderCounts {
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
    /// Count of retransmission timeouts (RFC 6298).
    pub timeouts: u64,
    /// Reductions of the window for a loss.
    pub loss_events: u64,
    /// Reductions of the window for a mark (ECN).
    pub ecn_events: u64,
    /// Reductions that were undone.
    pub undone_reductions: u64,
    /// Segments that arrived twice.
    pub duplicate_segments: u64,
    /// Maximum congestion window, in segments.
    pub max_cwnd_segments: lfn_base::figure::Figure,
}

/// Counters of one simulated direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SimulatedDirection {
    /// Packets that entered the link.
    pub offered_packets: u64,
    /// Packets that left the link.
    pub forwarded_packets: u64,
    /// Dropped packets by cause. Causes without drops are skipped.
    pub dropped_packets: BTreeMap<DropCause, u64>,
    /// Packets that the link marked (ECN).
    pub marked_packets: u64,
    /// Largest fill level of any queue.
    pub queue_peak_bytes: Bytes,
}

/// Delay in queues over all packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueingDelayFigures {
    /// Mean of the delay.
    #[serde(rename = "mean_seconds", with = "seconds")]
    pub mean: Duration,
    /// Median of the delay.
    #[serde(rename = "p50_seconds", with = "seconds")]
    pub p50: Duration,
    /// Percentile 95 of the delay.
    #[serde(rename = "p95_seconds", with = "seconds")]
    pub p95: Duration,
    /// Percentile 99 of the delay.
    #[serde(rename = "p99_seconds", with = "seconds")]
    pub p99: Duration,
    /// Maximum of the delay.
    #[serde(rename = "max_seconds", with = "seconds")]
    pub max: Duration,
}

schema_name! {
    /// Name and version of the schema of a dry run.
    DryRunSchema = "lfn.dry-run/2"
}
