//! Emulated link: a chain of stages that packets pass through.
//!
//! The model receives descriptions of packets and the time. The caller keeps the bytes. A [`Packet`] represents `count`
//! virtual packets of one kernel super-packet (GSO). Every rule of the link (wire time, queue limit, each random draw)
//! counts virtual packets, so offloads do not change the behaviour of the link. The same chain carries real packets of
//! a kernel (`lfn-net`) and packets in virtual time (the `sim` module and the tests).
//!
//! Time inside the chain is the time of the model. A stage passes a packet on with the instant of that event, and the
//! next stage receives the packet at that instant, however late the caller polls. The behaviour of a link therefore
//! depends only on its configuration and on the arrivals. [`segment`] is the other half of the model: it reads a frame
//! and its virtual-net header into a `Packet`, and cuts a range of virtual packets out of the bytes of the frame.

mod config;
mod outbox;
pub mod profile;
mod random;
mod sampler;
pub mod segment;
mod setting;
pub mod settings;
mod stages;
mod timetable;
pub mod trace;
mod warning;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use config::{LinkConfig, LinkDirection, LinkError};
pub use setting::SettingError;
pub use settings::EmulatedPath;
pub(crate) use stages::parse_packets;
pub use stages::{
    CoDel, Discipline, DisciplineError, FqCoDel, Gilbert, JitterDistribution, LinkJitter, LossExtent, LossModel,
    Outage, Outages, PathMtu, Policer, QueueLimit, Red, Reorder, ScheduledLoss, Shaper,
};
use stages::{STAGES_PER_HOP, hop_stages};
pub use timetable::{Timetable, TimetableError};
pub use warning::LinkWarning;

use crate::time::Instant;
use crate::units::Bytes;

/// One direction of an emulated path: one hop, or several hops in series. In each hop a packet passes loss → queue →
/// rate → delay and jitter → reordering → duplication → corruption.
///
/// ```
/// # use lfn_core::{link::{Link, LinkConfig, LinkEvent, Packet}, time::Instant, units::BitRate};
/// # use std::time::Duration;
/// let delay = Duration::from_millis(1).into();
/// let mut link = Link::new(&LinkConfig { rate: BitRate(12_000_000).into(), delay, ..LinkConfig::default() })?;
/// let packet = Packet::single(7, 1500);
/// link.push(packet, Instant::ZERO);
/// // 12,000 bits at 12 Mb/s take 1 ms. The delay adds 1 ms.
/// let due = Instant::from_nanos(2_000_000);
/// assert_eq!(link.next_event_at(), Some(due));
/// assert_eq!(link.poll(due), Some(LinkEvent::Forward { packet, due }));
/// # Ok::<(), lfn_core::link::LinkError>(())
/// ```
pub struct Link {
    /// Stages of all hops, in the order in which a packet passes them. Every hop has the same stages.
    stages: Vec<Box<dyn Stage + Send>>,
    /// No arrival may be earlier than this one.
    last_arrival: Instant,
    /// Events that were not polled yet.
    pending: VecDeque<LinkEvent>,
    /// Counts at both ends of the link. Stages add the other figures.
    totals: LinkStats,
}

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

/// ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not-ECT, or not an IP packet: only a drop can signal congestion.
    #[default]
    NotCapable,
    /// The packet has ECT(0) or ECT(1).
    Capable,
    /// Congestion experienced (CE): already marked.
    Congested,
}

/// Changes that a link applies to packets that it forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Whether to set CE (congestion experienced) in the IP header of every virtual packet.
    pub is_marked: bool,
    /// Corruption to apply. A range with a corruption is one virtual packet.
    pub corruption: Option<Corruption>,
    /// Whether this packet is a second copy, announced by [`LinkEvent::Duplicate`].
    pub is_copy: bool,
}

/// Parameters of the corruption of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Corruption {
    /// Random number that selects the bit. The same number selects the same bit.
    pub random: u64,
    /// Whether the checksum is corrected afterwards, so that only the application can detect the corruption.
    pub is_hidden: bool,
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

/// One impairment. A stage receives packets in order of time and returns events in order of time.
pub trait Stage {
    /// Accepts a packet that arrives at `now`.
    ///
    /// `now` is never earlier than the previous arrival. It may be earlier than the last `pop`, because a caller that
    /// takes timestamps at the point of arrival reports an arrival a little later. The stage then handles the packet as
    /// of `now`, as far as it still can.
    fn push(&mut self, packet: Packet, now: Instant);

    /// Returns the next event that happened at or before `now`.
    fn pop(&mut self, now: Instant) -> Option<LinkEvent>;

    /// Returns the time of the next event if no packet is pushed; `None` if the stage is empty.
    fn next_event_at(&self) -> Option<Instant>;

    /// Returns the minimum time that a packet spends in this stage.
    fn min_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Applies new settings from `now` on. Packets that are already in the stage continue as far as possible.
    fn set(&mut self, config: &LinkConfig, now: Instant);

    /// Adds the figures that only this stage knows to the statistics of the link.
    fn add_stats(&self, _stats: &mut LinkStats) {}
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
    /// Packets that [`Link::poll`] returned for forwarding.
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

impl Link {
    /// Creates an idle, empty link with one hop. Refuses settings that contradict themselves or that the model cannot
    /// compute exactly.
    pub fn new(config: &LinkConfig) -> Result<Link, LinkError> {
        Link::chain(std::slice::from_ref(config))
    }

    /// Creates a link of hops in series, in the order in which packets pass them. Without hops, packets pass
    /// immediately.
    pub fn chain(hops: &[LinkConfig]) -> Result<Link, LinkError> {
        hops.iter().try_for_each(LinkConfig::check)?;
        Ok(Link {
            stages: hops.iter().flat_map(hop_stages).collect(),
            last_arrival: Instant::ZERO,
            pending: VecDeque::new(),
            totals: LinkStats::default(),
        })
    }

