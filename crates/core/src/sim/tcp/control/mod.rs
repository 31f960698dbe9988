//! Congestion control: the number of segments in flight and the pacing rate.
//!
//! Each file has one implementation. Windows are in segments and fractional. The sender, not the congestion control,
//! decides which segments are lost and when to send them again. The sender requests at most one reduction per round
//! trip and applies it by proportional rate reduction (RFC 6937).

mod bbr;
mod cubic;
mod hystart;
mod reno;

use std::time::Duration;

use super::TcpSettings;
use super::scoreboard::SendRecord;
use crate::tcp_model::Congestion;
use crate::time::Instant;

/// Interface of a congestion control algorithm.
pub(super) trait CongestionControl {
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
pub(super) struct AckSample {
    pub(super) now: Instant,
    /// Segments delivered since the previous acknowledgement.
    pub(super) count: u64,
    /// Segments delivered since the start.
    pub(super) delivered: u64,
    /// All segments before this one are acknowledged.
    pub(super) next: u64,
    /// Next segment that was never sent.
    pub(super) sent: u64,
    /// Segments in flight now.
    pub(super) in_flight: u64,
    /// Segments found lost just now.
    pub(super) lost: u64,
    /// Send record of the acknowledged segment that was sent last.
    pub(super) stamp: SendRecord,
    /// RTT of that segment, if it was sent only once.
    pub(super) rtt: Option<Duration>,
    /// True if the window limits the sender.
    pub(super) full: bool,
    /// True during recovery from a loss.
    pub(super) in_recovery: bool,
}

/// Creates the congestion control of a new connection.
pub(super) fn create_control(settings: &TcpSettings, stream: u32) -> Box<dyn CongestionControl + Send> {
    let first = f64::from(settings.initial_window.max(1));
    match settings.congestion {
        Congestion::Reno => Box::new(reno::Reno::new(first)),
        Congestion::Cubic => Box::new(cubic::Cubic::new(first, settings.hystart)),
        Congestion::Bbr => Box::new(bbr::Bbr::new(first, settings.range_segments, stream)),
    }
}

/// Minimum window after a reduction (RFC 5681 §3.1).
const MIN_WINDOW: f64 = 2.0;
