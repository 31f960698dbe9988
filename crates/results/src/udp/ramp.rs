//! Request and result of a ramp of rates.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::seconds;
use lfn_base::units::{BitRate, Ratio};
use serde::{Deserialize, Serialize};

/// A request for a ramp of rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RampRequest {
    #[serde(rename = "from_bits_per_second")]
    pub from: BitRate,
    #[serde(rename = "to_bits_per_second")]
    pub to: BitRate,
    /// Share that a passing step may lose.
    pub loss_allowed: Ratio,
    /// Send time of a step.
    #[serde(rename = "step_seconds", with = "seconds")]
    pub step: Duration,
    /// Rates of the steps, in this order, whatever their outcomes. Empty to search the rate at which loss starts.
    #[serde(rename = "rates_bits_per_second", default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<BitRate>,
}

impl Default for RampRequest {
    fn default() -> Self {
        RampRequest {
            from: BitRate(1_000_000),
            to: BitRate(100_000_000_000),
            loss_allowed: Ratio::default(),
            step: Duration::from_millis(500),
            rates: Vec::new(),
        }
    }
}

/// Maximum number of steps; doubling from one bit per second needs fewer.
pub const MAX_STEPS: usize = 64;

/// Maximum number of slices of a step.
pub const MAX_SLICES: usize = 16;

/// Result of one step of a ramp.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StepReport {
    /// Number of the step, from 0.
    pub step: u32,
    #[serde(rename = "requested_bits_per_second")]
    pub requested: BitRate,
    /// Rate that the sender reached.
    #[serde(rename = "sent_bits_per_second")]
    pub sent: BitRate,
    /// Datagrams sent in this step.
    pub datagrams: u64,
    /// Datagrams of this step that were lost.
    pub lost: u64,
    /// Arrived payload over the time from the first to the last arrival.
    #[serde(rename = "received_bits_per_second")]
    pub received: BitRate,
    /// Growth of the transit time from the first to the last datagram, by a straight line through all of them.
    pub delay_growth_seconds: Figure,
    pub outcome: StepOutcome,
    /// Slices of the step at the receiver.
    #[serde(default)]
    pub slices: StepSlices,
}

/// Parts of equal length of the send time of a step, at the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StepSlices {
    /// Send time of each slice: a power of two milliseconds.
    #[serde(rename = "width_seconds", with = "seconds")]
    pub width: Duration,
    /// The slices in the order of sending; [`MAX_SLICES`] at most. The last slice may be incomplete.
    pub slices: Vec<StepSlice>,
}

/// Datagrams of a step that were sent in one slice of its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StepSlice {
    /// Datagrams of the slice that arrived, each counted once.
    pub datagrams: u64,
    /// Minimum transit time of these datagrams minus the minimum transit time of the step. 0 without datagrams.
    pub delay_seconds: Figure,
}

/// Outcome of a step of a ramp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    #[default]
    Passed,
    /// The loss is above the allowed share.
    Lost,
    /// The loss is allowed, but the datagrams arrived more slowly than they left: loss follows when the queue is full.
    Queued,
    /// The sender did not reach the requested rate.
    SenderLimit,
}

/// Figures of one step at the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StepReceived {
    /// Number of the step.
    pub step: u32,
    /// Datagrams of the step, each counted once.
    pub datagrams: u64,
    /// From the first to the last arrival.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// Growth of the transit time from the first to the last datagram.
    pub delay_growth_seconds: Figure,
    /// Slices of the step.
    #[serde(default)]
    pub slices: StepSlices,
}

/// Figures of one step at the sender.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSent {
    pub datagrams: u64,
    /// Payload of each datagram, bytes.
    pub datagram_bytes: u64,
    /// From the first to the last departure.
    pub time: Duration,
}

/// Result of a ramp of rates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RampReport {
    /// Highest rate that passed.
    #[serde(rename = "highest_passed_bits_per_second")]
    pub highest_passed: Option<BitRate>,
    /// Lowest failed rate above it; absent if the ramp reached its end or the sender's limit.
    #[serde(rename = "lowest_failed_bits_per_second")]
    pub lowest_failed: Option<BitRate>,
    /// True if the sender was the limit: the path may carry more than the highest rate.
    pub sender_limit: bool,
    /// Steps in the order of sending.
    pub steps: Vec<StepReport>,
    /// Rate of the unfinished step of an interrupted ramp; its outcome is unknown. Absent after a complete ramp.
    #[serde(rename = "unfinished_step_bits_per_second", default, skip_serializing_if = "Option::is_none")]
    pub unfinished_step: Option<BitRate>,
}
