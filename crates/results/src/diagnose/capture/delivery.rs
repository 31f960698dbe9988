//! Delivery: order, duplicates, outages, packet sizes, the return path, ECN and proxies.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::show_duration;
use serde_json::json;

use super::faults::{MIN_MISSED_SHARE, judged, judged_path, missed_share};
use super::found::{Found, on, percent};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::{CaptureEvidence, PeriodLimit};
use crate::evidence::figures::Figures;

/// Minimum share of packets that arrive out of order or twice.
pub(in crate::diagnose) const MIN_DISTURBED_SHARE: f64 = 0.005;
/// Minimum number of such packets.
pub(in crate::diagnose) const MIN_DISTURBED: u64 = 10;
/// Minimum time without answers that is an outage.
pub(in crate::diagnose) const MIN_OUTAGE: Duration = Duration::from_secs(1);
/// Minimum share of the time in an outage.
pub(in crate::diagnose) const MIN_OUTAGE_SHARE: f64 = 0.1;
/// Waits for timeouts relative to the longest one, from which many losses are the cause and not one outage.
pub(in crate::diagnose) const MAX_OTHER_WAITS: f64 = 1.6;
/// Minimum lost packets / data packets of a very lossy path. On such a path, several lost retransmissions in sequence are no
/// outage.
pub(in crate::diagnose) const MIN_LOSSY_SHARE: f64 = 0.1;
/// Minimum loss events of a very lossy path.
pub(in crate::diagnose) const MIN_LOSSY_EVENTS: u64 = 5;
/// Minimum share of lost acknowledgements.
pub(in crate::diagnose) const MIN_LOST_ACKS_SHARE: f64 = 0.05;
/// Minimum share of acknowledgements that waited on their way.
pub(in crate::diagnose) const MIN_DELAYED_SHARE: f64 = 0.5;
/// Minimum median RTT in base RTTs of a queue on the return path.
pub(in crate::diagnose) const MIN_INFLATION: f64 = 1.25;
/// Minimum difference between the offered MSS and the largest payload, bytes: tunnels and PPPoE take less.
pub(in crate::diagnose) const MIN_MSS_DIFFERENCE: u32 = 100;
/// Maximum share of short packets of bulk data.
pub(in crate::diagnose) const MAX_SHORT_SHARE: f64 = 0.5;
/// Minimum packets with the largest payload. Fewer packets can be the end of application messages.
pub(in crate::diagnose) const MIN_FULL_PACKETS: u64 = 10;
/// Maximum share of the largest packets with PSH: more are the messages of an application.
pub(in crate::diagnose) const MAX_PUSHED_SHARE: f64 = 0.9;
/// Minimum payload of the packets of a path with a small MTU, bytes. Each IPv4 path carries packets of 576 bytes (RFC 791 §3.2).
pub(in crate::diagnose) const MIN_MTU_PAYLOAD: u32 = 496;
/// Minimum marked share of the data packets, or echoes as a share of the acknowledgements.
pub(in crate::diagnose) const MIN_MARKED_SHARE: f64 = 0.001;

