//! Two tests of one path at the same time, each a session of its own in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use lfn_core::udp::ramp::RampReport;
use lfn_core::wire::test::{Interval, Kernel};

use super::{Measurement, Progress, Test, TestError, client};
use crate::session::dial::Target;

/// Whether the tests that end together by what is known of their goodput know it: a direction that ended by itself would
/// leave the other a path without its load, so both go on until both do, or their time is over.
#[derive(Debug, Clone)]
pub(super) struct Narrow {
    /// How it stands with each.
    each: Arc<[AtomicBool; 2]>,
    /// It was so of all at once; then it is over, whatever comes after.
    over: Arc<AtomicBool>,
    own: usize,
}

impl Narrow {
    /// Of a test that ends by itself.
    pub(super) fn alone() -> Narrow {
        let each = Arc::new([AtomicBool::new(false), AtomicBool::new(true)]);
        Narrow { each, over: Arc::default(), own: 0 }
    }

    /// Of two that end together.
    fn pair() -> [Narrow; 2] {
        let (each, over) = (Arc::<[AtomicBool; 2]>::default(), Arc::<AtomicBool>::default());
        [0, 1].map(|own| Narrow { each: each.clone(), over: over.clone(), own })
    }

    /// How it stands with this one.
    pub(super) fn tell(&self, narrow: bool) {
        self.each[self.own].store(narrow, Ordering::SeqCst);
        if self.each.iter().all(|one| one.load(Ordering::SeqCst)) {
            self.over.store(true, Ordering::SeqCst);
        }
    }

    /// Whether all are to end.
    pub(super) fn all(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// What a test told, to be kept until it is looked at.
enum Told {
    Connected(Duration, Box<Kernel>),
    Near(Box<Interval>),
    Far(Box<Interval>),
    Step(Box<RampReport>),
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
        let [first, second] = Narrow::pair().map(|narrow| {
            let sender = sender.clone();
            scope.spawn(move || run(target, tests, narrow, &sender, settled))
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
    narrow: Narrow,
    told: &Sender<(usize, Told)>,
    settled: &[AtomicBool; 2],
) -> Result<Measurement, TestError> {
    let number = narrow.own;
    let other = 1 - number;
    // Who listens does so until both are over.
    let mut tell = |progress: Progress<'_>| {
        if let Progress::Connected(..) = progress {
            settled[number].store(true, Ordering::Relaxed);
        }
        drop(told.send((number, Told::of(&progress))));
    };
    let mut result = client::run_beside(target, tests[number], &mut tell, narrow);
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
            Progress::Step(ramp) => Told::Step(Box::new((*ramp).clone())),
        }
    }

    fn progress(&self) -> Progress<'_> {
        match self {
            Told::Connected(rtt, kernel) => Progress::Connected(*rtt, kernel),
            Told::Near(interval) => Progress::Near(interval),
            Told::Far(interval) => Progress::Far(interval),
            Told::Step(ramp) => Progress::Step(ramp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_go_on_until_both_are_narrow() {
        let [forward, reverse] = Narrow::pair();
        forward.tell(true);
        assert!(!forward.all() && !reverse.all(), "the other still needs its load");
        forward.tell(false);
        reverse.tell(true);
        assert!(!forward.all() && !reverse.all(), "it widened again");
        forward.tell(true);
        assert!(forward.all() && reverse.all());
        reverse.tell(false);
        assert!(forward.all() && reverse.all(), "the first has ended: the other does not go on alone");
    }

    #[test]
    fn one_alone_waits_for_nobody() {
        let narrow = Narrow::alone();
        narrow.tell(false);
        assert!(!narrow.all());
        narrow.tell(true);
        assert!(narrow.all());
    }
}
