//! Decides whether the streams of a sender should show progress.
//!
//! The receiver reports the bytes that it received on each stream. A stream is stalled if none of its bytes in flight
//! arrive, while the receiver is alive and not delayed itself. Then the connection is dead, or its retransmissions
//! become ever more rare. The stream is closed like a broken one, and another stream replaces it.

use std::time::{Duration, Instant};

/// Maximum silence of the receiver. After a longer silence, no stream counts as stalled.
const PEER_SILENCE: Duration = Duration::from_secs(3);

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Decides whether streams should show progress, from the messages of the receiver.
#[derive(Debug)]
pub(super) struct StallDetector {
    checked_at: Instant,
    heard_at: Instant,
    /// The time since when the receiver has sent messages without a long silence and without delays.
    active_since: Instant,
    is_delayed: bool,
}

impl Default for StallDetector {
    fn default() -> Self {
        StallDetector::new(Instant::now())
    }
}

impl StallDetector {
    pub(super) fn new(now: Instant) -> Self {
        StallDetector { checked_at: now, heard_at: now, active_since: now, is_delayed: false }
    }

    /// Handles any message of the receiver.
    pub(super) fn on_message(&mut self, now: Instant) {
        if now.saturating_duration_since(self.heard_at) > PEER_SILENCE {
            self.active_since = now;
        }
        self.heard_at = now;
    }

    /// Records whether the receiver is delayed itself.
    pub(super) fn set_delayed(&mut self, delayed: bool, now: Instant) {
        if delayed || self.is_delayed {
            self.active_since = now;
        }
        self.is_delayed = delayed;
    }

    /// Returns the time since when streams should have shown progress. `None` if it is too early, or if the receiver is
    /// silent or delayed.
    pub(super) fn check(&mut self, now: Instant) -> Option<Instant> {
        if now.saturating_duration_since(self.checked_at) < CHECK_INTERVAL {
            return None;
        }
        self.checked_at = now;
        (!self.is_delayed && now.saturating_duration_since(self.heard_at) < PEER_SILENCE).then_some(self.active_since)
    }
}
