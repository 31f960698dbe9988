//! From a path to what its hosts need and what they will get: buffers, window scale, streams, sysctl lines, goodput.
//!
//! This is the arithmetic the reports of 1995 did by hand before each run: RTT × capacity → BDP → socket buffer →
//! window scale, and from there what a held window, loss or a cold start leave of it. A plan is a function of a
//! [`PathProfile`] and [`Wishes`]; it measures nothing. The commands that measure start from it, so that each of their
//! figures has a predicted one beside it. The formulas are in [`crate::tcp_model`]; here they become decisions, and
//! [`reasons`] puts those in words.

use std::time::Duration;

use serde::{Serialize, Serializer};

pub mod reasons;

use crate::path::PathProfile;
use crate::rfc6349;
use crate::tcp_model::{self, Congestion, Flow, Prediction, TransferTime};
use crate::units::{BitRate, Bytes, Ratio};

/// The largest window TCP can offer: 65,535 << 14 (RFC 7323, section 2.3).
pub const MAX_WINDOW: Bytes = Bytes(65_535 << 14);
/// The most streams a plan asks for: there are no more ports.
pub const MAX_STREAMS: u32 = 65_535;
/// The version of the JSON a [`Plan`] serialises to.
pub const SCHEMA: &str = "lfn.plan/1";

/// What is wanted of a path, and what the hosts are held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wishes {
    /// Bytes to move; none: goodput alone.
    pub size: Option<Bytes>,
    /// Streams to use; none: as few as the buffers allow.
    pub streams: Option<u32>,
    /// The largest socket buffer either host gives: 1 GiB.
    pub max_buffer: Bytes,
    /// A receive window each stream holds, instead of the planned one.
    pub window: Option<Bytes>,
    /// The window scale negotiated, instead of the least that serves: 0 to 14; 0 also where the option is absent.
    pub window_scale: Option<u8>,
    /// Congestion control.
    pub congestion: Congestion,
    /// First flight, segments: 10 (RFC 6928).
    pub initial_window: u32,
    /// See [`Flow::delayed_ack`].
    pub delayed_ack: bool,
}

/// What a path needs and what it gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Base RTT.
    #[serde(rename = "rtt_seconds", serialize_with = "seconds")]
    pub rtt: Duration,
    /// What the bottleneck can carry.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: BitRate,
    /// The most TCP goodput the capacity allows.
    #[serde(rename = "payload_capacity_bits_per_second")]
    pub payload_capacity: BitRate,
    /// Payload of a full segment.
    #[serde(rename = "mss_bytes")]
    pub mss: u32,
    /// Bytes in flight that fill the path.
    #[serde(rename = "bdp_bytes")]
    pub bdp: Bytes,
    /// Streams to use.
    pub streams: u32,
    /// Send and receive buffer each stream needs, at both ends: what to ask of SO_SNDBUF and SO_RCVBUF.
    #[serde(rename = "buffer_bytes")]
    pub buffer: Bytes,
    /// The same, rounded as report 004 does so that the window scale loses nothing of it.
    #[serde(rename = "buffer_rounded_bytes")]
    pub buffer_rounded: Bytes,
    /// The least window scale that can offer the buffer, or the one wished for.
    pub window_scale: u8,
    /// The scale Linux offers if the buffer is asked of SO_RCVBUF before connect or listen.
    pub linux_window_scale: u8,
    /// The scale Linux offers if it is not, and the sysctl lines are in force: autotuning may use all they allow.
    pub linux_autotuned_window_scale: u8,
    /// Random loss at which each stream can still fill its share (pathdiag's model).
    pub loss_budget: Ratio,
    /// The most TCP goodput as RFC 6349 counts it.
    #[serde(rename = "rfc6349_max_tcp_bits_per_second")]
    pub rfc6349_max_tcp: BitRate,
    /// What to set on both hosts.
    pub sysctl: Vec<Sysctl>,
    /// What to expect.
    pub predicted: Predicted,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// The path planned for.
    pub path: PathProfile,
}

