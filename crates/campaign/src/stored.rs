//! Stored sweeps: the result of a sweep (`lfn.sweep/1`), the lines of `--output ndjson`, and the state file.
//!
//! A file may hold anything. A document is read only if its points are those of its factors, so that the code that prints
//! and draws sweeps meets no other sizes and numbers than after a sweep.

use std::time::Duration;

use lfn_results::evidence::HostNames;
use lfn_results::report::{Origin, ReadError, read_plausible, read_schema};

use crate::design::Design;
use crate::document::{SweepDocument, SweepEvent, SweepSchema, summarize_parts};
use crate::run::SweepRun;
use crate::schedule::SweepEnd;
use crate::state::{StateError, StoredState, read_state};
use crate::summary::PointSummary;
use crate::values::MAX_POINTS;

/// Schema of the result of a sweep.
pub const SWEEP_SCHEMA: &str = "lfn.sweep/1";
/// Schema of the lines of a running sweep.
pub const SWEEP_EVENT_SCHEMA: &str = "lfn.sweep.event/1";
/// Schema of a state file.
pub const STATE_SCHEMA: &str = "lfn.sweep.state/1";

/// Maximum length of a file with a sweep, bytes.
pub use crate::state::MAX_STATE_BYTES as MAX_SWEEP_BYTES;

/// Reasons why a file is not a stored sweep.
#[derive(Debug, thiserror::Error)]
pub enum StoredSweepError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the lines have no result: the sweep did not end")]
    NoEnd,
    #[error("not a sweep: {0}")]
    Inconsistent(&'static str),
}

/// Reads a stored sweep of any of the three schemas. `file` is the name of the file.
pub fn read_sweep(bytes: &[u8], file: &str) -> Result<SweepDocument, StoredSweepError> {
    let document = match read_schema(bytes)?.as_str() {
        SWEEP_SCHEMA => read_plausible(bytes)?,
        SWEEP_EVENT_SCHEMA => read_end(bytes)?,
        STATE_SCHEMA => read_state(bytes)?.ok_or(StoredSweepError::NoEnd)?.document(file),
        other => return Err(ReadError::Schema(other.to_owned()).into()),
    };
    check(&document)?;
    Ok(document)
}

