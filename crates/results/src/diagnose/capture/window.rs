//! Receive window, window scaling and slow readers.

use lfn_base::units::{BitRate, show_duration};
use serde_json::json;

use super::faults::judged;
use super::found::{Found, buffer_for, on, percent};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::{CaptureEvidence, PeriodLimit};
use crate::evidence::figures::Figures;

/// Minimum share of the active time with a full window and no queue.
pub(in crate::diagnose) const MIN_BINDING_SHARE: f64 = 0.3;
/// Minimum window of a receiver that would use more with window scaling, bytes.
pub(in crate::diagnose) const MIN_UNSCALED_WINDOW: u64 = 32_768;
/// Minimum share of the time with a closed window.
pub(in crate::diagnose) const MIN_CLOSED_SHARE: f64 = 0.05;
/// Minimum bytes by which the window shrank, relative to the acknowledged bytes. A fast reader leaves less than 0.25.
pub(in crate::diagnose) const MIN_UNREAD_SHARE: f64 = 0.4;
/// Minimum data packets for a judgement of the reader.
pub(in crate::diagnose) const MIN_PACKETS: u64 = 50;
/// Maximum receive buffer of Linux by default, bytes: the third value of `net.ipv4.tcp_rmem` with enough memory.
const DEFAULT_TCP_RMEM: u64 = 6_291_456;
/// Minimum share of the active time with a window below half its maximum, and full.
pub(in crate::diagnose) const MIN_SHRUNK_SHARE: f64 = 0.2;

fn is_slow_reader(capture: &CaptureEvidence) -> bool {
    capture.share(capture.window.zero) >= MIN_CLOSED_SHARE
        || (capture.window.unread_share >= MIN_UNREAD_SHARE && capture.data_packets >= MIN_PACKETS)
        || (capture.window.shrunk_share >= MIN_SHRUNK_SHARE && capture.window.full_share >= MIN_SHRUNK_SHARE)
}

fn lacks_scaling(capture: &CaptureEvidence) -> bool {
    capture.handshake.is_complete
        && !(capture.handshake.sender_offers_scaling && capture.handshake.receiver_offers_scaling)
}

/// Finds a receiver that reads too slowly.
pub(in crate::diagnose) fn slow_reader(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !is_slow_reader(capture) {
        return None;
    }
    let full = capture.share(capture.active) * capture.window.full_share;
    let unread = match capture.window.unread_share >= MIN_UNREAD_SHARE {
        true => capture.path_share() + capture.share(capture.time_of(PeriodLimit::Receiver)),
        false => 0.0,
    };
    let closed = match capture.window.zero_windows {
        0 => String::new(),
        1 => format!("was closed once for {}, and ", show_duration(capture.window.zero)),
        count => format!("was closed {count} times for {} in total, and ", show_duration(capture.window.zero)),
    };
    let found = Found {
        cause: Cause::SlowReader,
        share: full.max(unread).max(capture.share(capture.window.zero)),
        confidence: if capture.window.zero_windows > 0 { Confidence::High } else { Confidence::Medium },
        summary: format!(
            "the receive window {closed}was less than half its maximum for {} of the active time: the receiving \
             application reads too slowly",
            percent(capture.window.shrunk_share)
        ),
        remedy: on(&capture.receiver, "pidstat -dru 1   # find the slow part of the receiving application"),
        evidence: figures_map([
            ("zero_window_seconds", json!(capture.window.zero.as_secs_f64())),
            ("zero_windows", json!(capture.window.zero_windows)),
            ("shrunk_share", json!(capture.window.shrunk_share)),
            ("maximum_window_bytes", json!(capture.window.max.0)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds a window that cannot be larger, because window scaling is off.
pub(in crate::diagnose) fn no_scaling(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !lacks_scaling(capture)
        || capture.window.binding_share < MIN_BINDING_SHARE
        || capture.window.max.0 < MIN_UNSCALED_WINDOW
        || is_slow_reader(capture)
    {
        return None;
    }
    let end = if capture.handshake.receiver_offers_scaling { &capture.sender } else { &capture.receiver };
    let found = Found {
        cause: Cause::WindowScaleAbsent,
        share: capture.share(capture.active) * capture.window.binding_share,
        confidence: Confidence::High,
        summary: format!(
            "{end} did not offer window scaling, so the window is at most 65,535 B: {} at RTT {}",
            window_rate(capture),
            show_duration(capture.rtt.base)
        ),
        remedy: on(end, "sysctl -w net.ipv4.tcp_window_scaling=1"),
        evidence: window_figures(capture),
    };
    Some(found.finding(figures))
}

/// Finds a receive window that limits the bytes in flight while the path has no queue.
pub(in crate::diagnose) fn receive_window(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if capture.window.binding_share < MIN_BINDING_SHARE
        || is_slow_reader(capture)
        || (lacks_scaling(capture) && capture.window.max.0 >= MIN_UNSCALED_WINDOW)
    {
        return None;
    }
    // Not less than the default of Linux.
    let needed = buffer_for(4.0 * capture.window.typical.0 as f64).max(DEFAULT_TCP_RMEM);
    let found = Found {
        cause: Cause::ReceiveWindow,
        share: capture.share(capture.active) * capture.window.binding_share,
        confidence: if capture.handshake.is_scale_inferred { Confidence::Medium } else { Confidence::High },
        summary: format!(
            "the bytes in flight filled the receive window of {} for {} of the active time: {} at RTT {}",
            capture.window.typical,
            percent(capture.window.binding_share),
            window_rate(capture),
            show_duration(capture.rtt.base)
        ),
        remedy: on(&capture.receiver, format!("sysctl -w net.ipv4.tcp_rmem='4096 131072 {needed}'")),
        evidence: window_figures(capture),
    };
    Some(found.finding(figures))
}

fn window_rate(capture: &CaptureEvidence) -> BitRate {
    capture.window.typical.per(capture.rtt.base)
}

fn window_figures(capture: &CaptureEvidence) -> std::collections::BTreeMap<String, serde_json::Value> {
    figures_map([
        ("window_bytes", json!(capture.window.typical.0)),
        ("full_share", json!(capture.window.full_share)),
        ("binding_share", json!(capture.window.binding_share)),
        ("base_rtt_seconds", json!(capture.rtt.base.as_secs_f64())),
        ("window_scale", json!(capture.handshake.window_scale)),
    ])
}
