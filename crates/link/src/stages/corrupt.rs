//! Corruption: bits to flip so that a checksum detects it, or so that no checksum detects it.
//!
//! The model only draws the packets and a number that selects the bit. The caller, who holds the bytes, changes them
//! (`segment`). The two kinds use separate generators. A corrupted packet leaves as a single packet and is corrupted
//! once. If both kinds select it, in this hop or an earlier one, the kind that a checksum detects applies.

use lfn_base::time::Instant;
use lfn_base::units::Ratio;
use lfn_packet::Corruption;

use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{LinkEvent, Packet};
use crate::sampler::PacketSampler;
use crate::stage::{ImpairmentStage, Stage};

pub(super) const KEY: Key = key!(
    Loss,
    "corrupt",
    "RATIO",
    "1e-5",
    "Flip a bit in this share of packets, so that checksums detect it",
    "Share of packets with a flipped bit. Checksums detect it, so the receiver loses the packet."
);
pub(super) const HIDDEN: Key = key!(
    Loss,
    "corrupt-hidden",
    "RATIO",
    "1e-6",
    "Flip a bit and correct the checksum, so that only the application can detect it",
    "Share of packets with a flipped bit in the payload and a corrected checksum. TCP cannot detect it; the \
     application must."
);

/// Probabilities that a bit of a virtual packet is flipped.
pub(super) struct CorruptSettings {
    /// Probability of a corruption that a checksum detects.
    pub(super) detected: Ratio,
    /// Probability of a corruption with a corrected checksum.
    pub(super) hidden: Ratio,
}

/// Stage that corrupts virtual packets.
pub(super) struct CorruptStage {
    plain: PacketSampler,
    hidden: PacketSampler,
    out: Outbox,
}

impl CorruptStage {
    /// Returns the number of the next `max` packets before one that is corrupted.
    fn gap_up_to(&self, packet: &Packet, max: u32) -> u32 {
        let plain = self.plain.gap_up_to(max);
        if packet.has_payload { self.hidden.gap_up_to(plain) } else { plain }
    }

    fn pass(&mut self, packet: &Packet, count: u32) {
        self.plain.skip(count);
        // Packets without payload cannot be corrupted in secret, so they do not count for that kind.
        if packet.has_payload {
            self.hidden.skip(count);
        }
    }

    /// Corrupts `packet`, a single virtual packet that at least one of the kinds selected.
    fn corrupt(&mut self, packet: &mut Packet) {
        let mut apply = |sampler: &mut PacketSampler, hidden: bool| {
            if sampler.gap_up_to(1) > 0 {
                return sampler.skip(1);
            }
            sampler.take_hit();
            let draw = sampler.random();
            if packet.changes.corruption.is_none_or(|corruption| corruption.is_hidden) {
                packet.changes.corruption = Some(Corruption { random: draw, is_hidden: hidden });
            }
        };
        if packet.has_payload {
            apply(&mut self.hidden, true);
        }
        apply(&mut self.plain, false);
    }
}

impl Stage for CorruptStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        let mut done = 0;
        while done < packet.count {
            let whole = self.gap_up_to(&packet, packet.count - done);
            if whole > 0 {
                self.pass(&packet, whole);
                self.out.forward(packet.part(done, whole), now);
                done += whole;
            }
            if done < packet.count {
                let mut corrupted = packet.part(done, 1);
                self.corrupt(&mut corrupted);
                self.out.forward(corrupted, now);
                done += 1;
            }
        }
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at()
    }
}

impl ImpairmentStage for CorruptStage {
    type Settings = CorruptSettings;

    fn new(settings: CorruptSettings, context: &HopContext) -> Self {
        CorruptStage {
            plain: PacketSampler::new(context, "corrupt", settings.detected),
            hidden: PacketSampler::new(context, "corrupt-hidden", settings.hidden),
            out: Outbox::default(),
        }
    }

    fn set(&mut self, settings: CorruptSettings, _context: &HopContext, _now: Instant) {
        self.plain.set(settings.detected);
        self.hidden.set(settings.hidden);
    }
}
