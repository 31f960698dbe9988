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

mod config;
mod delay;
mod loss;
mod queue;
mod random;
mod rate;
pub mod segment;

use std::time::Duration;

pub use config::{Direction, LinkConfig, LinkError};
use delay::Delay;
use loss::Loss;
use random::generator;
use rate::Bottleneck;

use crate::time::Instant;
use crate::units::Bytes;

/// One direction of an emulated path: loss → queue → rate → delay.
///
/// ```
/// # use lfn_core::{link::{Event, Link, LinkConfig, Packet}, time::Instant, units::BitRate};
/// # use std::time::Duration;
/// let delay = Duration::from_millis(1);
/// let mut link = Link::new(&LinkConfig { rate: BitRate(12_000_000), delay, ..LinkConfig::default() })?;
/// let packet = Packet::single(7, 1500);
/// link.push(packet, Instant::ZERO);
/// // 12,000 bits at 12 Mb/s take 1 ms, the way another.
/// let due = Instant::from_nanos(2_000_000);
/// assert_eq!(link.next(), Some(due));
/// assert_eq!(link.poll(due), Some(Event::Forward { packet, due }));
/// # Ok::<(), lfn_core::link::LinkError>(())
/// ```
pub struct Link {
    stages: Vec<Box<dyn Stage + Send>>,
    /// No arrival may be earlier than the one before it.
    arrived: Instant,
    offered: Count,
    forwarded: Count,
    lost: Count,
    overflowed: Count,
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
}

/// What became of a range of virtual packets. Every virtual packet pushed comes out in exactly one event.
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
    },
}

/// Why the model dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// Random loss.
    Loss,
    /// The queue was full (drop-tail).
    Queue,
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

/// The account of a link since it was made. Once it is empty, `offered` = `forwarded` + `lost` + `overflowed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Pushed.
    pub offered: Count,
    /// Came out of [`Link::poll`] to be forwarded.
    pub forwarded: Count,
    /// Dropped by random loss.
    pub lost: Count,
    /// Dropped because the queue was full.
    pub overflowed: Count,
    /// In the queue, as of the last event.
    pub queued: Bytes,
    /// Most the queue ever held.
    pub queue_peak: Bytes,
}

impl Link {
    /// A link that is idle and empty; refuses what cannot be computed exactly or makes no sense.
    pub fn new(config: &LinkConfig) -> Result<Link, LinkError> {
        config.check()?;
        let mut stages: Vec<Box<dyn Stage + Send>> = Vec::new();
        if config.loss.get() > 0.0 {
            stages.push(Box::new(Loss::new(config.loss, generator(config.seed, config.direction, "loss"))));
        }
        stages.push(Box::new(Bottleneck::new(config.rate, config.queue, config.slice)));
        stages.push(Box::new(Delay::new(config.delay)));
        Ok(Link {
            stages,
            arrived: Instant::ZERO,
            offered: Count::default(),
            forwarded: Count::default(),
            lost: Count::default(),
            overflowed: Count::default(),
        })
    }

    /// Bytes of packets a caller must be able to hold: what the line carries in the delay, the queue, and the
    /// super-packets partly sent at either end. Small packets cost the caller more than their bytes: not counted.
    pub fn memory_needed(config: &LinkConfig) -> Bytes {
        const SUPER_PACKET: u64 = 65_536 + 64;
        let in_flight = config.rate.times(config.delay);
        Bytes(in_flight.0.saturating_add(config.queue.0).saturating_add(2 * SUPER_PACKET))
    }

    /// Takes a packet that arrived at `now`, which may lie before an earlier [`poll`](Link::poll) (stamp arrivals where
    /// they happen) but not before an earlier arrival: that is taken to have come together with it.
    pub fn push(&mut self, packet: Packet, now: Instant) {
        if packet.count == 0 {
            return;
        }
        self.arrived = self.arrived.max(now);
        self.offered.add(&packet);
        if let Some(stage) = self.stages.first_mut() {
            stage.push(packet, self.arrived);
        }
    }

    /// The next thing that has happened by `now`; call until `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Event> {
        let event = self.advance(now)?;
        match &event {
            Event::Forward { packet, .. } => self.forwarded.add(packet),
            Event::Drop { packet, cause: DropCause::Loss, .. } => self.lost.add(packet),
            Event::Drop { packet, cause: DropCause::Queue, .. } => self.overflowed.add(packet),
        }
        Some(event)
    }

    /// Earliest instant at which a packet can leave; `None` once the link is empty. Polling at that instant, until
    /// `None`, moves the link on. Drops are told at the latest then too, though they may have happened before: poll
    /// also after pushing to have their bytes back at once.
    pub fn next(&self) -> Option<Instant> {
        let mut least = Duration::ZERO;
        let mut earliest: Option<Instant> = None;
        for stage in self.stages.iter().rev() {
            // What happens inside is nobody's business until it can show at the far end: it costs a wake-up.
            if let Some(at) = stage.next().map(|at| at + least) {
                earliest = Some(earliest.map_or(at, |other| other.min(at)));
            }
            least += stage.least();
        }
        earliest
    }

    /// The account so far.
    pub fn stats(&self) -> LinkStats {
        let mut stats = LinkStats {
            offered: self.offered,
            forwarded: self.forwarded,
            lost: self.lost,
            overflowed: self.overflowed,
            ..LinkStats::default()
        };
        self.stages.iter().for_each(|stage| stage.report(&mut stats));
        stats
    }

    /// Moves packets down the chain, each at the model's time, until one leaves or is dropped.
    fn advance(&mut self, now: Instant) -> Option<Event> {
        for index in 1..self.stages.len() {
            let (before, after) = self.stages.split_at_mut(index);
            let (Some(from), Some(to)) = (before.last_mut(), after.first_mut()) else { break };
            while let Some(event) = from.pop(now) {
                match event {
                    Event::Forward { packet, due } => to.push(packet, due),
                    dropped => return Some(dropped),
                }
            }
        }
        self.stages.last_mut()?.pop(now)
    }
}

impl Packet {
    /// A packet that stands for itself, `wire` bytes long on the wire.
    pub fn single(id: u64, wire: u32) -> Packet {
        Packet { id, first: 0, count: 1, wire, last_wire: wire }
    }

    /// Bytes on the wire of the whole range.
    pub fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * u64::from(self.wire) + u64::from(self.last_wire)
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
            Event::Drop { at, .. } => at,
        }
    }
}

impl Count {
    fn add(&mut self, packet: &Packet) {
        self.packets += u64::from(packet.count);
        self.bytes.0 = self.bytes.0.saturating_add(packet.bytes());
    }
}
