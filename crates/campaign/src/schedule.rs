//! The schedule of a sweep: the next run, and the end of the points and of the sweep.
//!
//! A block runs every point once, in a random order of its own. So a slow drift of the path affects all points alike. A
//! point ends when its interval is narrow enough, or after the maximum of runs. The state follows from the finished runs
//! alone, so a resumed sweep continues in the block in which it stopped.

use std::collections::VecDeque;
use std::time::Duration;

use lfn_base::path::optional_seconds;
use lfn_base::units::Ratio;
use serde::{Deserialize, Serialize};

use crate::design::block_order;
use crate::interval::mean_goodput;
use crate::run::SweepRun;

/// Minimum runs of a point that ends because its interval is narrow.
pub const MIN_RUNS: u32 = 3;

/// Failed runs after which a point is given up, each with a finished run of another point before the next.
pub const MAX_FAILURES: u32 = 3;

/// Goals that end a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "schema"), schemars(rename = "SweepGoals"))]
pub struct Goals {
    /// A point ends when half its 95 % interval is within this share of its mean; null for no such end.
    pub until: Option<Ratio>,
    /// Maximum runs of each point.
    pub repeat: u32,
    /// Maximum time of the sweep; null for no maximum.
    #[serde(rename = "budget_seconds", with = "optional_seconds")]
    pub budget: Option<Duration>,
}

/// Reason for the end of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SweepEnd {
    /// No run was started: `--dry-run`.
    DryRun,
    /// The interval of every point is narrow enough.
    Precise,
    /// Every point has the maximum of runs, or is precise.
    Repeated,
    /// The next run does not fit into the budget.
    Budget,
    /// The user stopped the sweep.
    Interrupted,
    /// The server did not come back, or the sweep failed in another way.
    Failed,
    /// Not known: the runs are those of a state file.
    Unknown,
}

/// The next step of a sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// Run this point once.
    Run {
        /// Number of the point.
        point: usize,
        /// Number of the block.
        block: u32,
    },
    /// The sweep has ended.
    End(SweepEnd),
}

/// A budget that is shorter than one run of each point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the budget is too short for one run of each point")]
pub struct BudgetTooShort {
    /// Time that one run of each point needs.
    pub needed: Duration,
}

/// Runs that a sweep still has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemainingRuns {
    /// Expected number of runs.
    pub runs: u32,
    /// Expected time of these runs.
    pub time: Duration,
}

/// Failed runs of a point since its last finished run.
#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    /// Failed runs with a finished run of another point between them.
    count: u32,
    /// Finished runs of the sweep at the last of them.
    runs: usize,
}

/// State of a point.
#[derive(Debug, Clone, Default)]
struct PointState {
    /// Expected time of a run before a run is measured; `None` if unknown.
    planned: Option<Duration>,
    /// Places of the finished runs in the list of all runs.
    runs: Vec<usize>,
    /// Time of these runs.
    time: Duration,
    /// The interval is narrow enough.
    is_precise: bool,
    /// Expected number of all runs.
    expected_runs: u32,
    failures: Failures,
    is_given_up: bool,
}

/// Runs and order of a sweep.
#[derive(Debug, Clone)]
pub struct Schedule {
    seed: u64,
    goals: Goals,
    points: Vec<PointState>,
    runs: Vec<SweepRun>,
    /// Time of all finished runs.
    spent: Duration,
    block: u32,
    queue: VecDeque<usize>,
}

impl Schedule {
    /// Creates a schedule with the runs of an earlier part of the sweep. `planned` has the expected time of one run of each
    /// point.
    pub fn new(seed: u64, goals: Goals, planned: Vec<Option<Duration>>, runs: Vec<SweepRun>) -> Self {
        let points = planned.into_iter().map(|planned| PointState { planned, ..PointState::default() }).collect();
        let (block, queue, spent) = (0, VecDeque::new(), Duration::ZERO);
        let mut schedule = Schedule { seed, goals, points, runs: Vec::new(), spent, block, queue };
        for point in 0..schedule.points.len() {
            schedule.estimate(point);
        }
        runs.into_iter().for_each(|run| schedule.add(run));
        schedule
    }

