//! The queue in front of a line: what is let in, what goes next, and what is dropped or marked meanwhile.
//!
//! It keeps no time of its own: the line in `rate` tells it what came when, asks it for the next packet at the moment
//! the line is free, and says when bytes have left. What counts as held is every virtual packet that was let in and
//! whose last bit has not been sent, the one being sent included: a store-and-forward device holds those bytes too, and
//! so the longest wait is the limit divided by the rate. Bytes are counted as the line counts them, with the overhead
//! of its layer (as `tc` counts a backlog where `stab` names one).

mod codel;
mod drop_tail;
mod fq_codel;
mod red;
mod settings;

pub use codel::CoDel;
pub(super) use drop_tail::Waiting;
use drop_tail::{Admission, Fifo, fit};
pub use fq_codel::FqCoDel;
pub use red::Red;
pub(crate) use settings::packets;
pub use settings::{Discipline, DisciplineError, QueueLimit};

use super::line::{Line, Tariff};
use crate::link::outbox::Outbox;
use crate::link::{DropCause, LinkConfig, Packet};
use crate::time::Instant;
use crate::units::Bytes;

/// What waits for a line.
pub(super) struct Queue {
    limit: QueueLimit,
    tariff: Tariff,
    held: Held,
    peak: u64,
    fifo: Fifo,
}

/// What was let in and not yet wholly sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Virtual packets.
    pub(super) packets: u64,
    /// As the line counts them.
    pub(super) bytes: u64,
}

impl Queue {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Queue {
            limit: config.queue,
            tariff: Tariff(config.layer),
            held: Held::default(),
            peak: 0,
            fifo: Fifo::default(),
        }
    }

    /// What is in the queue stays, also if it is more than fits now. `sending` is on the line and held too.
    pub(super) fn set(&mut self, config: &LinkConfig, sending: Option<Packet>) {
        self.limit = config.queue;
        self.tariff = Tariff(config.layer);
        let held = self.fifo.iter().map(|waiting| waiting.packet).chain(sending);
        self.held = held.fold(Held::default(), |held, packet| held.with(&packet, self.tariff));
    }

    /// Takes in what may come in, as if the virtual packets came one after the other, and drops the rest.
    pub(super) fn admit(&mut self, packet: Packet, now: Instant, out: &mut Outbox) {
        let Admission { head, last } = fit(&packet, &self.held, self.limit, self.tariff);
        let refused = packet.count - head - u32::from(last);
        if refused == 0 {
            return self.take_in(packet, now);
        }
        if head > 0 {
            self.take_in(packet.part(0, head), now);
        }
        if last {
            self.take_in(packet.part(packet.count - 1, 1), now);
        }
        out.drop(packet.part(head, refused), DropCause::Queue, now);
    }

    /// The next slice, as the line is free. Its bytes are held until they are [`sent`](Self::sent).
    pub(super) fn take(&mut self, line: &mut Line) -> Option<Waiting> {
        let front = &self.fifo.front()?.packet;
        let most = if front.count == 1 { 1 } else { line.slice(self.tariff.one(front.wire)) };
        self.fifo.pop(most)
    }

    /// Puts back what was taken and will not be sent now.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.fifo.push_front(waiting);
    }

    /// The last bit of so many bytes, of so many packets, has been sent.
    pub(super) fn sent(&mut self, packets: u32, bytes: u64) {
        debug_assert!(bytes <= self.held.bytes && u64::from(packets) <= self.held.packets);
        self.held.bytes = self.held.bytes.saturating_sub(bytes);
        self.held.packets = self.held.packets.saturating_sub(u64::from(packets));
    }

    /// True if nothing waits; something may be on the line.
    pub(super) fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    pub(super) fn tariff(&self) -> Tariff {
        self.tariff
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.held.bytes)
    }

    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak)
    }

    fn take_in(&mut self, packet: Packet, now: Instant) {
        self.held = self.held.with(&packet, self.tariff);
        self.peak = self.peak.max(self.held.bytes);
        self.fifo.push(Waiting { packet, since: now });
    }
}

impl Held {
    fn with(self, packet: &Packet, tariff: Tariff) -> Held {
        Held { packets: self.packets + u64::from(packet.count), bytes: self.bytes + tariff.all(packet) }
    }
}
