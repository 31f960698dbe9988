//! Parts of the difference between the planned and the measured time of a step.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::{couple, found, show_seconds};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::couple::{CoupleComponent, CoupleEvidence};
use crate::evidence::figures::Figures;

/// Minimum share of the difference that a cause explains.
pub(in crate::diagnose) const MIN_PART_SHARE: f64 = 0.25;
/// Minimum share of the difference that the named causes explain together: a smaller share leaves the difference unexplained.
pub(in crate::diagnose) const MIN_EXPLAINED_SHARE: f64 = 0.5;

/// Parts of the difference of one component, seconds of a step. A negative part made the run faster than planned.
pub(super) struct Parts<'a> {
    pub(super) component: &'a CoupleComponent,
    pub(super) partner: &'a CoupleComponent,
    pub(super) difference: f64,
    /// The models compute longer than declared.
    pub(super) compute: f64,
    /// The RTT is larger than in the coupling file.
    pub(super) delay: f64,
    /// The connection was lost.
    pub(super) disconnected: f64,
    /// Fields arrived later than the path explains, and puts waited.
    pub(super) late: f64,
    /// The partner had not yet put a field, beyond the waits of the plan with measured figures.
    pub(super) partner_late: f64,
}

impl<'a> Parts<'a> {
    /// Returns the parts of the difference; none if the run matches its plan.
    pub(super) fn of(couple: &'a CoupleEvidence) -> Option<Self> {
        let component = couple.differing()?;
        let seconds = |time: Duration| time.as_secs_f64();
        let rest = seconds(component.measured) - seconds(component.predicted_as_measured);
        let share = |time: f64| time.min(rest).max(0.0);
        let disconnected = share(seconds(component.disconnected) / component.steps.max(1) as f64);
        let waits = |of: fn(&crate::evidence::couple::CoupleVariable) -> Duration| -> f64 {
            couple.received_by(component).map(|variable| seconds(of(variable))).sum()
        };
        let planned = waits(|variable| variable.predicted_wait_as_measured);
        let (wait, partner_wait) = (waits(|variable| variable.wait), waits(|variable| variable.partner_wait));
        // The wait without a connection is part of the waits.
        let on_path = (wait - partner_wait).max(0.0);
        let late = share((on_path - planned).max(0.0) + seconds(component.put_wait) - disconnected);
        Some(Parts {
            component,
            partner: couple.partner_of(component),
            difference: component.difference(),
            compute: seconds(component.predicted_with_compute) - seconds(component.predicted),
            delay: seconds(component.predicted_as_measured) - seconds(component.predicted_with_compute),
            disconnected,
            late,
            partner_late: share((wait - planned).min(partner_wait) - disconnected),
        })
    }

    /// Reports whether a part of this size explains enough of the difference to be named.
    pub(super) fn is_named(&self, part: f64) -> bool {
        part * self.difference > 0.0 && part.abs() >= MIN_PART_SHARE * self.difference.abs()
    }

    /// Returns the sum of the named parts, seconds of a step.
    fn explained(&self) -> f64 {
        let parts = [self.compute, self.delay, self.disconnected, self.late, self.partner_late];
        parts.into_iter().filter(|part| self.is_named(*part)).sum()
    }
}

/// Finds a difference that the other rules explain too little.
pub(in crate::diagnose) fn unexplained(figures: &Figures) -> Option<Finding> {
    let parts = Parts::of(couple(figures)?)?;
    let rest = parts.difference - parts.explained();
    if parts.explained() / parts.difference >= MIN_EXPLAINED_SHARE {
        return None;
    }
    let CoupleComponent { name, predicted, measured, compute, put, put_wait, .. } = parts.component;
    let (predicted, measured) = (show_duration(*predicted), show_duration(*measured));
    let part = |time: &Duration, text: &str| (!time.is_zero()).then(|| format!("{} {text}", show_duration(*time)));
    let wait: Duration = couple(figures)?.received_by(parts.component).map(|variable| variable.wait).sum();
    let shown = [part(compute, "computing"), part(put, "handing over fields"), part(put_wait, "in puts that wait")];
    let shown: Vec<String> = shown.into_iter().chain([part(&wait, "waiting for fields")]).flatten().collect();
    let summary = format!(
        "a step of {name} takes {measured}, the plan has {predicted}, and no rule explains {} of the difference; a step has {}",
        show_seconds(rest.abs()),
        shown.join(", ")
    );
    let remedy = "vmstat 1   # other programs may use the CPU: run it at both sites during the next run".to_owned();
    let mut finding = found(figures, Cause::Unexplained, summary, remedy, rest);
    finding.confidence = Some(Confidence::Low);
    finding.confirmation =
        Some("set compute and [path] in the coupling file to the measured figures, and run again".into());
    finding.evidence.extend(figures_map([
        ("predicted_seconds", json!(parts.component.predicted.as_secs_f64())),
        ("measured_seconds", json!(parts.component.measured.as_secs_f64())),
        ("compute_seconds", json!(compute.as_secs_f64())),
        ("put_seconds", json!(put.as_secs_f64())),
        ("put_wait_seconds", json!(put_wait.as_secs_f64())),
        ("wait_seconds", json!(wait.as_secs_f64())),
    ]));
    Some(finding)
}

/// Returns a number of seconds as a time.
pub(super) fn time_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
