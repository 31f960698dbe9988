//! The plan of a coupled run: the lag that each variable needs, and the time of the run.
//!
//! In step n a component puts its fields, gets the partner's fields of step n − lag, and computes. The prediction repeats
//! these three actions in virtual time: fields leave one after the other at the rate of the path, and arrive one one-way delay
//! later.

mod predict;
#[cfg(test)]
mod tests;

pub use predict::predict;

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

/// Prediction of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlannedRun {
    /// Number of coupling steps.
    pub steps: u64,
    /// One-way delay of the path: half of the RTT, seconds.
    #[serde(rename = "one_way_delay_seconds", with = "seconds")]
    pub one_way_delay: Duration,
    /// Time of a step of the slower component on a path without delay, seconds.
    #[serde(rename = "compute_seconds", with = "seconds")]
    pub compute: Duration,
    /// Time of a step after the first `lag` steps, seconds.
    #[serde(rename = "step_seconds", with = "seconds")]
    pub step: Duration,
    /// Time of the run, from the first step to the end of the last step of both components, seconds.
    #[serde(rename = "run_seconds", with = "seconds")]
    pub run: Duration,
    /// Time of the run if no step waited, seconds.
    #[serde(rename = "run_without_waits_seconds", with = "seconds")]
    pub run_without_waits: Duration,
    /// Figures of each direction.
    pub directions: Vec<PlannedDirection>,
    /// The variables, by name.
    pub variables: Vec<PlannedVariable>,
}

/// Prediction of the fields in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlannedDirection {
    /// Component that puts the fields.
    pub from: String,
    /// Component that gets the fields.
    pub to: String,
    /// Size of the fields of one step.
    pub bytes_per_step: Bytes,
    /// Time that the path needs for these fields, seconds.
    #[serde(rename = "serialisation_seconds", with = "seconds")]
    pub serialisation: Duration,
    /// Share of the path that the fields use, if no step waits. Above 1 the path is too slow for every lag.
    pub utilisation: f64,
}

/// Prediction of a variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlannedVariable {
    /// Name of the variable.
    pub name: String,
    /// Component that puts the field.
    pub from: String,
    /// Component that gets the field.
    pub to: String,
    /// Size of a field.
    pub bytes: Bytes,
    /// Lag in the coupling file.
    pub lag: u64,
    /// Minimum lag with which no step waits for the variable; null if the path is too slow for every lag.
    pub needed_lag: Option<u64>,
    /// Mean wait of a step for the variable, after the first `lag` steps and after the waits for the variables before it in the
    /// order of the names, seconds.
    #[serde(rename = "wait_seconds", with = "seconds")]
    pub wait: Duration,
}

/// Reason why a run cannot be predicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("component {component} has no compute time")]
    NoComputeTime { component: String },
    #[error("the coupling has {found} components; a plan needs 2")]
    Components { found: usize },
    #[error("the rate of the path is zero")]
    NoRate,
}

impl PlanError {
    /// Returns an action that fixes the cause.
    pub fn hint(&self) -> Option<String> {
        match self {
            PlanError::NoComputeTime { component } => {
                Some(format!("add the time of one step: compute = \"100ms\" in [component.{component}]"))
            }
            PlanError::NoRate => Some("set rate in [path]".to_owned()),
            PlanError::Components { .. } => None,
        }
    }
}
