//! The emulated link: stages a packet passes through, and a chain of them.
//!
//! The model is handed descriptions of packets and the time; bytes stay with whoever holds them. A [`Packet`] stands
//! for `count` virtual packets of one kernel super-packet (GSO), and every rule of the link — wire time, queue limit,
//! each random draw — counts virtual packets, so that offloads do not change what the link does. The same chain runs
//! under a real kernel's packets (`lfn-net`) and in virtual time (the `sim` module and the tests).
//!
//! Time inside the chain is the model's, not the caller's: a stage hands a packet on with the instant at which that
//! happened, and the next stage takes it up at that instant, however late the caller polls. What a link does is
//! therefore a function of its configuration and the arrivals alone. [`segment`] is the other half: it reads a frame
//! and its virtual-net header into a `Packet`, and cuts a range of virtual packets out of the frame's bytes.

mod chance;
mod config;
mod doubt;
mod outbox;
pub mod profile;
mod random;
pub mod segment;
mod setting;
pub mod settings;
mod stages;
pub mod trace;
mod varying;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use config::{Direction, LinkConfig, LinkError};
pub use doubt::LinkDoubt;
pub use setting::SettingError;
pub use settings::EmulatedPath;
pub(crate) use stages::packets;
pub use stages::{
    CoDel, Discipline, DisciplineError, Distribution, FqCoDel, Gilbert, Jitter, LossModel, Lost, Outage, Outages,
    PathMtu, Policer, QueueLimit, Red, Reorder, Scheduled, Shaper,
};
use stages::{STAGES, stages};
pub use varying::{Varying, VaryingError};

use crate::time::Instant;
use crate::units::Bytes;

/// One direction of an emulated path: one hop, or several in a row, each loss → queue → rate → delay and jitter →
/// reordering → duplication → corruption.
///
/// ```
/// # use lfn_core::{link::{Event, Link, LinkConfig, Packet}, time::Instant, units::BitRate};
/// # use std::time::Duration;
/// let delay = Duration::from_millis(1).into();
/// let mut link = Link::new(&LinkConfig { rate: BitRate(12_000_000).into(), delay, ..LinkConfig::default() })?;
/// let packet = Packet::single(7, 1500);
/// link.push(packet, Instant::ZERO);
/// // 12,000 bits at 12 Mb/s take 1 ms, the way another.
/// let due = Instant::from_nanos(2_000_000);
/// assert_eq!(link.next(), Some(due));
/// assert_eq!(link.poll(due), Some(Event::Forward { packet, due }));
/// # Ok::<(), lfn_core::link::LinkError>(())
/// ```
pub struct Link {
    /// Of all hops, in the order in which a packet meets them; every hop has the same.
    stages: Vec<Box<dyn Stage + Send>>,
    /// No arrival may be earlier than the one before it.
    arrived: Instant,
    /// What happened on the way and was not yet polled.
    told: VecDeque<Event>,
    /// What passed the ends; stages add the rest.
    passed: LinkStats,
}

/// Consecutive virtual packets of one super-packet, as the model sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Names the super-packet to whoever holds its bytes; the model only hands it back.
    pub id: u64,
    /// Index of the first virtual packet, within the super-packet.
    pub first: u32,
    /// How many virtual packets; never zero.
    pub count: u32,
    /// Bytes on the wire of each virtual packet but the last of the super-packet.
    pub wire: u32,
    /// Bytes on the wire of the last virtual packet of this range.
    pub last_wire: u32,
    /// How many of these bytes are in front of the IP packet: the Ethernet header, with its VLAN tags.
    pub link_header: u8,
    /// The same for packets of one transport flow, and most often not for others: a hash of addresses, protocol and
    /// ports. Fair queueing goes by it.
    pub flow: u32,
    /// Whether it may be marked instead of dropped (RFC 3168).
    pub ecn: Ecn,
    /// How long its first virtual packet has waited in queues so far, from the arrival to the start of its sending. The
    /// others of the range waited longer by the sending of those before them: less than a slice.
    pub waited: Duration,
    /// Whether it has payload that can be damaged so that only the application can tell.
    pub has_payload: bool,
    /// What the link has done to it, for whoever holds the bytes to do.
    pub changes: Changes,
}

