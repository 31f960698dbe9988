//! Duplication: some packets come out twice. The copy follows the original immediately.
//!
//! The copy exists from this stage on. Later stages of this hop and the next hops treat the two packets separately.

use lfn_base::time::Instant;
use lfn_base::units::Ratio;

use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{LinkEvent, Packet};
use crate::sampler::PacketSampler;
use crate::stage::{ImpairmentStage, Stage};

pub(super) const KEY: Key =
    key!(Loss, "duplicate", "RATIO", "0.1%", "Duplicate this share of packets", "Share of packets that arrive twice.");

/// Duplicates each virtual packet with the same probability.
pub(super) struct DuplicateStage {
    sampler: PacketSampler,
    out: Outbox,
}

impl Stage for DuplicateStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        let mut done = 0;
        while done < packet.count {
            let left = packet.count - done;
            let single = self.sampler.gap_up_to(left);
            self.sampler.skip(single);
            if single == left {
                return self.out.forward(packet.part(done, left), now);
            }
            self.sampler.take_hit();
            let mut copy = packet.part(done + single, 1);
            copy.changes.is_copy = true;
            // The announcement comes before the original leaves, so the caller still has its bytes.
            self.out.push(LinkEvent::Duplicate { packet: copy, at: now });
            self.out.forward(packet.part(done, single + 1), now);
            self.out.forward(copy, now);
            done += single + 1;
        }
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at()
    }
}

impl ImpairmentStage for DuplicateStage {
    type Settings = Ratio;

    fn new(settings: Ratio, context: &HopContext) -> Self {
        DuplicateStage { sampler: PacketSampler::new(context, "duplicate", settings), out: Outbox::default() }
    }

    fn set(&mut self, settings: Ratio, _context: &HopContext, _now: Instant) {
        self.sampler.set(settings);
    }
}
