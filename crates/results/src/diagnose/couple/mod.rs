//! Causes of a difference between the plan and the run of two coupled models.
//!
//! A component whose time of a step differs from the plan is examined. Plans with the measured compute times and the measured
//! RTT give the parts of the difference that these explain. The rest is late fields, a partner that is late, or an unknown cause.

mod fields;
mod model;
mod parts;
mod path;
#[cfg(test)]
pub(super) mod tests;

pub(super) use fields::{MIN_DROPPED_SHARE, dropped, not_a_number, short_lag};
pub(super) use model::{compute_time, load_imbalance};
pub(super) use parts::{MIN_EXPLAINED_SHARE, MIN_PART_SHARE, unexplained};
pub(super) use path::{MIN_RTT_DIFFERENCE, MIN_RTT_SHARE, late_fields, lost_connection, path_delay, slow_start};

use std::time::Duration;

use lfn_base::units::{BitRate, show_duration};

use super::{Cause, Confidence, Finding, Remedy, finding};
use crate::evidence::couple::CoupleEvidence;
use crate::evidence::figures::Figures;

/// Key in the evidence of a finding: the part of the difference that the cause explains.
const PART: &str = "explained_seconds_per_step";

/// Sorts the findings: those that explain more of the difference first, and the unexplained difference last. Findings that
/// cost no time follow.
pub(super) fn sort(findings: &mut [Finding]) {
    let part = |finding: &Finding| finding.evidence.get(PART).and_then(serde_json::Value::as_f64).unwrap_or(0.0).abs();
    findings.sort_by(|a, b| {
        let is_last = |finding: &Finding| finding.cause() == Some(Cause::Unexplained);
        (is_last(a), !a.is_limit()).cmp(&(is_last(b), !b.is_limit())).then_with(|| part(b).total_cmp(&part(a)))
    });
}

/// Creates a finding about `part` seconds of a step.
fn found(figures: &Figures, cause: Cause, summary: String, remedy: String, part: f64) -> Finding {
    let mut finding = finding(figures, cause, summary, Remedy { command: remedy, host: None }, None);
    finding.evidence.insert(PART.to_owned(), serde_json::json!(part));
    finding.confidence = Some(Confidence::High);
    finding
}

/// Creates a finding that costs no time.
fn noted(figures: &Figures, cause: Cause, summary: String, remedy: String) -> Finding {
    let mut finding = finding(figures, cause, summary, Remedy { command: remedy, host: None }, None);
    (finding.confidence, finding.gain) = (Some(Confidence::High), Some(BitRate(0)));
    finding
}

/// Returns the figures of a coupled run.
fn couple(figures: &Figures) -> Option<&CoupleEvidence> {
    figures.couple.as_deref()
}

/// Returns a time in seconds as text.
fn show_seconds(seconds: f64) -> String {
    show_duration(time_of(seconds))
}

/// Returns a number of seconds as a time.
fn time_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
