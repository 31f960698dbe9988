//! Proportional rate reduction (RFC 6937): the segments that may leave during a recovery.
//!
//! The window falls to its target over one round trip, in step with the arrivals, instead of at once. If more than that
//! was lost, it grows back to the target as in slow start.

/// One recovery: from the loss until all segments that were sent before the loss are acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// Target window, which is ssthresh.
    target: f64,
    /// RecoverFS: segments in flight when the loss was found.
    flight: f64,
    delivered: f64,
    sent: f64,
    window: f64,
}

impl Recovery {
    /// Starts a recovery. `flight` is the number of segments in flight or lost.
    pub(super) fn new(target: f64, flight: u64) -> Self {
        Recovery { target, flight: (flight as f64).max(1.0), delivered: 0.0, sent: 0.0, window: target }
    }

    /// Handles an acknowledgement of `delivered` segments, with `in_flight` left in flight. `progress` is true if it moved
    /// the left edge and found no further loss.
    pub(super) fn on_ack(&mut self, delivered: u64, in_flight: u64, progress: bool) {
        let (now, in_flight) = (delivered as f64, in_flight as f64);
        self.delivered += now;
        let may_leave = if in_flight > self.target {
            (self.delivered * self.target / self.flight).ceil() - self.sent
        } else {
            let conserve = self.delivered - self.sent;
            let limit = if progress { conserve.max(now) + 1.0 } else { conserve };
            (self.target - in_flight).min(limit)
        };
        // The first segment is sent again at once, whatever the formula gives.
        let minimum = if self.sent == 0.0 { 1.0 } else { 0.0 };
        self.window = in_flight + may_leave.max(minimum);
    }

    /// Counts segments that left.
    pub(super) fn sent(&mut self, count: u64) {
        self.sent += count as f64;
    }

    /// Returns the segments that may be in flight.
    pub(super) fn window(&self) -> f64 {
        self.window
    }
}
