//! A goodput below the prediction without a known cause: the causes that are excluded, and the next step.

use lfn_base::units::show_duration;
use serde_json::json;

use super::path::retransmitted_share;
use super::shortfall::Shortfall;
use super::{Cause, Confidence, Finding, figures_map, finding};
use crate::evidence::figures::{FULL_SHARE, Figures};

/// Maximum share of the busy time in which a window or a buffer of a path-limited test stopped the sender.
const MAX_HOST_SHARE: f64 = 0.1;
/// Maximum retransmitted share of a test without loss.
const MAX_LOSSLESS_SHARE: f64 = 1e-5;
/// Maximum RTT under load in base RTTs of a test without a queue.
const MAX_UNQUEUED_FACTOR: f64 = 1.1;
/// Maximum CPU demand of a thread that is no limit.
const MAX_DEMAND: f64 = 0.7;

/// Finds a goodput below the expected range. The caller has found no cause that explains it.
pub(super) fn unexplained(figures: &Figures) -> Option<Finding> {
    let Shortfall { predicted, expected, goodput } = Shortfall::of(figures)?;
    let loaded = figures.rtt_under_load();
    let mut summary = format!(
        "{goodput} is below the predicted {} to {}, and no rule explains this; RTT {} without load, {} under load",
        expected.min,
        expected.max,
        show_duration(figures.base_rtt),
        show_duration(loaded),
    );
    let resent = retransmitted_share(figures);
    if let Some(share) = resent {
        summary += &format!(", {:.2} % of the sent data retransmitted", share * 100.0);
    }
    let excluded = excluded(figures);
    if !excluded.is_empty() {
        summary += &format!("; excluded: {}", excluded.join(", "));
    }
    // An untuned host may have a setting that no rule knows. The path is examined after that.
    let remedy = figures.repeat_command(if figures.is_tuned { "--path" } else { "--compare" });
    let mut finding = finding(figures, Cause::Unexplained, summary, remedy, Some(predicted.goodput));
    // The whole settled part counts: its steady part may be in the range.
    finding.gain = Some(lfn_base::units::BitRate(predicted.goodput.0.saturating_sub(goodput.0)));
    finding.confidence = Some(Confidence::Low);
    finding.evidence = figures_map([
        ("goodput_bits_per_second", json!(goodput.0)),
        ("min_expected_bits_per_second", json!(expected.min.0)),
        ("max_expected_bits_per_second", json!(expected.max.0)),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("rtt_under_load_seconds", json!(loaded.as_secs_f64())),
        ("excluded", json!(excluded)),
    ]);
    if let Some(share) = resent {
        finding.evidence.extend(figures_map([("retransmitted_share", json!(share))]));
    }
    Some(finding)
}

/// Returns the causes that the figures exclude, each with its figure.
fn excluded(figures: &Figures) -> Vec<String> {
    let mut excluded = Vec::new();
    let mut add = |is_excluded: bool, text: String| excluded.extend(is_excluded.then_some(text));
    if let Some(share) = figures.rwnd_share() {
        add(share <= MAX_HOST_SHARE, format!("receive window ({:.0} % of the time)", share * 100.0));
        let of = |figure: fn(&crate::evidence::figures::StreamFigures) -> std::time::Duration| {
            figures.streams.iter().map(|flow| figure(flow).as_secs_f64()).sum::<f64>()
        };
        let buffer = of(|flow| flow.sndbuf_limited) / of(|flow| flow.busy).max(f64::MIN_POSITIVE);
        add(buffer <= MAX_HOST_SHARE, format!("send buffer ({:.0} % of the time)", buffer * 100.0));
    }
    let busy: Option<Vec<f64>> = figures.streams.iter().map(|flow| flow.busy_share).collect();
    if let Some(busy) = busy.and_then(|busy| busy.into_iter().reduce(f64::min)) {
        add(busy >= FULL_SHARE, format!("sending application (busy {:.0} %)", busy * 100.0));
    }
    let threads = figures.streams.iter().flat_map(|flow| [flow.sender_thread, flow.receiver_thread]);
    let demand: Option<Vec<f64>> = threads.map(|thread| Some(thread?.demand())).collect();
    if let Some(demand) = demand.and_then(|demand| demand.into_iter().reduce(f64::max)) {
        add(demand <= MAX_DEMAND, format!("CPU ({:.0} % of a thread)", demand * 100.0));
    }
    if let Some(share) = retransmitted_share(figures) {
        add(share <= MAX_LOSSLESS_SHARE, "loss (nothing retransmitted)".to_owned());
    }
    let factor = figures.rtt_under_load().as_secs_f64() / figures.base_rtt.as_secs_f64().max(f64::MIN_POSITIVE);
    add(factor > 0.0 && factor <= MAX_UNQUEUED_FACTOR, format!("queue (RTT {factor:.2} of the base RTT)"));
    excluded
}
