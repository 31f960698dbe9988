//! Emulated link: a chain of stages that packets pass through.
//!
//! The model receives descriptions of packets and the time. The caller keeps the bytes. A [`Packet`] represents `count`
//! virtual packets of one kernel super-packet (GSO). Every rule of the link (wire time, queue limit, each random draw)
//! counts virtual packets, so offloads do not change the behaviour of the link. The same chain carries real packets of
//! a kernel (`lfn-emulate`) and packets in virtual time (`lfn-sim` and the tests). This crate is pure: `now` is an
//! argument.
//!
//! Time inside the chain is the time of the model. A stage passes a packet on with the instant of that event, and the
//! next stage receives the packet at that instant, however late the caller polls. The behaviour of a link therefore
//! depends only on its configuration and on the arrivals. [`lfn_packet`] is the other half of the model: it reads a
//! frame and its virtual-net header into [`Segments`](lfn_packet::Segments), and cuts a range of virtual packets out of
//! the bytes of the frame.

#![forbid(unsafe_code)]

mod config;
mod error;
mod hop_context;
mod key;
mod outbox;
mod packet;
pub mod profile;
mod random;
mod sampler;
mod setting;
pub mod settings;
mod stage;
mod stages;
mod timetable;
pub mod trace;
mod value;
mod warning;

use std::collections::VecDeque;
use std::time::Duration;

pub use error::LinkError;
pub use hop_context::LinkDirection;
pub use lfn_packet::{Changes, Corruption, Ecn};
pub use packet::{DropCause, DropCounts, LinkEvent, LinkStats, Packet, PacketCount};
pub use setting::SettingError;
pub use settings::EmulatedPath;
pub use stage::Stage;
pub use stages::{
    CoDel, Discipline, DisciplineError, FqCoDel, Gilbert, JitterDistribution, LinkConfig, LinkJitter, LossExtent,
    LossModel, Outage, Outages, PathMtu, Policer, QueueLimit, Red, Reorder, ScheduledLoss, Shaper,
};
use stages::{HopStage, hop_stages};
pub use timetable::{Timetable, TimetableError};
pub use warning::LinkWarning;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;

/// One direction of an emulated path: one hop, or several hops in series. In each hop a packet passes path MTU →
/// outages → loss → policer → shaper → queue and line → delay and jitter → reordering → duplication → corruption.
///
/// ```
/// # use lfn_base::{time::Instant, units::BitRate};
/// # use lfn_link::{Link, LinkConfig, LinkEvent, Packet};
/// # use std::time::Duration;
/// let delay = Duration::from_millis(1).into();
/// let mut link = Link::new(&LinkConfig { rate: BitRate(12_000_000).into(), delay, ..LinkConfig::default() })?;
/// let packet = Packet::single(7, 1500);
/// link.push(packet, Instant::ZERO);
/// // 12,000 bits at 12 Mb/s take 1 ms. The delay adds 1 ms.
/// let due = Instant::from_nanos(2_000_000);
/// assert_eq!(link.next_event_at(), Some(due));
/// assert_eq!(link.poll(due), Some(LinkEvent::Forward { packet, due }));
/// # Ok::<(), lfn_link::LinkError>(())
/// ```
pub struct Link {
    /// Stages of all hops, in the order in which a packet passes them. Every hop has the same stages.
    stages: Vec<Box<dyn HopStage>>,
    stages_per_hop: usize,
    /// No arrival may be earlier than this one.
    last_arrival: Instant,
    /// Events that were not polled yet.
    pending: VecDeque<LinkEvent>,
    /// Counts at both ends of the link. Stages add the other figures.
    totals: LinkStats,
}

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
        let stages: Vec<_> = hops.iter().flat_map(hop_stages).collect();
        Ok(Link {
            stages_per_hop: (stages.len() / hops.len().max(1)).max(1),
            stages,
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
        let changed = self.stages.chunks_mut(self.stages_per_hop).nth(hop);
        changed.into_iter().flatten().for_each(|stage| stage.set(config, now));
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
