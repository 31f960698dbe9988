//! Packets of a link, their outcomes, and the counts of both.

use std::ops::{Index, IndexMut};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_packet::{Changes, Ecn, Segments};
use serde::{Deserialize, Serialize};

/// Consecutive virtual packets of one super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Identifies the super-packet for the caller, who holds its bytes. The model does not use the id.
    pub id: u64,
    /// Index of the first virtual packet within the super-packet.
    pub first: u32,
    /// Number of virtual packets; at least 1.
    pub count: u32,
    /// Bytes on the wire of each virtual packet except the last of the super-packet.
    pub wire_len: u32,
    /// Bytes on the wire of the last virtual packet of this range.
    pub last_wire_len: u32,
    /// Bytes in front of the IP packet: the Ethernet header with its VLAN tags.
    pub link_header: u8,
    /// Hash of addresses, protocol and ports: equal for packets of one transport flow, and usually different for other
    /// flows. Fair queueing uses this hash.
    pub flow: u32,
    pub ecn: Ecn,
    /// Time that the first virtual packet has waited in queues so far, from its arrival to the start of its
    /// transmission. The others of the range waited longer by the transmission of the packets before them, which is
    /// less than a slice.
    pub queue_delay: Duration,
    /// Whether the packet has a payload that can be corrupted so that only the application can detect it.
    pub has_payload: bool,
    /// Changes that the caller must apply to the bytes.
    pub changes: Changes,
}

/// Outcome of a range of virtual packets. Every virtual packet that was pushed or duplicated appears in exactly one
/// `Forward` or `Drop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// The range leaves the link as one super-packet, which may be smaller than the original one.
    Forward {
        packet: Packet,
        /// Time at which the last bit of the last virtual packet reaches the far end. Links store and forward, so the
        /// time is never too early for any packet of the range. The lateness of a caller is its own clock minus this
        /// time.
        due: Instant,
    },
    Drop {
        packet: Packet,
        cause: DropCause,
        /// Model time of the drop.
        at: Instant,
        /// Maximum length of an IP packet that would have passed, if the link must report it to the sender (RFC 1191,
        /// RFC 8201).
        reply_mtu: Option<u16>,
    },
    /// The range exists twice from now on. The caller must keep its bytes until both copies have come out.
    Duplicate {
        /// Copy, as it will come out.
        packet: Packet,
        /// Model time of the duplication.
        at: Instant,
    },
}

/// Reason why the model dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// The packet exceeds the path MTU.
    TooBig,
    Outage,
    /// Random loss, or loss by a pattern.
    Loss,
    /// The packet exceeds the rate and burst of a policer.
    Policer,
    /// The queue of a shaper was full, or the packet exceeds its burst.
    Shaper,
    Queue,
    /// The queue was not full: its active queue management dropped the packet.
    Aqm,
}

/// Number of virtual packets, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCount {
    pub packets: u64,
    pub bytes: Bytes,
}

/// Statistics of a link since its creation. When the link is empty, `offered` + `duplicated` = `forwarded` + the sum of
/// `dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets that were pushed.
    pub offered: PacketCount,
    /// Copies that the link created.
    pub duplicated: PacketCount,
    /// Packets that [`Link::poll`](super::Link::poll) returned for forwarding.
    pub forwarded: PacketCount,
    pub dropped: DropCounts,
    /// Packets that were forwarded with a congestion mark that the link set.
    pub marked: PacketCount,
    /// Packets that were forwarded with a flipped bit.
    pub corrupted: PacketCount,
    /// Bytes in the queues of all hops at the last event, with the overhead of the layer of each hop.
    pub queued: Bytes,
    /// Maximum number of bytes in the queue of any hop.
    pub queue_peak: Bytes,
    /// Time during which the busiest line of any hop had something to send, up to the last event. The utilisation of
    /// the line is this time divided by the elapsed time. A line at rate zero with a packet on it counts as busy.
    pub busy: Duration,
}

/// Dropped packets by cause: `drops[DropCause::Loss]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([PacketCount; DropCause::ALL.len()]);

impl Packet {
    /// Returns all virtual packets of a frame as one packet of the link.
    pub fn from_segments(segments: &Segments, id: u64) -> Packet {
        let &Segments { count, wire_len: wire, last_wire_len: last_wire, link_header, flow, ecn, has_payload, .. } =
            segments;
        Packet { link_header, flow, ecn, has_payload, ..Packet::super_packet(id, count, wire, last_wire) }
    }

