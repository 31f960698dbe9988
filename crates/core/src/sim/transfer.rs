//! A transfer of a fixed size over a modelled link by modelled senders: what `lfn emulate --dry-run` answers with.
//!
//! The streams share one store of segments and take from it as they may send, as `lfn copy` deals its blocks. It goes on
//! in steps that the caller counts, so that whoever has a clock can show progress, and a budget in steps is the same on
//! every machine. It predicts nothing; [`crate::tcp_model`] does, and the two are laid beside each other.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::network::{Endpoint, Network};
use super::tcp::{Ended, Receiver, Reply, Segment, Sender, SenderStats, Settings};
use crate::link::{Link, LinkConfig, LinkError, LinkStats, Packet};
use crate::path::PathProfile;
use crate::stats::steady_from;
use crate::tcp_model::{Flow, steady};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// What is moved, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Payload of all streams together.
    pub size: Bytes,
    /// Connections side by side.
    pub streams: u32,
    /// How each behaves.
    pub settings: Settings,
}

/// A transfer under way.
pub struct Transfer {
    network: Network<Sources, Sinks>,
    load: Load,
    steps: u64,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything arrived.
    Complete,
    /// A stream gave up.
    GaveUp(Ended),
    /// Not within ten years.
    TooLong,
}

/// What became of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How it ended; `None` while it is under way.
    pub outcome: Option<Outcome>,
    /// From the first SYN to the arrival of the last byte, or to now.
    pub time: Duration,
    /// Payload that arrived, each byte counted once.
    pub arrived: Bytes,
    /// Where start-up was over, as [`steady_from`] finds it in the rates of whole round trips, and the goodput from there
    /// to the end.
    pub steady: Option<(Duration, BitRate)>,
    /// What the senders did, together.
    pub senders: SenderStats,
    /// Segments that arrived more than once.
    pub duplicates: u64,
    /// The account of the link that the data took, and of that of the acknowledgements.
    pub links: [LinkStats; 2],
    /// How long the data waited in queues.
    pub waiting: Waiting,
    /// Instants at which something happened.
    pub steps: u64,
}

/// Time in the queues of all hops, of the segments that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Mean.
    pub mean: Duration,
    /// Half waited less.
    pub p50: Duration,
    /// 95 of 100 waited less.
    pub p95: Duration,
    /// 99 of 100 waited less.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// Why a transfer cannot be modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The link refuses its settings.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is nothing to move. Give a size.
    #[error("a transfer of 0 B takes no time")]
    Nothing,
    /// Every stream costs a little of each step.
    #[error("{streams} streams are not within 1 to {most}", most = MOST_STREAMS)]
    Streams {
        /// What was set.
        streams: u32,
    },
    /// The headers leave no room in the MTU.
    #[error("an MTU of {mtu} leaves no room for payload")]
    NoPayload {
        /// What was set.
        mtu: u32,
    },
}

/// More than a thousand connections are no transfer that one host makes.
pub const MOST_STREAMS: u32 = 1024;
const MOST_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Transfer {
    /// Nothing sent yet. The hops are those of [`Link::chain`]; their slices are widened to the grain.
    pub fn new(load: Load, rtt: Duration, forward: &[LinkConfig], back: &[LinkConfig]) -> Result<Self, TransferError> {
        let Load { size, streams, settings } = load;
        if size.0 == 0 {
            return Err(TransferError::Nothing);
        }
        if !(1..=MOST_STREAMS).contains(&streams) {
            return Err(TransferError::Streams { streams });
        }
        if settings.mss == 0 {
            return Err(TransferError::NoPayload { mtu: settings.headers });
        }
        let whole =
            |hops: &[LinkConfig]| Link::chain(&hops.iter().map(|hop| sliced(hop, &settings)).collect::<Vec<_>>());
        let near = Sources::new(&load);
        let far = Sinks::new(&load, rtt);
        Ok(Transfer { network: Network::new(near, far, whole(forward)?, whole(back)?), load, steps: 0 })
    }

    /// Goes on for `steps` instants at most; gives the outcome once there is one.
    pub fn advance(&mut self, steps: u64) -> Option<Outcome> {
        for _ in 0..steps {
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            if !self.network.step(Instant::ZERO + MOST_TIME) {
                return Some(self.outcome().unwrap_or(Outcome::TooLong));
            }
            self.steps += 1;
        }
        self.outcome()
    }

    /// How it stands.
    pub fn report(&self) -> Report {
        let sinks = &self.network.far;
        let end = sinks.complete.unwrap_or(self.network.now());
        let (forward, back) = self.network.links();
        Report {
            outcome: self.outcome(),
            time: end - Instant::ZERO,
            arrived: self.arrived(),
            steady: sinks.timeline.steady(end, self.load.settings.mss),
            senders: self.network.near.stats(),
            duplicates: sinks.receivers.iter().map(Receiver::again).sum(),
            links: [forward.stats(), back.stats()],
            waiting: sinks.waiting(),
            steps: self.steps,
        }
    }

    /// Payload that arrived so far.
    pub fn arrived(&self) -> Bytes {
        let sinks = &self.network.far;
        let bytes = sinks.arrived * u64::from(self.load.settings.mss);
        // The last segment may be shorter than the others.
        Bytes(if sinks.complete.is_some() { self.load.size.0 } else { bytes.min(self.load.size.0) })
    }

    /// What the sender of each stream did.
    pub fn streams(&self) -> impl Iterator<Item = (SenderStats, Bytes)> + '_ {
        let mss = u64::from(self.load.settings.mss);
        let arrived = move |receiver: &Receiver| Bytes(receiver.arrived() * mss);
        self.network.near.senders.iter().map(Sender::stats).zip(self.network.far.receivers.iter().map(arrived))
    }

    fn outcome(&self) -> Option<Outcome> {
        if self.network.far.complete.is_some() {
            return Some(Outcome::Complete);
        }
        self.network.near.ended.map(Outcome::GaveUp)
    }
}

