//! Backlog of a queue, and whether packets fit under its limit.

use lfn_base::queue_limit::QueueLimit;

use crate::packet::Packet;
use crate::stages::line::FramingOverhead;

/// Packets that were admitted and not completely sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backlog {
    pub(super) packets: u64,
    /// Bytes with the overhead of the line.
    pub(super) bytes: u64,
}

impl Backlog {
    pub(super) fn with(mut self, packet: &Packet, overhead: FramingOverhead) -> Backlog {
        self.add(u64::from(packet.count), overhead.range_bytes(packet));
        self
    }

    pub(super) fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Reports whether packets of this size fit. An empty queue accepts one packet, however small the limit.
    pub(super) fn has_room(&self, packets: u64, bytes: u64, limit: QueueLimit) -> bool {
        if self.packets == 0 && packets == 1 {
            return true;
        }
        match limit {
            QueueLimit::Bytes(limit) => self.bytes.saturating_add(bytes) <= limit.0,
            QueueLimit::Packets(limit) => self.packets.saturating_add(packets) <= u64::from(limit),
        }
    }

    pub(super) fn is_within(&self, limit: QueueLimit) -> bool {
        match limit {
            QueueLimit::Bytes(limit) => self.bytes <= limit.0,
            QueueLimit::Packets(limit) => self.packets <= u64::from(limit),
        }
    }

    pub(super) fn remove(&mut self, packets: u64, bytes: u64) {
        debug_assert!(bytes <= self.bytes && packets <= self.packets);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.packets = self.packets.saturating_sub(packets);
    }
}
