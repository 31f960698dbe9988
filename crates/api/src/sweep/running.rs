//! A running sweep: its tests one after the other, and the waits while the server is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::date::rfc3339;
use lfn_campaign::document::{SweepDocument, SweepEvent, SweepEventSchema};
use lfn_campaign::run::{RunPlace, SweepRun};
use lfn_campaign::schedule::{Next, RemainingRuns, Schedule, SweepEnd};
use lfn_measure::tester::TestError;
use lfn_results::evidence::EndReason;
use lfn_results::report::{CommandError, Run};
use lfn_session::SessionError;
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_sys::clock;

use super::error::{SweepError, SweepFailure};
use super::predict::predict_counted;
use super::prepared::PreparedSweep;
use super::progress::SweepProgress;
use super::state_file::StateFile;
use crate::error_text::error_chain;
use crate::resolve::{ReachedServer, ServerResolver};
use crate::test::{TestEvent, TestVerbError, server, test_on};

/// First wait after a failed run. Each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Maximum wait after a failed run.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Interval at which the caller's flag is read during a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// State of a running sweep.
pub(super) struct RunningSweep<'a> {
    prepared: PreparedSweep<'a>,
    resolver: &'a ServerResolver,
    stop: &'a Arc<AtomicBool>,
    schedule: Schedule,
    seed: u64,
    state: StateFile,
    /// The server, resolved once for all tests. A failed run resolves it again.
    reached: Option<ReachedServer>,
    /// Start of this command, and the time of the runs before it.
    started: Instant,
    spent_before: Duration,
    /// A run has finished, in this command or before.
    has_finished: bool,
    /// Failed runs since the last finished one.
    outage: Option<Outage>,
    /// Errors of points that were given up.
    errors: Vec<(usize, String)>,
}

/// Failed runs without a finished one between them.
struct Outage {
    /// End of the first failed run.
    since: Instant,
    failures: u32,
}

/// Result of one attempt.
enum Attempt {
    Finished(Box<SweepRun>),
    Stopped,
    Failed(TestVerbError),
}

impl<'a> RunningSweep<'a> {
    pub(super) fn new(
        prepared: PreparedSweep<'a>,
        resolver: &'a ServerResolver,
        stop: &'a Arc<AtomicBool>,
        schedule: Schedule,
        seed: u64,
        state: StateFile,
    ) -> Self {
        RunningSweep {
            spent_before: schedule.spent(),
            has_finished: !schedule.runs().is_empty(),
            prepared,
            resolver,
            stop,
            schedule,
            seed,
            state,
            reached: None,
            started: Instant::now(),
            outage: None,
            errors: Vec::new(),
        }
    }

    /// Runs the sweep to its end.
    pub(super) fn run(
        mut self,
        on_progress: &mut dyn FnMut(&SweepProgress<'_>),
    ) -> Result<SweepDocument, SweepFailure> {
        let start = SweepEvent::Start {
            schema: SweepEventSchema::V1,
            origin: self.prepared.origin.clone(),
            seed: self.seed,
            design: self.prepared.options.design.clone(),
            points: self.prepared.tests.len(),
            resumed_runs: self.schedule.runs().len(),
        };
        on_progress(&SweepProgress::Line(&start));
        let (ended, error) = match self.run_all(on_progress) {
            Ok(ended) => (ended, None),
            Err(error) => (SweepEnd::Failed, Some(error)),
        };
        let command_error =
            error.as_ref().map(|error| CommandError { message: error_chain(error), hint: error.hint() });
        let document = self.prepared.document(&self.schedule, Some(self.seed), ended, &self.errors, command_error);
        match error {
            None => Ok(document),
            Some(error) => Err(SweepFailure { error: Box::new(error), document: Some(Box::new(document)) }),
        }
    }

    fn run_all(&mut self, on_progress: &mut dyn FnMut(&SweepProgress<'_>)) -> Result<SweepEnd, SweepError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(SweepEnd::Interrupted);
            }
            let (point, block) = match self.schedule.next(self.spent()) {
                Next::Run { point, block } => (point, block),
                Next::End(end) => return Ok(end),
            };
            on_progress(&SweepProgress::Begin { point, levels: &self.prepared.points.levels[point] });
            match self.attempt(point, block, on_progress) {
                Attempt::Stopped => return Ok(SweepEnd::Interrupted),
                Attempt::Failed(error) => self.failed(point, error, on_progress)?,
                Attempt::Finished(run) => {
                    // The result has the run even if the file cannot be written.
                    self.schedule.add((*run).clone());
                    self.state.add(&run)?;
                    self.has_finished = true;
                    self.outage = None;
                    let RemainingRuns { runs: remaining_runs, time: remaining } = self.schedule.remaining(self.spent());
                    let finished = self.schedule.runs().len();
                    let line = SweepEvent::Run { run, finished, remaining_runs, remaining };
                    on_progress(&SweepProgress::Line(&line));
                }
            }
        }
    }