/// A grain that keeps a transfer of this size at about a million ranges, but no coarser than 1/256 of what each stream
/// has in flight, so that what leaves a queue at once, or is held back until the last of a range has come, stays small
/// beside a round trip.
pub fn grain(path: &PathProfile, flow: &Flow, size: Bytes) -> u32 {
    const RANGES: u64 = 1_000_000;
    const OF_FLIGHT: u64 = 256;
    let mss = u64::from(path.mss().max(1));
    let in_flight = steady(path, flow).goodput.times(path.base_rtt).0 / mss / u64::from(flow.streams.max(1));
    let grain = (size.0 / mss / RANGES).min(in_flight / OF_FLIGHT).max(1);
    u32::try_from(grain).unwrap_or(u32::MAX)
}

/// The hop with slices long enough for a whole range, and told how long its packets are.
fn sliced(hop: &LinkConfig, settings: &Settings) -> LinkConfig {
    let packet = u64::from(settings.mss + settings.headers);
    let range = Bytes(packet * u64::from(settings.grain));
    let fastest = hop.rate.values().max().unwrap_or_default();
    let longest = fastest.time_for(range) + Duration::from_nanos(1);
    let slice = if settings.grain > 1 { longest.min(Duration::from_secs(1)) } else { hop.slice };
    LinkConfig { slice, largest_packet: Bytes(packet), ..hop.clone() }
}

/// The sending ends of all streams, and what they have to send.
struct Sources {
    senders: Vec<Sender>,
    /// Segments that no stream has taken.
    left: u64,
    /// Payload of the last of all.
    last: u32,
    /// Streams that may want to send.
    ready: VecDeque<u32>,
    /// When each wants to send though nothing comes.
    wakes: Vec<Option<Instant>>,
    ended: Option<Ended>,
}

impl Sources {
    fn new(load: &Load) -> Self {
        let mss = u64::from(load.settings.mss);
        let segments = load.size.0.div_ceil(mss);
        let last = load.size.0 - (segments - 1) * mss;
        Sources {
            senders: (0..load.streams).map(|stream| Sender::new(stream, load.settings)).collect(),
            left: segments,
            last: last as u32,
            ready: (0..load.streams).collect(),
            wakes: vec![None; load.streams as usize],
            ended: None,
        }
    }

    fn stats(&self) -> SenderStats {
        self.senders.iter().map(Sender::stats).reduce(SenderStats::and).unwrap_or_default()
    }
}

impl Endpoint for Sources {
    type Sends = Segment;
    type Receives = Reply;

    fn receive(&mut self, packet: &Packet, reply: &Reply, now: Instant) {
        if is_damaged(packet) {
            return;
        }
        if let Some(sender) = self.senders.get_mut(reply.stream as usize) {
            sender.receive(packet, reply, now);
            self.ready.push_back(reply.stream);
        }
    }

    fn send(&mut self, now: Instant) -> Option<(Packet, Segment)> {
        if self.ready.is_empty() {
            let due = |(stream, at): (u32, &Option<Instant>)| at.filter(|at| *at <= now).map(|_| stream);
            self.ready.extend((0..).zip(&self.wakes).filter_map(due));
        }
        while let Some(stream) = self.ready.pop_front() {
            let Some(sender) = self.senders.get_mut(stream as usize) else { continue };
            if let Some(sent) = sender.send(&mut self.left, self.last, now) {
                // Taking turns, as streams on one interface do.
                self.ready.push_back(stream);
                return Some(sent);
            }
            self.wakes[stream as usize] = sender.wake();
            self.ended = self.ended.or(sender.ended());
        }
        None
    }