/// What to expect of a path under a plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Steady goodput, its limit, and the idle share.
    #[serde(flatten)]
    pub steady: Prediction,
    /// Receive window of each stream that the prediction is for.
    #[serde(rename = "window_bytes")]
    pub window: Bytes,
    /// Congestion control the prediction is for.
    pub congestion: Congestion,
    /// From the first SYN to the last byte's arrival; none without a size.
    #[serde(rename = "seconds", serialize_with = "optional_seconds")]
    pub time: Option<Duration>,
    /// From the first data to the steady goodput, or to the end of the data.
    #[serde(rename = "slow_start_seconds", serialize_with = "seconds")]
    pub slow_start: Duration,
    /// One round trip, before the first data.
    #[serde(rename = "handshake_seconds", serialize_with = "seconds")]
    pub handshake: Duration,
    /// The data after slow start; none without a size.
    #[serde(rename = "steady_seconds", serialize_with = "optional_seconds")]
    pub steady_time: Option<Duration>,
    /// Bytes to move.
    #[serde(rename = "size_bytes")]
    pub size: Option<Bytes>,
    /// Size over time.
    #[serde(rename = "average_goodput_bits_per_second")]
    pub average_goodput: Option<BitRate>,
}

/// One kernel setting; in JSON the line of a `sysctl.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// The name, with points.
    pub key: &'static str,
    /// The value, unquoted: `4096 131072 18874368`.
    pub value: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A path that carries nothing. Cure: its true capacity.
    #[error("a path with a capacity of 0 b/s carries nothing")]
    NoCapacity,
    /// No distance at all: no BDP, and nothing to plan. Cure: the RTT, however short.
    #[error("an RTT of zero leaves nothing to plan")]
    NoRtt,
    /// The headers are as large as the MTU. Cure: a larger MTU or fewer headers.
    #[error("an MTU of {mtu} bytes leaves no room for data after the headers")]
    NoRoom {
        /// IP MTU, bytes.
        mtu: u32,
    },
    /// No packet arrives. Cure: a loss below 100 %.
    #[error("at a loss of 100 % nothing arrives")]
    AllLost,
    /// A buffer, window or stream count of zero was wished for. Cure: at least one.
    #[error("{what} of zero moves nothing")]
    Zero {
        /// The wish, with its article.
        what: &'static str,
    },
    /// TCP cannot offer such a window (RFC 7323). Cure: this many streams, which share it.
    #[error("a window of {} is beyond TCP: the most is {} (65,535 << 14)", window.exact(), MAX_WINDOW.exact())]
    WindowUnreachable {
        /// What was wished for.
        window: Bytes,
        /// Streams that together offer it.
        streams: u64,
    },
    /// The window and the largest buffer contradict each other. Cure: raise the one or lower the other.
    #[error("a window of {} does not fit the largest buffer of {}", window.exact(), max_buffer.exact())]
    WindowBeyondBuffer {
        /// What was wished for.
        window: Bytes,
        /// The largest buffer.
        max_buffer: Bytes,
    },
    /// RFC 7323 ends at 14. Cure: 0 to 14.
    #[error("a window scale of {scale} does not exist: the most is 14 (RFC 7323)")]
    NoSuchScale {
        /// What was wished for.
        scale: u8,
    },
    /// The path holds more than all ports' streams with such buffers. Cure: larger buffers, if that BDP is meant.
    #[error("{bdp} in flight need {streams} streams of {buffer}: the most is {MAX_STREAMS}")]
    TooManyStreams {
        /// BDP.
        bdp: Bytes,
        /// Streams it would take, or that were wished for.
        streams: u64,
        /// Buffer of each.
        buffer: Bytes,
    },
    /// Longer than time is counted (584 years). Cure: less data or a faster path.
    #[error("{size} at {goodput} would take more than 584 years")]
    Endless {
        /// Bytes to move.
        size: Bytes,
        /// Steady goodput.
        goodput: BitRate,
    },
}

/// Plans for a path: what to set, and what to expect.
pub fn plan(path: &PathProfile, wishes: &Wishes) -> Result<Plan, PlanError> {
    check(path, wishes)?;
    let bdp = path.bdp();
    let streams = streams(bdp, wishes)?;
    let buffer = wishes.window.unwrap_or_else(|| share(path, streams).min(largest_buffer(wishes)));
    let window_scale = wishes.window_scale.or_else(|| minimal_window_scale(buffer)).unwrap_or(14);
    let window = buffer.min(Bytes(65_535 << window_scale));
    // The lines are a cure: they leave room for what the path needs, also where a smaller window is asked about.
    let most = kernel_limit(buffer.max(share(path, streams).min(largest_buffer(wishes))));
    let mut plan = Plan {
        schema: SCHEMA,
        rtt: path.base_rtt,
        capacity: path.capacity,
        payload_capacity: path.payload_capacity(),
        mss: path.mss(),
        bdp,
        streams,
        buffer,
        buffer_rounded: rounded_buffer(buffer).unwrap_or(MAX_WINDOW),
        window_scale,
        linux_window_scale: linux_window_scale(buffer),
        linux_autotuned_window_scale: linux_window_scale(most),
        loss_budget: tcp_model::loss_budget(path.mss(), BitRate(path.capacity.0 / u64::from(streams)), path.base_rtt),
        rfc6349_max_tcp: rfc6349::max_tcp_throughput(path),
        sysctl: sysctl(most),
        predicted: predicted(path, wishes, window, streams)?,
        reasons: Vec::new(),
        path: *path,
    };
    plan.reasons = reasons::reasons(&plan, wishes);
    Ok(plan)
}