    /// Changes the settings of hop number `hop` (counted from 0) from `now` on, or from the last arrival if that is
    /// later. No packet in flight is lost.
    pub fn set(&mut self, hop: usize, config: &LinkConfig, now: Instant) -> Result<(), LinkError> {
        config.check()?;
        let now = now.max(self.last_arrival);
        // Without polls, packets that reached a later hop before now are still in the hop ahead of it.
        self.advance(now);
        self.stages.iter_mut().skip(hop * STAGES_PER_HOP).take(STAGES_PER_HOP).for_each(|stage| stage.set(config, now));
        Ok(())
    }

    /// Returns the bytes of packets that a caller must be able to hold: the bytes in flight during the delay at the
    /// maximum rate, the queues, and a partly sent super-packet at either end. The per-packet overhead of the caller is
    /// not counted, and it is larger for small packets.
    pub fn memory_needed(config: &LinkConfig) -> Bytes {
        const SUPER_PACKET: u64 = 65_536 + 64;
        let in_flight = config.max_rate().times(config.max_delay());
        let shaped = config.shaper.map_or(0, |shaper| shaper.limit.0);
        let queued = config.queue.max_bytes(config.largest_packet).0.saturating_add(shaped);
        Bytes(in_flight.0.saturating_add(queued).saturating_add(2 * SUPER_PACKET))
    }

    /// Accepts a packet that arrived at `now`. The time may be earlier than the last [`poll`](Link::poll), so take
    /// timestamps at the point of arrival. A time before the last arrival counts as the time of that arrival.
    pub fn push(&mut self, packet: Packet, now: Instant) {
        if packet.count == 0 {
            return;
        }
        self.last_arrival = self.last_arrival.max(now);
        self.totals.offered.add(&packet);
        match self.stages.first_mut() {
            Some(stage) => stage.push(packet, self.last_arrival),
            None => self.pending.push_back(LinkEvent::Forward { packet, due: self.last_arrival }),
        }
        // Idle stages pass packets on immediately, so `next_event_at` never returns an instant at which no packet
        // leaves.
        self.advance(self.last_arrival);
    }

    /// Returns the next event up to `now`, or up to the last arrival or change if that is later. Call until `None`.
    pub fn poll(&mut self, now: Instant) -> Option<LinkEvent> {
        self.advance(now);
        let event = self.pending.pop_front().or_else(|| self.stages.last_mut()?.pop(now))?;
        match &event {
            LinkEvent::Forward { packet, .. } => self.totals.count_forwarded(packet),
            LinkEvent::Drop { packet, cause, .. } => self.totals.dropped[*cause].add(packet),
            LinkEvent::Duplicate { packet, .. } => self.totals.duplicated.add(packet),
        }
        Some(event)
    }

    /// Returns the earliest instant at which a packet can leave, or at which an event happened that was not polled yet;
    /// `None` if the link is empty. Polling at that instant until `None` moves the link forward. A drop inside the link
    /// may be reported only when the next packet leaves.
    pub fn next_event_at(&self) -> Option<Instant> {
        let mut least = Duration::ZERO;
        let mut earliest = self.pending.front().map(LinkEvent::at);
        for stage in self.stages.iter().rev() {
            // An event inside the link matters only when it can show at the far end. Waking up earlier would cost CPU
            // time.
            if let Some(at) = stage.next_event_at().map(|at| at + least) {
                earliest = Some(earliest.map_or(at, |other| other.min(at)));
            }
            least += stage.min_delay();
        }
        earliest
    }

    /// Returns the minimum time that a packet spends in the link with its current settings.
    pub fn min_delay(&self) -> Duration {
        self.stages.iter().map(|stage| stage.min_delay()).sum()
    }

    /// Returns the statistics up to now.
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.totals;
        self.stages.iter().for_each(|stage| stage.add_stats(&mut stats));
        stats
    }

    /// Moves packets along the chain to the last stage, each at its model time.
    fn advance(&mut self, now: Instant) {
        for index in 1..self.stages.len() {
            let (before, after) = self.stages.split_at_mut(index);
            let (Some(from), Some(to)) = (before.last_mut(), after.first_mut()) else { break };
            while let Some(event) = from.pop(now) {
                match event {
                    LinkEvent::Forward { packet, due } => to.push(packet, due),
                    other => self.pending.push_back(other),
                }
            }
        }
    }
}

impl Packet {
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

    fn first_wire_len(&self) -> u32 {
        if self.count == 1 { self.last_wire_len } else { self.wire_len }
    }

    /// Reports whether `next` is the continuation of the same super-packet with the same outcome so far.
    fn is_followed_by(&self, next: &Packet) -> bool {
        // The last virtual packet of this range is not the last of the super-packet, so it is not shorter than the
        // others.
        self.id == next.id
            && self.first + self.count == next.first
            && *self == Packet { first: self.first, count: self.count, last_wire_len: self.last_wire_len, ..*next }
    }

    /// Appends `next`, which must follow this range.
    fn append(&mut self, next: &Packet) {
        self.count += next.count;
        self.last_wire_len = next.last_wire_len;
    }

    /// Returns the part that begins `skip` virtual packets into this range and is `count` virtual packets long.
    fn part(&self, skip: u32, count: u32) -> Packet {
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
    fn count_forwarded(&mut self, packet: &Packet) {
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
    fn add(&mut self, packet: &Packet) {
        self.packets += u64::from(packet.count);
        self.bytes.0 = self.bytes.0.saturating_add(packet.bytes());
    }
}
