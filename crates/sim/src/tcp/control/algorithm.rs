//! Interface of a congestion control algorithm.

use std::time::Duration;

use lfn_base::time::Instant;

use crate::tcp::scoreboard::SendRecord;

/// Interface of a congestion control algorithm.
pub(in crate::tcp) trait CongestionControl {
    /// Returns the segments that may be in flight.
    fn window(&self) -> f64;

    /// Handles an acknowledgement of new segments.
    fn on_ack(&mut self, ack: &AckSample);

    /// Handles the first loss or mark of a round trip. Returns the new target window, or `None` if the window must not
    /// shrink.
    fn on_congestion(&mut self) -> Option<f64>;

    /// Handles a timeout. `is_repeated` is true if the losses of the previous timeout are not repaired yet.
    fn on_timeout(&mut self, is_repeated: bool);

    /// Undoes the last reduction, which was spurious.
    fn undo(&mut self);

    /// Returns true until the window has found its size for the first time.
    fn is_starting(&self) -> bool;

    /// Returns the pacing rate in segments per second; `None` if segments leave as soon as the window allows.
    fn pace(&self) -> Option<f64> {
        None
    }
}

/// Figures of one acknowledgement for the congestion control.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct AckSample {
    pub(in crate::tcp) now: Instant,
    /// Segments delivered since the previous acknowledgement.
    pub(in crate::tcp) count: u64,
    /// Segments delivered since the start.
    pub(in crate::tcp) delivered: u64,
    /// All segments before this one are acknowledged.
    pub(in crate::tcp) next: u64,
    /// Next segment that was never sent.
    pub(in crate::tcp) sent: u64,
    /// Segments in flight now.
    pub(in crate::tcp) in_flight: u64,
    /// Segments found lost just now.
    pub(in crate::tcp) lost: u64,
    /// Send record of the acknowledged segment that was sent last.
    pub(in crate::tcp) stamp: SendRecord,
    /// RTT of that segment, if it was sent only once.
    pub(in crate::tcp) rtt: Option<Duration>,
    /// True if the window limits the sender.
    pub(in crate::tcp) full: bool,
    /// True during recovery from a loss.
    pub(in crate::tcp) in_recovery: bool,
}

/// Minimum window after a reduction (RFC 5681 §3.1).
pub(super) const MIN_WINDOW: f64 = 2.0;
