//! Two tests of one path at the same time, each with its own session and thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use lfn_results::evidence::Evidence;
use lfn_results::measure::{Interval, Kernel};
use lfn_results::udp::ramp::RampReport;
use lfn_session::dial::Target;

use super::convergence::ConvergenceBarrier;
use super::{Test, TestError, TestProgress, client};

/// Progress of a test with owned data, to send it to another thread.
enum OwnedProgress {
    Connected(Duration, Box<Kernel>),
    Near(Box<Interval>),
    Far(Box<Interval>),
    Step(Box<RampReport>),
}

/// Runs two tests at the same time. `watch` receives the index of the test with its progress. A test that fails ends
/// the other one early; each result is independent.
pub fn run_both(
    target: &Target,
    tests: [&Test; 2],
    watch: &mut dyn FnMut(usize, TestProgress<'_>),
) -> [Result<Evidence, TestError>; 2] {
    let (sender, events) = channel();
    // Whether each test has started, or will not start.
    let has_started = &[AtomicBool::new(false), AtomicBool::new(false)];
    thread::scope(|scope| {
        let [first, second] = ConvergenceBarrier::pair().map(|barrier| {
            let sender = sender.clone();
            scope.spawn(move || run_one(target, tests, barrier, &sender, has_started))
        });
        drop(sender);
        for (number, events) in events {
            watch(number, events.progress());
        }
        // A panic of a test's thread continues in this thread.
        [first, second].map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn run_one(
    target: &Target,
    tests: [&Test; 2],
    barrier: ConvergenceBarrier,
    events: &Sender<(usize, OwnedProgress)>,
    has_started: &[AtomicBool; 2],
) -> Result<Evidence, TestError> {
    let number = barrier.own;
    let other = 1 - number;
    // The receiver lives until both tests are over.
    let mut forward = |progress: TestProgress<'_>| {
        if let TestProgress::Connected(..) = progress {
            has_started[number].store(true, Ordering::Relaxed);
        }
        drop(events.send((number, OwnedProgress::of(&progress))));
    };
    let mut result = client::run_with_barrier(target, tests[number], &mut forward, barrier);
    if result.is_ok() && !has_started[other].load(Ordering::Relaxed) {
        // The other test still waits in the queue.
        result = Err(TestError::NotSimultaneous);
    }
    if result.is_err() {
        has_started[number].store(true, Ordering::Relaxed);
        tests[other].stop.store(true, Ordering::Relaxed);
    }
    result.map(|evidence| Evidence { bidirectional: true, ..evidence })
}

impl OwnedProgress {
    fn of(progress: &TestProgress<'_>) -> Self {
        match progress {
            TestProgress::Connected(rtt, kernel) => OwnedProgress::Connected(*rtt, Box::new((*kernel).clone())),
            TestProgress::Near(interval) => OwnedProgress::Near(Box::new((*interval).clone())),
            TestProgress::Far(interval) => OwnedProgress::Far(Box::new((*interval).clone())),
            TestProgress::Step(ramp) => OwnedProgress::Step(Box::new((*ramp).clone())),
        }
    }

    fn progress(&self) -> TestProgress<'_> {
        match self {
            OwnedProgress::Connected(rtt, kernel) => TestProgress::Connected(*rtt, kernel),
            OwnedProgress::Near(interval) => TestProgress::Near(interval),
            OwnedProgress::Far(interval) => TestProgress::Far(interval),
            OwnedProgress::Step(ramp) => TestProgress::Step(ramp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tests_continue_until_both_converge() {
        let [forward, reverse] = ConvergenceBarrier::pair();
        forward.report(true);
        assert!(!forward.is_complete() && !reverse.is_complete(), "the other direction still needs this load");
        forward.report(false);
        reverse.report(true);
        assert!(!forward.is_complete() && !reverse.is_complete(), "the first direction is no longer converged");
        forward.report(true);
        assert!(forward.is_complete() && reverse.is_complete());
        reverse.report(false);
        assert!(forward.is_complete() && reverse.is_complete(), "the first direction has ended, so the other one ends");
    }

    #[test]
    fn single_test_ends_by_itself() {
        let barrier = ConvergenceBarrier::alone();
        barrier.report(false);
        assert!(!barrier.is_complete());
        barrier.report(true);
        assert!(barrier.is_complete());
    }
}
