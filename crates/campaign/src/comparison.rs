//! Several sweeps side by side: the goodput of each point, and its difference from the first sweep.

use std::collections::HashMap;

use lfn_base::figure::Figure;
use lfn_base::units::BitRate;
use lfn_results::measure::TestLoad;
use serde::{Deserialize, Serialize};

use crate::document::{SweepDocument, column, field};
use crate::factor::{Factor, Level, Value};
use crate::schedule::SweepEnd;
use crate::summary::PointSummary;

/// Several sweeps side by side, schema `lfn.show.sweeps/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SweepComparison {
    /// Name and version of the schema.
    pub schema: SweepComparisonSchema,
    /// Sweeps in the order of their files.
    pub sweeps: Vec<ComparedSweep>,
    /// Points of all sweeps, those of the first one first.
    pub points: Vec<ComparedPoint>,
    /// Differences of the sweeps that may cause a difference of the goodput.
    pub warnings: Vec<String>,
}

/// A sweep of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ComparedSweep {
    /// Name of the file.
    pub file: String,
    /// Version of the lfn that measured.
    pub lfn_version: String,
    /// Start of the command: RFC 3339, UTC.
    pub started: String,
    /// Name of the server as typed.
    pub server: String,
    /// Load of each test.
    pub load: TestLoad,
    /// Reason for the end of the sweep.
    pub ended: SweepEnd,
    /// Number of finished runs.
    pub runs: usize,
}

/// A point with its goodput in each sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ComparedPoint {
    /// Value of each factor.
    pub levels: Vec<Level>,
    /// Figures in the order of the sweeps; null for a sweep without this point.
    pub results: Vec<Option<ComparedFigures>>,
}

/// Figures of a point in one sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ComparedFigures {
    /// Number of finished runs.
    pub runs: u32,
    /// Mean goodput of the runs; null without a run.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Half the width of the 95 % interval of the mean; null if unknown.
    #[serde(rename = "goodput_interval_bits_per_second")]
    pub half_width: Option<Figure>,
    /// Predicted goodput; null if unknown.
    #[serde(rename = "predicted_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Goodput minus that of the first sweep, in percent of the first; null for the first sweep, and if one is unknown.
    pub difference_percent: Option<Figure>,
    /// True if the 95 % intervals of this sweep and the first one do not overlap; null if one is unknown.
    pub is_distinct: Option<bool>,
}

/// Name and version of the schema of a comparison of sweeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum SweepComparisonSchema {
    #[default]
    #[serde(rename = "lfn.show.sweeps/1")]
    V1,
}

/// Two sweeps without a common factor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} varies {own}, and {first_file} varies {first}: no factor is common")]
pub struct NoCommonFactor {
    first_file: String,
    first: String,
    file: String,
    own: String,
}

/// Compares sweeps with the names of their files. Each sweep needs a common factor with the first one.
pub fn compare_sweeps(sweeps: &[(String, SweepDocument)]) -> Result<SweepComparison, NoCommonFactor> {
    let factors: Vec<Vec<Factor>> = sweeps.iter().map(|(_, sweep)| factors(sweep)).collect();
    for ((file, _), own) in sweeps.iter().zip(&factors).skip(1) {
        if !own.iter().any(|factor| factors[0].contains(factor)) {
            let names = |factors: &[Factor]| factors.iter().map(|factor| factor.name()).collect::<Vec<_>>().join(", ");
            let (first, own) = (names(&factors[0]), names(own));
            return Err(NoCommonFactor { first_file: sweeps[0].0.clone(), first, file: file.clone(), own });
        }
    }
    let mut known: HashMap<Vec<Level>, usize> = HashMap::new();
    let mut points: Vec<ComparedPoint> = Vec::new();
    for (number, (_, sweep)) in sweeps.iter().enumerate() {
        for point in &sweep.points {
            let place = *known.entry(key(&point.levels)).or_insert_with(|| {
                points.push(ComparedPoint { levels: point.levels.clone(), results: vec![None; sweeps.len()] });
                points.len() - 1
            });
            let first = points[place].results[0].filter(|_| number > 0);
            points[place].results[number] = Some(ComparedFigures::new(point, first));
        }
    }
    let compared = sweeps.iter().map(|(file, sweep)| ComparedSweep {
        file: file.clone(),
        lfn_version: sweep.origin.lfn_version.clone(),
        started: sweep.origin.started.clone(),
        server: sweep.origin.hosts.far.clone(),
        load: sweep.load,
        ended: sweep.ended,
        runs: sweep.runs.len(),
    });
    let (schema, sweeps_of_files) = (SweepComparisonSchema::V1, compared.collect());
    Ok(SweepComparison { schema, sweeps: sweeps_of_files, points, warnings: warnings(sweeps) })
}

