//! The result of a sweep, and its lines while it runs.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::{PathProfile, seconds};
use lfn_base::units::BitRate;
use lfn_results::measure::TestLoad;
use lfn_results::report::{CommandError, Origin};
use serde::{Deserialize, Serialize};

use crate::design::{Design, Part, Points};
use crate::factor::{Factor, Level, Unit, Value};
use crate::optimum::{Optimum, find_optimum};
use crate::published::{PublishedRun, published_runs};
use crate::run::SweepRun;
use crate::schedule::{Goals, SweepEnd};
use crate::summary::PointSummary;

/// Result of `lfn sweep`: every point next to its prediction, the optimum of each part, and all runs.
///
/// A key ends with its SI unit, and an unknown value is null. Later versions of `lfn.sweep/1` only add keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SweepDocument {
    /// Name and version of the schema.
    pub schema: SweepSchema,
    /// Origin of the result: the version, the time and the command.
    pub origin: Origin,
    /// Seed of the random order; null if `--dry-run` has none.
    pub seed: Option<u64>,
    /// Load of each test, except where a factor sets the count.
    pub load: TestLoad,
    /// Goals that end the sweep; null if unknown, because a state file has none.
    pub goals: Option<Goals>,
    /// Figures of the path from the client to the server; null if the capacity is unknown.
    pub path: Option<PathProfile>,
    /// Figures of the path from the server to the client; null if the capacity is unknown.
    pub return_path: Option<PathProfile>,
    /// Reason for the end of the sweep.
    pub ended: SweepEnd,
    /// Time of all runs so far.
    #[serde(rename = "spent_seconds", with = "seconds")]
    pub spent: Duration,
    /// Expected time of the runs that are missing for the goals.
    #[serde(rename = "remaining_seconds", with = "seconds")]
    pub remaining: Duration,
    /// Parts of the sweep, one picture each.
    pub parts: Vec<SweepPart>,
    /// Points in the order of their numbers.
    pub points: Vec<PointSummary>,
    /// Runs in the order of their end.
    pub runs: Vec<SweepRun>,
    /// File from which the sweep resumes; null with `--dry-run`.
    pub state_file: Option<String>,
    /// Error of the command, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CommandError>,
}

/// A part of a sweep: its grid, its points and its optimum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SweepPart {
    /// Factors of the grid with their values.
    #[serde(flatten)]
    pub grid: Part,
    /// Points of the grid. The last factor varies fastest.
    pub points: Vec<usize>,
    /// Published runs of the part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedFigure>,
    /// Optimum of the measured points; null without a measured point.
    pub optimum: Option<Optimum>,
}

/// Published goodput of one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PublishedFigure {
    /// Settings of the published run, as far as the part varies them.
    pub levels: Vec<Level>,
    /// Number of the point with these settings; null if the sweep has no such point.
    pub point: Option<usize>,
    /// Goodput in the report.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
}

/// Name and version of the schema of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum SweepSchema {
    #[default]
    #[serde(rename = "lfn.sweep/1")]
    V1,
}

/// Name and version of the schema of the lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum SweepEventSchema {
    #[default]
    #[serde(rename = "lfn.sweep.event/1")]
    V1,
}

/// One line of `lfn sweep --output ndjson`. The first line is `start`, the last one is `end` with the complete result. A
/// reader ignores unknown events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SweepEvent {
    /// The sweep starts or resumes.
    Start {
        /// Name and version of the schema.
        schema: SweepEventSchema,
        /// Origin of the result: the version, the time and the command.
        origin: Origin,
        /// Seed of the random order.
        seed: u64,
        /// Factors with all their values.
        design: Design,
        /// Number of all points.
        points: usize,
        /// Number of finished runs in the state file.
        resumed_runs: usize,
    },
    /// A run has a result.
    Run {
        /// Figures of the run.
        run: Box<SweepRun>,
        /// Number of finished runs.
        finished: usize,
        /// Expected number of further runs.
        remaining_runs: u32,
        /// Expected time of these runs.
        #[serde(rename = "remaining_seconds", with = "seconds")]
        remaining: Duration,
    },
    /// A run failed, and is repeated later.
    Retry {
        /// Number of the point.
        point: usize,
        /// Text of the error.
        error: String,
        /// Time until the next run.
        #[serde(rename = "wait_seconds", with = "seconds")]
        wait: Duration,
    },
    /// A run failed, and no more runs of its point start.
    GiveUp {
        /// Number of the point.
        point: usize,
        /// Text of the error.
        error: String,
    },
    /// The sweep has ended.
    End {
        /// Result with all runs.
        result: Box<SweepDocument>,
    },
}

