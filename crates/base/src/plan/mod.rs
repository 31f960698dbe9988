//! From a path to the settings of its hosts and the expected result: buffers, window scale, streams, sysctl lines,
//! goodput.
//!
//! The reports of 1995 did this arithmetic by hand before each run: RTT × capacity → BDP → socket buffer → window
//! scale, and from there the effect of a fixed receive window, of loss or of a cold start. A plan is a function of a
//! [`PathProfile`] and [`PlanOptions`]. It measures nothing. Every command that measures starts from a plan, so that
//! each measured figure has a predicted figure for comparison. The formulas are in [`crate::tcp_model`]; this module
//! makes decisions from them, and [`reasons`] explains the decisions.

use std::time::Duration;

use serde::Serialize;

pub mod advice;
mod compute;
pub mod congestion;
pub mod reasons;
pub mod settings;
pub mod streams;

pub use compute::{plan, predict_goodput};
pub use congestion::{
    CongestionPrediction, available_congestion, compare_congestion, predict_congestion, recommend_congestion,
    select_congestion,
};

use crate::path::{PathProfile, optional_seconds, seconds};
use crate::tcp_model::{Congestion, FlowParameters, Prediction};
use crate::units::{BitRate, Bytes, Ratio};

/// Maximum window of TCP: 65,535 << 14 (RFC 7323, section 2.3).
pub const MAX_WINDOW: Bytes = Bytes(65_535 << 14);
/// Maximum number of streams in a plan: the number of ports.
pub const MAX_STREAMS: u32 = 65_535;
/// Maximum value of a buffer in a sysctl.
const MAX_SYSCTL: u64 = i32::MAX as u64;
/// Version of the JSON form of a [`Plan`].
pub const SCHEMA: &str = "lfn.plan/2";

/// Requests of the user, and limits of the hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// Bytes to move; `None` predicts the goodput only.
    pub size: Option<Bytes>,
    /// Streams to use; `None`: as few as the buffers allow.
    pub streams: Option<u32>,
    /// Maximum kernel memory of a socket buffer, as sysctls count it; half of the memory holds payload. The default is
    /// 2 GiB − 1 B, the maximum of a sysctl.
    pub max_buffer: Bytes,
    /// Fixed receive window of each stream, instead of the planned window.
    pub window: Option<Bytes>,
    /// Negotiated window scale, 0 to 14, instead of the smallest sufficient scale. It is 0 if the option is absent.
    pub window_scale: Option<u8>,
    pub congestion: Congestion,
    /// First flight, segments; the default is 10 (RFC 6928).
    pub initial_window: u32,
    /// The same as [`FlowParameters::delayed_ack`].
    pub delayed_ack: bool,
}

/// The settings that a path needs, and the result to expect.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Plan {
    /// Name and version of the schema.
    #[cfg_attr(any(test, feature = "schema"), schemars(extend("const" = SCHEMA)))]
    pub schema: &'static str,
    /// Round-trip time of the path.
    #[serde(rename = "rtt_seconds", with = "seconds")]
    pub rtt: Duration,
    /// Capacity of the bottleneck.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: BitRate,
    /// Maximum TCP goodput of the capacity.
    #[serde(rename = "payload_capacity_bits_per_second")]
    pub payload_capacity: BitRate,
    /// Payload of a full segment.
    #[serde(rename = "mss_bytes")]
    pub mss: u32,
    /// Bytes in flight that fill the path.
    #[serde(rename = "bdp_bytes")]
    pub bdp: Bytes,
    /// Number of parallel streams.
    pub streams: u32,
    /// Send and receive buffer of each stream at both ends: the value for SO_SNDBUF and SO_RCVBUF.
    #[serde(rename = "buffer_bytes")]
    pub buffer: Bytes,
    /// The same buffer, rounded up so that the window scale loses nothing of it.
    #[serde(rename = "buffer_rounded_bytes")]
    pub buffer_rounded: Bytes,
    /// Payload that a socket buffer must hold so that the path can be full, also where the requested window is smaller.
    #[serde(rename = "kernel_buffer_bytes")]
    pub kernel_buffer: Bytes,
    /// Kernel memory of one full socket buffer.
    #[serde(rename = "memory_per_socket_bytes")]
    pub memory_per_socket: Bytes,
    /// Smallest window scale that can offer the buffer, or the requested one.
    pub window_scale: u8,
    /// Scale that Linux offers if SO_RCVBUF is set to the buffer before connect or listen.
    pub linux_window_scale: u8,
    /// Scale that Linux offers if SO_RCVBUF is not set and the sysctl lines are active: autotuning may then use their
    /// maximum.
    pub linux_autotuned_window_scale: u8,
    /// Random loss at which each stream can still fill its share with the predicted congestion control.
    pub loss_budget: Ratio,
    /// Goodput and loss budget of each congestion control.
    pub congestion_controls: [CongestionPrediction; 3],
    /// Maximum TCP goodput by the method of RFC 6349.
    #[serde(rename = "rfc6349_max_tcp_bits_per_second")]
    pub rfc6349_max_tcp: BitRate,
    pub predicted: PlanPrediction,
    /// Reasons for the figures, as sentences.
    pub reasons: Vec<String>,
    pub path: PathProfile,
}

