//! Two tests of one path at the same time, each a session of its own in a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use lfn_core::wire::test::{Interval, Kernel};

use super::{Measurement, Progress, Test, TestError, client};
use crate::session::dial::Target;

/// What a test told, to be kept until it is looked at.
enum Told {
    Connected(Duration, Box<Kernel>),
    Near(Box<Interval>),
    Far(Box<Interval>),
}

/// Runs both at once, started together; `watch` hears which of them tells something. One that fails ends the other,
/// early; each result is its own.
pub fn run_both(
    target: &Target,
    tests: [&Test; 2],
    watch: &mut dyn FnMut(usize, Progress<'_>),
) -> [Result<Measurement, TestError>; 2] {
    let (sender, told) = channel();
    // Whether each has begun, or will not.
    let settled = &[AtomicBool::new(false), AtomicBool::new(false)];
    thread::scope(|scope| {
        let [first, second] = [0, 1].map(|number| {
            let sender = sender.clone();
            scope.spawn(move || run(target, tests, number, &sender, settled))
        });
        drop(sender);
        for (number, told) in told {
            watch(number, told.progress());
        }
        // A thread that panicked takes this one with it, as a call would have.
        [first, second].map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn run(
    target: &Target,
    tests: [&Test; 2],
    number: usize,
    told: &Sender<(usize, Told)>,
    settled: &[AtomicBool; 2],
) -> Result<Measurement, TestError> {
    let other = 1 - number;
    // Who listens does so until both are over.
    let mut tell = |progress: Progress<'_>| {
        if let Progress::Connected(..) = progress {
            settled[number].store(true, Ordering::Relaxed);
        }
        drop(told.send((number, Told::of(&progress))));
    };
    let mut result = client::run(target, tests[number], &mut tell);
    if result.is_ok() && !settled[other].load(Ordering::Relaxed) {
        // The other still waits for its turn.
        result = Err(TestError::Apart);
    }
    if result.is_err() {
        settled[number].store(true, Ordering::Relaxed);
        tests[other].stop.store(true, Ordering::Relaxed);
    }
    result.map(|measurement| Measurement { at_once: true, ..measurement })
}

impl Told {
    fn of(progress: &Progress<'_>) -> Self {
        match progress {
            Progress::Connected(rtt, kernel) => Told::Connected(*rtt, Box::new((*kernel).clone())),
            Progress::Near(interval) => Told::Near(Box::new((*interval).clone())),
            Progress::Far(interval) => Told::Far(Box::new((*interval).clone())),
        }
    }

    fn progress(&self) -> Progress<'_> {
        match self {
            Told::Connected(rtt, kernel) => Progress::Connected(*rtt, kernel),
            Told::Near(interval) => Progress::Near(interval),
            Told::Far(interval) => Progress::Far(interval),
        }
    }
}
