//! Slow start: its share, its early end, and its overshoot.

use lfn_base::units::show_duration;
use serde_json::json;

use super::faults::judged;
use super::found::{Found, on, percent};
use super::queue::MIN_PATH_SHARE;
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::{CaptureEvidence, PeriodLimit};
use crate::evidence::figures::Figures;

/// Minimum share of the time without pauses that slow start takes.
pub(in crate::diagnose) const MIN_STARTUP_SHARE: f64 = 0.4;
/// Minimum RTTs of a connection whose slow start matters.
pub(in crate::diagnose) const MIN_ROUND_TRIPS: f64 = 2.0;
/// Bytes in flight after slow start, relative to its end, that show an early end.
pub(in crate::diagnose) const MIN_LATER_GROWTH: f64 = 1.3;
/// Maximum share of the time with a queue of a path that slow start left too early.
pub(in crate::diagnose) const MAX_STANDING_SHARE: f64 = 0.4;
/// Minimum share of the possible rate that is unused after an early exit.
pub(in crate::diagnose) const MIN_EXIT_UNUSED_SHARE: f64 = 0.1;
/// Minimum losses of an overshoot.
pub(in crate::diagnose) const MIN_OVERSHOOT: u64 = 10;
/// Minimum share of the possible rate that is unused afterwards. A smaller cost is part of any slow start.
pub(in crate::diagnose) const MIN_UNUSED_SHARE: f64 = 0.2;
/// Maximum share of pauses: each pause starts another slow start.
pub(in crate::diagnose) const MAX_PAUSE_SHARE: f64 = 0.3;
/// Minimum share of all losses in slow start.
pub(in crate::diagnose) const MIN_OVERSHOOT_SHARE: f64 = 0.6;

/// Packets in the first round trip of slow start (RFC 6928).
const FIRST_PACKETS: f64 = 10.0;
/// Growth of the data of a round trip in slow start, with delayed acknowledgements.
const GROWTH: f64 = 1.5;
/// Maximum round trips of a slow start, relative to those that its data needs.
pub(in crate::diagnose) const MAX_LENGTH: f64 = 3.0;

/// Returns true if the sender had far more round trips than slow start needs for the data: the application had no more data.
pub(super) fn is_too_long(capture: &CaptureEvidence) -> bool {
    let packets = capture.startup.payload.0 as f64 / f64::from(capture.mss_bytes.max(1));
    let needed = 1.0 + (1.0 + packets * (GROWTH - 1.0) / FIRST_PACKETS).ln() / GROWTH.ln();
    capture.startup.is_unfinished
        && capture.startup.time.as_secs_f64() > MAX_LENGTH * needed * capture.rtt.base.as_secs_f64()
}

/// Finds a transfer that is mostly slow start.
pub(in crate::diagnose) fn slow_start(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    // The periods include pauses.
    let time = capture.time_of(PeriodLimit::StartUp).min(capture.active);
    let share = capture.active_share(time);
    let round_trips = capture.active.as_secs_f64() / capture.rtt.base.as_secs_f64().max(1e-9);
    let is_slow_start = share >= MIN_STARTUP_SHARE && round_trips >= MIN_ROUND_TRIPS;
    if !is_slow_start || is_too_long(capture) || capture.data_packets < 3 {
        return None;
    }
    let found = Found {
        cause: Cause::StartUp,
        // A loss that ended slow start is a limit of its own.
        share: capture.share(time) * if capture.startup.is_unfinished { 1.0 } else { 0.5 },
        confidence: Confidence::Medium,
        summary: format!(
            "handshake and slow start took {} of {} active ({}): {} is short for RTT {}",
            show_duration(time),
            show_duration(capture.active),
            percent(share),
            capture.payload,
            show_duration(capture.rtt.base)
        ),
        remedy: on(&capture.sender, "lfn copy FILES HOST:   # one connection for many files, and parallel streams"),
        evidence: figures_map([
            ("startup_seconds", json!(time.as_secs_f64())),
            ("base_rtt_seconds", json!(capture.rtt.base.as_secs_f64())),
            ("payload_bytes", json!(capture.payload.0)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds a slow start that ended without a loss, far below the bytes in flight that the path carried later.
pub(in crate::diagnose) fn early_exit(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let startup = &capture.startup;
    let growth = startup.later_in_flight.0 as f64 / startup.peak_in_flight.0.max(1) as f64;
    if !startup.is_early_exit
        || capture.handshake.rtt.is_none()
        || capture.queue.unused_share < MIN_EXIT_UNUSED_SHARE
        || capture.path_share() < MIN_PATH_SHARE
        || growth < MIN_LATER_GROWTH
        || capture.lost() > capture.data_packets / 100
        || capture.queue.standing_share > MAX_STANDING_SHARE
    {
        return None;
    }
    let found = Found {
        cause: Cause::EarlyExit,
        share: capture.path_share() * (1.0 - 1.0 / growth),
        confidence: Confidence::Medium,
        summary: format!(
            "slow start ended after {} with {} in flight and without a loss; the path later carried {}",
            show_duration(startup.time),
            startup.peak_in_flight,
            startup.later_in_flight
        ),
        remedy: on(
            &capture.sender,
            "ip tcp_metrics flush; sysctl -w net.ipv4.tcp_no_metrics_save=1   # and echo 0 > \
             /sys/module/tcp_cubic/parameters/hystart",
        ),
        evidence: figures_map([
            ("exit_in_flight_bytes", json!(startup.peak_in_flight.0)),
            ("later_in_flight_bytes", json!(startup.later_in_flight.0)),
            ("startup_seconds", json!(startup.time.as_secs_f64())),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds losses of slow start that are most of all losses.
pub(in crate::diagnose) fn overshoot(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let lost = capture.lost();
    let startup = capture.loss.startup_losses.min(lost);
    if startup < MIN_OVERSHOOT || (startup as f64) < MIN_OVERSHOOT_SHARE * lost as f64 {
        return None;
    }
    let unused = capture.queue.unused_share;
    let pauses = capture.share(capture.application.pause_time());
    let lacks_handshake = capture.handshake.rtt.is_none();
    if unused < MIN_UNUSED_SHARE || pauses > MAX_PAUSE_SHARE || capture.queue.competing.is_some() || lacks_handshake {
        return None;
    }
    let found = Found {
        cause: Cause::Overshoot,
        share: capture.path_share() * unused,
        confidence: Confidence::Medium,
        summary: format!(
            "the end of slow start lost {startup} packets of {lost} in total, and {} of the possible rate was unused \
             afterwards",
            percent(unused)
        ),
        remedy: on(&capture.sender, "sysctl -w net.core.default_qdisc=fq net.ipv4.tcp_congestion_control=bbr"),
        evidence: figures_map([("startup_losses", json!(startup)), ("lost_packets", json!(lost))]),
    };
    Some(found.finding(figures))
}
