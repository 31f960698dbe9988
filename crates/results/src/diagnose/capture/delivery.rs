//! Delivery: order, duplicates, outages, packet sizes, the return path, ECN and proxies.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::{Found, judged, on, percent};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::capture::PeriodLimit;
use crate::evidence::figures::Figures;

/// Minimum share of packets that arrive out of order or twice.
pub(in crate::diagnose) const MIN_DISTURBED_SHARE: f64 = 0.01;
/// Minimum number of such packets.
pub(in crate::diagnose) const MIN_DISTURBED: u64 = 10;
/// Minimum time without answers that is an outage.
pub(in crate::diagnose) const MIN_OUTAGE: Duration = Duration::from_secs(1);
/// Minimum share of the time in an outage.
pub(in crate::diagnose) const MIN_OUTAGE_SHARE: f64 = 0.1;
/// Minimum share of lost acknowledgements.
pub(in crate::diagnose) const MIN_LOST_ACKS_SHARE: f64 = 0.05;
/// MSS below which a path has a small MTU: tunnels and PPPoE take up to 100 bytes of 1460.
pub(in crate::diagnose) const MAX_SMALL_MSS: u32 = 1300;
/// Minimum marked share of the data packets, or echoes as a share of the acknowledgements.
pub(in crate::diagnose) const MIN_MARKED_SHARE: f64 = 0.001;

/// Finds packets that arrive in another order.
pub(in crate::diagnose) fn reordering(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let late = capture.delivery.reordered.max(capture.loss.spurious.min(capture.delivery.duplicate_reports));
    let share = late as f64 / capture.data_packets.max(1) as f64;
    if late < MIN_DISTURBED || share < MIN_DISTURBED_SHARE || capture.loss.spurious > late * 4 {
        return None;
    }
    let found = Found {
        cause: Cause::Reordering,
        share: capture.path_share(),
        confidence: if capture.delivery.reordered > 0 { Confidence::High } else { Confidence::Low },
        summary: format!(
            "{late} of {} packets arrived after later ones, by up to {}; {} retransmissions were not needed",
            capture.data_packets,
            show_duration(capture.delivery.max_lateness),
            capture.loss.spurious
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
    let reports = capture.delivery.duplicate_reports.saturating_sub(capture.loss.spurious);
    let twice = capture.delivery.duplicated.max(reports);
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

/// Finds a time in which no packet of the receiver arrived.
pub(in crate::diagnose) fn outage(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let outage = capture.path.outage;
    let share = capture.share(outage);
    if outage < MIN_OUTAGE || share < MIN_OUTAGE_SHARE || capture.path.is_silent_peer {
        return None;
    }
    let found = Found {
        cause: Cause::Standstill,
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
    if !capture.path.is_silent_peer || capture.path.black_hole.is_some() {
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
    let found = Found {
        cause: Cause::BlackHole,
        share: 0.9,
        confidence: Confidence::High,
        summary: format!("packets with {size} of payload were never acknowledged, and smaller ones were"),
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
    let capture = judged(figures)?;
    let offered = capture.handshake.receiver_mss.map_or(0, u32::from);
    let is_reduced = offered >= capture.mss_bytes + 100 || capture.path.too_big_messages > 0;
    if capture.mss_bytes > MAX_SMALL_MSS
        || !is_reduced
        || capture.data_packets < 20
        || capture.path.black_hole.is_some()
    {
        return None;
    }
    let found = Found {
        cause: Cause::SmallMtu,
        share: 0.03,
        confidence: Confidence::Medium,
        summary: format!("packets carried at most {} B of payload, and both ends offered more", capture.mss_bytes),
        remedy: on(&capture.sender, "lfn test HOST --path   # find the hop with the small MTU"),
        evidence: figures_map([
            ("mss_bytes", json!(capture.mss_bytes)),
            ("offered_mss_bytes", json!(capture.handshake.receiver_mss)),
            ("reported_mtu_bytes", json!(capture.path.reported_mtu)),
        ]),
    };
    Some(found.finding(figures))
}

/// Finds acknowledgements that are lost or late.
pub(in crate::diagnose) fn return_path(figures: &Figures) -> Option<Finding> {
    let capture = judged(figures)?;
    let lost = capture.delivery.lost_acknowledgements;
    let share = lost as f64 / (lost + capture.delivery.acknowledgements).max(1) as f64;
    let bursts = capture.delivery.acknowledgement_burst_share;
    if (lost < MIN_DISTURBED || share < MIN_LOST_ACKS_SHARE) && bursts < 0.5 {
        return None;
    }
    let found = Found {
        cause: Cause::ReturnPath,
        share: capture.path_share(),
        confidence: Confidence::Medium,
        summary: format!("{lost} acknowledgements were lost ({}), or waited in a queue on their way", percent(share)),
        remedy: on(&capture.receiver, "lfn test HOST --reverse   # measure the return path"),
        evidence: figures_map([("lost_acknowledgements", json!(lost)), ("lost_share", json!(share))]),
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
