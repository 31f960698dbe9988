//! The harness of the tests with namespaces: skips tests with missing requirements, and shares the machine between
//! tests.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::{Condvar, Mutex};

use super::rate::RateMissed;
use super::skip::{Missing, skip};
use super::{is_root, missing_program};

/// Requirements of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Namespaces,
    /// Namespaces, and these programs on the PATH.
    Programs(&'static [&'static str]),
    /// Root with all rights: other users, and mounts without a user namespace.
    Root,
}

/// Load that a test puts on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Sends as fast as it can, starts many processes, or measures several paths at once. One per processor runs.
    Loaded,
    /// Mostly waits for a path, a peer or a time-out. Two per processor run, next to the loaded tests.
    Waiting,
    /// Measures the accuracy of a rate or delay, which any other load disturbs. Runs alone, after all others.
    Alone,
}

/// Work of a test. It panics if the test fails.
type Work = Box<dyn Fn() + Send>;

/// A test with its requirements and its share of the machine.
pub struct Test {
    name: String,
    needs: Needs,
    weight: Weight,
    work: Work,
}

impl Test {
    /// Creates a test of a module.
    pub fn new(module: &str, name: &str, needs: Needs, weight: Weight, work: impl Fn() + Send + 'static) -> Test {
        Test { name: format!("{module}::{name}"), needs, weight, work: Box::new(work) }
    }
}

/// Returns the tests of a module from a table of names, requirements and functions.
pub fn tests_of(module: &str, weight: Weight, table: &[(&str, Needs, fn())]) -> Vec<Test> {
    table.iter().map(|&(name, needs, work)| Test::new(module, name, needs, weight, work)).collect()
}

/// Variable with prefixes of test names, separated by spaces. If set, other tests do not exist.
const ONLY: &str = "TEST_LFN_ONLY";

/// Runs tests in the order of the tables, as many at once as their weights permit, and prints the duration of each.
pub fn run(mut tests: Vec<Test>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test has a thread, which waits for its turn.
    arguments.test_threads.get_or_insert(tests.len());
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let turns: &'static Turns = Box::leak(Box::new(Turns::new(processors)));
    if let Ok(only) = std::env::var(ONLY) {
        tests.retain(|test| only.split_whitespace().any(|prefix| test.name.starts_with(prefix)));
    }
    let obstacle = lfn_emulate::namespaces_available().err();
    if let Some(obstacle) = &obstacle {
        eprintln!("no namespaces: {obstacle}. Remedy: {}", obstacle.remedy());
    }
    let forbidden = obstacle.map(|_| Missing::Feature("namespaces"));
    let trials = tests.into_iter().enumerate().map(|(position, Test { name, needs, weight, work })| {
        let missing = match needs {
            Needs::Nothing => None,
            Needs::Namespaces => forbidden.clone(),
            Needs::Programs(programs) => missing_program(programs).or_else(|| forbidden.clone()),
            Needs::Root if !is_root() => Some(Missing::User("root")),
            Needs::Root => None,
        };
        Trial::test(name.clone(), move || {
            if let Some(missing) = missing {
                skip(name.rsplit("::").next().unwrap_or(&name), &missing);
                return Ok(());
            }
            run_in_turn(turns, weight, position, &name, &work)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Runs a test. If a loaded machine disturbed too many of its measurements, runs it once more, alone.
fn run_in_turn(turns: &Turns, weight: Weight, position: usize, name: &str, work: &Work) -> Result<(), Failed> {
    let attempt = |weight| {
        let _held = turns.take(weight, position);
        let _report = Report { name, start: Instant::now() };
        panic::catch_unwind(AssertUnwindSafe(work))
            .or_else(|payload| payload.downcast::<RateMissed>().map_or_else(|other| panic::resume_unwind(other), Err))
    };
    let result = match attempt(weight) {
        Err(missed) if weight != Weight::Alone => {
            println!("{name} runs once more, alone: {}", missed.0);
            attempt(Weight::Alone)
        }
        result => result,
    };
    result.map_err(|missed| missed.0.into())
}

/// Prints the duration of a test when dropped, also after a panic.
struct Report<'a> {
    name: &'a str,
    start: Instant,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        println!("{} took {}", self.name, Seconds(self.start.elapsed()));
    }
}

struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:.1} s", self.0.as_secs_f64())
    }
}

/// Decides which tests run at the same time. Among tests of one weight, the first of the table has the first turn.
struct Turns {
    /// Tests of each weight that may run at the same time.
    limits: ByWeight<usize>,
    queues: Mutex<ByWeight<Queue>>,
    changed: Condvar,
}

/// A value for each weight, in the order of [`Weight`].
type ByWeight<T> = [T; 3];

#[derive(Default)]
struct Queue {
    /// Positions of the tests that wait for their turn.
    waiting: BTreeSet<usize>,
    running: usize,
}

impl Turns {
    fn new(processors: usize) -> Turns {
        Turns { limits: [processors, 2 * processors, 1], queues: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for the turn of this test, and holds it until the result is dropped.
    fn take(&self, weight: Weight, position: usize) -> HeldTurn<'_> {
        let mut queues = self.queues.lock();
        queues[weight as usize].waiting.insert(position);
        let has_to_wait = |queues: &mut ByWeight<Queue>| !self.has_turn(queues, weight, position);
        self.changed.wait_while(&mut queues, has_to_wait);
        let queue = &mut queues[weight as usize];
        queue.waiting.remove(&position);
        queue.running += 1;
        self.changed.notify_all();
        HeldTurn { turns: self, weight }
    }

    fn has_turn(&self, queues: &ByWeight<Queue>, weight: Weight, position: usize) -> bool {
        let [loaded, waiting, alone] = queues;
        let queue = &queues[weight as usize];
        let is_next = queue.waiting.first() == Some(&position) && queue.running < self.limits[weight as usize];
        let is_idle = |queue: &Queue| queue.running == 0 && queue.waiting.is_empty();
        is_next && if weight == Weight::Alone { is_idle(loaded) && is_idle(waiting) } else { alone.running == 0 }
    }
}

/// The turn of a running test.
struct HeldTurn<'a> {
    turns: &'a Turns,
    weight: Weight,
}

impl Drop for HeldTurn<'_> {
    fn drop(&mut self) {
        self.turns.queues.lock()[self.weight as usize].running -= 1;
        self.turns.changed.notify_all();
    }
}
