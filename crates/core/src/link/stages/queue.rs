//! The drop-tail queue in front of a line, limited in bytes.
//!
//! It knows nothing of time: the line in `rate` tells it when bytes have left. What counts is every virtual packet
//! that was admitted and whose last bit has not been sent, the one being sent included: a store-and-forward device
//! holds those bytes too, and so the longest wait is the limit divided by the rate.

use std::collections::VecDeque;

use crate::link::Packet;
use crate::units::Bytes;

/// A FIFO that refuses what does not fit.
pub(super) struct DropTail {
    limit: u64,
    waiting: VecDeque<Packet>,
    bytes: u64,
    peak: u64,
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

impl DropTail {
    pub(super) fn new(limit: Bytes) -> Self {
        DropTail { limit: limit.0, waiting: VecDeque::new(), bytes: 0, peak: 0 }
    }

    /// What is in the queue stays, also if it is more.
    pub(super) fn set_limit(&mut self, limit: Bytes) {
        self.limit = limit.0;
    }

    /// Takes in what fits, as if the virtual packets came one after the other at the same instant.
    pub(super) fn admit(&mut self, packet: Packet) -> Admission {
        let admission = self.fit(&packet);
        match admission {
            Admission { head, last: true } if head + 1 == packet.count => self.take(packet),
            Admission { head, last } => {
                if head > 0 {
                    self.take(packet.part(0, head));
                }
                if last {
                    self.take(packet.part(packet.count - 1, 1));
                }
            }
        }
        admission
    }

    /// Up to `most(wire)` virtual packets from the front. Their bytes still count until they are [`sent`](Self::sent).
    pub(super) fn slice(&mut self, most: impl Fn(u32) -> u32) -> Option<Packet> {
        let front = self.waiting.front_mut()?;
        let count = if front.count == 1 { 1 } else { most(front.wire) };
        if count >= front.count {
            return self.waiting.pop_front();
        }
        let slice = front.part(0, count);
        *front = front.part(count, front.count - count);
        Some(slice)
    }

    /// The last bit of so many bytes has been sent.
    pub(super) fn sent(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak)
    }

    fn fit(&self, packet: &Packet) -> Admission {
        let body = packet.count - 1;
        let (wire, last_wire) = (u64::from(packet.wire), u64::from(packet.last_wire));
        let room = self.limit.saturating_sub(self.bytes);
        // An empty queue takes one, however small the limit.
        let at_least = u64::from(self.bytes == 0);
        let fitting = room.checked_div(wire).unwrap_or(u64::MAX).max(at_least);
        let head = u32::try_from(fitting).map_or(body, |fitting| fitting.min(body));
        let used = u64::from(head) * wire;
        let empty = self.bytes == 0 && head == 0;
        Admission { head, last: empty || used.saturating_add(last_wire) <= room }
    }

    fn take(&mut self, packet: Packet) {
        self.bytes += packet.bytes();
        self.peak = self.peak.max(self.bytes);
        self.waiting.push_back(packet);
    }
}
