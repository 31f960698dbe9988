//! Congestion control: how many segments may be in flight, and how fast they leave.
//!
//! One implementation a file. Windows are in segments and fractional; what is lost and when to send it again is not
//! decided here but in the sender, which asks for a reduction once a round trip at most and carries it out by
//! proportional rate reduction (RFC 6937).

mod bbr;
mod cubic;
mod hystart;
mod reno;

use std::time::Duration;

use super::Settings;
use super::scoreboard::Stamp;
use crate::tcp_model::Congestion;
use crate::time::Instant;

/// A congestion control.
pub(super) trait Control {
    /// Segments that may be in flight.
    fn window(&self) -> f64;

    /// Takes up an acknowledgement of something new.
    fn acknowledged(&mut self, ack: &Acknowledged);

    /// Something was lost or marked, for the first time in this round trip: the window to come down to, or `None` if
    /// that is no reason.
    fn congested(&mut self) -> Option<f64>;

    /// Everything has to start anew: a timeout, perhaps `again` before the last one was repaired.
    fn timed_out(&mut self, again: bool);

    /// The last reduction was for nothing: as it was before.
    fn undo(&mut self);

    /// True from the beginning until the window has found its size for the first time.
    fn is_starting(&self) -> bool;

    /// Segments a second, if they do not leave as soon as the window allows.
    fn pace(&self) -> Option<f64> {
        None
    }
}

/// What an acknowledgement tells a congestion control.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) now: Instant,
    /// Segments that are known to have arrived since the one before.
    pub(super) count: u64,
    /// Of all since the beginning.
    pub(super) delivered: u64,
    /// All before this is acknowledged.
    pub(super) next: u64,
    /// The next segment never sent.
    pub(super) sent: u64,
    /// In flight now.
    pub(super) flying: u64,
    /// Found lost just now.
    pub(super) lost: u64,
    /// What was noted when the latest segment acknowledged was sent.
    pub(super) stamp: Stamp,
    /// Its round trip, if it was sent once.
    pub(super) rtt: Option<Duration>,
    /// True if the window is what held the sender back.
    pub(super) full: bool,
    /// True while a loss is repaired.
    pub(super) repairing: bool,
}

/// One that has sent nothing yet.
pub(super) fn control(settings: &Settings, stream: u32) -> Box<dyn Control + Send> {
    let first = f64::from(settings.initial_window.max(1));
    match settings.congestion {
        Congestion::Reno => Box::new(reno::Reno::new(first)),
        Congestion::Cubic => Box::new(cubic::Cubic::new(first, settings.hystart)),
        Congestion::Bbr => Box::new(bbr::Bbr::new(first, settings.grain, stream)),
    }
}

/// RFC 5681 §3.1: no reduction goes below.
const LEAST_WINDOW: f64 = 2.0;
