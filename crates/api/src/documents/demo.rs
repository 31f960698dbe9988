//! Document of `lfn demo`.

use lfn_base::figure::Figure;
use lfn_base::plan::Plan;
use lfn_base::units::{BitRate, Bytes};
use lfn_emulate::AccuracyReport;
#[cfg(test)]
use lfn_results::report::TestDocument;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[cfg(test)]
use super::CopyDocument;
use super::schema_name::schema_name;

/// Result of `lfn demo`, schema `lfn.demo/2`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DemoDocument {
    /// Name and version of the schema.
    pub schema: DemoSchema,
    /// Name of the repeated experiment.
    pub experiment: String,
    /// Plan for the emulated path.
    pub plan: Plan,
    /// This host as it is and tuned; null if a run did not reach its steady part.
    pub comparison: Option<HostComparison>,
    /// Lines of the printed table.
    pub rows: Vec<DemoRow>,
    /// Figures of each receive window.
    pub windows: Vec<WindowPoint>,
    /// Documents of the tests and of the copy.
    pub measured: DemoResults,
    /// True if the emulation was accurate.
    pub accurate: bool,
    /// Accuracy report of the emulation.
    pub accuracy_report: AccuracyReport,
}

/// Goodput of one stream with the settings of this host and with those of the plan, after slow start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostComparison {
    /// Goodput with the settings of this host.
    #[serde(rename = "default_host_bits_per_second")]
    pub default_host: BitRate,
    /// Goodput with a window of one BDP.
    #[serde(rename = "tuned_bits_per_second")]
    pub tuned: BitRate,
    /// First finding of the run with the settings of this host; null if there is none.
    pub finding: Option<String>,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DemoRow {
    /// Name of the quantity.
    pub quantity: String,
    /// Published figure; null if the report has no figure.
    pub published: Option<DemoFigure>,
    /// Figure from the model; null if the model has no figure.
    pub predicted: Option<DemoFigure>,
    /// Measured figure; null if no run has the figure.
    pub measured: Option<DemoFigure>,
    /// Explanation of the difference, or of the agreement.
    pub reason: String,
}

/// A figure as text and as a number.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DemoFigure {
    /// The figure with its unit.
    pub text: String,
    /// Seconds, bytes, bit/s, or a window scale.
    pub value: Figure,
}

/// Figures of one receive window.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WindowPoint {
    /// Receive window of the test.
    #[serde(rename = "window_bytes")]
    pub window: Bytes,
    /// Goodput published in 1995.
    #[serde(rename = "published_bits_per_second")]
    pub published: BitRate,
    /// Steady goodput from the model.
    #[serde(rename = "predicted_bits_per_second")]
    pub predicted: BitRate,
    /// Measured steady goodput; null if no run reached its steady part.
    pub measured: Option<RateSpread>,
}

/// Spread of the steady goodput over all runs with one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RateSpread {
    /// Minimum of the steady intervals.
    #[serde(rename = "min_bits_per_second")]
    pub min: BitRate,
    /// Median of the steady intervals.
    #[serde(rename = "median_bits_per_second")]
    pub median: BitRate,
    /// Maximum of the steady intervals.
    #[serde(rename = "max_bits_per_second")]
    pub max: BitRate,
}

/// Documents of the runs, as `lfn test --json` and `lfn copy --json` print them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DemoResults {
    /// Document of the test with the settings of this host, `lfn.test/3`.
    #[cfg_attr(test, schemars(with = "TestDocument"))]
    pub default_host: Value,
    /// For each window, the documents of its tests, `lfn.test/3`.
    #[cfg_attr(test, schemars(with = "Vec<Vec<TestDocument>>"))]
    pub windows: Vec<Vec<Value>>,
    /// Document of the copy, `lfn.copy/3`.
    #[cfg_attr(test, schemars(with = "CopyDocument"))]
    pub copy: Value,
}

schema_name! {
    /// Name and version of the schema of the demo.
    DemoSchema = "lfn.demo/2"
}