/// The ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// Not-ECT, or no IP at all: congestion can only be told by a drop.
    #[default]
    NotCapable,
    /// ECT(0) or ECT(1).
    Capable,
    /// CE: marked already.
    Congested,
}

/// What a link does to packets that it forwards all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Changes {
    /// Congestion experienced is to be set in the IP header of every virtual packet.
    pub congestion: bool,
    /// Bits are to be flipped. Such a range is one virtual packet.
    pub damage: Option<Damage>,
    /// This is not the packet that came but a second one just like it, announced by [`Event::Duplicate`].
    pub is_copy: bool,
}

/// How a packet is to be corrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Damage {
    /// Decides which bit, the same for the same draw.
    pub draw: u64,
    /// True if the checksum is made right again afterwards, so that only the application can tell.
    pub hidden: bool,
}

/// What became of a range of virtual packets. Every virtual packet pushed, and every one duplicated, comes out in exactly
/// one `Forward` or `Drop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The range leaves the link, as one (smaller) super-packet.
    Forward {
        /// What leaves.
        packet: Packet,
        /// When the last bit of the last virtual packet reaches the far end (store and forward, so a range of several
        /// is never early for any of them). The lateness of a caller is its own clock minus this.
        due: Instant,
    },
    /// The range is gone.
    Drop {
        /// What is gone.
        packet: Packet,
        /// Which stage dropped it.
        cause: DropCause,
        /// When it happened, in the time of the model.
        at: Instant,
        /// The longest IP packet that would have passed, if the sender is to be told so (RFC 1191, RFC 8201).
        reply_mtu: Option<u16>,
    },
    /// The range exists once more from now on: its bytes are to be kept until both have come out.
    Duplicate {
        /// The copy, as it will come out.
        packet: Packet,
        /// When it happened, in the time of the model.
        at: Instant,
    },
}

/// Why the model dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// Longer than the path MTU.
    TooBig,
    /// The link was down.
    Outage,
    /// Random loss, or loss by a pattern.
    Loss,
    /// Above the rate and burst of a policer.
    Policer,
    /// No room in the queue of a shaper, or longer than its burst.
    Shaper,
    /// The queue was full.
    Queue,
    /// The queue was not full, but its discipline dropped for being long (active queue management).
    Aqm,
}

/// One impairment. A stage is fed in order of time and gives events in order of time.
pub trait Stage {
    /// Takes a packet that arrives at `now`.
    ///
    /// Never before the previous packet's arrival. It may lie before an earlier `pop`: a caller that stamps arrivals
    /// where they happened learns of them a little after; the stage then acts as of `now`, as far as it still can.
    fn push(&mut self, packet: Packet, now: Instant);

    /// The next event that happened at or before `now`.
    fn pop(&mut self, now: Instant) -> Option<Event>;

    /// When the next event happens if nothing is pushed; `None` if the stage is empty.
    fn next(&self) -> Option<Instant>;

    /// The least time any packet spends here.
    fn least(&self) -> Duration {
        Duration::ZERO
    }

    /// Takes up other settings from `now` on. What is inside already goes on as far as it can.
    fn set(&mut self, config: &LinkConfig, now: Instant);

    /// Adds what only this stage knows to the account of the link.
    fn report(&self, _stats: &mut LinkStats) {}
}

/// Virtual packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Virtual packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: Bytes,
}

/// The account of a link since it was made. Once it is empty, `offered` + `duplicated` = `forwarded` + all of `dropped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Pushed.
    pub offered: Count,
    /// Made by the link.
    pub duplicated: Count,
    /// Came out of [`Link::poll`] to be forwarded.
    pub forwarded: Count,
    /// Dropped, by cause.
    pub dropped: Drops,
    /// Forwarded with a mark of congestion that they did not bring.
    pub marked: Count,
    /// Forwarded with bits flipped.
    pub damaged: Count,
    /// In the queues of all hops, as of the last event, counted as their lines count.
    pub queued: Bytes,
    /// Most that the queue of any hop ever held.
    pub queue_peak: Bytes,
    /// How long the busiest line of any hop had something to send, as of the last event: its utilisation is this over
    /// the time that passed. Standing still with a packet on the line is busy too.
    pub busy: Duration,
}

