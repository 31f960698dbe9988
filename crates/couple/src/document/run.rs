//! The document of a finished run: predicted and measured figures, and the findings.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::BitRate;
use lfn_results::diagnose::{Finding, Verdict, diagnose};
use lfn_results::evidence::Evidence;
use serde::{Deserialize, Serialize};

use super::evidence::{Plans, evidence};
use super::mean::{mean_compute, per_step, planned_step, steady_wait};
use super::plan::PlannedComponent;
use crate::coupling::{Coupling, PathSettings};
use crate::plan::{PlannedRun, predict};
use crate::report::{ComponentReport, RunReport};

/// Rate of a path that the coupling file does not describe: the transfer of a field takes no time in the plan.
const UNKNOWN_RATE: BitRate = BitRate(1_000_000_000_000_000);

/// Result of a coupled run at one end, schema `lfn.couple.run/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CoupleRunDocument {
    /// Name and version of the schema.
    pub schema: CoupleRunSchema,
    /// Name of the simulation.
    pub coupling: String,
    /// Component of this end.
    pub component: String,
    /// Component of the other end.
    pub partner: String,
    /// The components with the settings of the coupling file, by name.
    pub components: Vec<PlannedComponent>,
    /// Path in the coupling file; null if the file has none.
    pub path: Option<PathSettings>,
    /// Prediction from the coupling file; null if the rate of the path is zero. The measured mean replaces an absent compute
    /// time. The measured RTT replaces an absent path, whose fields then need no time for their transfer.
    pub predicted: Option<PlannedRun>,
    /// Prediction with the measured compute times and the measured RTT; null as `predicted`.
    pub predicted_as_measured: Option<PlannedRun>,
    /// Measured figures of both components.
    pub measured: RunReport,
    /// The limit of the run in one phrase.
    pub verdict: Verdict,
    /// Causes of a difference between the plan and the run.
    pub findings: Vec<Finding>,
}

/// Name and version of the schema of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum CoupleRunSchema {
    #[default]
    #[serde(rename = "lfn.couple.run/1")]
    Current,
}

/// Returns the document of a finished run.
pub fn run_document(coupling: &Coupling, report: &RunReport) -> CoupleRunDocument {
    let plans = plans(coupling, report);
    let diagnosis = plans.as_ref().map(|plans| diagnose(&Evidence::of_couple(evidence(coupling, report, plans))));
    let diagnosis = diagnosis.unwrap_or_default();
    let (predicted, predicted_as_measured) = plans.map(|plans| (plans.file, plans.as_measured)).unzip();
    CoupleRunDocument {
        schema: CoupleRunSchema::Current,
        coupling: coupling.name.clone(),
        component: report.own.component.clone(),
        partner: report.partner.component.clone(),
        components: PlannedComponent::of(coupling),
        path: coupling.path,
        predicted,
        predicted_as_measured,
        measured: report.clone(),
        verdict: diagnosis.verdict,
        findings: diagnosis.findings,
    }
}

/// Returns the plans of a run; none if the rate of the path is zero.
fn plans(coupling: &Coupling, report: &RunReport) -> Option<Plans> {
    let (file, measured) = (with_compute(coupling, report, false), with_compute(coupling, report, true));
    Some(Plans {
        file: predict(&file, &path_of(coupling, report, false)).ok()?,
        with_compute: predict(&measured, &path_of(coupling, report, false)).ok()?,
        as_measured: predict(&measured, &path_of(coupling, report, true)).ok()?,
    })
}

/// Returns the coupling with the mean compute times of the report: all of them, or only those that the file lacks.
fn with_compute(coupling: &Coupling, report: &RunReport, all: bool) -> Coupling {
    let mut coupling = coupling.clone();
    for (name, component) in &mut coupling.components {
        let measured = [&report.own, &report.partner].into_iter().find(|report| report.component == *name);
        let measured = measured.map_or(Duration::ZERO, mean_compute);
        component.compute = component.compute.filter(|_| !all).or(Some(measured));
    }
    coupling
}

/// Returns the path of the file, with the measured RTT if `measured` is true or the file has no path.
fn path_of(coupling: &Coupling, report: &RunReport, measured: bool) -> PathProfile {
    match coupling.path {
        None => PathProfile::new(UNKNOWN_RATE, report.rtt),
        Some(path) if measured => PathProfile { base_rtt: report.rtt, ..path.profile() },
        Some(path) => path.profile(),
    }
}

/// A time of a step: predicted and measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFigure {
    /// The time in words.
    pub name: String,
    /// Predicted time; none without a prediction.
    pub predicted: Option<Duration>,
    /// Measured mean of all steps.
    pub measured: Duration,
}

impl CoupleRunDocument {
    /// Returns the compute time of a component in the coupling file.
    fn declared(&self, component: &str) -> Option<Duration> {
        self.components.iter().find(|found| found.name == component)?.compute
    }

    /// Returns the mean times of a step, predicted next to measured: the step and the compute time of each component, then the
    /// wait for each variable.
    pub fn step_figures(&self) -> Vec<StepFigure> {
        let reports = [&self.measured.own, &self.measured.partner];
        let predicted = self.predicted.as_ref();
        let step = |report: &&ComponentReport| StepFigure {
            name: format!("step of {}", report.component),
            predicted: predicted.map(|plan| planned_step(plan, report)),
            measured: per_step(report.run, report.steps),
        };
        let compute = |report: &&ComponentReport| StepFigure {
            name: format!("compute {}", report.component),
            predicted: predicted.map(|_| self.declared(&report.component).unwrap_or(mean_compute(report))),
            measured: mean_compute(report),
        };
        let waits = reports.iter().flat_map(|report| {
            report.received.iter().map(move |(name, received)| {
                let planned = predicted.and_then(|plan| plan.variables.iter().find(|variable| variable.name == *name));
                let lag = planned.map_or(0, |variable| variable.lag);
                StepFigure {
                    name: format!("wait for {name}"),
                    predicted: planned.map(|variable| variable.wait),
                    measured: steady_wait(received, report.steps, lag),
                }
            })
        });
        reports.iter().map(step).chain(reports.iter().map(compute)).chain(waits).collect()
    }
}
