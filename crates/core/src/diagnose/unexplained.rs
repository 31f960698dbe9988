//! A goodput below the prediction without a known cause: the figures that a reader needs for a search.

use std::collections::BTreeMap;

use serde_json::json;

use super::path::retransmitted_share;
use super::{Cause, Evidence, Finding, finding};
use crate::prediction;
use crate::units::show_duration;

/// Finds a goodput below the expected range. The caller has found no cause.
pub(super) fn unexplained(evidence: &Evidence) -> Option<Finding> {
    let (predicted, expected) = prediction::predict_test(evidence)?;
    let goodput = evidence.steady_goodput();
    if goodput >= expected.min || evidence.streams.is_empty() {
        return None;
    }
    let loaded = evidence.rtt_under_load();
    let mut summary = format!(
        "{goodput} is below the predicted {} to {}, and no rule explains this; RTT {} without load, {} under load",
        expected.min,
        expected.max,
        show_duration(evidence.base_rtt),
        show_duration(loaded),
    );
    let resent = retransmitted_share(evidence);
    if let Some(share) = resent {
        summary += &format!(", {:.2} % of the sent data retransmitted", share * 100.0);
    }
    // An untuned host may have a setting that no rule knows. The path is examined after that.
    let remedy = evidence.repeat_command(if evidence.is_tuned { "--path" } else { "--compare" });
    let mut finding = finding(evidence, Cause::Unexplained, summary, remedy, Some(predicted.goodput));
    finding.evidence = BTreeMap::from([
        ("goodput_bits_per_second", json!(goodput.0)),
        ("min_expected_bits_per_second", json!(expected.min.0)),
        ("max_expected_bits_per_second", json!(expected.max.0)),
        ("base_rtt_seconds", json!(evidence.base_rtt.as_secs_f64())),
        ("rtt_under_load_seconds", json!(loaded.as_secs_f64())),
    ]);
    if let Some(share) = resent {
        finding.evidence.insert("retransmitted_share", json!(share));
    }
    Some(finding)
}
