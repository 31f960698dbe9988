//! The evidence of a run for the diagnosis.

use lfn_results::evidence::couple::{CoupleComponent, CoupleEvidence, CoupleVariable};

use super::mean::{mean_compute, per_step, planned_step, steady_wait};
use crate::coupling::Coupling;
use crate::plan::{PlannedRun, PlannedVariable};
use crate::report::{ComponentReport, ReceivedVariable, RunReport};

/// The plan of a run, and the same plan with measured figures in place of those of the coupling file.
pub(super) struct Plans {
    pub(super) file: PlannedRun,
    /// With the measured compute times.
    pub(super) with_compute: PlannedRun,
    /// With the measured compute times and the measured RTT.
    pub(super) as_measured: PlannedRun,
}

/// Returns the evidence of a run.
pub(super) fn evidence(coupling: &Coupling, report: &RunReport, plans: &Plans) -> CoupleEvidence {
    let component = |report: &ComponentReport| CoupleComponent {
        name: report.component.clone(),
        steps: report.steps,
        declared_compute: coupling.components.get(&report.component).and_then(|component| component.compute),
        predicted: planned_step(&plans.file, report),
        predicted_with_compute: planned_step(&plans.with_compute, report),
        predicted_as_measured: planned_step(&plans.as_measured, report),
        measured: per_step(report.run, report.steps),
        compute: mean_compute(report),
        put: per_step(report.put, report.steps),
        put_wait: per_step(report.put_wait, report.steps),
        step_bytes: coupling.step_bytes(&report.component),
        disconnected: report.disconnected,
        reconnects: report.reconnects,
    };
    let variables = plans.file.variables.iter().zip(&plans.as_measured.variables);
    CoupleEvidence {
        file_rate: coupling.path.map(|path| path.rate),
        file_rtt: coupling.path.map(|path| path.rtt),
        rtt: report.rtt,
        components: [component(&report.own), component(&report.partner)],
        variables: variables.map(|(file, as_measured)| variable(report, file, as_measured)).collect(),
    }
}

fn variable(report: &RunReport, file: &PlannedVariable, as_measured: &PlannedVariable) -> CoupleVariable {
    let find = |name: &str| [&report.own, &report.partner].into_iter().find(|report| report.component == name);
    let empty = ReceivedVariable::default();
    let receiver = find(&file.to);
    let received = receiver.and_then(|receiver| receiver.received.get(&file.name)).unwrap_or(&empty);
    let sent = find(&file.from).and_then(|sender| sender.sent.get(&file.name));
    let steps = receiver.map_or(0, |receiver| receiver.steps);
    // The steady waits follow the first `lag` steps.
    let settled = steps.saturating_sub(file.lag).max(1);
    let wait = steady_wait(received, steps, file.lag);
    CoupleVariable {
        name: file.name.clone(),
        from: file.from.clone(),
        to: file.to.clone(),
        lag: file.lag,
        needed_lag: as_measured.needed_lag,
        predicted_wait: file.wait,
        predicted_wait_as_measured: as_measured.wait,
        wait,
        partner_wait: per_step(received.partner_wait, settled).min(wait),
        sent: sent.map_or(received.fields + received.dropped, |sent| sent.fields),
        dropped: received.dropped + sent.map_or(0, |sent| sent.dropped),
        nan: received.nan.max(sent.map_or(0, |sent| sent.nan)),
    }
}
