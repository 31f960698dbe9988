//! Proportional rate reduction (RFC 6937): how much may leave while a loss is repaired.
//!
//! The window comes down to its target over one round trip, in step with what arrives, instead of at once; and if more
//! was lost than that, it grows back to the target as in slow start.

/// One repair, from the loss until all sent by then is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    /// Where the window is to end: ssthresh.
    target: f64,
    /// In flight when the loss was found: RecoverFS.
    flight: f64,
    delivered: f64,
    sent: f64,
    window: f64,
}

impl Repair {
    /// A loss was found with so many segments in flight or lost.
    pub(super) fn new(target: f64, flight: u64) -> Self {
        Repair { target, flight: (flight as f64).max(1.0), delivered: 0.0, sent: 0.0, window: target }
    }

    /// Takes up an acknowledgement of `delivered` segments that left `flying`; `progress` if it moved the left edge and
    /// found nothing more lost.
    pub(super) fn acknowledged(&mut self, delivered: u64, flying: u64, progress: bool) {
        let (now, flying) = (delivered as f64, flying as f64);
        self.delivered += now;
        let may_leave = if flying > self.target {
            (self.delivered * self.target / self.flight).ceil() - self.sent
        } else {
            let conserve = self.delivered - self.sent;
            let limit = if progress { conserve.max(now) + 1.0 } else { conserve };
            (self.target - flying).min(limit)
        };
        // The first segment is sent again at once, whatever the sum says.
        let least = if self.sent == 0.0 { 1.0 } else { 0.0 };
        self.window = flying + may_leave.max(least);
    }

    /// So many segments left.
    pub(super) fn sent(&mut self, count: u64) {
        self.sent += count as f64;
    }

    /// Segments that may be in flight.
    pub(super) fn window(&self) -> f64 {
        self.window
    }
}
