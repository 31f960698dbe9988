//! Constant one-way delay: a FIFO, nothing is ever overtaken.
//!
//! Jitter and reordering are other stages: they need a heap, and this one must not pay for it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::link::{Event, LinkConfig, Packet, Stage};
use crate::time::Instant;

/// Hands every packet on `delay` after it came.
pub(super) struct Delay {
    delay: Duration,
    flying: VecDeque<(Instant, Packet)>,
}

impl Delay {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Delay { delay: config.delay, flying: VecDeque::new() }
    }
}

impl Stage for Delay {
    fn push(&mut self, packet: Packet, now: Instant) {
        let due = now + self.delay;
        // After the delay was shortened nothing overtakes what is in flight.
        let due = self.flying.back().map_or(due, |(before, _)| due.max(*before));
        self.flying.push_back((due, packet));
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        let &(due, packet) = self.flying.front().filter(|(due, _)| *due <= now)?;
        self.flying.pop_front();
        Some(Event::Forward { packet, due })
    }

    fn next(&self) -> Option<Instant> {
        self.flying.front().map(|(due, _)| *due)
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.delay = config.delay;
    }

    fn least(&self) -> Duration {
        self.delay
    }
}
