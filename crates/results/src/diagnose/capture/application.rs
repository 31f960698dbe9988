//! Applications that wait: slow writers, lock-step, and delayed acknowledgements.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::faults::judged;
use super::found::{Found, on, percent};
use super::startup::is_too_long;
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::{CaptureEvidence, PeriodLimit};
use crate::evidence::figures::Figures;

/// Minimum share of the time in pauses.
pub(in crate::diagnose) const MIN_PAUSE_SHARE: f64 = 0.2;
/// Minimum time in pauses.
pub(in crate::diagnose) const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Exchanges with at least so many packets on average are bulk data: pauses between them are ranked last.
pub(in crate::diagnose) const MIN_BULK_PACKETS: u64 = 200;
/// Minimum share of packets below the MSS of an application that writes less than the path carries. Bulk data has few: the last
/// one of each write that finds the socket empty.
pub(in crate::diagnose) const MIN_SHORT_SHARE: f64 = 0.01;
/// Minimum share of the time that waits in lock-step take.
pub(in crate::diagnose) const MIN_LOCKSTEP_SHARE: f64 = 0.2;
/// Minimum number of blocks in lock-step.
pub(in crate::diagnose) const MIN_LOCKSTEP_BLOCKS: u64 = 5;
/// Minimum number of stalls for delayed acknowledgements.
pub(in crate::diagnose) const MIN_STALLS: u64 = 3;
/// Minimum stalls as a share of the blocks in lock-step, for stalls that are the cause.
pub(in crate::diagnose) const MIN_STALLED_BLOCKS: f64 = 0.3;
/// Minimum share of the time in these stalls.
pub(in crate::diagnose) const MIN_STALL_SHARE: f64 = 0.1;
/// Share by which a cause of the path comes before pauses between parts of bulk data.
const BULK_PAUSE_WEIGHT: f64 = 0.05;

/// Returns true if the connection moves bulk data between its pauses.
fn is_bulk(capture: &CaptureEvidence) -> bool {
    capture.data_packets / (capture.application.pauses + 1) >= MIN_BULK_PACKETS
}

/// Finds an end that does not send for a large part of the time.
pub(in crate::diagnose) fn slow_writer(figures: &Figures) -> Option<Finding> {
    let capture = figures.capture.as_deref()?;
    let share = capture.share(capture.application.pause_time());
    if share < MIN_PAUSE_SHARE || capture.application.pause_time() < MIN_PAUSE || capture.data_packets < 3 {
        return slow_stream(figures, capture);
    }
    let application = &capture.application;
    let waits = [
        (application.receiver_waits, &capture.receiver, "waited before its next request"),
        (application.sender_waits, &capture.sender, "had a request and did not answer"),
        (application.idle, &capture.sender, "had nothing to send"),
    ];
    let (time, host, reason) = waits.into_iter().max_by_key(|(time, ..)| *time)?;
    let found = Found {
        cause: Cause::SlowWriter,
        share: if is_bulk(capture) { share * BULK_PAUSE_WEIGHT } else { share },
        confidence: Confidence::High,
        summary: format!(
            "pauses between the data took {} of the time: {host} {reason} for {}",
            percent(share),
            show_duration(time)
        ),
        remedy: on(host, "pidstat -dru 1   # find the slow part of the application"),
        evidence: figures_map([
            ("receiver_waits_seconds", json!(application.receiver_waits.as_secs_f64())),
            ("sender_waits_seconds", json!(application.sender_waits.as_secs_f64())),
            ("idle_seconds", json!(application.idle.as_secs_f64())),
            ("pauses", json!(application.pauses)),
        ]),
    };
    Some(found.finding(figures))
}

fn slow_stream(figures: &Figures, capture: &CaptureEvidence) -> Option<Finding> {
    let share = steady_writer(capture).filter(|_| !super::faults::is_blind(capture))?;
    let short = capture.application.short_packet_share;
    let found = Found {
        cause: Cause::SlowWriter,
        share,
        confidence: Confidence::Medium,
        summary: format!(
            "{} of the packets were smaller than the MSS, and nothing else limited the bytes in flight: {} writes less than \
             the path carries",
            percent(short),
            capture.sender
        ),
        remedy: on(&capture.sender, "pidstat -dru 1   # find the slow part of the application"),
        evidence: figures_map([("short_packet_share", json!(short))]),
    };
    Some(found.finding(figures))
}

/// Finds a sender that writes less than the path carries, in parts smaller than a packet.
fn steady_writer(capture: &CaptureEvidence) -> Option<f64> {
    let startup = if is_too_long(capture) { capture.share(capture.time_of(PeriodLimit::StartUp)) } else { 0.0 };
    let path = capture.path_share() + startup;
    let is_free = capture.lost() == 0 && capture.window.binding_share < 0.3 && capture.queue.standing_share < 0.5;
    (is_free && path >= 0.5 && capture.application.short_packet_share >= MIN_SHORT_SHARE).then_some(path)
}

/// Finds an application that sends each block only after the acknowledgement of the block before.
pub(in crate::diagnose) fn lock_step(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let application = &capture.application;
    let share = capture.share(application.lockstep);
    if share < MIN_LOCKSTEP_SHARE || application.lockstep_blocks < MIN_LOCKSTEP_BLOCKS || has_stalls(capture) {
        return None;
    }
    let found = Found {
        cause: Cause::LockStep,
        share,
        confidence: Confidence::High,
        summary: format!(
            "{} blocks of {} (median) each waited for the acknowledgement of the block before: {} of the time at RTT {}",
            application.lockstep_blocks,
            application.lockstep_block,
            percent(share),
            show_duration(capture.rtt.base)
        ),
        remedy: on(&capture.sender, "lfn copy FILE HOST:   # or any program that sends without waiting for each block"),
        evidence: figures_map([
            ("blocks", json!(application.lockstep_blocks)),
            ("block_bytes", json!(application.lockstep_block.0)),
            ("wait_seconds", json!(application.lockstep.as_secs_f64())),
            ("base_rtt_seconds", json!(capture.rtt.base.as_secs_f64())),
        ]),
    };
    Some(found.finding(figures))
}

/// Returns true if many of the waits are for delayed acknowledgements.
fn has_stalls(capture: &CaptureEvidence) -> bool {
    let application = &capture.application;
    application.delayed_ack_stalls >= MIN_STALLS
        && capture.share(application.delayed_ack) >= MIN_STALL_SHARE
        && application.delayed_ack_stalls as f64 >= MIN_STALLED_BLOCKS * application.lockstep_blocks as f64
}

/// Finds waits for delayed acknowledgements.
pub(in crate::diagnose) fn delayed_ack(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let application = &capture.application;
    let share = capture.share(application.delayed_ack);
    if share < MIN_STALL_SHARE || application.delayed_ack_stalls < MIN_STALLS {
        return None;
    }
    let found = Found {
        cause: Cause::DelayedAck,
        share: if has_stalls(capture) { share.max(capture.share(application.lockstep)) } else { share },
        confidence: Confidence::Medium,
        summary: format!(
            "the sender waited {} times for a delayed acknowledgement of a short segment, {} in total",
            application.delayed_ack_stalls,
            show_duration(application.delayed_ack)
        ),
        remedy: on(&capture.sender, "set TCP_NODELAY in the application, or write each message at once"),
        evidence: figures_map([
            ("stalls", json!(application.delayed_ack_stalls)),
            ("stall_seconds", json!(application.delayed_ack.as_secs_f64())),
        ]),
    };
    Some(found.finding(figures))
}