/// What was dropped, by cause: `drops[DropCause::Loss]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([Count; DropCause::ALL.len()]);

impl Link {
    /// A link of one hop that is idle and empty; refuses what cannot be computed exactly or makes no sense.
    pub fn new(config: &LinkConfig) -> Result<Link, LinkError> {
        Link::chain(std::slice::from_ref(config))
    }

    /// Hops in a row, in the order in which packets meet them. Without any, packets pass at once.
    pub fn chain(hops: &[LinkConfig]) -> Result<Link, LinkError> {
        hops.iter().try_for_each(LinkConfig::check)?;
        Ok(Link {
            stages: hops.iter().flat_map(stages).collect(),
            arrived: Instant::ZERO,
            told: VecDeque::new(),
            passed: LinkStats::default(),
        })
    }

    /// Changes the settings of hop number `hop`, counted from 0, from `now` on, or from the last arrival on if that was
    /// later. Nothing in flight is lost by it.
    pub fn set(&mut self, hop: usize, config: &LinkConfig, now: Instant) -> Result<(), LinkError> {
        config.check()?;
        let now = now.max(self.arrived);
        // What reached a later hop before now was never told to it if nobody polled.
        self.advance(now);
        self.stages.iter_mut().skip(hop * STAGES).take(STAGES).for_each(|stage| stage.set(config, now));
        Ok(())
    }

    /// Bytes of packets a caller must be able to hold: what the line carries in the delay at its highest rate, the queues,
    /// and the super-packets partly sent at either end. Small packets cost the caller more than their bytes: not
    /// counted.
    pub fn memory_needed(config: &LinkConfig) -> Bytes {
        const SUPER_PACKET: u64 = 65_536 + 64;
        let in_flight = config.highest_rate().times(config.longest_delay());
        let shaped = config.shaper.map_or(0, |shaper| shaper.limit.0);
        let queued = config.queue.most_bytes(config.largest_packet).0.saturating_add(shaped);
        Bytes(in_flight.0.saturating_add(queued).saturating_add(2 * SUPER_PACKET))
    }

    /// Takes a packet that arrived at `now`, which may lie before an earlier [`poll`](Link::poll) (stamp arrivals where
    /// they happen) but not before an earlier arrival: that is taken to have come together with it.
    pub fn push(&mut self, packet: Packet, now: Instant) {
        if packet.count == 0 {
            return;
        }
        self.arrived = self.arrived.max(now);
        self.passed.offered.add(&packet);
        match self.stages.first_mut() {
            Some(stage) => stage.push(packet, self.arrived),
            None => self.told.push_back(Event::Forward { packet, due: self.arrived }),
        }
        // Idle stages hand on at once, so that none of them makes `next` name an instant at which nothing leaves.
        self.advance(self.arrived);
    }

    /// The next thing that has happened by `now`, or by the last arrival or change if that was later; call until `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Event> {
        self.advance(now);
        let event = self.told.pop_front().or_else(|| self.stages.last_mut()?.pop(now))?;
        match &event {
            Event::Forward { packet, .. } => self.passed.forward(packet),
            Event::Drop { packet, cause, .. } => self.passed.dropped[*cause].add(packet),
            Event::Duplicate { packet, .. } => self.passed.duplicated.add(packet),
        }
        Some(event)
    }

    /// Earliest instant at which a packet can leave, or at which something happened that was not polled yet; `None` once
    /// the link is empty. Polling at that instant, until `None`, moves the link on. A drop deep inside may be told only
    /// when the next packet leaves.
    pub fn next(&self) -> Option<Instant> {
        let mut least = Duration::ZERO;
        let mut earliest = self.told.front().map(Event::at);
        for stage in self.stages.iter().rev() {
            // What happens inside is nobody's business until it can show at the far end: it costs a wake-up.
            if let Some(at) = stage.next().map(|at| at + least) {
                earliest = Some(earliest.map_or(at, |other| other.min(at)));
            }
            least += stage.least();
        }
        earliest
    }

    /// The least time that any packet spends in the link, as it is set now.
    pub fn least(&self) -> Duration {
        self.stages.iter().map(|stage| stage.least()).sum()
    }

    /// The account so far.
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.passed;
        self.stages.iter().for_each(|stage| stage.report(&mut stats));
        stats
    }

    /// Moves packets down the chain, each at the model's time, to the last stage.
    fn advance(&mut self, now: Instant) {
        for index in 1..self.stages.len() {
            let (before, after) = self.stages.split_at_mut(index);
            let (Some(from), Some(to)) = (before.last_mut(), after.first_mut()) else { break };
            while let Some(event) = from.pop(now) {
                match event {
                    Event::Forward { packet, due } => to.push(packet, due),
                    other => self.told.push_back(other),
                }
            }
        }
    }
}

