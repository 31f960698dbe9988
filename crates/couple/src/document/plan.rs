//! The document of a plan.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use crate::coupling::{Component, Coupling, DropPolicy, PathSettings};
use crate::plan::{PlanError, PlannedRun, predict};

/// IP MTU of a path that only the overrides describe.
const ETHERNET_MTU: u32 = 1500;
/// Lags of the table beyond the needed one.
const LAGS_BEYOND: u64 = 2;
/// Maximum rows of the table of lags.
const MAX_LAG_POINTS: u64 = 24;
/// Maximum steps of the runs in the table of lags; the rest is extrapolated.
const MAX_TABLE_STEPS: u64 = 2000;

/// Prediction of a coupled run, schema `lfn.couple.plan/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CouplePlanDocument {
    /// Name and version of the schema.
    pub schema: CouplePlanSchema,
    /// Name of the simulation.
    pub coupling: String,
    /// Path between the sites: the one of the coupling file, or of the options.
    pub path: PathSettings,
    /// The components, by name.
    pub components: Vec<PlannedComponent>,
    /// Prediction with the lags of the coupling file.
    pub predicted: PlannedRun,
    /// Predictions with the same lag for every variable, the smallest lag first.
    pub lags: Vec<LagPoint>,
}

/// A component with its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlannedComponent {
    /// Name of the component.
    pub name: String,
    /// Time that the model computes in one step, seconds; null if the coupling file has none.
    #[serde(rename = "compute_seconds", with = "optional_seconds")]
    pub compute: Option<Duration>,
    /// The model writes checkpoints.
    pub checkpoints: bool,
}

/// Prediction with the same lag for every variable.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LagPoint {
    /// Lag of every variable.
    pub lag: u64,
    /// Time of a step after the first `lag` steps, seconds.
    #[serde(rename = "step_seconds", with = "seconds")]
    pub step: Duration,
    /// Time of the run, seconds.
    #[serde(rename = "run_seconds", with = "seconds")]
    pub run: Duration,
}

/// Name and version of the schema of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum CouplePlanSchema {
    #[default]
    #[serde(rename = "lfn.couple.plan/1")]
    Current,
}

/// Figures of the path that replace those of the coupling file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathOverrides {
    /// Capacity of the bottleneck, counted with the headers of the link.
    pub rate: Option<BitRate>,
    /// RTT of the path without queueing.
    pub rtt: Option<Duration>,
    /// IP MTU of the narrowest link, bytes.
    pub mtu: Option<u32>,
}

/// Reason why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRequestError {
    #[error("the coupling file has no [path]")]
    NoPath,
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl PlanRequestError {
    /// Returns an action that fixes the cause.
    pub fn hint(&self) -> Option<String> {
        match self {
            PlanRequestError::NoPath => {
                Some("add [path] with rate and rtt, or give both: --rate 155mbit --rtt 539ms".into())
            }
            PlanRequestError::Plan(error) => error.hint(),
        }
    }
}

impl PlannedComponent {
    /// Returns the components of a coupling file.
    pub(super) fn of(coupling: &Coupling) -> Vec<Self> {
        let component = |(name, component): (&String, &Component)| PlannedComponent {
            name: name.clone(),
            compute: component.compute,
            checkpoints: component.checkpoints,
        };
        coupling.components.iter().map(component).collect()
    }
}

impl PathOverrides {
    /// Returns the path of the file with the overrides; none if the rate or the RTT is unknown.
    pub fn apply(self, file: Option<PathSettings>) -> Option<PathSettings> {
        Some(PathSettings {
            rate: self.rate.or(file.map(|path| path.rate))?,
            rtt: self.rtt.or(file.map(|path| path.rtt))?,
            mtu: self.mtu.or(file.map(|path| path.mtu)).unwrap_or(ETHERNET_MTU),
        })
    }
}

/// Predicts the run of a coupling file, and the runs with other lags.
pub fn plan_document(coupling: &Coupling, overrides: PathOverrides) -> Result<CouplePlanDocument, PlanRequestError> {
    let path = overrides.apply(coupling.path).ok_or(PlanRequestError::NoPath)?;
    let predicted = predict(coupling, &path.profile())?;
    let lags = lags_of(coupling, &predicted);
    Ok(CouplePlanDocument {
        schema: CouplePlanSchema::Current,
        coupling: coupling.name.clone(),
        path,
        components: PlannedComponent::of(coupling),
        lags: lags.into_iter().filter_map(|lag| lag_point(coupling, path, lag)).collect(),
        predicted,
    })
}

/// Returns the lags of the table: all from 0 to two beyond the needed one, or some of them if they are many, and the largest lag of
/// the file.
fn lags_of(coupling: &Coupling, predicted: &PlannedRun) -> Vec<u64> {
    let needed = predicted.variables.iter().filter_map(|variable| variable.needed_lag).max().unwrap_or(0);
    let last = needed.saturating_add(LAGS_BEYOND).min(coupling.steps.saturating_sub(1));
    let points = last.clamp(1, MAX_LAG_POINTS - 1);
    let mut lags: Vec<u64> =
        (0..=points).map(|at| (u128::from(last) * u128::from(at) / u128::from(points)) as u64).collect();
    let used = coupling.variables.values().map(|variable| variable.lag).max().unwrap_or(0);
    lags.extend([needed.min(last), used]);
    lags.sort_unstable();
    lags.dedup();
    lags
}

/// Predicts the run with the same lag for every variable that is not dropped.
fn lag_point(coupling: &Coupling, path: PathSettings, lag: u64) -> Option<LagPoint> {
    let mut changed = coupling.clone();
    for variable in changed.variables.values_mut().filter(|variable| variable.drop == DropPolicy::Never) {
        variable.lag = lag;
    }
    // The steps after the first lags have the same mean time.
    changed.steps = coupling.steps.min(MAX_TABLE_STEPS.max(lag.saturating_mul(2)));
    let run = predict(&changed, &path.profile()).ok()?;
    let rest = run.step.as_secs_f64() * (coupling.steps - changed.steps) as f64;
    Some(LagPoint { lag, step: run.step, run: run.run + Duration::from_secs_f64(rest.min(1e15)) })
}