/// Steady goodput of `streams` that each hold a receive window (none: never in the way), with Linux's CUBIC.
pub fn predict_goodput(path: &PathProfile, window: Option<Bytes>, streams: u32) -> Prediction {
    tcp_model::steady(path, &Flow { window, streams, ..Flow::default() })
}

/// The least window scale that can offer `window`: the least s with 65,535 << s ≥ window (RFC 7323); none past 14.
pub fn minimal_window_scale(window: Bytes) -> Option<u8> {
    (0..=14).find(|scale| 65_535_u64 << scale >= window.0)
}

/// The scale Linux offers for `space` bytes of window: SO_RCVBUF as asked before connect or listen, else the larger of
/// tcp_rmem's maximum and rmem_max (tcp_select_initial_window; measured on 6.18).
pub fn linux_window_scale(space: Bytes) -> u8 {
    let log = space.0.checked_ilog2().unwrap_or(0);
    u8::try_from(log.saturating_sub(15).min(14)).unwrap_or(14)
}

/// A buffer for a wanted window, rounded up so that a shift loses nothing of it, by the rule of report 004: with 2^s
/// the window scale's factor, the window divided by 2^s, rounded up to a multiple of 2^s, times 2^s; but not
/// more than the scale can offer, 65,535 times 2^s. None past scale 14.
pub fn rounded_buffer(window: Bytes) -> Option<Bytes> {
    let factor = 1_u64 << minimal_window_scale(window)?;
    Some(Bytes((window.0.div_ceil(factor).next_multiple_of(factor) * factor).min(65_535 * factor)))
}

impl Default for Wishes {
    fn default() -> Self {
        let Flow { congestion, initial_window, delayed_ack, .. } = Flow::default();
        Wishes {
            size: None,
            streams: None,
            max_buffer: Bytes(1 << 30),
            window: None,
            window_scale: None,
            congestion,
            initial_window,
            delayed_ack,
        }
    }
}

impl Sysctl {
    /// The command that sets it, for a shell.
    pub fn command(&self) -> String {
        let quote = if self.value.contains(' ') { "'" } else { "" };
        format!("sysctl -w {}={quote}{}{quote}", self.key, self.value)
    }
}

impl Serialize for Sysctl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{} = {}", self.key, self.value))
    }
}

fn check(path: &PathProfile, wishes: &Wishes) -> Result<(), PlanError> {
    if path.capacity.0 == 0 {
        return Err(PlanError::NoCapacity);
    }
    if path.base_rtt.is_zero() {
        return Err(PlanError::NoRtt);
    }
    if path.mss() == 0 {
        return Err(PlanError::NoRoom { mtu: path.mtu });
    }
    if path.loss.get() >= 1.0 {
        return Err(PlanError::AllLost);
    }
    for (wish, what) in [
        (wishes.size, "a transfer"),
        (wishes.window, "a receive window"),
        (Some(wishes.max_buffer), "a largest buffer"),
        (wishes.streams.map(|n| Bytes(n.into())), "a stream count"),
        (Some(Bytes(wishes.initial_window.into())), "an initial window"),
    ] {
        if wish == Some(Bytes(0)) {
            return Err(PlanError::Zero { what });
        }
    }
    if let Some(scale) = wishes.window_scale.filter(|scale| *scale > 14) {
        return Err(PlanError::NoSuchScale { scale });
    }
    check_window(wishes)
}

fn check_window(wishes: &Wishes) -> Result<(), PlanError> {
    let Some(window) = wishes.window else { return Ok(()) };
    if window > MAX_WINDOW {
        return Err(PlanError::WindowUnreachable { window, streams: window.0.div_ceil(MAX_WINDOW.0) });
    }
    if window > wishes.max_buffer {
        return Err(PlanError::WindowBeyondBuffer { window, max_buffer: wishes.max_buffer });
    }
    Ok(())
}

