//! The state file of a sweep: one line of JSON for the design, and one for each finished run.
//!
//! Lines are only added, and each is synced before the next run starts. A sweep that was killed left an incomplete last
//! line at worst, which a reader drops. Goals (`--until`, `--repeat`, `--budget`) are not in the file: the same sweep may
//! resume with other goals.

use lfn_base::path::PathProfile;
use lfn_results::measure::TestLoad;
use serde::{Deserialize, Serialize};

use crate::design::Design;
use crate::run::SweepRun;

/// Maximum length of a state file, bytes.
pub const MAX_STATE_BYTES: u64 = 256 << 20;

/// Start of the name of the schema.
const SCHEMA: &str = "lfn.sweep.state/";

/// A line of a state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum StateLine {
    /// First line: the sweep of the file.
    Design {
        /// Name and version of the schema.
        schema: StateSchema,
        /// Everything that must be the same when the sweep resumes.
        header: Box<StateHeader>,
    },
    /// Each other line: a finished run.
    Run {
        /// Figures of the run.
        run: Box<SweepRun>,
    },
}

/// The sweep of a state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StateHeader {
    /// Version of the lfn that started the sweep.
    pub lfn_version: String,
    /// Start of the sweep: RFC 3339, UTC.
    #[cfg_attr(any(test, feature = "schema"), schemars(extend("format" = "date-time")))]
    pub started: String,
    /// Name of the server as typed, or the host, port and fingerprint of its ticket.
    pub server: String,
    /// Seed of the random order.
    pub seed: u64,
    /// Load of each test.
    pub load: TestLoad,
    /// The tests use the settings of the plan.
    #[serde(default)]
    pub tuned: bool,
    /// Figures of the path from the client to the server; null if the capacity is unknown.
    #[serde(default)]
    pub path: Option<PathProfile>,
    /// Figures of the path from the server to the client; null if the capacity is unknown.
    #[serde(default)]
    pub return_path: Option<PathProfile>,
    /// Factors with all their values.
    pub design: Design,
}

/// Name and version of the schema of a state file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum StateSchema {
    #[default]
    #[serde(rename = "lfn.sweep.state/1")]
    V1,
}

/// Contents of a state file.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredState {
    /// The sweep of the file.
    pub header: StateHeader,
    /// Finished runs in their order.
    pub runs: Vec<SweepRun>,
    /// Length of the complete lines, bytes. The rest of the file is an incomplete line.
    pub complete_length: usize,
}

/// Reasons why a file is not the state of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    #[error("not the state of a sweep")]
    NotAState,
    /// The value of the key `schema`.
    #[error("written by a newer version of lfn ({0})")]
    Newer(String),
    #[error("damaged in line {line}: {reason}")]
    Damaged { line: usize, reason: String },
    /// The part that differs.
    #[error("the state of another sweep: {0} differs")]
    OtherSweep(&'static str),
}

/// Reads a state file. Returns `None` for a file that is empty, or that ends in its first line.
pub fn read_state(bytes: &[u8]) -> Result<Option<StoredState>, StateError> {
    let Some(first_end) = bytes.iter().position(|byte| *byte == b'\n') else {
        let start = br#"{"line":"design","schema":"lfn.sweep.state/"#;
        let is_start = bytes.starts_with(&start[..bytes.len().min(start.len())]);
        return if is_start { Ok(None) } else { Err(StateError::NotAState) };
    };
    let header = read_header(&bytes[..first_end])?;
    let complete_length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let points = header.design.points().map_err(|error| StateError::Damaged { line: 1, reason: error.to_string() })?;
    let mut runs = Vec::new();
    for (at, line) in bytes[first_end + 1..complete_length].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let damaged = |reason: String| StateError::Damaged { line: at + 2, reason };
        match serde_json::from_slice(line).map_err(|error| damaged(error.to_string()))? {
            StateLine::Run { run } if run.point < points.levels.len() => runs.push(*run),
            StateLine::Run { run } => return Err(damaged(format!("the sweep has no point {}", run.point))),
            StateLine::Design { .. } => return Err(damaged("a second design".to_owned())),
        }
    }
    Ok(Some(StoredState { header, runs, complete_length }))
}

fn read_header(line: &[u8]) -> Result<StateHeader, StateError> {
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|_| StateError::NotAState)?;
    let schema = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
    let version = schema.strip_prefix(SCHEMA).ok_or(StateError::NotAState)?;
    if version != "1" {
        return Err(StateError::Newer(schema.chars().filter(|c| c.is_ascii_graphic()).take(40).collect()));
    }
    match serde_json::from_value(value) {
        Ok(StateLine::Design { header, .. }) => Ok(*header),
        Ok(StateLine::Run { .. }) => Err(StateError::NotAState),
        Err(error) => Err(StateError::Damaged { line: 1, reason: error.to_string() }),
    }
}

impl StateLine {
    /// Returns the first line of a file.
    pub fn of_header(header: &StateHeader) -> Self {
        StateLine::Design { schema: StateSchema::V1, header: Box::new(header.clone()) }
    }