    /// Returns the time of the sweep so far, with the waits of this command.
    fn spent(&self) -> Duration {
        self.spent_before.saturating_add(self.started.elapsed())
    }

    fn attempt(&mut self, point: usize, block: u32, on_progress: &mut dyn FnMut(&SweepProgress<'_>)) -> Attempt {
        let options = &self.prepared.tests[point];
        let (began, started) = (Instant::now(), rfc3339(clock::since_1970()));
        if self.reached.is_none() {
            match server::reach(options, self.resolver, self.stop) {
                Ok(reached) => {
                    self.prepared.origin.hosts.far = server::far_name(&options.server, &reached);
                    self.reached = Some(reached);
                }
                Err(error) => return self.not_finished(error),
            }
        }
        let mut on_event = |event: &TestEvent<'_>| on_progress(&SweepProgress::Test(event));
        let tested = test_on(options, self.resolver, self.reached.as_ref(), self.stop, &mut on_event);
        let document = match tested {
            Ok(document) => document,
            Err(failure) => return self.not_finished(failure.error),
        };
        let is_interrupted = |run: &Run| run.evidence.ended == EndReason::Interrupted;
        match document.runs.first() {
            Some(run) if !is_interrupted(run) => {
                let place = RunPlace { point, block, started, time: began.elapsed() };
                let counted = predict_counted(options, run.evidence.path);
                Attempt::Finished(Box::new(SweepRun::new(place, run, counted)))
            }
            _ => Attempt::Stopped,
        }
    }

    fn not_finished(&self, error: TestVerbError) -> Attempt {
        if self.stop.load(Ordering::Relaxed) { Attempt::Stopped } else { Attempt::Failed(error) }
    }

    /// Handles a failed run: gives up a point that cannot run, or waits for the server.
    fn failed(
        &mut self,
        point: usize,
        error: TestVerbError,
        on_progress: &mut dyn FnMut(&SweepProgress<'_>),
    ) -> Result<(), SweepError> {
        let text = error_chain(&error);
        self.errors.push((point, text.clone()));
        if is_of_the_point(&error) {
            self.schedule.give_up(point);
            if (0..self.prepared.tests.len()).all(|point| self.schedule.is_given_up(point)) {
                return Err(SweepError::AllFailed(error));
            }
            on_progress(&SweepProgress::Line(&SweepEvent::GiveUp { point, error: text }));
            return Ok(());
        }
        // An error before the first result is more often a mistake than a server that is away.
        if !self.has_finished {
            return Err(SweepError::Test(error));
        }
        let is_given_up = self.schedule.postpone(point);
        self.reached = None;
        let outage = self.outage.get_or_insert(Outage { since: Instant::now(), failures: 0 });
        outage.failures += 1;
        let wait = FIRST_WAIT.saturating_mul(1 << (outage.failures - 1).min(6)).min(MAX_WAIT);
        let waited = outage.since.elapsed();
        let left = self.prepared.options.retry_for.saturating_sub(waited);
        if is_given_up {
            on_progress(&SweepProgress::Line(&SweepEvent::GiveUp { point, error: text }));
            return Ok(());
        }
        if left.is_zero() {
            return Err(SweepError::ServerLost { waited, source: error });
        }
        let wait = wait.min(left);
        on_progress(&SweepProgress::Line(&SweepEvent::Retry { point, error: text, wait }));
        let until = Instant::now() + wait;
        while !self.stop.load(Ordering::Relaxed) && Instant::now() < until {
            thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }
}

/// Returns true if the settings of the point cause the error, so that the same run would fail again.
fn is_of_the_point(error: &TestVerbError) -> bool {
    let TestVerbError::Test(TestError::Session(SessionError::Refused(Refusal { code, .. }))) = error else {
        return is_of_this_host(error);
    };
    *code == RefusalCode::Limit
}

/// Returns true if this host refuses the settings of the point.
fn is_of_this_host(error: &TestVerbError) -> bool {
    matches!(
        error,
        TestVerbError::Options(_)
            | TestVerbError::Test(
                TestError::Request(_)
                    | TestError::Congestion { .. }
                    | TestError::Window { .. }
                    | TestError::Options { .. }
                    | TestError::NoLockstep
            )
    )
}
