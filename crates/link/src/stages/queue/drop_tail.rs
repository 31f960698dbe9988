//! First in, first out: ranges of virtual packets in order of arrival, and admission by the limit.

use std::collections::VecDeque;

use lfn_base::queue_limit::QueueLimit;
use lfn_base::time::Instant;

use super::FramingOverhead;
use super::backlog::Backlog;
use crate::packet::Packet;

/// FIFO queue of ranges.
#[derive(Debug, Default)]
pub(super) struct Fifo(VecDeque<QueuedRange>);

/// Waiting range of virtual packets.
#[derive(Clone, Copy, Debug)]
pub(in crate::stages) struct QueuedRange {
    pub(in crate::stages) packet: Packet,
    pub(in crate::stages) arrived_at: Instant,
}

/// Admitted part of a range: the first `head` virtual packets, and perhaps the last one, which may be shorter and fit
/// when the ones before it do not.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Admission {
    /// Number admitted from the start of the range, without the last one.
    pub(super) head: u32,
    pub(super) is_last_admitted: bool,
}

impl Fifo {
    pub(super) fn push(&mut self, waiting: QueuedRange) {
        self.0.push_back(waiting);
    }

    /// Appends a range like [`push`](Self::push), and merges it with the range ahead if they belong together.
    pub(super) fn push_merged(&mut self, waiting: QueuedRange) {
        match self.0.back_mut() {
            Some(last) if last.arrived_at == waiting.arrived_at && last.packet.is_followed_by(&waiting.packet) => {
                last.packet.append(&waiting.packet);
            }
            _ => self.0.push_back(waiting),
        }
    }

    /// Returns a range to the front.
    pub(super) fn push_front(&mut self, waiting: QueuedRange) {
        self.0.push_front(waiting);
    }

    pub(super) fn front(&self) -> Option<&QueuedRange> {
        self.0.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first range, or its first `max` virtual packets if it is longer.
    pub(super) fn pop(&mut self, max: u32) -> Option<QueuedRange> {
        let front = self.0.front_mut()?;
        if max >= front.packet.count {
            return self.0.pop_front();
        }
        let taken = QueuedRange { packet: front.packet.part(0, max), ..*front };
        front.packet.first += max;
        front.packet.count -= max;
        Some(taken)
    }

    /// Removes all ranges in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = QueuedRange> + '_ {
        self.0.drain(..)
    }
}

/// Computes the part of `packet` that fits into the queue when its virtual packets arrive one after the other at the
/// same instant. An empty queue accepts one packet, however small the limit.
pub(super) fn admit_at_most(
    packet: &Packet,
    backlog: &Backlog,
    limit: QueueLimit,
    overhead: FramingOverhead,
) -> Admission {
    let body = packet.count - 1;
    match limit {
        QueueLimit::Bytes(limit) => {
            let room = limit.0.saturating_sub(backlog.bytes);
            let (each, last) = (overhead.packet_bytes(packet.wire_len), overhead.packet_bytes(packet.last_wire_len));
            let fitting = (room / each).max(u64::from(backlog.packets == 0));
            let head = u32::try_from(fitting).map_or(body, |fitting| fitting.min(body));
            let is_first = backlog.packets == 0 && head == 0;
            Admission { head, is_last_admitted: is_first || (u64::from(head) * each).saturating_add(last) <= room }
        }
        QueueLimit::Packets(limit) => {
            let room = u64::from(limit).saturating_sub(backlog.packets).max(u64::from(backlog.packets == 0));
            let head = u32::try_from(room).map_or(body, |room| room.min(body));
            Admission { head, is_last_admitted: u64::from(head) < room }
        }
    }
}