impl Packet {
    /// A packet that stands for itself, `wire` bytes long on the wire; of flow 0, without
    /// VLAN tags, not ECN-capable, with payload, unchanged.
    pub fn single(id: u64, wire: u32) -> Packet {
        Packet::several(id, 1, wire, wire)
    }

    /// A super-packet of `count` virtual packets, `wire` bytes long on the wire each, the last `last_wire`.
    pub fn several(id: u64, count: u32, wire: u32, last_wire: u32) -> Packet {
        Packet {
            id,
            first: 0,
            count,
            wire,
            last_wire,
            link_header: 14,
            flow: 0,
            ecn: Ecn::NotCapable,
            waited: Duration::ZERO,
            has_payload: true,
            changes: Changes::default(),
        }
    }

    /// Bytes on the wire of the whole range.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.wire) + u64::from(self.last_wire)
    }

    /// Bytes on the wire of the first virtual packet of this range.
    fn first_wire(&self) -> u32 {
        if self.count == 1 { self.last_wire } else { self.wire }
    }

    /// True if `next` is the rest of the same super-packet, and has fared alike.
    fn is_followed_by(&self, next: &Packet) -> bool {
        // Its own last is none of the super-packet's, so not a shorter one.
        self.id == next.id
            && self.first + self.count == next.first
            && *self == Packet { first: self.first, count: self.count, last_wire: self.last_wire, ..*next }
    }

    /// Both as one range, if `next` follows.
    fn append(&mut self, next: &Packet) {
        self.count += next.count;
        self.last_wire = next.last_wire;
    }

    /// The part that begins `skip` virtual packets into this range and is `count` long.
    fn part(&self, skip: u32, count: u32) -> Packet {
        debug_assert!(count > 0 && skip + count <= self.count);
        let last_wire = if skip + count == self.count { self.last_wire } else { self.wire };
        Packet { first: self.first + skip, count, last_wire, ..*self }
    }
}

impl Event {
    /// When it happened, in the time of the model.
    pub fn at(&self) -> Instant {
        match *self {
            Event::Forward { due, .. } => due,
            Event::Drop { at, .. } | Event::Duplicate { at, .. } => at,
        }
    }
}

impl DropCause {
    /// Every cause, in the order in which a packet meets them.
    pub const ALL: [DropCause; 7] = [
        DropCause::TooBig,
        DropCause::Outage,
        DropCause::Loss,
        DropCause::Policer,
        DropCause::Shaper,
        DropCause::Queue,
        DropCause::Aqm,
    ];

    /// A word for tables and logs.
    pub fn word(self) -> &'static str {
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
    fn forward(&mut self, packet: &Packet) {
        self.forwarded.add(packet);
        if packet.changes.congestion {
            self.marked.add(packet);
        }
        if packet.changes.damage.is_some() {
            self.damaged.add(packet);
        }
    }
}

impl Drops {
    /// All causes together.
    pub fn total(&self) -> Count {
        self.0.iter().fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: Bytes(sum.bytes.0.saturating_add(count.bytes.0)),
        })
    }
}

impl Index<DropCause> for Drops {
    type Output = Count;

    fn index(&self, cause: DropCause) -> &Count {
        &self.0[cause as usize]
    }
}

impl IndexMut<DropCause> for Drops {
    fn index_mut(&mut self, cause: DropCause) -> &mut Count {
        &mut self.0[cause as usize]
    }
}

impl Count {
    fn add(&mut self, packet: &Packet) {
        self.packets += u64::from(packet.count);
        self.bytes.0 = self.bytes.0.saturating_add(packet.bytes());
    }
}