    /// Refuses a budget that is too short for one run of each point that has none. A point whose time is unknown counts
    /// as zero. A sweep with a run of each point needs no more time.
    pub fn check_budget(&self) -> Result<(), BudgetTooShort> {
        let missing: Vec<&PointState> = self.points.iter().filter(|point| point.runs.is_empty()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let needed = missing.into_iter().map(|point| point.planned.unwrap_or_default());
        let needed = needed.fold(self.spent, Duration::saturating_add);
        match self.goals.budget {
            Some(budget) if needed > budget => Err(BudgetTooShort { needed }),
            _ => Ok(()),
        }
    }

    /// Returns the next run, if its expected time fits into the budget after `spent`.
    pub fn next(&mut self, spent: Duration) -> Next {
        while let Some(&point) = self.queue.front() {
            if self.is_active(point) {
                break;
            }
            self.queue.pop_front();
        }
        if self.queue.is_empty() && !self.fill_block() {
            return Next::End(self.finished());
        }
        let Some(&point) = self.queue.front() else { return Next::End(self.finished()) };
        let expected = self.points[point].expected_time().unwrap_or_default();
        if self.goals.budget.is_some_and(|budget| spent.saturating_add(expected) > budget) {
            return Next::End(SweepEnd::Budget);
        }
        Next::Run { point, block: self.block }
    }

    /// Adds a finished run.
    pub fn add(&mut self, run: SweepRun) {
        let (place, point, time) = (self.runs.len(), run.point, run.time);
        self.spent = self.spent.saturating_add(time);
        self.runs.push(run);
        let Some(state) = self.points.get_mut(point) else { return };
        state.runs.push(place);
        state.time = state.time.saturating_add(time);
        state.failures = Failures::default();
        self.estimate(point);
        self.remove_from_queue(point);
    }

    /// Moves a point with a failed run to the end of its block, or to the next block if it is the last one. Returns true
    /// if the point is given up instead.
    pub fn postpone(&mut self, point: usize) -> bool {
        self.remove_from_queue(point);
        if !self.queue.is_empty() {
            self.queue.push_back(point);
        }
        // A server that is away fails every point. Only a point that fails while others have results is given up.
        let failures = &mut self.points[point].failures;
        if failures.count == 0 || self.runs.len() > failures.runs {
            *failures = Failures { count: failures.count + 1, runs: self.runs.len() };
        }
        let is_given_up = failures.count >= MAX_FAILURES;
        if is_given_up {
            self.give_up(point);
        }
        is_given_up
    }

    /// Starts no more runs of a point.
    pub fn give_up(&mut self, point: usize) {
        self.points[point].is_given_up = true;
        self.remove_from_queue(point);
    }

    /// Reports whether no more runs of a point start because of failures.
    pub fn is_given_up(&self, point: usize) -> bool {
        self.points[point].is_given_up
    }

    /// Returns all finished runs.
    pub fn runs(&self) -> &[SweepRun] {
        &self.runs
    }

    /// Returns the finished runs of a point.
    pub fn runs_of(&self, point: usize) -> Vec<&SweepRun> {
        self.points[point].runs.iter().map(|place| &self.runs[*place]).collect()
    }

    /// Returns the time of all finished runs.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Returns the expected number of further runs, and their time; at most the rest of the budget after `spent`.
    pub fn remaining(&self, spent: Duration) -> RemainingRuns {
        let mut all = RemainingRuns { runs: 0, time: Duration::ZERO };
        for point in (0..self.points.len()).filter(|point| self.is_active(*point)) {
            let point = &self.points[point];
            let more = point.expected_runs.saturating_sub(point.count());
            let time = point.expected_time().unwrap_or_default();
            all.runs = all.runs.saturating_add(more);
            all.time = all.time.saturating_add(time.saturating_mul(more));
        }
        let left = self.goals.budget.map_or(Duration::MAX, |budget| budget.saturating_sub(spent));
        if all.time <= left {
            return all;
        }
        // The runs have about the same length.
        let share = left.as_secs_f64() / all.time.as_secs_f64();
        RemainingRuns { runs: (f64::from(all.runs) * share) as u32, time: left }
    }

    /// Computes whether a point is precise, and the expected number of its runs.
    fn estimate(&mut self, point: usize) {
        let count = self.points[point].count();
        let (mut is_precise, mut expected_runs) = (false, self.goals.repeat);
        if let Some(until) = self.goals.until {
            let known = mean_goodput(self.runs_of(point).into_iter());
            let share = known.and_then(|known| Some(known.half_width? / known.mean.max(1.0)));
            is_precise = count >= MIN_RUNS && share.is_some_and(|share| share <= until.get());
            let needed = match share {
                // The width falls with the square root of the number of runs.
                Some(share) if count >= 2 => (f64::from(count) * (share / until.get().max(1e-6)).powi(2)).ceil() as u32,
                _ => MIN_RUNS,
            };
            expected_runs = needed.clamp(MIN_RUNS, self.goals.repeat.max(MIN_RUNS)).min(self.goals.repeat);
        }
        let state = &mut self.points[point];
        state.is_precise = is_precise;
        state.expected_runs = expected_runs;
    }

    fn is_active(&self, point: usize) -> bool {
        let point = &self.points[point];
        !point.is_given_up && point.count() < self.goals.repeat && !point.is_precise
    }

    /// Fills the queue with the points that lack a run in the first incomplete block. Returns false if no point is active.
    fn fill_block(&mut self) -> bool {
        let active: Vec<usize> = (0..self.points.len()).filter(|point| self.is_active(*point)).collect();
        let fewest = |of: &dyn Fn(&PointState) -> bool| {
            let points = active.iter().map(|point| &self.points[*point]);
            points.filter(|point| of(point)).map(PointState::count).min()
        };
        // The other points do not wait for a point with failed runs.
        let works = |point: &PointState| point.failures.count == 0;
        let Some(block) = fewest(&works).or_else(|| fewest(&|_| true)) else { return false };
        self.block = block;
        let order = block_order(self.points.len(), self.seed, block);
        let lacks_run = |point: &usize| self.is_active(*point) && self.points[*point].count() <= block;
        self.queue = order.into_iter().filter(lacks_run).collect();
        true
    }

    fn finished(&self) -> SweepEnd {
        let all = self.points.iter().all(|point| point.is_given_up || point.is_precise);
        if self.goals.until.is_some() && all { SweepEnd::Precise } else { SweepEnd::Repeated }
    }

    fn remove_from_queue(&mut self, point: usize) {
        if self.queue.front() == Some(&point) {
            self.queue.pop_front();
        } else {
            self.queue.retain(|queued| *queued != point);
        }
    }
}

impl PointState {
    fn count(&self) -> u32 {
        u32::try_from(self.runs.len()).unwrap_or(u32::MAX)
    }

