//! Reno: RFC 5681, counting bytes as RFC 3465 and Linux do, so that delayed acknowledgements slow nothing.

use super::{Acknowledged, Control, LEAST_WINDOW};

/// A window that grows by a segment each round trip and is halved at a loss.
pub(super) struct Reno {
    window: f64,
    /// Slow start below.
    threshold: f64,
    /// Window and threshold before the last reduction.
    before: (f64, f64),
}

impl Reno {
    pub(super) fn new(initial_window: f64) -> Self {
        Reno { window: initial_window, threshold: f64::INFINITY, before: (initial_window, f64::INFINITY) }
    }

    fn reduce(&mut self) {
        self.before = (self.window, self.threshold);
        self.threshold = (self.window / 2.0).max(LEAST_WINDOW);
    }
}

impl Control for Reno {
    fn window(&self) -> f64 {
        self.window
    }

    fn acknowledged(&mut self, ack: &Acknowledged) {
        if ack.repairing || !ack.full {
            return;
        }
        let count = ack.count as f64;
        // What is left of an acknowledgement that ends slow start counts for congestion avoidance.
        let slow = count.min((self.threshold - self.window).max(0.0));
        self.window += slow;
        self.window += (count - slow) / self.window;
    }

    fn congested(&mut self) -> Option<f64> {
        self.reduce();
        self.window = self.threshold;
        Some(self.threshold)
    }

    fn timed_out(&mut self, again: bool) {
        if !again {
            self.reduce();
        }
        self.window = 1.0;
    }

    fn undo(&mut self) {
        (self.window, self.threshold) = (self.window.max(self.before.0), self.before.1);
    }

    fn is_starting(&self) -> bool {
        self.threshold.is_infinite()
    }
}
