//! The verb `sweep`: a designed set of tests.
//!
//! [`sweep()`] checks every point before the first test (`options`), predicts it (`predict`), and runs the tests in the
//! order of [`lfn_campaign::schedule`]. The server is resolved once. Each finished run is in the state file (`state_file`)
//! before the next one starts, so an interrupted sweep resumes (`running`).

mod error;
mod options;
mod predict;
mod running;
mod state_file;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_base::date::rfc3339;
use lfn_campaign::design::Points;
use lfn_campaign::document::{SweepDocument, SweepEvent, SweepSchema, summarize_parts};
use lfn_campaign::factor::{Level, phrases};
use lfn_campaign::run::SweepRun;
use lfn_campaign::schedule::{Schedule, SweepEnd};
use lfn_campaign::state::StateHeader;
use lfn_campaign::summary::{PlannedPoint, PointSummary};
use lfn_results::measure::TestDirection;
use lfn_results::report::{CommandError, Origin};
use lfn_sys::clock;

pub use error::{StateFileError, SweepError, SweepFailure};
pub use options::{RETRY_FOR, SweepOptions};

use crate::resolve::{ServerResolver, server_argument};
use crate::test::path::{KnownPaths, known_paths};
use crate::test::{TestEvent, TestOptions, server};
use options::point_options;
use running::RunningSweep;
use state_file::{StateFile, state_error};

/// Progress of a running sweep.
#[derive(Debug)]
pub enum SweepProgress<'a> {
    /// A line of the events.
    Line(&'a SweepEvent),
    /// The last line of the state file was incomplete, and was removed.
    LineRemoved(&'a PathBuf),
    /// A run of a point begins.
    Begin {
        /// Number of the point.
        point: usize,
        /// Settings of the point.
        levels: &'a [Level],
    },
    /// An event of the running test.
    Test(&'a TestEvent<'a>),
}

/// A checked sweep: every point with its options and its prediction.
#[derive(Debug)]
struct PreparedSweep<'a> {
    options: &'a SweepOptions,
    origin: Origin,
    points: Points,
    tests: Vec<TestOptions>,
    planned: Vec<PlannedPoint>,
    paths: KnownPaths,
}

/// Runs a sweep, or continues it from its state file. A set `stop` ends the running test, whose figures are not kept.
pub fn sweep(
    options: &SweepOptions,
    resolver: &ServerResolver,
    stop: &Arc<AtomicBool>,
    on_progress: &mut dyn FnMut(&SweepProgress<'_>),
) -> Result<SweepDocument, SweepFailure> {
    let refused = |error| SweepFailure { error, document: None };
    let prepared = PreparedSweep::new(options, resolver).map_err(refused)?;
    let times = || prepared.planned.iter().map(|point| point.time).collect::<Vec<_>>();
    if options.dry_run {
        let seed = options.seed.unwrap_or_default();
        let schedule = Schedule::new(seed, options.goals, times(), Vec::new());
        schedule.check_budget().map_err(|error| refused(SweepError::Budget(error)))?;
        return Ok(prepared.document(&schedule, seed, SweepEnd::DryRun, &[], None));
    }
    let existing = StateFile::open_existing(&options.state).map_err(refused)?;
    let stored = existing.as_ref().and_then(|existing| existing.stored.as_ref());
    let seed = match (stored, options.seed) {
        (Some(stored), _) => stored.header.seed,
        (None, Some(seed)) => seed,
        (None, None) => random_seed().map_err(refused)?,
    };
    let header = prepared.header(seed);
    if let Some(stored) = stored {
        header
            .check(&stored.header, options.seed)
            .map_err(|error| refused(state_error(&options.state, StateFileError::Contents(error))))?;
    }
    let runs: Vec<SweepRun> = stored.map(|stored| stored.runs.clone()).unwrap_or_default();
    let schedule = Schedule::new(seed, options.goals, times(), runs);
    schedule.check_budget().map_err(|error| refused(SweepError::Budget(error)))?;
    let state = match existing {
        None => StateFile::create(&options.state, &header).map_err(refused)?,
        Some(existing) => {
            let (state, is_cut) = existing.resume(&header).map_err(refused)?;
            if is_cut {
                on_progress(&SweepProgress::LineRemoved(&options.state));
            }
            state
        }
    };
    RunningSweep::new(prepared, resolver, stop, schedule, seed, state).run(on_progress)
}

/// Returns the header that names the sweep of these options. Its hash is part of the usual name of the state file.
pub fn state_header(options: &SweepOptions) -> StateHeader {
    StateHeader {
        lfn_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(clock::since_1970()),
        server: server_argument(&options.test.server, false),
        seed: options.seed.unwrap_or_default(),
        load: options.test.request.load,
        tuned: options.test.tuned,
        design: options.design.clone(),
    }
}

impl<'a> PreparedSweep<'a> {
    fn new(options: &'a SweepOptions, resolver: &ServerResolver) -> Result<Self, SweepError> {
        let points = options.design.points()?;
        if options.test.directions.len() != 1 || options.test.bidirectional {
            return Err(SweepError::Directions);
        }
        let tests: Vec<TestOptions> = points.levels.iter().map(|levels| point_options(&options.test, levels)).collect();
        for (levels, test) in points.levels.iter().zip(&tests) {
            let invalid = |source| SweepError::Point { point: phrases(levels), source };
            test.check(&resolver.environment).map_err(invalid)?;
        }
        let environment = &resolver.environment;
        let paths = known_paths(options.test.rate, environment)
            .map_err(|error| SweepError::Test(crate::test::TestVerbError::Host(error)))?;
        let planned = tests.iter().map(|test| predict::plan_point(test, paths.get(predict::direction(test)))).collect();
        let far = server::preliminary_name(&options.test.server);
        let origin = server::origin_of(options.test.command.clone(), far);
        Ok(PreparedSweep { options, origin, points, tests, planned, paths })
    }

    fn header(&self, seed: u64) -> StateHeader {
        StateHeader { seed, ..state_header(self.options) }
    }

    /// Returns the result of the runs so far.
    fn document(
        &self,
        schedule: &Schedule,
        seed: u64,
        ended: SweepEnd,
        errors: &[(usize, String)],
        error: Option<CommandError>,
    ) -> SweepDocument {
        let runs = schedule.runs();
        let summarize = |(point, levels): (usize, &Vec<Level>)| {
            let failed = errors.iter().rev().find(|(failed, _)| *failed == point).map(|(_, text)| text.clone());
            PointSummary {
                error: failed.filter(|_| schedule.is_given_up(point)),
                ..PointSummary::new(point, levels, &self.planned[point], runs)
            }
        };
        let points: Vec<PointSummary> = self.points.levels.iter().enumerate().map(summarize).collect();
        let spent = schedule.spent();
        SweepDocument {
            schema: SweepSchema::V1,
            origin: self.origin.clone(),
            seed,
            load: self.options.test.request.load,
            goals: self.options.goals.into(),
            path: self.paths.get(TestDirection::Forward),
            return_path: self.paths.get(TestDirection::Reverse),
            ended,
            spent,
            remaining: schedule.remaining(spent).1,
            parts: summarize_parts(&self.options.design, &self.points, &points),
            points,
            runs: runs.to_vec(),
            state_file: (ended != SweepEnd::DryRun).then(|| self.options.state.display().to_string()),
            error,
        }
    }
}

fn random_seed() -> Result<u64, SweepError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| SweepError::Random(std::io::Error::other(error)))?;
    // A short seed is easier to type.
    Ok(u32::from_le_bytes(bytes).into())
}
