//! Losses: random, in bursts, with timeouts, and those of a policer.

use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};
use serde_json::json;

use super::faults::judged;
use super::found::{Found, on, percent, rounded};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::{CaptureEvidence, PeriodLimit, PolicerFit};
use crate::evidence::figures::Figures;

/// Minimum share of lost packets that limits TCP on a long path.
pub(in crate::diagnose) const MIN_LOST_SHARE: f64 = 0.0005;
/// Minimum number of losses; fewer are chance.
pub(in crate::diagnose) const MIN_LOSSES: u64 = 3;
/// Minimum share of the losses without a queueing delay before them.
pub(in crate::diagnose) const MIN_FLAT_SHARE: f64 = 0.6;
/// Losses of one event that are a burst, on average.
pub(in crate::diagnose) const MIN_BURST: f64 = 3.0;
/// Minimum share of the time in waits for timeouts.
pub(in crate::diagnose) const MIN_TIMEOUT_SHARE: f64 = 0.3;
/// Minimum losses that show a token bucket.
pub(in crate::diagnose) const MIN_POLICED: u64 = 10;
/// Minimum share of lost and of passed packets that the token bucket explains.
pub(in crate::diagnose) const MIN_EXPLAINED_SHARE: f64 = 0.85;
/// The same for many losses, which a wrong bucket explains less often by chance.
pub(in crate::diagnose) const MIN_EXPLAINED_OF_MANY: f64 = 0.82;
/// Share of the measured rate at which the sender should send: the estimate is within 4 % for most policers, and a policer also
/// counts headers that a capture lacks.
const REMEDY_SHARE: f64 = 0.95;
/// Losses that are many.
pub(in crate::diagnose) const MANY_POLICED: u64 = 60;

/// Minimum share of the losses at a low RTT that the overflow of a queue explains.
pub(in crate::diagnose) const MIN_OVERFLOW_SHARE: f64 = 0.8;
/// Maximum median delay before the losses of a policer / drain time of its bucket. A burst waits for a fast line only.
pub(in crate::diagnose) const MAX_POLICED_DELAY: f64 = 0.25;
/// Maximum of the same delay in base RTTs. A queue of any other size that was full delays by more.
pub(in crate::diagnose) const MAX_POLICED_RTTS: f64 = 0.5;
/// Maximum delay that nine tenths of the losses of a policer exceed, in base RTTs.
pub(in crate::diagnose) const MAX_LOW_DELAY: f64 = 0.2;

/// Returns the fit of a token bucket if it explains the losses.
pub(super) fn explained(capture: &CaptureEvidence) -> Option<&PolicerFit> {
    let fit = capture.policer.as_ref()?;
    let needed = if fit.losses >= MANY_POLICED { MIN_EXPLAINED_OF_MANY } else { MIN_EXPLAINED_SHARE };
    (fit.losses >= MIN_POLICED && fit.explained_share >= needed).then_some(fit)
}

/// Returns the seconds in which a queue of the size of the bucket drains.
fn drain_time(fit: &PolicerFit) -> f64 {
    (fit.bucket.0 as f64 * 8.0 / fit.rate.as_f64().max(1.0)).max(1e-9)
}

/// Returns true if the bucket is a queue: its overflow explains most of the losses without an RTT before them that shows a
/// queue, and packets waited before the losses. The overflow at the end of slow start alone does not explain the others.
pub(super) fn is_bucket_queue(capture: &CaptureEvidence) -> bool {
    explained(capture).filter(|fit| !is_without_queue(capture, fit)).is_some_and(|fit| {
        let others = fit.explained_share * fit.losses as f64 - capture.loss.startup_losses as f64;
        others >= MIN_OVERFLOW_SHARE * capture.loss.flat_losses as f64
    })
}

/// Returns the delay of the queue before its losses.
pub(super) fn delay_at_loss(capture: &CaptureEvidence) -> Option<Duration> {
    explained(capture).and_then(|fit| fit.delay).or(capture.queue.delay_at_loss)
}

/// Returns true if no queue overflowed when the packets were lost.
///
/// The missing tokens of a bucket and the bytes in a queue grow alike, so both have the same fit. But a packet waits until the queue
/// before it drains, and no packet waits for tokens. Before the losses of a queue of the size of the bucket, the delay is therefore
/// near the drain time of the bucket. The queue of a shaper is shorter than its bucket, but almost all of its losses follow a delay.
/// Before the losses of a policer, only bursts wait, for a line that is faster than the bucket is filled.
fn is_without_queue(capture: &CaptureEvidence, fit: &PolicerFit) -> bool {
    let delay =
        |of_packets: Option<Duration>| of_packets.or(capture.queue.delay_at_loss).unwrap_or_default().as_secs_f64();
    let base = capture.rtt.base.as_secs_f64();
    let is_bucket_full = delay(fit.delay) > MAX_POLICED_DELAY * drain_time(fit);
    let is_other_full = delay(fit.delay) > MAX_POLICED_RTTS * base || delay(fit.low_delay) > MAX_LOW_DELAY * base;
    !is_bucket_full && !is_other_full
}

/// Returns true if the losses are those of a bucket without a queue.
pub(super) fn is_policed(capture: &CaptureEvidence) -> bool {
    explained(capture).is_some_and(|fit| is_without_queue(capture, fit))
}

