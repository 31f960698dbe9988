//! Lags that are too small, dropped fields, and elements that are not a number.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::{couple, found, noted};
use crate::diagnose::{Cause, Finding, figures_map};
use crate::evidence::couple::{CoupleEvidence, CoupleVariable};
use crate::evidence::figures::Figures;

/// Minimum share of the fields of a variable that were dropped.
pub(in crate::diagnose) const MIN_DROPPED_SHARE: f64 = 0.05;

/// Finds variables whose lag is too small for the measured path and the measured compute times, and whose waits are not in
/// the plan.
pub(in crate::diagnose) fn short_lag(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    couple.differing()?;
    let mut short: Vec<(&CoupleVariable, u64)> =
        couple.variables.iter().filter_map(|variable| Some((variable, better_lag(couple, variable)?))).collect();
    short.sort_by_key(|(variable, _)| std::cmp::Reverse(variable.wait));
    let (first, needed) = *short.first()?;
    let text = |(variable, needed): &(&CoupleVariable, u64)| {
        let CoupleVariable { name, lag, wait, .. } = variable;
        match wait.is_zero() {
            true => format!("lag {lag} of `{name}` is below {needed}, too"),
            false => format!("lag {lag} of `{name}` waits {} a step; lag {needed} would not", show_duration(*wait)),
        }
    };
    let edit = |(variable, needed): &(&CoupleVariable, u64)| format!("lag = {needed} in [variable.{}]", variable.name);
    let summary = short.iter().map(text).collect::<Vec<_>>().join("; ");
    let edits = short.iter().map(edit).collect::<Vec<_>>().join(" and ");
    let excess = first.wait.saturating_sub(first.predicted_wait).as_secs_f64();
    let remedy = format!("set {edits} of the coupling file at both sites");
    let mut finding = found(figures, Cause::ShortLag, summary, remedy, excess);
    finding.evidence.extend(figures_map([
        ("wait_seconds", json!(first.wait.as_secs_f64())),
        ("predicted_wait_seconds", json!(first.predicted_wait.as_secs_f64())),
        ("lag", json!(first.lag)),
        ("needed_lag", json!(needed)),
    ]));
    Some(finding)
}

/// Returns the lag without waits, if its component waits longer than planned and the lag of the variable is smaller. The waits of
/// the component count together: a model that gets its variables in another order waits for another one.
fn better_lag(couple: &CoupleEvidence, variable: &CoupleVariable) -> Option<u64> {
    let receiver = couple.components.iter().find(|component| component.name == variable.to)?;
    let needed = variable.needed_lag.filter(|needed| *needed > variable.lag)?;
    let sum = |wait: fn(&CoupleVariable) -> Duration| -> Duration { couple.received_by(receiver).map(wait).sum() };
    let planned = sum(|variable| variable.predicted_wait).max(sum(|variable| variable.partner_wait));
    let excess = sum(|variable| variable.wait).saturating_sub(planned);
    (excess.as_secs_f64() >= receiver.permitted_difference()).then_some(needed)
}

/// Finds variables of which many fields were dropped.
pub(in crate::diagnose) fn dropped(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let is_many = |variable: &&CoupleVariable| {
        variable.dropped > 0 && variable.dropped as f64 >= MIN_DROPPED_SHARE * variable.sent as f64
    };
    let many: Vec<&CoupleVariable> = couple.variables.iter().filter(is_many).collect();
    let first = many.first()?;
    let text = |variable: &&CoupleVariable| {
        let CoupleVariable { name, dropped, sent, .. } = variable;
        format!("{dropped} of {sent} fields of `{name}` were replaced by newer ones (drop = \"oldest\")")
    };
    let summary = many.iter().map(text).collect::<Vec<_>>().join("; ");
    let names = many.iter().map(|variable| format!("[variable.{}]", variable.name)).collect::<Vec<_>>().join(" and ");
    let remedy =
        format!("set drop = \"never\" in {names} at both sites, if each field is needed; the models then wait");
    let mut finding = noted(figures, Cause::DroppedFields, summary, remedy);
    finding.evidence = figures_map([("dropped_fields", json!(first.dropped)), ("sent_fields", json!(first.sent))]);
    Some(finding)
}

/// Finds variables with elements that are not a number.
pub(in crate::diagnose) fn not_a_number(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let with_nan: Vec<&CoupleVariable> = couple.variables.iter().filter(|variable| variable.nan > 0).collect();
    let first = with_nan.first()?;
    let text = |variable: &&CoupleVariable| {
        let elements = if variable.nan == 1 { "element" } else { "elements" };
        format!("{} {elements} of `{}` from {} are not a number", variable.nan, variable.name, variable.from)
    };
    let summary = with_nan.iter().map(text).collect::<Vec<_>>().join("; ");
    let remedy = format!("check the fields of {} before each put: numpy.isnan(field).any()", first.from);
    let mut finding = noted(figures, Cause::NotANumber, summary, remedy);
    finding.evidence = figures_map([("nan_elements", json!(first.nan))]);
    Some(finding)
}
