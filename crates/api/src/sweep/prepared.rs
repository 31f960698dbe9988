//! A sweep before its first test: each point with its options and its prediction.

use std::path::PathBuf;

use lfn_base::date::rfc3339;
use lfn_campaign::design::Points;
use lfn_campaign::document::{SweepDocument, SweepSchema, summarize_parts};
use lfn_campaign::factor::{Level, phrases};
use lfn_campaign::schedule::{Schedule, SweepEnd};
use lfn_campaign::state::StateHeader;
use lfn_campaign::summary::{PlannedPoint, PointSummary};
use lfn_results::measure::TestDirection;
use lfn_results::report::{CommandError, Origin};
use lfn_session::Ticket;
use lfn_sys::clock;

use super::error::SweepError;
use super::options::{SweepOptions, point_options};
use super::predict::{direction, plan_point};
use crate::resolve::{ServerResolver, server_argument};
use crate::test::path::{KnownPaths, known_paths};
use crate::test::{TestOptions, TestVerbError, server};

/// A checked sweep: every point with its options and its prediction.
#[derive(Debug)]
pub(super) struct PreparedSweep<'a> {
    pub(super) options: &'a SweepOptions,
    pub(super) origin: Origin,
    pub(super) points: Points,
    pub(super) tests: Vec<TestOptions>,
    pub(super) planned: Vec<PlannedPoint>,
    pub(super) paths: KnownPaths,
    /// File from which the sweep resumes.
    pub(super) state: PathBuf,
}

/// Returns the header that names the sweep of these options. Its hash is part of the usual name of the state file.
fn state_header(options: &SweepOptions, paths: &KnownPaths) -> StateHeader {
    StateHeader {
        lfn_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: rfc3339(clock::since_1970()),
        server: server_identity(&options.test.server),
        seed: options.seed.unwrap_or_default(),
        load: options.test.request.load,
        tuned: options.test.tuned,
        path: paths.get(TestDirection::Forward),
        return_path: paths.get(TestDirection::Reverse),
        design: options.design.clone(),
    }
}

/// Returns the name of the server, or what a ticket says about it except its secret.
fn server_identity(name: &str) -> String {
    match name.parse::<Ticket>() {
        Ok(Ticket { host, port, fingerprint, .. }) => format!("{host} {port} {fingerprint}"),
        Err(_) => server_argument(name, false),
    }
}

impl<'a> PreparedSweep<'a> {
    /// Checks and predicts every point.
    pub(super) fn new(options: &'a SweepOptions, resolver: &ServerResolver) -> Result<Self, SweepError> {
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
            .map_err(|error| SweepError::Test(TestVerbError::Host(error)))?;
        let planned = tests.iter().map(|test| plan_point(test, paths.get(direction(test)))).collect();
        let far = server::preliminary_name(&options.test.server);
        let origin = server::origin_of(options.test.command.clone(), far);
        let state = options.state.clone().unwrap_or_else(|| state_header(options, &paths).file_name().into());
        Ok(PreparedSweep { options, origin, points, tests, planned, paths, state })
    }

    /// Returns the first line of the state file.
    pub(super) fn header(&self, seed: u64) -> StateHeader {
        StateHeader { seed, ..state_header(self.options, &self.paths) }
    }

    /// Returns the result of the runs so far.
    pub(super) fn document(
        &self,
        schedule: &Schedule,
        seed: Option<u64>,
        ended: SweepEnd,
        errors: &[(usize, String)],
        error: Option<CommandError>,
    ) -> SweepDocument {
        let runs = schedule.runs();
        let summarize = |(point, levels): (usize, &Vec<Level>)| {
            let failed = errors.iter().rev().find(|(failed, _)| *failed == point).map(|(_, text)| text.clone());
            PointSummary {
                error: failed.filter(|_| schedule.is_given_up(point)),
                ..PointSummary::new(point, levels, &self.planned[point], &schedule.runs_of(point))
            }
        };
        let points: Vec<PointSummary> = self.points.levels.iter().enumerate().map(summarize).collect();
        let spent = schedule.spent();
        SweepDocument {
            schema: SweepSchema::V1,
            origin: self.origin.clone(),
            seed,
            load: self.options.test.request.load,
            goals: Some(self.options.goals),
            path: self.paths.get(TestDirection::Forward),
            return_path: self.paths.get(TestDirection::Reverse),
            ended,
            spent,
            remaining: schedule.remaining(spent).time,
            parts: summarize_parts(&self.options.design, &self.points, &points),
            points,
            runs: runs.to_vec(),
            state_file: (ended != SweepEnd::DryRun).then(|| self.state.display().to_string()),
            error,
        }
    }
}