/// Finds packets that arrive in another order.
pub(in crate::diagnose) fn reordering(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let late = capture.delivery.reordered;
    let share = late as f64 / capture.data_packets.max(1) as f64;
    if late < MIN_DISTURBED || share < MIN_DISTURBED_SHARE {
        return None;
    }
    // The acknowledgements at the sender do not show the time.
    let by = match capture.delivery.max_lateness {
        Duration::ZERO => String::new(),
        lateness => format!(", by up to {}", show_duration(lateness)),
    };
    let found = Found {
        cause: Cause::Reordering,
        share: capture.path_share(),
        confidence: Confidence::High,
        summary: format!(
            "{late} of {} packets arrived after later ones{by}; {} retransmissions were not needed",
            capture.data_packets, capture.loss.spurious
        ),
        remedy: on(&capture.sender, "sysctl -w net.ipv4.tcp_reordering=100   # and hash flows to one link"),
        evidence: figures_map([
            ("reordered", json!(late)),
            ("max_lateness_seconds", json!(capture.delivery.max_lateness.as_secs_f64())),
            ("spurious_retransmissions", json!(capture.loss.spurious)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds packets that the network delivers twice.
pub(in crate::diagnose) fn duplicates(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let twice = capture.delivery.duplicated;
    let share = twice as f64 / capture.data_packets.max(1) as f64;
    if twice < MIN_DISTURBED || share < MIN_DISTURBED_SHARE {
        return None;
    }
    let found = Found {
        cause: Cause::Duplicates,
        share: 0.02,
        confidence: Confidence::Medium,
        summary: format!("{twice} of {} packets arrived twice", capture.data_packets),
        remedy: on(&capture.receiver, "ip -s link   # find the bridge or the bond that sends packets twice"),
        evidence: figures_map([
            ("duplicated", json!(capture.delivery.duplicated)),
            ("duplicate_reports", json!(capture.delivery.duplicate_reports)),
        ]),
    };
    Some(found.finding(figures))
}

fn is_very_lossy(capture: &CaptureEvidence) -> bool {
    capture.loss.share >= MIN_LOSSY_SHARE && capture.loss.events >= MIN_LOSSY_EVENTS
}

/// Finds a time in which no packet of the receiver arrived.
pub(in crate::diagnose) fn outage(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let outage = capture.path.outage;
    let share = capture.share(outage);
    let has_other_waits = capture.loss.timeout.as_secs_f64() > MAX_OTHER_WAITS * outage.as_secs_f64();
    let is_short = outage < MIN_OUTAGE || share < MIN_OUTAGE_SHARE;
    if is_short || capture.path.is_silent_peer || has_other_waits || is_very_lossy(capture) {
        return None;
    }
    let found = Found {
        cause: Cause::Outage,
        share,
        confidence: Confidence::High,
        summary: format!(
            "nothing arrived for {} from {} on, and all retransmissions in this time were lost",
            show_duration(outage),
            show_duration(capture.path.outage_start)
        ),
        remedy: on(&capture.sender, "lfn test HOST --path   # find the hop that fails"),
        evidence: figures_map([
            ("outage_seconds", json!(outage.as_secs_f64())),
            ("outage_start_seconds", json!(capture.path.outage_start.as_secs_f64())),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds a receiver that does not answer any more.
pub(in crate::diagnose) fn silent_peer(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !capture.path.is_silent_peer || capture.path.black_hole.is_some() || is_very_lossy(capture) {
        return None;
    }
    let found = Found {
        cause: Cause::SilentPeer,
        share: capture.share(capture.path.outage).max(0.05),
        confidence: Confidence::High,
        summary: format!(
            "{} stopped answering {} after the start; several retransmissions had no answer",
            capture.receiver,
            show_duration(capture.path.outage_start)
        ),
        remedy: on(&capture.receiver, "ip -s link; dmesg   # is the host or its link down?"),
        evidence: figures_map([("silent_seconds", json!(capture.path.outage.as_secs_f64()))]),
    };
    Some(found.finding(figures))
}

/// Finds large packets that vanish.
pub(in crate::diagnose) fn black_hole(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let size = capture.path.black_hole?;
    let (confidence, others) = match capture.path.largest_passed_bytes {
        0 => (Confidence::Low, "no other data was sent, and the handshake was complete: the receiver may also be down"),
        _ => (Confidence::High, "smaller ones were"),
    };
    let found = Found {
        cause: Cause::BlackHole,
        share: 0.9,
        confidence,
        summary: format!("packets with {size} of payload were never acknowledged; {others}"),
        remedy: on(&capture.sender, "sysctl -w net.ipv4.tcp_mtu_probing=1"),
        evidence: figures_map([
            ("payload_bytes", json!(size.0)),
            ("too_big_messages", json!(capture.path.too_big_messages)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds a path with small packets.
pub(in crate::diagnose) fn small_mtu(figures: &Figures) -> Option<Finding> {
    let capture = judged_path(figures)?;
    let offers = [capture.handshake.receiver_mss, capture.handshake.sender_mss];
    let offered = offers.into_iter().map(|mss| mss.map_or(0, u32::from)).min().unwrap_or(0);
    let size = match capture.path.largest_passed_bytes {
        0 => capture.mss_bytes,
        passed => passed.min(capture.mss_bytes),
    };
    let is_reduced = offered >= size + MIN_MSS_DIFFERENCE || capture.path.too_big_messages > 0;
    let application = &capture.application;
    let is_bulk = application.short_packet_share < MAX_SHORT_SHARE && application.full_packets >= MIN_FULL_PACKETS;
    // A message of a router needs no other sign.
    let is_message =
        capture.path.too_big_messages == 0 && (application.pushed_share >= MAX_PUSHED_SHARE || size < MIN_MTU_PAYLOAD);
    if !is_reduced || !is_bulk || is_message || capture.path.is_silent_peer {
        return None;
    }
    let found = Found {
        cause: Cause::SmallMtu,
        share: 0.03,
        confidence: Confidence::Medium,
        summary: format!("packets carried at most {size} B of payload, and both ends offered more"),
        remedy: on(&capture.sender, "lfn test HOST --path   # find the hop with the small MTU"),
        evidence: figures_map([
            ("mss_bytes", json!(size)),
            ("offered_mss_bytes", json!(capture.handshake.receiver_mss)),
            ("reported_mtu_bytes", json!(capture.path.reported_mtu)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds acknowledgements that are lost or late.
pub(in crate::diagnose) fn return_path(figures: &Figures) -> Option<Finding> {
    let capture = judged_path(figures)?;
    // A capture that misses data also misses acknowledgements.
    let lost = if missed_share(capture) < MIN_MISSED_SHARE { capture.delivery.lost_acknowledgements } else { 0 };
    let share = lost as f64 / (lost + capture.delivery.acknowledgements).max(1) as f64;
    let inflation = capture.rtt.median.as_secs_f64() / capture.rtt.base.as_secs_f64().max(1e-9);
    let waited =
        capture.delivery.acknowledgement_delay_share.filter(|_| inflation >= MIN_INFLATION).map_or(0.0, Figure::get);
    if (lost < MIN_DISTURBED || share < MIN_LOST_ACKS_SHARE) && waited < MIN_DELAYED_SHARE {
        return None;
    }
    let found = Found {
        cause: Cause::ReturnPath,
        share: capture.path_share() * 1.02,
        confidence: Confidence::Medium,
        summary: format!(
            "on the way back, {lost} acknowledgements were lost ({}) and {} waited in a queue",
            percent(share),
            percent(waited)
        ),
        remedy: on(&capture.receiver, "lfn test HOST --reverse   # measure the return path"),
        evidence: figures_map([
            ("lost_acknowledgements", json!(lost)),
            ("lost_share", json!(share)),
            ("delayed_share", json!(waited)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds marks of congestion.
pub(in crate::diagnose) fn ecn_marks(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let marked = capture.path.ecn_marked as f64 / capture.data_packets.max(1) as f64;
    let echoes = capture.path.ecn_echoes as f64 / capture.delivery.acknowledgements.max(1) as f64;
    if marked.max(echoes) < MIN_MARKED_SHARE {
        return None;
    }
    let found = Found {
        cause: Cause::EcnMarks,
        share: capture.share(capture.time_of(PeriodLimit::Path)),
        confidence: Confidence::High,
        summary: format!(
            "the path marked {} packets with congestion experienced; {} acknowledgements echo marks",
            capture.path.ecn_marked, capture.path.ecn_echoes
        ),
        remedy: on(&capture.sender, "lfn test HOST --streams 4   # the marks show a full queue with AQM, as intended"),
        evidence: figures_map([("marked", json!(capture.path.ecn_marked)), ("echoes", json!(capture.path.ecn_echoes))]),
    };
    Some(found.finding(figures))
}

/// Finds a path that clears the ECN field.
pub(in crate::diagnose) fn ecn_bleached(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !capture.path.is_ecn_bleached {
        return None;
    }
    let found = Found {
        cause: Cause::EcnBleached,
        share: 0.01,
        confidence: Confidence::High,
        summary: "both ends agreed on ECN, and the data arrived without the ECN field".to_owned(),
        remedy: on(&capture.sender, "lfn test HOST --path   # find the hop that clears the field"),
        evidence: figures_map([
            ("ecn_capable", json!(capture.path.ecn_capable)),
            ("data_packets", json!(capture.data_packets)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds a host on the path that answers for the receiver.
pub(in crate::diagnose) fn proxy(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    if !capture.path.is_proxied {
        return None;
    }
    let found = Found {
        cause: Cause::Proxy,
        share: 0.01,
        confidence: Confidence::Low,
        summary: format!(
            "the handshake took {} and data {} at least: another host answered the handshake",
            show_duration(capture.handshake.rtt.unwrap_or_default()),
            show_duration(capture.rtt.base)
        ),
        remedy: on(&capture.sender, "lfn test HOST --path   # compare the hops of two ports"),
        evidence: figures_map([
            ("handshake_rtt_seconds", json!(capture.handshake.rtt.map(|rtt| rtt.as_secs_f64()))),
            ("base_rtt_seconds", json!(capture.rtt.base.as_secs_f64())),
        ]),
    };
    Some(found.finding(figures))
}
