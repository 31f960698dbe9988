//! Document of `lfn demo coop3d`.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::{PathProfile, seconds};
use lfn_couple::document::CoupleRunDocument;
use lfn_emulate::AccuracyReport;
use serde::Serialize;

use super::schema_name::schema_name;

/// Result of `lfn demo coop3d`, schema `lfn.demo.coop3d/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Coop3dDocument {
    /// Name and version of the schema.
    pub schema: Coop3dSchema,
    /// The two models of the run, by component.
    pub models: Vec<CoupledModel>,
    /// Command that installs ANUGA and runs the demo with it; null if ANUGA ran.
    pub install: Option<String>,
    /// The emulated path between the models.
    pub path: PathProfile,
    /// Time of one coupling step in the simulation, seconds.
    #[serde(rename = "model_step_seconds", with = "seconds")]
    pub model_step: Duration,
    /// The run in lock-step, then the run with the lag of the plan.
    pub runs: Vec<Coop3dRun>,
    /// The same models in lock-step with copied files instead of the channel; null if not requested.
    pub by_files: Option<FileCoupling>,
    /// Largest difference between the levels of both runs at their end, m: the effect of the lag on the result.
    pub level_difference_meters: Figure,
    /// True if the emulation of each run was accurate, also of that with copied files.
    pub accurate: bool,
    /// Accuracy report of the emulation of the runs with the channel.
    pub accuracy_report: AccuracyReport,
}

/// A model of the demo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CoupledModel {
    /// Name of the component in the coupling file.
    pub component: String,
    /// Side of the emulated path: `near` or `far`.
    pub side: String,
    /// True for a synthetic model: formulas that stand for a model, and no model in use elsewhere.
    pub synthetic: bool,
    /// Name and version of the model, or `synthetic`.
    pub model: String,
    /// The model in a few words.
    pub description: String,
}

/// A run with copied files, for comparison with the channel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileCoupling {
    /// Number of coupling steps.
    pub steps: u64,
    /// Time of the run, seconds.
    #[serde(rename = "run_seconds", with = "seconds")]
    pub run: Duration,
    /// Median time of a step without the first one, seconds.
    #[serde(rename = "step_seconds", with = "seconds")]
    pub step: Duration,
    /// True if the emulation of this run was accurate.
    pub accurate: bool,
    /// Accuracy report of the emulation of this run.
    pub accuracy_report: AccuracyReport,
}

/// A run of the demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Coop3dRun {
    /// Name of the run: `lock-step` or `lagged`.
    pub name: String,
    /// Largest lag of the variables, in steps.
    pub lag: u64,
    /// Predicted time of the run, seconds.
    #[serde(rename = "predicted_run_seconds", with = "seconds")]
    pub predicted_run: Duration,
    /// Measured time of the run, seconds: that of the slower component.
    #[serde(rename = "measured_run_seconds", with = "seconds")]
    pub measured_run: Duration,
    /// Predicted mean time of a step, seconds.
    #[serde(rename = "predicted_step_seconds", with = "seconds")]
    pub predicted_step: Duration,
    /// Measured mean time of a step, seconds.
    #[serde(rename = "measured_step_seconds", with = "seconds")]
    pub measured_step: Duration,
    /// Explanation of the times.
    pub reason: String,
    /// Lowest level of the lake at the end, m above the level at rest.
    pub lowest_level_meters: Figure,
    /// Highest level of the lake at the end, m above the level at rest.
    pub highest_level_meters: Figure,
    /// Fastest wind at the end, m/s.
    #[serde(rename = "fastest_wind_meters_per_second")]
    pub fastest_wind: Figure,
    /// Plan, figures and findings of the run, as `lfn couple run --json` prints them.
    pub result: CoupleRunDocument,
}

schema_name! {
    /// Name and version of the schema of the coupled demo.
    Coop3dSchema = "lfn.demo.coop3d/1"
}
