//! First in, first out: ranges of virtual packets in the order in which they came, and how many of another fit.

use std::collections::VecDeque;

use super::{Held, QueueLimit, Tariff};
use crate::link::Packet;
use crate::time::Instant;

/// A FIFO of ranges.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<Waiting>);

/// A range that waits.
#[derive(Clone, Copy, Debug)]
pub(in crate::link::stages) struct Waiting {
    pub(in crate::link::stages) packet: Packet,
    /// When it came.
    pub(in crate::link::stages) since: Instant,
}

/// How a range was taken in: the first `head` virtual packets, and perhaps the last, which may be shorter and fit
/// where the ones before it did not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admission {
    /// Admitted from the start of the range, its last one not counted.
    pub(super) head: u32,
    /// Whether the last of the range was admitted.
    pub(super) last: bool,
}

impl Fifo {
    pub(super) fn push(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    /// As [`push`](Self::push), but what belongs together stays one range.
    pub(super) fn push_joined(&mut self, waiting: Waiting) {
        match self.0.back_mut() {
            Some(last) if last.since == waiting.since && last.packet.is_followed_by(&waiting.packet) => {
                last.packet.append(&waiting.packet);
            }
            _ => self.0.push_back(waiting),
        }
    }

    /// Back where it was taken from.
    pub(super) fn push_front(&mut self, waiting: Waiting) {
        self.0.push_front(waiting);
    }

    pub(super) fn front(&self) -> Option<&Waiting> {
        self.0.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first range, or if it is longer, the first `most` virtual packets of it.
    pub(super) fn pop(&mut self, most: u32) -> Option<Waiting> {
        let front = self.0.front_mut()?;
        if most >= front.packet.count {
            return self.0.pop_front();
        }
        let taken = Waiting { packet: front.packet.part(0, most), ..*front };
        front.packet.first += most;
        front.packet.count -= most;
        Some(taken)
    }

    /// All that waits, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.0.drain(..)
    }
}

/// What fits of `packet` beside what is held, as if its virtual packets came one after the other at the same instant.
/// An empty queue takes one, however small the limit.
pub(super) fn fit(packet: &Packet, held: &Held, limit: QueueLimit, tariff: Tariff) -> Admission {
    let body = packet.count - 1;
    match limit {
        QueueLimit::Bytes(limit) => {
            let room = limit.0.saturating_sub(held.bytes);
            let (each, last) = (tariff.one(packet.wire), tariff.one(packet.last_wire));
            let fitting = (room / each).max(u64::from(held.packets == 0));
            let head = u32::try_from(fitting).map_or(body, |fitting| fitting.min(body));
            let is_first = held.packets == 0 && head == 0;
            Admission { head, last: is_first || (u64::from(head) * each).saturating_add(last) <= room }
        }
        QueueLimit::Packets(limit) => {
            let room = u64::from(limit).saturating_sub(held.packets).max(u64::from(held.packets == 0));
            let head = u32::try_from(room).map_or(body, |room| room.min(body));
            Admission { head, last: u64::from(head) < room }
        }
    }
}
