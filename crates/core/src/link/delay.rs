//! Constant one-way delay: a FIFO, nothing is ever overtaken.
//!
//! Jitter and reordering are other stages: they need a heap, and this one must not pay for it.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Event, Packet, Stage};
use crate::time::Instant;

/// Hands every packet on `delay` after it came.
pub(super) struct Delay {
    delay: Duration,
    flying: VecDeque<(Instant, Packet)>,
}

impl Delay {
    pub(super) fn new(delay: Duration) -> Self {
        Delay { delay, flying: VecDeque::new() }
    }
}

impl Stage for Delay {
    fn push(&mut self, packet: Packet, now: Instant) {
        self.flying.push_back((now + self.delay, packet));
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        let &(due, packet) = self.flying.front().filter(|(due, _)| *due <= now)?;
        self.flying.pop_front();
        Some(Event::Forward { packet, due })
    }

    fn next(&self) -> Option<Instant> {
        self.flying.front().map(|(due, _)| *due)
    }

    fn least(&self) -> Duration {
        self.delay
    }
}