/// The result to expect of a path with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlanPrediction {
    /// Steady goodput, its limit, and the idle share.
    #[serde(flatten)]
    pub steady: Prediction,
    /// Receive window of each stream.
    #[serde(rename = "window_bytes")]
    pub window: Bytes,
    pub congestion: Congestion,
    /// From the first SYN to the arrival of the last byte; absent without a size.
    #[serde(rename = "seconds", with = "optional_seconds")]
    pub time: Option<Duration>,
    /// From the first data to the steady goodput, or to the end of the data.
    #[serde(rename = "slow_start_seconds", with = "seconds")]
    pub slow_start: Duration,
    /// One round trip, before the first data.
    #[serde(rename = "handshake_seconds", with = "seconds")]
    pub handshake: Duration,
    /// Time of the data after slow start; absent without a size.
    #[serde(rename = "steady_seconds", with = "optional_seconds")]
    pub steady_time: Option<Duration>,
    /// Bytes of the transfer; absent without a size.
    #[serde(rename = "size_bytes")]
    pub size: Option<Bytes>,
    /// Size divided by time.
    #[serde(rename = "average_goodput_bits_per_second")]
    pub average_goodput: Option<BitRate>,
}

/// Error: a path or a request that has no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The path carries nothing. Remedy: its true capacity.
    #[error("the capacity of the path is 0 b/s: it must be above 0")]
    NoCapacity,
    /// Without an RTT there is no BDP and nothing to plan. Remedy: an RTT above 0.
    #[error("the RTT is zero: it must be above 0")]
    NoRtt,
    /// The headers are as large as the MTU. Remedy: a larger MTU or fewer headers.
    #[error("an MTU of {mtu} bytes leaves no room for data after the headers")]
    HeadersFillMtu {
        /// IP MTU in bytes.
        mtu: u32,
    },
    /// No packet arrives. Remedy: a loss below 100 %.
    #[error("at a loss of 100 % no packet arrives")]
    TotalLoss,
    /// The user requested a buffer, window or stream count of zero. Remedy: at least one.
    #[error("{quantity} of zero moves no data")]
    Zero {
        /// Name of the requested quantity, with its article.
        quantity: &'static str,
    },
    /// TCP cannot offer a window of this size (RFC 7323). Remedy: this many streams, which share the window.
    #[error("a window of {} is beyond TCP: the maximum is {} (65,535 << 14)", window.exact(), MAX_WINDOW.exact())]
    WindowUnreachable {
        window: Bytes,
        /// Streams that offer the window together.
        streams: u64,
    },
    /// The window and the maximum buffer contradict each other. Remedy: raise the maximum buffer or lower the window.
    #[error(
        "a window of {} needs a buffer of twice its size: the maximum buffer is {}", window.exact(), max_buffer.exact()
    )]
    WindowBeyondBuffer { window: Bytes, max_buffer: Bytes },
    /// RFC 7323 allows 0 to 14. Remedy: a scale of 0 to 14.
    #[error("a window scale of {scale} is not possible: the maximum is 14 (RFC 7323)")]
    WindowScaleTooLarge { scale: u8 },
    /// The BDP needs more streams with this buffer than there are ports. Remedy: larger buffers, if the BDP is correct.
    #[error("{bdp} in flight need {streams} streams of {buffer}: the maximum is {MAX_STREAMS}")]
    TooManyStreams {
        bdp: Bytes,
        /// Streams that the path needs, or that the user requested.
        streams: u64,
        /// Buffer of each stream.
        buffer: Bytes,
    },
    /// The transfer takes longer than a duration can be (584 years). Remedy: less data or a faster path.
    #[error("{size} at {goodput} would take more than 584 years")]
    DurationTooLong { size: Bytes, goodput: BitRate },
}

/// Returns the smallest window scale that can offer `window`: the smallest s with 65,535 << s ≥ window (RFC 7323);
/// `None` above 14.
pub fn minimal_window_scale(window: Bytes) -> Option<u8> {
    (0..=14).find(|scale| 65_535_u64 << scale >= window.0)
}

/// Returns the scale that Linux offers for `space` bytes of window. `space` is the SO_RCVBUF requested before connect
/// or listen, else the larger of tcp_rmem's maximum and rmem_max (tcp_select_initial_window; measured on 6.18).
pub fn linux_window_scale(space: Bytes) -> u8 {
    let log = space.0.checked_ilog2().unwrap_or(0);
    u8::try_from(log.saturating_sub(15).min(14)).unwrap_or(14)
}

/// Rounds the buffer for a window up so that the window scale loses nothing of it, by the rule of the ACTS report on
/// window scales (1995, report 004). With 2^s as the factor of the scale: divide the window by 2^s, round up to a
/// multiple of 2^s, multiply by 2^s. The result is at most 65,535 times 2^s, the maximum of the scale. `None` above
/// scale 14.
pub fn round_buffer(window: Bytes) -> Option<Bytes> {
    let factor = 1_u64 << minimal_window_scale(window)?;
    Some(Bytes((window.0.div_ceil(factor).next_multiple_of(factor) * factor).min(65_535 * factor)))
}

impl Default for PlanOptions {
    fn default() -> Self {
        let FlowParameters { congestion, initial_window, delayed_ack, .. } = FlowParameters::default();
        PlanOptions {
            size: None,
            streams: None,
            max_buffer: Bytes(MAX_SYSCTL),
            window: None,
            window_scale: None,
            congestion,
            initial_window,
            delayed_ack,
        }
    }
}

/// Returns twice the buffer in whole MiB, because Linux counts half of its receive memory as window
/// (tcp_adv_win_scale of 1). The maximum is the largest value of a sysctl.
pub fn kernel_limit(buffer: Bytes) -> Bytes {
    Bytes(buffer.0.saturating_mul(2).next_multiple_of(1 << 20).min(MAX_SYSCTL))
}