    fn wake(&self) -> Option<Instant> {
        self.wakes.iter().flatten().min().copied()
    }
}

/// The receiving ends of all streams.
struct Sinks {
    receivers: Vec<Receiver>,
    ready: VecDeque<u32>,
    wakes: Vec<Option<Instant>>,
    /// Segments that arrived, of all there are.
    arrived: u64,
    expected: u64,
    complete: Option<Instant>,
    timeline: Timeline,
    /// Nanoseconds in queues; there is one whenever three digits are a precision.
    waited: Option<Histogram<u64>>,
}

impl Sinks {
    fn new(load: &Load, rtt: Duration) -> Self {
        Sinks {
            receivers: (0..load.streams).map(|stream| Receiver::new(stream, load.settings)).collect(),
            ready: VecDeque::new(),
            wakes: vec![None; load.streams as usize],
            arrived: 0,
            expected: load.size.0.div_ceil(u64::from(load.settings.mss)),
            complete: None,
            timeline: Timeline::new(rtt),
            waited: Histogram::new(3).ok(),
        }
    }

    fn waiting(&self) -> Waiting {
        let Some(waited) = self.waited.as_ref() else { return Waiting::default() };
        let at = |share| Duration::from_nanos(waited.value_at_quantile(share));
        Waiting {
            mean: Duration::from_nanos(waited.mean() as u64),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: Duration::from_nanos(waited.max()),
        }
    }
}

impl Endpoint for Sinks {
    type Sends = Reply;
    type Receives = Segment;

    fn receive(&mut self, packet: &Packet, segment: &Segment, now: Instant) {
        let Some(receiver) = self.receivers.get_mut(segment.stream as usize).filter(|_| !is_damaged(packet)) else {
            return;
        };
        let before = receiver.arrived();
        receiver.receive(packet, segment, now);
        let new = receiver.arrived() - before;
        self.ready.push_back(segment.stream);
        self.arrived += new;
        self.timeline.add(new, now);
        if let Some(waited) = &mut self.waited {
            // It grows with what is recorded, so nothing is too much for it.
            let _ = waited.record_n(packet.waited.as_nanos() as u64, u64::from(packet.count));
        }
        if self.arrived == self.expected && self.complete.is_none() {
            self.complete = Some(now);
        }
    }

    fn send(&mut self, now: Instant) -> Option<(Packet, Reply)> {
        if self.ready.is_empty() {
            let due = |(stream, at): (u32, &Option<Instant>)| at.filter(|at| *at <= now).map(|_| stream);
            self.ready.extend((0..).zip(&self.wakes).filter_map(due));
        }
        while let Some(&stream) = self.ready.front() {
            if let Some(receiver) = self.receivers.get_mut(stream as usize) {
                if let Some(sent) = receiver.send(now) {
                    return Some(sent);
                }
                self.wakes[stream as usize] = receiver.wake();
            }
            self.ready.pop_front();
        }
        None
    }

    fn wake(&self) -> Option<Instant> {
        self.wakes.iter().flatten().min().copied()
    }
}

/// Segments that arrived, interval by interval.
struct Timeline {
    width: Duration,
    counts: Vec<u64>,
}

impl Timeline {
    /// When there are so many intervals they are joined in pairs.
    const MOST: usize = 8192;

    fn new(rtt: Duration) -> Self {
        Timeline { width: rtt.max(Duration::from_micros(100)), counts: Vec::new() }
    }

    fn add(&mut self, count: u64, now: Instant) {
        let mut index = self.index(now);
        while index >= Self::MOST {
            self.counts = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width *= 2;
            index = self.index(now);
        }
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += count;
    }

    fn index(&self, now: Instant) -> usize {
        (u128::from(now.as_nanos()) / self.width.as_nanos()) as usize
    }

    /// When start-up was over, and the goodput from there to `end`.
    fn steady(&self, end: Instant, mss: u32) -> Option<(Duration, BitRate)> {
        // The last interval is not whole.
        let whole = &self.counts[..self.index(end).min(self.counts.len())];
        let rates: Vec<f64> = whole.iter().map(|count| *count as f64).collect();
        let first = steady_from(&rates)?;
        let began = self.width * first as u32;
        let segments: u64 = self.counts[first..].iter().sum();
        let bytes = Bytes(segments.saturating_mul(mss.into()));
        Some((began, bytes.per((end - Instant::ZERO).saturating_sub(began))))
    }
}

/// The checksum is wrong: neither end takes it.
fn is_damaged(packet: &Packet) -> bool {
    packet.changes.damage.is_some_and(|damage| !damage.hidden)
}
