//! Corruption: bits that are to be flipped, so that a checksum tells, or so that none does.
//!
//! The model only draws which packets and a number that decides which bit; the bytes are changed by whoever holds them
//! (`segment`). The two kinds draw from generators of their own. A damaged packet leaves by itself, and is damaged once:
//! by the kind that a checksum tells, if both fall on it, here or in an earlier hop.

use crate::link::chance::Chance;
use crate::link::outbox::Outbox;
use crate::link::{Damage, Event, LinkConfig, Packet, Stage};
use crate::time::Instant;

/// Damages virtual packets.
pub(super) struct Corruption {
    plain: Chance,
    hidden: Chance,
    out: Outbox,
}

impl Corruption {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Corruption {
            plain: Chance::new(config, "corrupt", config.corrupt),
            hidden: Chance::new(config, "corrupt-hidden", config.corrupt_hidden),
            out: Outbox::default(),
        }
    }

    /// How many of the next `most` come before one that is damaged.
    fn gap(&self, packet: &Packet, most: u32) -> u32 {
        let plain = self.plain.gap(most);
        if packet.has_payload { self.hidden.gap(plain) } else { plain }
    }

    fn pass(&mut self, packet: &Packet, count: u32) {
        self.plain.pass(count);
        // What has nothing to hide in is not counted among those that might be hit.
        if packet.has_payload {
            self.hidden.pass(count);
        }
    }

    /// Damages `packet`, one virtual packet, on which at least one of the kinds falls.
    fn damage(&mut self, packet: &mut Packet) {
        let mut struck = |chance: &mut Chance, hidden: bool| {
            if chance.gap(1) > 0 {
                return chance.pass(1);
            }
            chance.strike();
            let draw = chance.number();
            if packet.changes.damage.is_none_or(|damage| damage.hidden) {
                packet.changes.damage = Some(Damage { draw, hidden });
            }
        };
        if packet.has_payload {
            struck(&mut self.hidden, true);
        }
        struck(&mut self.plain, false);
    }
}

impl Stage for Corruption {
    fn push(&mut self, packet: Packet, now: Instant) {
        let mut done = 0;
        while done < packet.count {
            let whole = self.gap(&packet, packet.count - done);
            if whole > 0 {
                self.pass(&packet, whole);
                self.out.forward(packet.part(done, whole), now);
                done += whole;
            }
            if done < packet.count {
                let mut damaged = packet.part(done, 1);
                self.damage(&mut damaged);
                self.out.forward(damaged, now);
                done += 1;
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.plain.set(config.corrupt);
        self.hidden.set(config.corrupt_hidden);
    }
}