    /// Returns the line of a finished run.
    pub fn of_run(run: &SweepRun) -> Self {
        StateLine::Run { run: Box::new(run.clone()) }
    }

    /// Returns the line with its line feed.
    pub fn text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self).map(|text| text + "\n")
    }
}

impl StateHeader {
    /// Returns the usual name of the file: the same for the same server, path, values and load.
    pub fn file_name(&self) -> String {
        let sweep = (&self.server, &self.load, self.tuned, &self.design, &self.path, &self.return_path);
        let text = serde_json::to_string(&sweep).unwrap_or_default();
        // FNV-1a, 32 bits: different sweeps have different names, and the contents decide.
        let hash = text.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        format!("lfn-sweep-{hash:08x}.ndjson")
    }

    /// Refuses the state of another sweep. `seed` is the requested seed, if one is.
    pub fn check(&self, stored: &StateHeader, seed: Option<u64>) -> Result<(), StateError> {
        let differs = [
            ("the server", self.server != stored.server),
            ("the set of values", self.design != stored.design),
            ("the load of a test", self.load != stored.load),
            ("--tuned", self.tuned != stored.tuned),
            ("the path (emulated, or --rate)", self.path != stored.path || self.return_path != stored.return_path),
            ("the seed", seed.is_some_and(|seed| seed != stored.seed)),
        ];
        match differs.into_iter().find(|(_, differs)| *differs) {
            Some((part, _)) => Err(StateError::OtherSweep(part)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use lfn_base::units::BitRate;

    use super::*;
    use crate::published::satellite_design;
    use crate::schedule::tests::run;

    fn header() -> StateHeader {
        StateHeader {
            lfn_version: "0.1.0".to_owned(),
            started: "2026-11-27T14:00:00Z".to_owned(),
            server: "far".to_owned(),
            seed: 7,
            load: TestLoad::TimeSeconds(Duration::from_secs(10)),
            tuned: false,
            path: None,
            return_path: None,
            design: satellite_design(),
        }
    }

    fn file(runs: usize) -> String {
        let lines = (0..runs).map(|point| StateLine::of_run(&run(point, 100)));
        let lines = [StateLine::of_header(&header())].into_iter().chain(lines);
        lines.map(|line| line.text().unwrap()).collect()
    }

    #[test]
    fn a_state_file_round_trips() {
        let stored = read_state(file(3).as_bytes()).unwrap().unwrap();
        assert_eq!((&stored.header, stored.runs.len(), stored.complete_length), (&header(), 3, file(3).len()));
        assert_eq!(stored.runs[2], run(2, 100));
    }

    #[test]
    fn a_file_cut_anywhere_keeps_its_complete_lines() {
        let (whole, header_length) = (file(3), file(0).len());
        for cut in 0..=whole.len() {
            let stored = read_state(&whole.as_bytes()[..cut]).unwrap();
            let lines = whole[..cut].matches('\n').count();
            assert_eq!(stored.as_ref().map(|stored| stored.runs.len() + 1).unwrap_or(0), lines, "{cut}");
            assert_eq!(stored.is_some(), cut >= header_length, "{cut}");
        }
    }

    #[test]
    fn other_files_are_refused() {
        let newer = file(1).replace("lfn.sweep.state/1", "lfn.sweep.state/2");
        assert_eq!(read_state(newer.as_bytes()), Err(StateError::Newer("lfn.sweep.state/2".to_owned())));
        for text in ["hello", "{}\n", "{\"schema\":\"lfn.test/3\"}\n", "\n", "[1]\n", "{\"line\":\"run\"}\n"] {
            assert_eq!(read_state(text.as_bytes()), Err(StateError::NotAState), "{text}");
        }
        let damaged = file(3).replace("\"point\":1,", "\"point\":x,");
        assert!(matches!(read_state(damaged.as_bytes()), Err(StateError::Damaged { line: 3, .. })));
        let foreign = file(1).replace("\"point\":0,", "\"point\":9000,");
        assert!(matches!(read_state(foreign.as_bytes()), Err(StateError::Damaged { line: 2, .. })));
    }

    #[test]
    fn another_sweep_is_refused() {
        let other = |change: fn(&mut StateHeader)| {
            let mut header = header();
            change(&mut header);
            header.check(&self::header(), None)
        };
        assert_eq!(other(|_| {}), Ok(()));
        assert_eq!(other(|header| header.seed = 8), Ok(()));
        assert_eq!(header().check(&header(), Some(8)), Err(StateError::OtherSweep("the seed")));
        assert_eq!(other(|header| header.server.clear()), Err(StateError::OtherSweep("the server")));
        assert!(other(|header| header.design.parts.truncate(1)).is_err());
        assert!(other(|header| header.load = TestLoad::Records(3)).is_err());
        let path = PathProfile::new(BitRate(1_000_000), Duration::from_millis(1));
        let mut elsewhere = header();
        elsewhere.path = Some(path);
        assert!(elsewhere.check(&header(), None).is_err());
        assert_ne!(elsewhere.file_name(), header().file_name());
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_state_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(stored)) = read_state(&bytes) {
                prop_assert!(stored.complete_length <= bytes.len());
            }
        }
    }
}
