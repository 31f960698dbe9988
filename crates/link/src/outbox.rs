//! Events of a stage that were not popped yet, in order of time.

use std::collections::VecDeque;

use lfn_base::time::Instant;

use super::packet::{DropCause, LinkEvent, Packet};

/// Queue of events, as most stages need one.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<LinkEvent>);

impl Outbox {
    /// Forwards `packet` at `due`.
    pub(super) fn forward(&mut self, packet: Packet, due: Instant) {
        self.0.push_back(LinkEvent::Forward { packet, due });
    }

    /// Drops `packet` without a message to its sender.
    pub(super) fn drop(&mut self, packet: Packet, cause: DropCause, at: Instant) {
        self.0.push_back(LinkEvent::Drop { packet, cause, at, reply_mtu: None });
    }

    /// Appends an event of any kind.
    pub(super) fn push(&mut self, event: LinkEvent) {
        self.0.push_back(event);
    }

    /// Returns the next event that happened by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        if self.0.front()?.at() <= now { self.0.pop_front() } else { None }
    }

    /// Returns the time of the next event.
    pub(super) fn next_event_at(&self) -> Option<Instant> {
        self.0.front().map(LinkEvent::at)
    }

    /// Reports whether no event is waiting.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