/// Returns the parts with their points, their published figures and their optimum.
pub fn summarize_parts(design: &Design, points: &Points, summaries: &[PointSummary]) -> Vec<SweepPart> {
    let summarize = |(grid, numbers): (&Part, &Vec<usize>)| {
        let own: Vec<&PointSummary> = numbers.iter().filter_map(|point| summaries.get(*point)).collect();
        let with_levels = |run: &PublishedRun| {
            numbers.iter().copied().find(|point| run.levels.iter().all(|level| points.levels[*point].contains(level)))
        };
        let published = published_runs().into_iter().filter(|run| run.part == grid.name).map(|run| PublishedFigure {
            point: with_levels(&run),
            goodput: run.goodput,
            levels: run.levels,
        });
        SweepPart {
            grid: grid.clone(),
            points: numbers.clone(),
            published: published.collect(),
            optimum: find_optimum(grid, &own),
        }
    };
    design.parts.iter().zip(&points.parts).map(summarize).collect()
}

impl SweepDocument {
    /// Returns the table of the points as CSV (RFC 4180): one row for each point.
    pub fn csv(&self) -> String {
        let factors: Vec<_> = Factor::ALL
            .into_iter()
            .filter(|factor| self.points.iter().any(|p| p.levels.iter().any(|level| level.factor == *factor)))
            .collect();
        let figures = [
            "runs",
            "goodput_bits_per_second",
            "goodput_interval_bits_per_second",
            "predicted_bits_per_second",
            "expected_min_bits_per_second",
            "expected_max_bits_per_second",
            "window_scale",
            "differs",
            "finding",
            "limit",
            "error",
        ];
        let names = factors.iter().map(|factor| column(*factor));
        let head: Vec<String> =
            ["point".to_owned()].into_iter().chain(names).chain(figures.map(str::to_owned)).collect();
        let mut table = head.join(",") + "\r\n";
        for point in &self.points {
            let value = |factor| {
                let level = point.levels.iter().find(|level| level.factor == factor)?;
                Some(match &level.value {
                    Value::Number(number) => number.to_string(),
                    Value::Name(name) => field(name),
                })
            };
            let rate = |rate: Option<BitRate>| rate.map(|rate| rate.0.to_string()).unwrap_or_default();
            let cells = [point.point.to_string()]
                .into_iter()
                .chain(factors.iter().map(|factor| value(*factor).unwrap_or_default()))
                .chain([
                    point.runs.to_string(),
                    rate(point.goodput),
                    point.half_width.map(|half: Figure| format!("{:.0}", half.get())).unwrap_or_default(),
                    rate(point.predicted),
                    rate(point.expected_min),
                    rate(point.expected_max),
                    point.window_scale.map(|scale| scale.to_string()).unwrap_or_default(),
                    point.differs.to_string(),
                    field(point.finding.as_ref().map(|finding| finding.name.as_str()).unwrap_or_default()),
                    field(point.limit.as_deref().unwrap_or_default()),
                    field(point.error.as_deref().unwrap_or_default()),
                ]);
            table += &(cells.collect::<Vec<_>>().join(",") + "\r\n");
        }
        table
    }
}

/// Returns the name of the column of a factor.
pub(crate) fn column(factor: Factor) -> String {
    let unit = match factor.unit() {
        Unit::Bytes => "_bytes",
        Unit::Rate => "_bits_per_second",
        Unit::Number | Unit::Name => "",
    };
    factor.name().replace('-', "_") + unit
}

/// Quotes a field that has a special character.
pub(crate) fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
