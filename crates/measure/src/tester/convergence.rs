//! Convergence of tests that end together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Convergence of tests that end together. If one direction ended alone, the other one would run on a path without its
/// load. So both continue until both have converged, or until their time is over.
#[derive(Debug, Clone)]
pub(super) struct ConvergenceBarrier {
    /// Convergence of each test.
    reached: Arc<[AtomicBool; 2]>,
    /// All tests were converged at the same time. This state is final.
    is_over: Arc<AtomicBool>,
    /// Number of the test, 0 or 1.
    pub(super) own: usize,
}

impl ConvergenceBarrier {
    /// Returns the barrier of a single test.
    pub(super) fn alone() -> ConvergenceBarrier {
        let reached = Arc::new([AtomicBool::new(false), AtomicBool::new(true)]);
        ConvergenceBarrier { reached, is_over: Arc::default(), own: 0 }
    }

    /// Returns the barriers of two tests that end together.
    pub(super) fn pair() -> [ConvergenceBarrier; 2] {
        let (reached, is_over) = (Arc::<[AtomicBool; 2]>::default(), Arc::<AtomicBool>::default());
        [0, 1].map(|own| ConvergenceBarrier { reached: reached.clone(), is_over: is_over.clone(), own })
    }

    /// Reports whether this test has converged.
    pub(super) fn report(&self, barrier: bool) {
        self.reached[self.own].store(barrier, Ordering::SeqCst);
        if self.reached.iter().all(|one| one.load(Ordering::SeqCst)) {
            self.is_over.store(true, Ordering::SeqCst);
        }
    }

    /// Returns whether all tests must end.
    pub(super) fn is_complete(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}