/// Returns the levels in a fixed order, without those that are the default of a test.
fn key(levels: &[Level]) -> Vec<Level> {
    let is_default = |level: &Level| match (&level.factor, &level.value) {
        (Factor::Streams, Value::Number(streams)) => *streams == 1,
        (Factor::Direction, Value::Name(direction)) => direction == "forward",
        _ => false,
    };
    let mut key: Vec<Level> = levels.iter().filter(|level| !is_default(level)).cloned().collect();
    key.sort();
    key
}

fn factors(sweep: &SweepDocument) -> Vec<Factor> {
    let all = || sweep.parts.iter().flat_map(|part| part.grid.factors.iter().map(|given| given.factor));
    Factor::ALL.into_iter().filter(|factor| all().any(|own| own == *factor)).collect()
}

fn warnings(sweeps: &[(String, SweepDocument)]) -> Vec<String> {
    type Figure = (&'static str, fn(&SweepDocument) -> Option<String>);
    let figures: [Figure; 4] = [
        ("load of a test", |sweep| serde_json::to_string(&sweep.load).ok()),
        ("capacity of the path", |sweep| sweep.path.map(|path| path.capacity.to_string())),
        ("base RTT of the path", |sweep| sweep.path.map(|path| lfn_base::units::show_duration(path.base_rtt))),
        ("version of lfn", |sweep| Some(sweep.origin.lfn_version.clone())),
    ];
    let mut warnings = Vec::new();
    for (name, figure) in figures {
        let mut values: Vec<String> = Vec::new();
        for value in sweeps.iter().filter_map(|(_, sweep)| figure(sweep)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        if values.len() > 1 {
            warnings.push(format!("different {name}: {}", values.join(", ")));
        }
    }
    warnings
}

fn cell(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Name(name) => field(name),
    }
}

impl ComparedFigures {
    fn new(point: &PointSummary, first: Option<ComparedFigures>) -> Self {
        let goodput = point.goodput;
        let both = first.and_then(|first| Some((first.goodput?.as_f64(), goodput?.as_f64())));
        let difference_percent = both.and_then(|(first, own)| Figure::new((own - first) / first * 100.0));
        let margins = first.and_then(|first| Some(first.half_width?.get() + point.half_width?.get()));
        ComparedFigures {
            runs: point.runs,
            goodput,
            half_width: point.half_width,
            predicted: point.predicted,
            difference_percent,
            is_distinct: both.zip(margins).map(|((first, own), margins)| (own - first).abs() > margins),
        }
    }
}

impl SweepComparison {
    /// Returns the factors of all points.
    pub fn factors(&self) -> Vec<Factor> {
        let has =
            |factor: Factor| self.points.iter().any(|point| point.levels.iter().any(|level| level.factor == factor));
        Factor::ALL.into_iter().filter(|factor| has(*factor)).collect()
    }

    /// Returns the comparison as CSV (RFC 4180): one row for each point and sweep.
    pub fn csv(&self) -> String {
        let factors = self.factors();
        let figures = [
            "runs",
            "goodput_bits_per_second",
            "goodput_interval_bits_per_second",
            "predicted_bits_per_second",
            "difference_percent",
            "is_distinct",
        ];
        let names = factors.iter().map(|factor| column(*factor));
        let head: Vec<String> =
            ["file".to_owned()].into_iter().chain(names).chain(figures.map(str::to_owned)).collect();
        let mut table = head.join(",") + "\r\n";
        for point in &self.points {
            let value = |factor: &Factor| {
                let level = point.levels.iter().find(|level| level.factor == *factor);
                level.map(|level| cell(&level.value)).unwrap_or_default()
            };
            let values: Vec<String> = factors.iter().map(value).collect();
            for (sweep, result) in self.sweeps.iter().zip(&point.results) {
                let Some(result) = result else { continue };
                let rate = |rate: Option<BitRate>| rate.map(|rate| rate.0.to_string()).unwrap_or_default();
                let cells = [field(&sweep.file)].into_iter().chain(values.iter().cloned()).chain([
                    result.runs.to_string(),
                    rate(result.goodput),
                    result.half_width.map(|half| format!("{:.0}", half.get())).unwrap_or_default(),
                    rate(result.predicted),
                    result.difference_percent.map(|percent| format!("{:.3}", percent.get())).unwrap_or_default(),
                    result.is_distinct.map(|is_distinct| is_distinct.to_string()).unwrap_or_default(),
                ]);
                table += &(cells.collect::<Vec<_>>().join(",") + "\r\n");
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::{Design, FactorValues, Part};
    use crate::schedule::tests::run;
    use crate::state::{StateHeader, StoredState};

    fn sweep(factors: &[(Factor, &[u64])], goodput: u64) -> (String, SweepDocument) {
        let given = factors.iter().map(|(factor, values)| FactorValues {
            factor: *factor,
            values: values.iter().copied().map(Value::Number).collect(),
        });
        let design = Design { parts: vec![Part { name: String::new(), factors: given.collect() }] };
        let points = design.points().unwrap().levels.len();
        let header = StateHeader {
            lfn_version: "0.1.0".to_owned(),
            started: "2026-11-27T14:00:00Z".to_owned(),
            server: "far".to_owned(),
            seed: 7,
            load: TestLoad::Records(3),
            tuned: false,
            path: None,
            return_path: None,
            design,
        };
        let runs = (0..points).flat_map(|point| [run(point, goodput), run(point, goodput + 2)]).collect();
        (format!("{goodput}.json"), StoredState { header, runs, complete_length: 0 }.document("state"))
    }

    #[test]
    fn points_are_matched_by_their_values() {
        let first = sweep(&[(Factor::Window, &[1000, 2000])], 100);
        let second = sweep(&[(Factor::Streams, &[1, 4]), (Factor::Window, &[2000, 3000])], 200);
        let compared = compare_sweeps(&[first, second]).unwrap();
        let present: Vec<[bool; 2]> =
            compared.points.iter().map(|point| [0, 1].map(|sweep| point.results[sweep].is_some())).collect();
        // 1000; 2000, with one stream in the second sweep; 3000; and four streams twice.
        assert_eq!(present, [[true, false], [true, true], [false, true], [false, true], [false, true]]);
        let both = compared.points[1].results[1].unwrap();
        assert_eq!((both.difference_percent.unwrap().get().round(), both.is_distinct), (99.0, Some(true)));
        assert_eq!(compared.points[0].results[0].unwrap().difference_percent, None);
        assert_eq!(compared.csv().split_terminator("\r\n").count(), 1 + 6);
    }

    #[test]
    fn sweeps_without_a_common_factor_are_refused() {
        let [windows, streams] = [Factor::Window, Factor::Streams].map(|factor| sweep(&[(factor, &[1, 4])], 100));
        let error = compare_sweeps(&[windows, streams]).unwrap_err().to_string();
        assert!(error.contains("varies streams") && error.contains("varies window"), "{error}");
    }
}
