//! Reno congestion control (RFC 5681). It counts bytes as RFC 3465 and Linux do, so delayed acknowledgements do not
//! slow it down.

use super::algorithm::{AckSample, CongestionControl, MIN_WINDOW};

/// A window that grows by one segment per round trip and is halved at a loss.
pub(super) struct Reno {
    window: f64,
    /// The window up to which slow start grows.
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
        self.threshold = (self.window / 2.0).max(MIN_WINDOW);
    }
}

impl CongestionControl for Reno {
    fn window(&self) -> f64 {
        self.window
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if ack.in_recovery || !ack.full {
            return;
        }
        let count = ack.count as f64;
        // The rest of an acknowledgement that ends slow start counts for congestion avoidance.
        let slow = count.min((self.threshold - self.window).max(0.0));
        self.window += slow;
        self.window += (count - slow) / self.window;
    }

    fn on_congestion(&mut self) -> Option<f64> {
        self.reduce();
        self.window = self.threshold;
        Some(self.threshold)
    }

    fn on_timeout(&mut self, is_repeated: bool) {
        if !is_repeated {
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