/// As many as were wished for, else as few as hold the BDP in the largest buffers.
fn streams(bdp: Bytes, wishes: &Wishes) -> Result<u32, PlanError> {
    let buffer = largest_buffer(wishes);
    let wanted = match (wishes.streams, wishes.window) {
        (Some(streams), _) => u64::from(streams),
        // A held window is a question about one stream, not a wish to fill the path.
        (None, Some(_)) => 1,
        (None, None) => bdp.0.div_ceil(buffer.0).max(1),
    };
    match u32::try_from(wanted) {
        Ok(streams) if streams <= MAX_STREAMS => Ok(streams),
        _ => Err(PlanError::TooManyStreams { bdp, streams: wanted, buffer }),
    }
}

fn largest_buffer(wishes: &Wishes) -> Bytes {
    wishes.max_buffer.min(MAX_WINDOW)
}

/// Each stream's share of the BDP; two segments at least, so that a delayed acknowledgement stops nobody.
fn share(path: &PathProfile, streams: u32) -> Bytes {
    Bytes(path.bdp().0.div_ceil(u64::from(streams)).max(u64::from(path.mss()) * 2))
}

fn predicted(path: &PathProfile, wishes: &Wishes, window: Bytes, streams: u32) -> Result<Predicted, PlanError> {
    let Wishes { congestion, initial_window, delayed_ack, size, .. } = *wishes;
    let flow = Flow { window: Some(window), streams, congestion, initial_window, delayed_ack, ..Flow::default() };
    let steady = tcp_model::steady(path, &flow);
    let endless = |size| PlanError::Endless { size, goodput: steady.goodput };
    let parts = match size {
        Some(size) => Some(tcp_model::transfer_time(path, &flow, size).ok_or_else(|| endless(size))?),
        None => None,
    };
    let time = parts.as_ref().map(TransferTime::total);
    Ok(Predicted {
        steady,
        window,
        congestion,
        time,
        slow_start: parts.map_or_else(|| tcp_model::slow_start_time(path, &flow), |parts| parts.slow_start),
        handshake: path.base_rtt,
        steady_time: parts.map(|parts| parts.steady),
        size,
        average_goodput: size.zip(time).map(|(size, time)| size.per(time)),
    })
}

/// The lines for this much memory a socket: room for buffers whether asked for by hand (core) or found by autotuning
/// (ipv4), and no second slow start on a path once warm.
fn sysctl(Bytes(most): Bytes) -> Vec<Sysctl> {
    let line = |key, value| Sysctl { key, value };
    vec![
        line("net.core.rmem_max", most.to_string()),
        line("net.core.wmem_max", most.to_string()),
        line("net.ipv4.tcp_rmem", format!("4096 {} {most}", most.min(131_072))),
        line("net.ipv4.tcp_wmem", format!("4096 {} {most}", most.min(16_384))),
        line("net.ipv4.tcp_window_scaling", "1".to_owned()),
        line("net.ipv4.tcp_sack", "1".to_owned()),
        line("net.ipv4.tcp_slow_start_after_idle", "0".to_owned()),
    ]
}

/// The congestion control to prefer on a path: CUBIC where loss leaves it the path, BBR where it does not.
///
/// Not BBR everywhere, because its PROBE_RTT empties the path for a round trip or two every ten seconds, which at
/// 539 ms costs a tenth of the goodput (`doc/decisions/004-congestion-control-by-the-plan.md`).
pub fn congestion_for(path: &PathProfile, streams: u32) -> Congestion {
    const ENOUGH: f64 = 0.95;
    let with = |congestion| tcp_model::steady(path, &Flow { streams, congestion, ..Flow::default() }).goodput.as_f64();
    if with(Congestion::Cubic) >= ENOUGH * with(Congestion::Bbr) { Congestion::Cubic } else { Congestion::Bbr }
}

/// Twice the buffer, since Linux lets half of its receive memory count as window (tcp_adv_win_scale of 1), in whole
/// MiB; not more than a sysctl can hold.
pub fn kernel_limit(buffer: Bytes) -> Bytes {
    const SYSCTL_MOST: u64 = i32::MAX as u64;
    Bytes(buffer.0.saturating_mul(2).next_multiple_of(1 << 20).min(SYSCTL_MOST))
}

fn seconds<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

fn optional_seconds<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(|value| value.as_secs_f64()).serialize(serializer)
}
