//! Delivery of packets: order, jitter, and marks of congestion.

use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};
use serde_json::json;

use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;

/// Minimum share of packets that arrive out of order.
pub(in crate::diagnose) const MIN_REORDERED_SHARE: f64 = 0.005;
/// Minimum mean deviation of the RTT over the variation of the delay of trains, for jitter. The smoothed deviation of a queue
/// that fills and empties in several round trips is below it.
pub(in crate::diagnose) const MIN_JITTER_SHARE: f64 = 0.15;
/// Minimum number of such packets.
pub(in crate::diagnose) const MIN_REORDERED: u64 = 10;
/// Minimum marked share of the segments.
pub(in crate::diagnose) const MIN_MARKED_SHARE: f64 = 0.001;
/// Minimum number of marks.
pub(in crate::diagnose) const MIN_MARKED: u64 = 10;
/// Minimum median delay of the slices of trains at a low rate. Interrupt moderation of an interface delays packets by a quarter
/// of this at most (`ethtool --coalesce`, `rx-usecs`).
pub(in crate::diagnose) const MIN_VARIATION: Duration = Duration::from_millis(1);
/// Minimum median deviation of the RTT.
pub(in crate::diagnose) const MIN_DEVIATION: Duration = Duration::from_micros(1500);
/// Minimum median RTT of datagrams without load over the shortest one. Measured on paths without jitter: 0.4 ms at most.
pub(in crate::diagnose) const MIN_IDLE_VARIATION: Duration = Duration::from_millis(2);
/// Minimum of the same time, in base RTTs.
pub(in crate::diagnose) const MIN_IDLE_SHARE: f64 = 0.02;
/// Minimum of both, in base RTTs.
pub(in crate::diagnose) const MIN_DEVIATION_SHARE: f64 = 0.03;
/// Minimum RTT under load in base RTTs: without it, delayed acknowledgements of a slow test make the deviation.
pub(in crate::diagnose) const MIN_JITTER_FACTOR: f64 = 1.2;

/// Finds packets that arrive after later ones. TCP takes a gap of three or more for a loss.
pub(in crate::diagnose) fn reordering(figures: &Figures) -> Option<Finding> {
    let counters = &figures.counters;
    let of_tcp = counters.reordered as f64 / counters.sent.max(1) as f64;
    let of_trains = figures.trains.as_ref().map_or(0.0, |trains| trains.reordered_share);
    let by_tcp = counters.reordered >= MIN_REORDERED && of_tcp >= MIN_REORDERED_SHARE;
    if !by_tcp && of_trains < MIN_REORDERED_SHARE {
        return None;
    }
    let by_trains = match figures.trains {
        Some(_) => format!("; {:.1} % of the datagrams of the trains arrived late", of_trains * 100.0),
        None => String::new(),
    };
    let summary = format!(
        "{} of {} segments arrived after later ones; {} of {} retransmissions were not needed{by_trains}",
        counters.reordered, counters.sent, counters.duplicates, counters.retransmitted,
    );
    let remedy = Remedy {
        command: "sysctl -w net.ipv4.tcp_max_reordering=1000   # and send each flow over one link (ECMP, bond)".into(),
        host: Some(figures.sender.name.clone()),
    };
    let mut finding = path_finding(figures, Cause::Reordering, summary, remedy);
    let is_sure = by_tcp && (of_trains >= MIN_REORDERED_SHARE || counters.reordered >= 10 * MIN_REORDERED);
    finding.confidence = Some(if is_sure { Confidence::High } else { Confidence::Medium });
    finding.evidence = figures_map([
        ("reorderings", json!(counters.reordered)),
        ("sent_segments", json!(counters.sent)),
        ("duplicate_segments", json!(counters.duplicates)),
        ("retransmitted_segments", json!(counters.retransmitted)),
        ("reordered_datagrams_share", json!(figures.trains.as_ref().map(|trains| trains.reordered_share))),
    ]);
    Some(finding)
}

/// Finds packets that the network delivers twice: the receiver reports segments that were sent once.
pub(in crate::diagnose) fn duplicates(figures: &Figures) -> Option<Finding> {
    let counters = &figures.counters;
    let share = counters.duplicates as f64 / counters.sent.max(1) as f64;
    let reordered = counters.reordered as f64 / counters.sent.max(1) as f64;
    let is_reordered = counters.reordered >= MIN_REORDERED && reordered >= MIN_REORDERED_SHARE;
    // Each retransmission that the receiver did not need arrives twice, too.
    let is_explained = counters.duplicates <= counters.retransmitted;
    if counters.duplicates < MIN_REORDERED || share < MIN_REORDERED_SHARE || is_reordered || is_explained {
        return None;
    }
    let summary = format!(
        "the receiver reports {} segments that arrived twice, {:.1} % of the sent segments, without reordering",
        counters.duplicates,
        share * 100.0
    );
    let remedy = Remedy {
        command: "ip -s link   # find the bridge or the bond that sends packets twice".into(),
        host: Some(figures.receiver.name.clone()),
    };
    let mut finding = path_finding(figures, Cause::Duplicates, summary, remedy);
    finding.confidence = Some(Confidence::Medium);
    finding.evidence = figures_map([
        ("duplicate_segments", json!(counters.duplicates)),
        ("sent_segments", json!(counters.sent)),
        ("retransmitted_segments", json!(counters.retransmitted)),
    ]);
    Some(finding)
}

