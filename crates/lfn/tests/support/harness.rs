//! The harness of the tests with namespaces: skips tests with missing requirements, and shares the machine between tests.

use std::fmt;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use parking_lot::{Condvar, Mutex};

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

/// Share of the machine that a test takes while it runs. The machine has as many shares as the harness has threads, by
/// default four per processor.
///
/// `Waiting` takes one share: the test mostly waits for a path, a peer or a time-out. `Loaded` takes half of the shares:
/// the test sends as fast as it can, starts many processes, or measures several paths at once. `Alone` takes all shares:
/// the test measures the accuracy of a rate or delay, which any other load disturbs. These tests run last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    Loaded,
    Waiting,
    Alone,
}

/// Work of a test. It panics if the test fails.
type Work = Box<dyn FnOnce() + Send>;

/// A test with its requirements and its share of the machine.
pub struct Test {
    name: String,
    needs: Needs,
    weight: Weight,
    work: Work,
}

impl Test {
    /// Creates a test of a module.
    pub fn new(module: &str, name: &str, needs: Needs, weight: Weight, work: impl FnOnce() + Send + 'static) -> Test {
        Test { name: format!("{module}::{name}"), needs, weight, work: Box::new(work) }
    }
}

/// Returns the tests of a module from a table of names, requirements and functions.
pub fn tests_of(module: &str, weight: Weight, table: &[(&str, Needs, fn())]) -> Vec<Test> {
    table.iter().map(|&(name, needs, work)| Test::new(module, name, needs, weight, work)).collect()
}

/// Variable with prefixes of test names, separated by spaces. If set, other tests do not exist.
const ONLY: &str = "TEST_LFN_ONLY";

/// Runs tests, the loaded ones first, and prints the duration of each.
pub fn run(mut tests: Vec<Test>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let per_processor = 4;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = *arguments.test_threads.get_or_insert(per_processor * processors);
    let shares: &'static Shares = Box::leak(Box::new(Shares::new(threads)));
    if let Ok(only) = std::env::var(ONLY) {
        tests.retain(|test| only.split_whitespace().any(|prefix| test.name.starts_with(prefix)));
    }
    // A stable sort: tests of one weight keep the order of the tables.
    tests.sort_by_key(|test| test.weight);
    let obstacle = lfn_emulate::namespaces_available().err();
    if let Some(obstacle) = &obstacle {
        eprintln!("no namespaces: {obstacle}. Remedy: {}", obstacle.remedy());
    }
    let forbidden = obstacle.map(|_| Missing::Feature("namespaces"));
    let trials = tests.into_iter().map(|Test { name, needs, weight, work }| {
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
            let _held = shares.take(weight);
            let report = Report { name: &name, start: Instant::now() };
            work();
            drop(report);
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
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

/// Shares of the machine: a counting semaphore.
struct Shares {
    all: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

impl Shares {
    fn new(all: usize) -> Shares {
        Shares { all, free: Mutex::new(all), freed: Condvar::new() }
    }

    /// Waits for the shares of this weight, and holds them until the result is dropped.
    fn take(&self, weight: Weight) -> HeldShares<'_> {
        let count = match weight {
            Weight::Waiting => 1,
            Weight::Loaded => self.all.div_ceil(2),
            Weight::Alone => self.all,
        };
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free < count);
        *free -= count;
        HeldShares { shares: self, count }
    }
}

/// Shares that a running test holds.
struct HeldShares<'a> {
    shares: &'a Shares,
    count: usize,
}

impl Drop for HeldShares<'_> {
    fn drop(&mut self) {
        *self.shares.free.lock() += self.count;
        self.shares.freed.notify_all();
    }
}
