//! Repeated measurements with a stated success rate.
//!
//! Other load on the machine can disturb one measurement. A test that repeats until one run succeeds would also pass if
//! the feature fails most of the time. So every run counts, and the number of successes is printed.

use std::fmt::Debug;
use std::panic::panic_any;
use std::thread;

/// Payload of the panic of a test with too few successes. The harness with weights runs this test once more, alone.
pub struct RateMissed(pub String);

/// Successes that a test requires of a number of runs.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub required: usize,
    pub runs: usize,
}

/// The rate of most tests: one disturbed run is permitted.
pub const TWO_OF_THREE: Rate = Rate { required: 2, runs: 3 };

impl Rate {
    /// Measures in parallel, and requires this rate of results that hold. For runs that mostly wait for their own path.
    #[track_caller]
    pub fn require<T: Debug + Send>(self, what: &str, measure: impl Fn() -> T + Sync, holds: impl Fn(&T) -> bool) {
        let results = thread::scope(|scope| {
            let runs: Vec<_> = (0..self.runs).map(|_| scope.spawn(&measure)).collect();
            runs.into_iter().map(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        self.judge(what, results, holds);
    }

    /// Works like [`require`](Self::require), one run after the other, until enough results hold. For runs that measure
    /// accuracy.
    #[track_caller]
    pub fn require_serial<T: Debug>(self, what: &str, mut measure: impl FnMut() -> T, holds: impl Fn(&T) -> bool) {
        let mut results = Vec::new();
        while results.len() < self.runs && results.iter().filter(|result| holds(result)).count() < self.required {
            results.push(measure());
        }
        self.judge(what, results, holds);
    }

    /// Counts the results that hold, prints `k of n`, and fails below this rate.
    #[track_caller]
    pub fn judge<T: Debug>(self, what: &str, results: Vec<T>, holds: impl Fn(&T) -> bool) {
        let other: Vec<_> = results.iter().filter(|result| !holds(result)).collect();
        let count = results.len() - other.len();
        let counts = format!("{what}: {count} of {}, required {}", results.len(), self.required);
        println!("{counts}");
        if count < self.required {
            panic_any(RateMissed(format!("{counts}: {other:#?}")));
        }
    }
}

/// Returns the first result that the machine did not disturb, and prints the number of runs. `run` returns the reason
/// of a disturbed run, which says nothing about the tested feature. Requires one undisturbed run of `runs`.
#[track_caller]
pub fn undisturbed<T>(what: &str, runs: usize, mut run: impl FnMut() -> Result<T, String>) -> T {
    let mut reasons = Vec::new();
    for number in 1..=runs {
        match run() {
            Ok(result) => {
                println!("{what}: 1 of {number} undisturbed, required 1 of {runs}");
                return result;
            }
            Err(reason) => reasons.push(reason),
        }
    }
    panic!("{what}: 0 of {runs} undisturbed, required 1: {reasons:#?}");
}
