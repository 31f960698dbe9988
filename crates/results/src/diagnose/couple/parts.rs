//! Parts of the difference between the planned and the measured time of a step.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::{couple, found, show_seconds};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::couple::{CoupleComponent, CoupleEvidence, CoupleVariable};
use crate::evidence::figures::Figures;

/// Minimum share of the difference that a cause explains.
pub(in crate::diagnose) const MIN_PART_SHARE: f64 = 0.25;
/// Minimum share of the difference that the named causes explain together: a smaller share leaves the difference unexplained.
pub(in crate::diagnose) const MIN_EXPLAINED_SHARE: f64 = 0.5;

/// Share of the waits on the path from which on the waits for a late partner are a consequence.
const MIN_PATH_SHARE: f64 = 0.25;
/// Late fields in one direction delay the puts of the other direction, too.
const DIRECTIONS: f64 = 2.0;
/// Initial window of a connection: 10 segments (RFC 6928), bytes.
const INITIAL_WINDOW: f64 = 14_480.0;

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
    /// Slow start delayed the first fields.
    pub(super) start: f64,
    /// Fields arrived later than the path explains, and puts waited.
    pub(super) late: f64,
    /// The partner had not yet put a field, beyond the waits of the plan with measured figures.
    pub(super) partner_late: f64,
}

impl<'a> Parts<'a> {
    /// Returns the parts of the difference; none if the run matches its plan.
    pub(super) fn of(couple: &'a CoupleEvidence) -> Option<Self> {
        let component = couple.differing()?;
        let partner = couple.partner_of(component);
        let seconds = |time: Duration| time.as_secs_f64();
        let rest = seconds(component.measured) - seconds(component.predicted_as_measured);
        let share = |time: f64| time.min(rest).max(0.0);
        let steps = component.steps.max(1) as f64;
        let disconnected = share(seconds(component.disconnected) / steps);
        let waits =
            |component: &CoupleComponent| -> Vec<Excess> { couple.received_by(component).map(Excess::of).collect() };
        let (own, all) = (waits(component), [waits(component), waits(partner)].concat());
        // A component whose fields arrive late puts its own fields late, too: this is no second cause.
        let total = |waits: &[Excess]| -> f64 { waits.iter().map(|wait| wait.on_path + wait.of_partner).sum() };
        let on_path: f64 = all.iter().map(|wait| wait.on_path.max(0.0)).sum();
        let is_path = on_path >= MIN_PATH_SHARE * total(&all);
        let partner_late = if is_path { 0.0 } else { own.iter().map(|wait| wait.of_partner).sum() };
        let on_path = total(&own) - partner_late;
        // The wait without a connection is part of the waits.
        let late = share(on_path + seconds(component.put_wait) - disconnected);
        let is_start = late * steps <= slow_start(couple, component, partner);
        Some(Parts {
            component,
            partner,
            difference: component.difference(),
            compute: seconds(component.predicted_with_compute) - seconds(component.predicted),
            delay: seconds(component.predicted_as_measured) - seconds(component.predicted_with_compute),
            disconnected,
            start: if is_start { late } else { 0.0 },
            late: if is_start { 0.0 } else { late },
            partner_late: share(partner_late - disconnected),
        })
    }

    /// Reports whether a part of this size explains enough of the difference to be named.
    pub(super) fn is_named(&self, part: f64) -> bool {
        part * self.difference > 0.0 && part.abs() >= MIN_PART_SHARE * self.difference.abs()
    }

    /// Returns the sum of the named parts, seconds of a step.
    fn explained(&self) -> f64 {
        let parts = [self.compute, self.delay, self.disconnected, self.start, self.late, self.partner_late];
        parts.into_iter().filter(|part| self.is_named(*part)).sum()
    }
}

/// Wait for a variable beyond the plan with measured figures, seconds.
#[derive(Clone)]
struct Excess {
    /// The field was on its way.
    on_path: f64,
    /// The partner had not yet put the field.
    of_partner: f64,
}

impl Excess {
    fn of(variable: &CoupleVariable) -> Self {
        let excess = variable.wait.as_secs_f64() - variable.predicted_wait_as_measured.as_secs_f64();
        let of_partner = partner_wait(variable).min(excess).max(0.0);
        Excess { on_path: excess - of_partner, of_partner }
    }
}

/// Returns the wait in which the partner had not yet put the field, seconds; zero if the lag is too small. With a small lag the
/// two components run apart, and each waits in turn for the other: this part of the wait has no cause of its own.
fn partner_wait(variable: &CoupleVariable) -> f64 {
    let is_hidden = variable.needed_lag.is_some_and(|needed| variable.lag >= needed);
    if is_hidden { variable.partner_wait.as_secs_f64() } else { 0.0 }
}

/// Returns the maximum time that slow start in both directions costs until it has reached the rate of the fields, seconds (RFC 5681 section 3.1).
fn slow_start(couple: &CoupleEvidence, component: &CoupleComponent, partner: &CoupleComponent) -> f64 {
    let rtt = couple.rtt.as_secs_f64();
    let steps_in_flight = (rtt / component.measured.as_secs_f64().max(1e-9)).max(1.0);
    let in_flight = partner.step_bytes.0 as f64 * steps_in_flight;
    let rounds = (in_flight / INITIAL_WINDOW).log2().max(0.0).ceil();
    DIRECTIONS * rounds * rtt
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
