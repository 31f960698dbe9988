//! Queues of the bottleneck: standing, short, and those of a shaper.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::faults::{judged, judged_path};
use super::found::{Found, on, rounded};
use super::losses::{delay_at_loss, is_flat, is_policed, loss_figures};
use crate::diagnose::path::MIN_QUEUEING_DELAY;
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::CaptureEvidence;
use crate::evidence::figures::Figures;

/// RTT at 95 % in base RTTs that shows a standing queue: more than the BDP that a queue needs for one connection.
pub(in crate::diagnose) const STANDING_QUEUE_RTT_FACTOR: f64 = 2.5;
/// Minimum share of the active time with a queue.
pub(in crate::diagnose) const MIN_STANDING_SHARE: f64 = 0.3;
/// Minimum share of the whole connection that the path limits, for a queue that costs time.
pub(in crate::diagnose) const MIN_PATH_SHARE: f64 = 0.1;
/// Maximum queueing delay of a short queue before its losses, in base RTTs.
pub(in crate::diagnose) const MAX_SHORT_QUEUE: f64 = 0.5;
/// Minimum losses of a short queue.
pub(in crate::diagnose) const MIN_LOSSES: u64 = 3;

fn delay(capture: &CaptureEvidence) -> Duration {
    capture.rtt.median.saturating_sub(capture.rtt.base)
}

fn is_standing(capture: &CaptureEvidence) -> bool {
    let base = capture.rtt.base.as_secs_f64();
    capture.rtt.p95.as_secs_f64() >= STANDING_QUEUE_RTT_FACTOR * base
        && capture.rtt.p95.saturating_sub(capture.rtt.base) >= MIN_QUEUEING_DELAY
        && capture.queue.standing_share >= MIN_STANDING_SHARE
}

/// Finds a queue that delays most packets.
pub(in crate::diagnose) fn queueing(figures: &Figures) -> Option<Finding> {
    let capture = judged_path(figures)?;
    if !is_standing(capture) || capture.path_share() < MIN_PATH_SHARE {
        return None;
    }
    let rate = capture.queue.plateau;
    let found = Found {
        cause: Cause::Queueing,
        share: capture.path_share(),
        confidence: Confidence::High,
        summary: format!(
            "packets waited {} in a queue (median), the RTT was {} at 95 % and {} without the queue{}",
            show_duration(delay(capture)),
            show_duration(capture.rtt.p95),
            show_duration(capture.rtt.base),
            rate.map_or_else(String::new, |rate| format!("; the path is full at {rate}"))
        ),
        remedy: on(&capture.sender, "sysctl -w net.core.default_qdisc=fq net.ipv4.tcp_congestion_control=bbr"),
        evidence: queue_figures(capture),
    };
    Some(found.finding(figures))
}

/// Finds a queue that overflows although it is much shorter than the BDP.
pub(in crate::diagnose) fn short_queue(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let at_loss = delay_at_loss(capture)?;
    let short = MAX_SHORT_QUEUE * capture.rtt.base.as_secs_f64();
    let others = capture.lost().saturating_sub(capture.loss.startup_losses);
    if others < MIN_LOSSES
        || is_flat(capture)
        || is_policed(capture)
        || is_standing(capture)
        || at_loss.max(capture.rtt.p95.saturating_sub(capture.rtt.base)).as_secs_f64() > short
    {
        return None;
    }
    let mut evidence = queue_figures(capture);
    evidence.extend(loss_figures(capture));
    let found = Found {
        cause: Cause::ShortQueue,
        share: capture.path_share(),
        confidence: Confidence::Medium,
        summary: format!(
            "{} packets were lost when the queue had grown to {}, which is short for RTT {}",
            capture.lost(),
            show_duration(at_loss),
            show_duration(capture.rtt.base)
        ),
        remedy: on(&capture.sender, "sysctl -w net.core.default_qdisc=fq net.ipv4.tcp_congestion_control=bbr"),
        evidence,
    };
    Some(found.finding(figures))
}

/// Finds a token bucket with a queue: a burst passes, then the rate is steady and the packets wait.
pub(in crate::diagnose) fn shaper(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let (burst, rate) = (capture.queue.burst?, capture.queue.plateau?);
    if is_policed(capture) || capture.queue.competing.is_some() || capture.queue.standing_share < MIN_STANDING_SHARE {
        return None;
    }
    let mut evidence = queue_figures(capture);
    evidence.extend(figures_map([("burst_bytes", json!(burst.0)), ("rate_bits_per_second", json!(rate.0))]));
    let found = Found {
        cause: Cause::Shaper,
        share: capture.path_share() * 1.01,
        confidence: Confidence::Medium,
        summary: format!("{burst} passed faster, then the rate was steady at {rate} and packets waited in a queue"),
        remedy: on(
            &capture.sender,
            format!(
                "tc qdisc replace dev INTERFACE root fq maxrate {}   # INTERFACE: as in `ip route get ADDRESS`",
                rounded(rate).to_argument()
            ),
        ),
        evidence,
    };
    Some(found.finding(figures))
}

fn queue_figures(capture: &CaptureEvidence) -> std::collections::BTreeMap<String, serde_json::Value> {
    figures_map([
        ("median_rtt_seconds", json!(capture.rtt.median.as_secs_f64())),
        ("p95_rtt_seconds", json!(capture.rtt.p95.as_secs_f64())),
        ("base_rtt_seconds", json!(capture.rtt.base.as_secs_f64())),
        ("standing_share", json!(capture.queue.standing_share)),
        ("plateau_bits_per_second", json!(capture.queue.plateau.map(|rate| rate.0))),
        ("plateau_share", json!(capture.queue.plateau_share)),
        ("delay_at_loss_seconds", json!(capture.queue.delay_at_loss.map(|delay| delay.as_secs_f64()))),
    ])
}
