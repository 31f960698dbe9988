//! A goodput below the prediction without a known cause: the figures that a reader needs for a search.

use lfn_base::units::show_duration;
use serde_json::json;

use super::path::retransmitted_share;
use super::{Cause, Finding, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::prediction;

/// Finds a goodput below the expected range. The caller has found no cause.
pub(super) fn unexplained(figures: &Figures) -> Option<Finding> {
    let (predicted, expected) = prediction::predict_test(figures)?;
    let goodput = figures.steady_goodput();
    if goodput >= expected.min || figures.streams.is_empty() {
        return None;
    }
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
    // An untuned host may have a setting that no rule knows. The path is examined after that.
    let remedy = figures.repeat_command(if figures.is_tuned { "--path" } else { "--compare" });
    let mut finding = finding(figures, Cause::Unexplained, summary, remedy, Some(predicted.goodput));
    finding.evidence = figures_map([
        ("goodput_bits_per_second", json!(goodput.0)),
        ("min_expected_bits_per_second", json!(expected.min.0)),
        ("max_expected_bits_per_second", json!(expected.max.0)),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("rtt_under_load_seconds", json!(loaded.as_secs_f64())),
    ]);
    if let Some(share) = resent {
        finding.evidence.extend(figures_map([("retransmitted_share", json!(share))]));
    }
    Some(finding)
}