    /// Creates a packet of one virtual packet, `wire_len` bytes long on the wire. It has flow 0 and a payload, no VLAN
    /// tags, no ECN and no changes.
    pub fn single(id: u64, wire: u32) -> Packet {
        Packet::super_packet(id, 1, wire, wire)
    }

    /// Creates a super-packet of `count` virtual packets of `wire_len` bytes on the wire each; the last one has
    /// `last_wire_len` bytes.
    pub fn super_packet(id: u64, count: u32, wire: u32, last_wire: u32) -> Packet {
        Packet {
            id,
            first: 0,
            count,
            wire_len: wire,
            last_wire_len: last_wire,
            link_header: 14,
            flow: 0,
            ecn: Ecn::NotCapable,
            queue_delay: Duration::ZERO,
            has_payload: true,
            changes: Changes::default(),
        }
    }

    /// Returns the bytes on the wire of the whole range.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.wire_len) + u64::from(self.last_wire_len)
    }

    pub(super) fn first_wire_len(&self) -> u32 {
        if self.count == 1 { self.last_wire_len } else { self.wire_len }
    }

    /// Reports whether `next` is the continuation of the same super-packet with the same outcome so far.
    pub(super) fn is_followed_by(&self, next: &Packet) -> bool {
        // The last virtual packet of this range is not the last of the super-packet, so it is not shorter than the
        // others.
        self.id == next.id
            && self.first + self.count == next.first
            && *self == Packet { first: self.first, count: self.count, last_wire_len: self.last_wire_len, ..*next }
    }

    /// Appends `next`, which must follow this range.
    pub(super) fn append(&mut self, next: &Packet) {
        self.count += next.count;
        self.last_wire_len = next.last_wire_len;
    }

    /// Returns the part that begins `skip` virtual packets into this range and is `count` virtual packets long.
    pub(super) fn part(&self, skip: u32, count: u32) -> Packet {
        debug_assert!(count > 0 && skip + count <= self.count);
        let last_wire = if skip + count == self.count { self.last_wire_len } else { self.wire_len };
        Packet { first: self.first + skip, count, last_wire_len: last_wire, ..*self }
    }
}

impl LinkEvent {
    /// Returns the model time of the event.
    pub fn at(&self) -> Instant {
        match *self {
            LinkEvent::Forward { due, .. } => due,
            LinkEvent::Drop { at, .. } | LinkEvent::Duplicate { at, .. } => at,
        }
    }
}

impl DropCause {
    /// All causes, in the order in which a packet meets them.
    pub const ALL: [DropCause; 7] = [
        DropCause::TooBig,
        DropCause::Outage,
        DropCause::Loss,
        DropCause::Policer,
        DropCause::Shaper,
        DropCause::Queue,
        DropCause::Aqm,
    ];

    /// Returns the name for tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            DropCause::TooBig => "too big",
            DropCause::Outage => "outage",
            DropCause::Loss => "loss",
            DropCause::Policer => "policer",
            DropCause::Shaper => "shaper",
            DropCause::Queue => "queue",
            DropCause::Aqm => "aqm",
        }
    }
}

impl LinkStats {
    pub(super) fn count_forwarded(&mut self, packet: &Packet) {
        self.forwarded.add(packet);
        if packet.changes.is_marked {
            self.marked.add(packet);
        }
        if packet.changes.corruption.is_some() {
            self.corrupted.add(packet);
        }
    }
}

impl DropCounts {
    /// Returns the sum over all causes.
    pub fn total(&self) -> PacketCount {
        self.0.iter().fold(PacketCount::default(), |sum, count| PacketCount {
            packets: sum.packets + count.packets,
            bytes: Bytes(sum.bytes.0.saturating_add(count.bytes.0)),
        })
    }
}

impl Index<DropCause> for DropCounts {
    type Output = PacketCount;

    fn index(&self, cause: DropCause) -> &PacketCount {
        &self.0[cause as usize]
    }
}

impl IndexMut<DropCause> for DropCounts {
    fn index_mut(&mut self, cause: DropCause) -> &mut PacketCount {
        &mut self.0[cause as usize]
    }
}

impl PacketCount {
    pub(super) fn add(&mut self, packet: &Packet) {
        self.packets += u64::from(packet.count);
        self.bytes.0 = self.bytes.0.saturating_add(packet.bytes());
    }
}
