//! Figures of one stripe, in the result and in the progress of a copy.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::StripeReport;
use lfn_copy::proto::stripe_health;
use serde::{Deserialize, Serialize};

/// Figures of one stripe of a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StripeFigures {
    /// Stripe as typed, LOCAL=REMOTE.
    pub stripe: String,
    /// State of the stripe.
    pub state: StripeState,
    /// Bytes that arrived over the stripe, with the headers of the blocks.
    pub bytes: Bytes,
    /// Throughput: of the whole copy in a result, and of the last seconds in a progress line.
    #[serde(rename = "throughput_bits_per_second")]
    pub throughput: BitRate,
    /// Open data streams; in a result, the maximum that was open at once.
    pub streams: u16,
    /// Number of times that the stripe went down.
    pub outages: u32,
    /// Total time in which the stripe was down.
    #[serde(rename = "down_seconds", with = "seconds")]
    pub down: Duration,
    /// Retransmitted segments of the client's sockets; absent if the client receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_segments: Option<u64>,
    /// Last error of a stream of the stripe; absent without an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// State of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StripeState {
    /// No stream was opened so far.
    Connecting,
    /// At least one stream of the stripe works.
    Up,
    /// Every stream of the stripe failed.
    Down,
}

/// Transport of the data streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UsedTransport {
    /// Plain TCP, one path for each stream.
    #[default]
    Tcp,
    /// Multipath TCP (RFC 8684).
    Mptcp,
}

impl StripeFigures {
    /// Returns the figures with this throughput.
    pub fn new(report: StripeReport, throughput: BitRate) -> Self {
        let StripeReport { name, state, bytes, streams, outages, down_time, retransmitted, last_error, .. } = report;
        let state = match state {
            stripe_health::StripeState::Connecting => StripeState::Connecting,
            stripe_health::StripeState::Up => StripeState::Up,
            stripe_health::StripeState::Down => StripeState::Down,
        };
        StripeFigures {
            stripe: name,
            state,
            bytes,
            throughput,
            streams,
            outages,
            down: down_time,
            retransmitted_segments: retransmitted,
            error: last_error,
        }
    }
}