    /// Returns the expected time of one run: the mean of the finished runs, else the planned time.
    fn expected_time(&self) -> Option<Duration> {
        self.time.checked_div(self.count()).or(self.planned)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use lfn_base::units::BitRate;
    use lfn_results::diagnose::Verdict;

    use super::*;

    /// Returns a run of one second.
    pub(crate) fn run(point: usize, goodput: u64) -> SweepRun {
        SweepRun {
            point,
            block: 0,
            started: "2026-11-27T14:00:00Z".to_owned(),
            time: Duration::from_secs(1),
            goodput: BitRate(goodput),
            half_width: None,
            predicted: None,
            expected_min: None,
            expected_max: None,
            predicted_limit: None,
            base_rtt: None,
            window_scale: None,
            retransmits: None,
            verdict: Verdict::default(),
            findings: Vec::new(),
        }
    }

    fn schedule(points: usize, goals: Goals) -> Schedule {
        Schedule::new(1, goals, vec![Some(Duration::from_secs(1)); points], Vec::new())
    }

    fn goals(repeat: u32) -> Goals {
        Goals { until: None, repeat, budget: None }
    }

    /// Runs a schedule to its end, with this goodput for the nth run of a point.
    fn play(schedule: &mut Schedule, goodput: impl Fn(usize, u32) -> u64) -> (Vec<(usize, u32)>, SweepEnd) {
        let mut order = Vec::new();
        loop {
            match schedule.next(schedule.spent()) {
                Next::Run { point, block } => {
                    order.push((point, block));
                    let count = schedule.points[point].count();
                    schedule.add(SweepRun { block, ..run(point, goodput(point, count)) });
                }
                Next::End(end) => return (order, end),
            }
        }
    }

    #[test]
    fn each_block_runs_every_point_once() {
        let (order, end) = play(&mut schedule(5, goals(3)), |_, _| 100);
        assert_eq!((order.len(), end), (15, SweepEnd::Repeated));
        for (block, runs) in order.chunks(5).enumerate() {
            let mut points: Vec<_> = runs.iter().map(|(point, _)| *point).collect();
            points.sort_unstable();
            assert_eq!(points, [0, 1, 2, 3, 4]);
            assert!(runs.iter().all(|(_, of)| *of as usize == block));
        }
        let first: Vec<_> = order[..5].iter().map(|run| run.0).collect();
        assert_ne!(first, order[5..10].iter().map(|run| run.0).collect::<Vec<_>>());
    }

    #[test]
    fn a_precise_point_ends_before_a_noisy_one() {
        let until = Goals { until: Ratio::new(0.05), repeat: 20, budget: None };
        let noisy = |point, count: u32| if point == 0 { 100 } else { 100 + 40 * u64::from(count % 2) };
        let mut sweep = schedule(2, until);
        let (order, end) = play(&mut sweep, noisy);
        assert_eq!(sweep.points[0].count(), MIN_RUNS);
        assert_eq!((sweep.points[1].count(), order.len()), (20, 23));
        assert_eq!(end, SweepEnd::Repeated);
        let (_, end) = play(&mut schedule(2, until), |_, _| 100);
        assert_eq!(end, SweepEnd::Precise);
    }

    #[test]
    fn the_budget_ends_the_sweep_before_a_run() {
        let budget = |seconds| Goals { budget: Some(Duration::from_secs(seconds)), ..goals(10) };
        let (order, end) = play(&mut schedule(2, budget(5)), |_, _| 100);
        assert_eq!((order.len(), end), (5, SweepEnd::Budget));
        let short = schedule(3, budget(2)).check_budget().unwrap_err();
        assert_eq!(short.needed, Duration::from_secs(3));
        assert!(schedule(3, budget(3)).check_budget().is_ok());
        let limited = schedule(4, budget(6)).remaining(Duration::from_secs(1));
        assert_eq!(limited, RemainingRuns { runs: 5, time: Duration::from_secs(5) });
        // A smaller budget ends a sweep whose points all have a run, without an error.
        let runs = vec![run(0, 100), run(1, 100)];
        let mut done = Schedule::new(1, budget(1), vec![Some(Duration::from_secs(1)); 2], runs);
        assert!(done.check_budget().is_ok());
        assert_eq!(done.next(done.spent()), Next::End(SweepEnd::Budget));
    }

    #[test]
    fn a_resumed_schedule_runs_the_missing_points_only() {
        let (order, _) = play(&mut schedule(4, goals(2)), |_, _| 100);
        for cut in 0..order.len() {
            let done = order[..cut].iter().map(|(point, block)| SweepRun { block: *block, ..run(*point, 100) });
            let planned = vec![Some(Duration::from_secs(1)); 4];
            let mut resumed = Schedule::new(1, goals(2), planned, done.collect());
            let (rest, _) = play(&mut resumed, |_, _| 100);
            assert_eq!(rest, order[cut..], "{cut}");
        }
    }

    #[test]
    fn a_failed_run_is_repeated_at_the_end_of_its_block() {
        let mut sweep = schedule(3, goals(1));
        let Next::Run { point: failed, .. } = sweep.next(Duration::ZERO) else { panic!("a run") };
        sweep.postpone(failed);
        let (order, end) = play(&mut sweep, |_, _| 100);
        assert_eq!((order.len(), order[2].0, end), (3, failed, SweepEnd::Repeated));
    }

    #[test]
    fn a_point_that_always_fails_is_given_up() {
        let mut sweep = schedule(3, goals(4));
        while let Next::Run { point, block } = sweep.next(Duration::ZERO) {
            if point == 1 {
                sweep.postpone(point);
            } else {
                sweep.add(SweepRun { block, ..run(point, 100) });
            }
        }
        assert_eq!((sweep.is_given_up(1), sweep.runs().len()), (true, 8));
    }

    #[test]
    fn remaining_time_shrinks_to_zero() {
        let mut sweep = schedule(2, goals(2));
        let seconds = |runs| RemainingRuns { runs, time: Duration::from_secs(runs.into()) };
        assert_eq!(sweep.remaining(Duration::ZERO), seconds(4));
        sweep.add(run(0, 100));
        assert_eq!(sweep.remaining(Duration::ZERO), seconds(3));
        play(&mut sweep, |_, _| 100);
        assert_eq!(sweep.remaining(Duration::ZERO), seconds(0));
    }
}