/// Reads the last line, which has the result.
fn read_end(bytes: &[u8]) -> Result<SweepDocument, StoredSweepError> {
    let last = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let ends = last.starts_with(br#"{"event":"end","#);
    if !ends {
        return Err(StoredSweepError::NoEnd);
    }
    match read_plausible(last)? {
        SweepEvent::End { result } => Ok(*result),
        _ => Err(StoredSweepError::NoEnd),
    }
}

/// Checks that the points are those of the factors, in their order.
fn check(document: &SweepDocument) -> Result<(), StoredSweepError> {
    let refuse = |reason| Err(StoredSweepError::Inconsistent(reason));
    let design = Design { parts: document.parts.iter().map(|part| part.grid.clone()).collect() };
    let Ok(points) = design.points() else { return refuse("the factors have no points, or too many") };
    let own = document.points.iter().map(|point| &point.levels);
    let is_in_order = document.points.iter().enumerate().all(|(number, point)| point.point == number);
    if !own.eq(points.levels.iter()) || !is_in_order {
        return refuse("the points are not those of the factors");
    }
    let count = points.levels.len();
    if !document.parts.iter().map(|part| &part.points).eq(points.parts.iter()) {
        return refuse("the points of a part are not those of its factors");
    }
    let is_known = |point: usize| point < count;
    let has_known = document.parts.iter().all(|part| {
        part.published.len() <= MAX_POINTS
            && part.published.iter().filter_map(|known| known.point).all(is_known)
            && part.optimum.as_ref().is_none_or(|optimum| is_known(optimum.point))
    });
    if !has_known || !document.runs.iter().all(|run| is_known(run.point)) {
        return refuse("a run or an optimum is of a point that the sweep does not have");
    }
    // No rate is above the maximum of a whole number of bit/s.
    let is_rate =
        |point: &PointSummary| point.half_width.is_none_or(|half| half.get() >= 0.0 && half.get() <= u64::MAX as f64);
    if document.points.iter().all(is_rate) { Ok(()) } else { refuse("an interval is out of range") }
}

impl StoredState {
    /// Returns the result of the runs so far, without predictions of points that have no run. `file` is the name of the
    /// file.
    pub fn document(&self, file: &str) -> SweepDocument {
        let StoredState { header, runs, .. } = self;
        // A state file is read only if its design is valid.
        let points = header.design.points().unwrap_or_default();
        let mut runs_of: Vec<Vec<&SweepRun>> = vec![Vec::new(); points.levels.len()];
        for run in runs {
            runs_of[run.point].push(run);
        }
        let summarize =
            |(point, levels): (usize, &Vec<_>)| PointSummary::new(point, levels, &Default::default(), &runs_of[point]);
        let summaries: Vec<PointSummary> = points.levels.iter().enumerate().map(summarize).collect();
        SweepDocument {
            schema: SweepSchema::V1,
            origin: Origin {
                lfn_version: header.lfn_version.clone(),
                started: header.started.clone(),
                hosts: HostNames { near: "near".to_owned(), far: header.server.clone() },
                ..Origin::default()
            },
            seed: Some(header.seed),
            load: header.load,
            goals: None,
            path: header.path,
            return_path: header.return_path,
            ended: SweepEnd::Unknown,
            spent: runs.iter().fold(Duration::ZERO, |sum, run| sum.saturating_add(run.time)),
            remaining: Duration::ZERO,
            parts: summarize_parts(&header.design, &points, &summaries),
            points: summaries,
            runs: runs.clone(),
            state_file: Some(file.to_owned()),
            error: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::satellite_design;
    use crate::schedule::tests::run;
    use crate::state::{StateHeader, StateLine};

    fn state() -> Vec<u8> {
        let header = StateHeader {
            lfn_version: "0.1.0".to_owned(),
            started: "2026-11-27T14:00:00Z".to_owned(),
            server: "far".to_owned(),
            seed: u64::MAX,
            load: lfn_results::measure::TestLoad::Records(3),
            tuned: false,
            path: None,
            return_path: None,
            design: satellite_design(),
        };
        let lines = [StateLine::of_header(&header), StateLine::of_run(&run(1, 100)), StateLine::of_run(&run(1, 300))];
        lines.map(|line| line.text().unwrap()).concat().into_bytes()
    }

    #[test]
    fn state_file_becomes_a_document_that_can_be_read_again() {
        let document = read_sweep(&state(), "state").unwrap();
        assert_eq!(document.points.iter().map(|point| point.runs).take(3).collect::<Vec<_>>(), [0, 2, 0]);
        assert_eq!((document.points[1].goodput.map(|rate| rate.0), document.ended), (Some(200), SweepEnd::Unknown));
        let text = serde_json::to_vec(&document).unwrap();
        assert_eq!(read_sweep(&text, "other").unwrap(), document);
    }

    #[test]
    fn document_with_other_points_than_its_factors_is_refused() {
        let refused = |change: fn(&mut SweepDocument)| {
            let mut document = read_sweep(&state(), "state").unwrap();
            change(&mut document);
            let text = serde_json::to_vec(&document).unwrap();
            matches!(read_sweep(&text, "file"), Err(StoredSweepError::Inconsistent(_)))
        };
        assert!(!refused(|_| {}));
        assert!(refused(|document| drop(document.points.pop())));
        assert!(refused(|document| document.points.swap(0, 1)));
        assert!(refused(|document| document.parts.clear()));
        assert!(refused(|document| document.parts[0].points[0] = 9999));
        assert!(refused(|document| document.runs[0].point = 9999));
        assert!(refused(|document| document.points[0].half_width = lfn_base::figure::Figure::new(1e300)));
    }
}
