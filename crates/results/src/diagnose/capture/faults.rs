//! Faults of the capture itself.

use serde_json::json;

use super::found::{Found, on, percent};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::CaptureEvidence;
use crate::evidence::figures::Figures;

/// Minimum share of the payload that the capture missed.
pub(in crate::diagnose) const MIN_MISSED_SHARE: f64 = 0.002;
/// Minimum packets with payload of a direction whose acknowledgements are all missing.
pub(in crate::diagnose) const MIN_DATA_PACKETS: u64 = 10;

/// Minimum packets with payload of a connection whose path is judged, if its payload is below [`MIN_PATH_PAYLOAD`].
pub(in crate::diagnose) const MIN_PATH_PACKETS: u64 = 20;
/// Minimum payload of a connection with fewer packets, which are super-packets. Slow start from ten packets (RFC 6928) sends
/// this in three RTTs.
pub(in crate::diagnose) const MIN_PATH_PAYLOAD: u64 = 65_536;

/// Returns the evidence of a capture with enough data for a judgement of the queue, the MTU and the delay of the path.
pub(super) fn judged_path(figures: &Figures) -> Option<&CaptureEvidence> {
    judged(figures).filter(|capture| capture.data_packets >= MIN_PATH_PACKETS || capture.payload.0 >= MIN_PATH_PAYLOAD)
}

/// Returns the evidence of a capture with enough packets for a judgement.
pub(super) fn judged(figures: &Figures) -> Option<&CaptureEvidence> {
    figures.capture.as_deref().filter(|capture| !is_blind(capture))
}

/// Returns true if the capture shows too little for any judgement of the path.
pub(super) fn is_blind(capture: &CaptureEvidence) -> bool {
    (capture.faults.is_one_way && capture.packets >= MIN_DATA_PACKETS) || lacks_acknowledgements(capture)
}

fn lacks_acknowledgements(capture: &CaptureEvidence) -> bool {
    capture.faults.pure_acknowledgements == 0 && !capture.handshake.is_complete && capture.packets >= MIN_DATA_PACKETS
}

pub(super) fn missed_share(capture: &CaptureEvidence) -> f64 {
    capture.faults.missed.0 as f64 / capture.payload.0.max(1) as f64
}

/// Finds packets that stand in the capture twice.
pub(in crate::diagnose) fn captured_twice(figures: &Figures) -> Option<Finding> {
    let capture = figures.capture.as_deref()?;
    let copies = capture.faults.captured_twice;
    if copies == 0 {
        return None;
    }
    let found = Found {
        cause: Cause::CapturedTwice,
        share: 0.0,
        confidence: Confidence::High,
        summary: format!(
            "{copies} of {} packets are copies with the same IP identification; they are not retransmissions",
            capture.packets
        ),
        remedy: on(
            "the capturing host",
            "tcpdump -i INTERFACE -w FILE   # one interface instead of -i any, one mirror port",
        ),
        evidence: figures_map([("copies", json!(copies)), ("packets", json!(capture.packets))]),
    };
    Some(found.finding(figures))
}

/// Finds packets that the capture lacks.
pub(in crate::diagnose) fn incomplete(figures: &Figures) -> Option<Finding> {
    let capture = figures.capture.as_deref()?;
    let missed = missed_share(capture);
    let blind = is_blind(capture);
    if !blind && (missed < MIN_MISSED_SHARE || capture.data_packets < MIN_DATA_PACKETS) {
        return None;
    }
    let summary = if capture.faults.is_one_way {
        "the capture has the packets of one direction only: RTT, window and losses cannot be judged".to_owned()
    } else if blind {
        "the capture has no acknowledgements without payload and no handshake: RTT, window and losses cannot be judged"
            .to_owned()
    } else {
        format!("{} of payload was acknowledged and is not in the capture ({})", capture.faults.missed, percent(missed))
    };
    let found = Found {
        cause: Cause::IncompleteCapture,
        share: 0.0,
        confidence: Confidence::High,
        summary,
        remedy: on("the capturing host", "tcpdump -i INTERFACE -B 65536 -s 128 -w FILE host ADDRESS"),
        evidence: figures_map([
            ("missed_bytes", json!(capture.faults.missed.0)),
            ("pure_acknowledgements", json!(capture.faults.pure_acknowledgements)),
            ("data_packets", json!(capture.data_packets)),
        ]),
    };
    Some(found.finding(figures))
}