pub(super) fn is_flat(capture: &CaptureEvidence) -> bool {
    capture.loss.at_flat_rtt_share >= MIN_FLAT_SHARE && !is_bucket_queue(capture)
}

fn is_lossy(capture: &CaptureEvidence) -> bool {
    let flat = capture.loss.flat_losses;
    flat.min(capture.lost()) >= MIN_LOSSES && flat as f64 >= MIN_LOST_SHARE * capture.data_packets as f64
}

/// Returns the share of the time that losses took, without the waits for timeouts.
fn loss_share(capture: &CaptureEvidence) -> f64 {
    (capture.path_share() - capture.share(capture.loss.timeout)).max(0.0)
}

fn burst(capture: &CaptureEvidence) -> f64 {
    capture.loss.flat_losses as f64 / capture.loss.flat_events.max(1) as f64
}

/// Finds a token bucket without a queue.
pub(in crate::diagnose) fn policer(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let fit = explained(capture).filter(|_| is_policed(capture))?;
    let found = Found {
        cause: Cause::Policer,
        share: capture.path_share(),
        confidence: if capture.loss.events >= 3 { Confidence::High } else { Confidence::Medium },
        summary: format!(
            "a token bucket of {} filled at {} explains {} of {} losses and of the passed packets, and no full \
             queue delayed the packets before the losses",
            fit.bucket,
            fit.rate,
            percent(fit.explained_share),
            fit.losses
        ),
        remedy: on(
            &capture.sender,
            format!(
                "tc qdisc replace dev INTERFACE root fq maxrate {}   # INTERFACE: as in `ip route get ADDRESS`; or ask for a shaper",
                rounded(BitRate((REMEDY_SHARE * fit.rate.as_f64()) as u64)).to_argument()
            ),
        ),
        evidence: figures_map([
            ("rate_bits_per_second", json!(fit.rate.0)),
            ("bucket_bytes", json!(fit.bucket.0)),
            ("explained_share", json!(fit.explained_share)),
            ("losses", json!(fit.losses)),
            ("connections", json!(fit.connections)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds losses of single packets without a queue.
pub(in crate::diagnose) fn random_loss(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !is_lossy(capture) || !is_flat(capture) || burst(capture) >= MIN_BURST {
        return None;
    }
    let found = Found {
        cause: Cause::RandomLoss,
        share: loss_share(capture),
        confidence: if capture.lost() >= 10 { Confidence::High } else { Confidence::Medium },
        summary: format!(
            "{} of {} packets were lost ({}), mostly single ones and without a queue before them: RTT {} median, {} base",
            capture.lost(),
            capture.data_packets,
            percent(capture.loss.share),
            show_duration(capture.rtt.median),
            show_duration(capture.rtt.base)
        ),
        remedy: on(&capture.sender, "sysctl -w net.ipv4.tcp_congestion_control=bbr"),
        evidence: loss_figures(capture),
    };
    Some(found.finding(figures))
}

/// Finds losses of several packets at once without a queue.
pub(in crate::diagnose) fn loss_bursts(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !is_lossy(capture) || !is_flat(capture) || burst(capture) < MIN_BURST {
        return None;
    }
    let found = Found {
        cause: Cause::LossBursts,
        share: loss_share(capture),
        confidence: Confidence::Medium,
        summary: format!(
            "{} packets were lost in {} bursts of up to {} packets, without a queue before them",
            capture.lost(),
            capture.loss.events,
            capture.loss.largest_event
        ),
        remedy: on(&capture.sender, "sysctl -w net.ipv4.tcp_congestion_control=bbr"),
        evidence: loss_figures(capture),
    };
    Some(found.finding(figures))
}

/// Finds waits for retransmission timeouts.
pub(in crate::diagnose) fn timeouts(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let share = capture.share(capture.loss.timeout);
    if share < MIN_TIMEOUT_SHARE {
        return None;
    }
    let found = Found {
        cause: Cause::Timeouts,
        // The losses that led to the timeouts are the same ones that slow the rest of the time.
        share: share.max(capture.share(capture.time_of(PeriodLimit::Recovery))),
        confidence: Confidence::High,
        summary: format!(
            "the sender waited {} for {} retransmission timeouts, {} of the time; {} of {} packets were lost",
            show_duration(capture.loss.timeout),
            capture.loss.timeouts,
            percent(share),
            capture.lost(),
            capture.data_packets
        ),
        remedy: on(&capture.sender, "sysctl -w net.ipv4.tcp_sack=1 net.ipv4.tcp_recovery=1 net.ipv4.tcp_frto=2"),
        evidence: loss_figures(capture),
    };
    Some(found.finding(figures))
}

pub(super) fn loss_figures(capture: &CaptureEvidence) -> std::collections::BTreeMap<String, serde_json::Value> {
    figures_map([
        ("lost_packets", json!(capture.lost())),
        ("lost_share", json!(capture.loss.share)),
        ("loss_events", json!(capture.loss.events)),
        ("largest_event", json!(capture.loss.largest_event)),
        ("at_flat_rtt_share", json!(capture.loss.at_flat_rtt_share)),
        ("timeouts", json!(capture.loss.timeouts)),
        ("timeout_seconds", json!(capture.loss.timeout.as_secs_f64())),
        ("spurious_retransmissions", json!(capture.loss.spurious)),
    ])
}
