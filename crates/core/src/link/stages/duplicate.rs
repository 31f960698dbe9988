//! Duplication: some packets come out twice, the copy at once after the original.
//!
//! The copy exists from here on: whatever follows, in this hop and the next ones, happens to each of the two by itself.

use crate::link::chance::Chance;
use crate::link::outbox::Outbox;
use crate::link::{Event, LinkConfig, Packet, Stage};
use crate::time::Instant;

/// Doubles each virtual packet with the same probability.
pub(super) struct Duplication {
    chance: Chance,
    out: Outbox,
}

impl Duplication {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Duplication { chance: Chance::new(config, "duplicate", config.duplicate), out: Outbox::default() }
    }
}

impl Stage for Duplication {
    fn push(&mut self, packet: Packet, now: Instant) {
        let mut done = 0;
        while done < packet.count {
            let left = packet.count - done;
            let single = self.chance.gap(left);
            self.chance.pass(single);
            if single == left {
                return self.out.forward(packet.part(done, left), now);
            }
            self.chance.strike();
            let mut copy = packet.part(done + single, 1);
            copy.changes.is_copy = true;
            // Announced before the original has left, so that its bytes are still there.
            self.out.push(Event::Duplicate { packet: copy, at: now });
            self.out.forward(packet.part(done, single + 1), now);
            self.out.forward(copy, now);
            done += single + 1;
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.chance.set(config.duplicate);
    }
}
