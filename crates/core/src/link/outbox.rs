//! What has happened in a stage and was not yet popped: events in order of time.

use std::collections::VecDeque;

use super::{DropCause, Event, Packet};
use crate::time::Instant;

/// A queue of events, as most stages need one.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<Event>);

impl Outbox {
    /// Hands `packet` on at `due`.
    pub(super) fn forward(&mut self, packet: Packet, due: Instant) {
        self.0.push_back(Event::Forward { packet, due });
    }

    /// Drops `packet`, and nobody is told.
    pub(super) fn drop(&mut self, packet: Packet, cause: DropCause, at: Instant) {
        self.0.push_back(Event::Drop { packet, cause, at, reply_mtu: None });
    }

    /// Anything else.
    pub(super) fn push(&mut self, event: Event) {
        self.0.push_back(event);
    }

    /// The next event that happened by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.0.front()?.at() <= now { self.0.pop_front() } else { None }
    }

    /// When the next event happens.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.front().map(Event::at)
    }

    /// True if nothing waits to be popped.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