/// Finds a delay that changes from packet to packet, more than a queue explains.
pub(in crate::diagnose) fn jitter(figures: &Figures) -> Option<Finding> {
    let part = figures.base_rtt.mul_f64(MIN_DEVIATION_SHARE);
    let variation = figures.trains.as_ref().and_then(|trains| trains.delay_variation);
    let by_trains = variation
        .filter(|variation| *variation >= MIN_VARIATION.max(part) && is_jittery(figures, variation.as_secs_f64()));
    let deviation = figures.course.median_of(|at| at.rtt_deviation.as_secs_f64());
    let factor = figures.rtt_under_load().as_secs_f64() / figures.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE);
    let by_idle = idle_variation(figures);
    let by_tcp = variation.is_none()
        && varies_from_packet_to_packet(figures)
        && factor >= MIN_JITTER_FACTOR
        && Shortfall::of(figures).is_some();
    if by_trains.is_none() && by_idle.is_none() && !by_tcp {
        return None;
    }
    let seen = Duration::try_from_secs_f64(deviation).unwrap_or_default();
    let summary = match (by_trains, by_idle) {
        (Some(variation), _) => format!(
            "the delay of datagrams at a low rate varies by {} (median of the slices); base RTT {}",
            show_duration(variation),
            show_duration(figures.base_rtt)
        ),
        (None, Some(variation)) => format!(
            "without load, the median RTT of datagrams is {} above the shortest; base RTT {}",
            show_duration(variation),
            show_duration(figures.base_rtt)
        ),
        (None, None) => format!(
            "the RTT changes from packet to packet by {} (mean deviation), {:.0} % of the base RTT; a queue changes slowly",
            show_duration(seen),
            deviation / figures.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE) * 100.0
        ),
    };
    let remedy = figures.repeat_command("--congestion bbr --streams 4");
    let mut finding = path_finding(figures, Cause::Jitter, summary, remedy);
    finding.confidence = Some(match (by_trains, by_idle) {
        (Some(_), _) => Confidence::High,
        (None, Some(_)) => Confidence::Medium,
        (None, None) => Confidence::Low,
    });
    finding.evidence = figures_map([
        ("rtt_deviation_seconds", json!(deviation)),
        ("idle_rtt_variation_seconds", json!(by_idle.map(|variation| variation.as_secs_f64()))),
        ("delay_variation_seconds", json!(variation.map(|variation| variation.as_secs_f64()))),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
    ]);
    Some(finding)
}

/// Returns the median RTT of datagrams without load over the shortest one, if jitter or other traffic explains it: a path
/// without load has no queue.
pub(in crate::diagnose) fn idle_variation(figures: &Figures) -> Option<Duration> {
    let idle = figures.idle_rtt?;
    let variation = idle.p50.saturating_sub(idle.min);
    (variation >= MIN_IDLE_VARIATION.max(figures.base_rtt.mul_f64(MIN_IDLE_SHARE))).then_some(variation)
}

/// Returns true if the RTT under load grows by much more than the RTT varies without load.
pub(in crate::diagnose) fn has_queue_beyond_jitter(figures: &Figures) -> bool {
    let wait = figures.rtt_under_load().saturating_sub(figures.base_rtt);
    figures.idle_rtt.is_some_and(|idle| wait > idle.p90.saturating_sub(idle.min).saturating_mul(2))
}

/// Returns true if the RTT of TCP changes more from packet to packet than a queue explains.
pub(in crate::diagnose) fn varies_from_packet_to_packet(figures: &Figures) -> bool {
    let min = MIN_DEVIATION.max(figures.base_rtt.mul_f64(MIN_DEVIATION_SHARE));
    figures.course.median_of(|at| at.rtt_deviation.as_secs_f64()) >= min.as_secs_f64()
}

/// Finds marks of congestion.
pub(in crate::diagnose) fn ecn_marks(figures: &Figures) -> Option<Finding> {
    let counters = &figures.counters;
    let share = counters.marked as f64 / counters.delivered.max(1) as f64;
    if !counters.ecn || counters.marked < MIN_MARKED || share < MIN_MARKED_SHARE {
        return None;
    }
    let summary = format!(
        "the path marked {} of {} segments with congestion experienced ({:.2} %); the sender slows down as for a loss",
        counters.marked,
        counters.delivered,
        share * 100.0
    );
    let remedy = figures.repeat_command("--streams 4");
    let mut finding = path_finding(figures, Cause::EcnMarks, summary, remedy);
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([
        ("marked_segments", json!(counters.marked)),
        ("delivered_segments", json!(counters.delivered)),
        ("marked_share", json!(share)),
    ]);
    Some(finding)
}

/// Creates a finding of the path. Its gain is zero if the goodput is in the predicted range.
pub(super) fn path_finding(figures: &Figures, cause: Cause, summary: String, remedy: Remedy) -> Finding {
    let shortfall = Shortfall::of(figures);
    let predicted = match (&shortfall, figures.path) {
        (Some(shortfall), _) => Some(shortfall.predicted.goodput),
        (None, Some(_)) => Some(figures.steady_goodput()),
        (None, None) => None,
    };
    let mut finding = finding(figures, cause, summary, remedy, predicted);
    if let Some(shortfall) = shortfall {
        let gain = shortfall.predicted.goodput.0.saturating_sub(shortfall.goodput.0);
        finding.gain = Some(BitRate(gain));
    }
    finding
}

/// Returns true if the RTT changes from packet to packet, for a delay of trains that varies by this time in seconds.
pub(super) fn is_jittery(figures: &Figures, varies: f64) -> bool {
    figures.course.median_of(|at| at.rtt_deviation.as_secs_f64()) >= MIN_JITTER_SHARE * varies
}
