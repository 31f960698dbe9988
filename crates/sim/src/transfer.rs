//! A transfer of a fixed size over a modelled link with modelled senders, for `lfn emulate --dry-run`.
//!
//! The streams share one store of segments and take from it when they may send, as the streams of `lfn copy` share
//! blocks. The caller advances the transfer in counted steps. So a caller with a clock can show progress, and a budget
//! in steps is the same on every machine. This module predicts nothing; [`lfn_base::tcp_model`] predicts, and both results
//! are compared.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_base::path::PathProfile;
use lfn_base::stats::find_steady_start;
use lfn_base::tcp_model::{FlowParameters, predict_steady};
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{Link, LinkConfig, LinkError, LinkStats, Packet};

use super::capture::{Capture, CapturedSegment, TransferEnd};
use super::network::{SimEndpoint, SimNetwork};
use super::tcp::{Reply, Segment, SendFailure, SenderStats, TcpReceiver, TcpSender, TcpSettings};

/// Size, streams and settings of a transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferLoad {
    /// Payload of all streams together.
    pub size: Bytes,
    pub streams: u32,
    /// Settings of each connection.
    pub settings: TcpSettings,
}

/// A transfer that is running.
pub struct Transfer {
    network: SimNetwork<SendingHost, ReceivingHost>,
    load: TransferLoad,
    steps: u64,
}

/// Result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferOutcome {
    Complete,
    GaveUp(SendFailure),
    /// The transfer takes more than ten years.
    TooLong,
}

/// Figures of a transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferReport {
    /// Result; `None` while the transfer runs.
    pub outcome: Option<TransferOutcome>,
    /// From the first SYN to the arrival of the last byte, or until now.
    pub time: Duration,
    /// Payload that arrived, each byte counted once.
    pub arrived: Bytes,
    /// End of start-up, as [`find_steady_start`] finds it in the rates of whole round trips, and the goodput from there
    /// to the end.
    pub steady: Option<(Duration, BitRate)>,
    /// Statistics of all senders together.
    pub senders: SenderStats,
    /// Segments that arrived more than once.
    pub duplicates: u64,
    /// Statistics of the link for the data and of the link for the acknowledgements.
    pub links: [LinkStats; 2],
    /// Time that the data waited in queues.
    pub waiting: QueueingTime,
    /// Simulated instants with an event.
    pub steps: u64,
}

/// Time in the queues of all hops, for the segments that arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueingTime {
    pub mean: Duration,
    pub p50: Duration,
    /// 95 % waited less.
    pub p95: Duration,
    /// 99 % waited less.
    pub p99: Duration,
    pub max: Duration,
}

/// Error: the transfer cannot be modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The link rejects its settings.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// There is nothing to move. Remedy: a size above 0.
    #[error("the size of the transfer is 0 B: it must be above 0")]
    Nothing,
    /// Every stream adds to the cost of each step.
    #[error("{streams} streams requested, but they must be from 1 to {max}", max = MAX_STREAMS)]
    Streams { streams: u32 },
    /// The headers leave no room in the MTU.
    #[error("an MTU of {mtu} leaves no room for payload")]
    NoPayload {
        /// Requested MTU in bytes.
        mtu: u32,
    },
}

/// Maximum number of connections that one host realistically opens for a transfer.
pub const MAX_STREAMS: u32 = 1024;
const MAX_TIME: Duration = Duration::from_secs(10 * 365 * 86_400);

impl Transfer {
    /// Creates a transfer with nothing sent. The hops are those of [`Link::chain`]; their slices are widened to whole
    /// ranges.
    pub fn new(
        load: TransferLoad,
        rtt: Duration,
        forward: &[LinkConfig],
        back: &[LinkConfig],
    ) -> Result<Self, TransferError> {
        let TransferLoad { size, streams, settings } = load;
        if size.0 == 0 {
            return Err(TransferError::Nothing);
        }
        if !(1..=MAX_STREAMS).contains(&streams) {
            return Err(TransferError::Streams { streams });
        }
        if settings.mss == 0 {
            return Err(TransferError::NoPayload { mtu: settings.headers });
        }
        let chain =
            |hops: &[LinkConfig]| Link::chain(&hops.iter().map(|hop| with_slices(hop, &settings)).collect::<Vec<_>>());
        let near = SendingHost::new(&load);
        let far = ReceivingHost::new(&load, rtt);
        Ok(Transfer { network: SimNetwork::new(near, far, chain(forward)?, chain(back)?), load, steps: 0 })
    }

    /// Advances by at most `steps` instants; returns the result once there is one.
    pub fn advance(&mut self, steps: u64) -> Option<TransferOutcome> {
        for _ in 0..steps {
            if let Some(outcome) = self.outcome() {
                return Some(outcome);
            }
            if !self.network.step(Instant::ZERO + MAX_TIME) {
                return Some(self.outcome().unwrap_or(TransferOutcome::TooLong));
            }
            self.steps += 1;
        }
        self.outcome()
    }

    /// Captures the packets at one end from now on. A second call replaces the first.
    pub fn capture_at(&mut self, end: TransferEnd) {
        let capture = Capture::new(self.load.settings, self.load.streams);
        (self.network.near.capture, self.network.far.capture) = (None, None);
        match end {
            TransferEnd::Sender => self.network.near.capture = Some(capture),
            TransferEnd::Receiver => self.network.far.capture = Some(capture),
        }
    }

    /// Returns the segments that were captured since the last call, in order of time. Segments pile up until they are
    /// taken.
    pub fn take_captured(&mut self) -> Vec<CapturedSegment> {
        let capture = self.network.near.capture.as_mut().or(self.network.far.capture.as_mut());
        capture.map(Capture::take).unwrap_or_default()
    }

    /// Returns the figures so far.
    pub fn report(&self) -> TransferReport {
        let sinks = &self.network.far;
        let end = sinks.complete.unwrap_or(self.network.now());
        let (forward, back) = self.network.links();
        TransferReport {
            outcome: self.outcome(),
            time: end - Instant::ZERO,
            arrived: self.arrived(),
            steady: sinks.timeline.steady(end, self.load.settings.mss),
            senders: self.network.near.stats(),
            duplicates: sinks.receivers.iter().map(TcpReceiver::duplicates).sum(),
            links: [forward.stats(), back.stats()],
            waiting: sinks.waiting(),
            steps: self.steps,
        }
    }

    /// Returns the payload to transfer.
    pub fn size(&self) -> Bytes {
        self.load.size
    }

    /// Returns the payload that arrived so far.
    pub fn arrived(&self) -> Bytes {
        let sinks = &self.network.far;
        let bytes = sinks.arrived * u64::from(self.load.settings.mss);
        // The last segment may be shorter than the others.
        Bytes(if sinks.complete.is_some() { self.load.size.0 } else { bytes.min(self.load.size.0) })
    }

    /// Returns the statistics of each stream's sender, and its arrived bytes.
    pub fn streams(&self) -> impl Iterator<Item = (SenderStats, Bytes)> + '_ {
        let mss = u64::from(self.load.settings.mss);
        let arrived = move |receiver: &TcpReceiver| Bytes(receiver.arrived() * mss);
        self.network.near.senders.iter().map(TcpSender::stats).zip(self.network.far.receivers.iter().map(arrived))
    }

    fn outcome(&self) -> Option<TransferOutcome> {
        if self.network.far.complete.is_some() {
            return Some(TransferOutcome::Complete);
        }
        self.network.near.ended.map(TransferOutcome::GaveUp)
    }
}

/// Chooses the segments per range so that a transfer of this size has about a million ranges. A range is at most 1/256
/// of each stream's segments in flight. So a range, which leaves a queue at once and waits for its last segment, stays
/// short compared with a round trip.
pub fn choose_range_segments(path: &PathProfile, flow: &FlowParameters, size: Bytes) -> u32 {
    const RANGES: u64 = 1_000_000;
    const OF_FLIGHT: u64 = 256;
    let mss = u64::from(path.mss().max(1));
    let in_flight = predict_steady(path, flow).goodput.times(path.base_rtt).0 / mss / u64::from(flow.streams.max(1));
    let grain = (size.0 / mss / RANGES).min(in_flight / OF_FLIGHT).max(1);
    u32::try_from(grain).unwrap_or(u32::MAX)
}

/// Returns the hop with slices long enough for a whole range, and with the length of its packets.
fn with_slices(hop: &LinkConfig, settings: &TcpSettings) -> LinkConfig {
    let packet = u64::from(settings.mss + settings.headers);
    let range = Bytes(packet * u64::from(settings.range_segments));
    let fastest = hop.rate.values().max().unwrap_or_default();
    let longest = fastest.time_for(range) + Duration::from_nanos(1);
    let slice = if settings.range_segments > 1 { longest.min(Duration::from_secs(1)) } else { hop.slice };
    LinkConfig { slice, largest_packet: Bytes(packet), ..hop.clone() }
}

/// The sending ends of all streams, and the segments left to send.
struct SendingHost {
    senders: Vec<TcpSender>,
    /// Segments that no stream has taken.
    left: u64,
    /// Payload of the last segment.
    last: u32,
    /// Streams that may have something to send.
    ready: VecDeque<u32>,
    /// Next timer of each stream.
    wakes: Vec<Option<Instant>>,
    ended: Option<SendFailure>,
    /// Send time of the latest reply of each stream.
    echoes: Vec<Instant>,
    /// Identification of the next IP packet.
    ip_id: u16,
    capture: Option<Capture>,
}

impl SendingHost {
    fn new(load: &TransferLoad) -> Self {
        let mss = u64::from(load.settings.mss);
        let segments = load.size.0.div_ceil(mss);
        let last = load.size.0 - (segments - 1) * mss;
        SendingHost {
            senders: (0..load.streams).map(|stream| TcpSender::new(stream, load.settings)).collect(),
            left: segments,
            last: last as u32,
            ready: (0..load.streams).collect(),
            wakes: vec![None; load.streams as usize],
            ended: None,
            echoes: vec![Instant::ZERO; load.streams as usize],
            ip_id: 0,
            capture: None,
        }
    }

    fn stats(&self) -> SenderStats {
        self.senders.iter().map(TcpSender::stats).reduce(SenderStats::and).unwrap_or_default()
    }
}

impl SimEndpoint for SendingHost {
    type Sends = Segment;
    type Receives = Reply;

    fn receive(&mut self, packet: &Packet, reply: &Reply, now: Instant) {
        if let Some(capture) = &mut self.capture {
            capture.add_reply(packet, reply, now);
        }
        if is_damaged(packet) {
            return;
        }
        if let Some(echo) = self.echoes.get_mut(reply.stream as usize) {
            *echo = (*echo).max(reply.sent);
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
            if let Some((packet, segment)) = sender.send(&mut self.left, self.last, now) {
                // The streams take turns, as streams on one interface do.
                self.ready.push_back(stream);
                let segment = Segment { echo: self.echoes[stream as usize], ip_id: self.ip_id, ..segment };
                self.ip_id = self.ip_id.wrapping_add(packet.count as u16);
                if let Some(capture) = &mut self.capture {
                    capture.add_segment(&packet, &segment, now);
                }
                return Some((packet, segment));
            }
            self.wakes[stream as usize] = sender.poll_timeout();
            self.ended = self.ended.or(sender.ended());
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wakes.iter().flatten().min().copied()
    }
}

/// The receiving ends of all streams.
struct ReceivingHost {
    receivers: Vec<TcpReceiver>,
    ready: VecDeque<u32>,
    wakes: Vec<Option<Instant>>,
    /// Segments that arrived, of all streams.
    arrived: u64,
    expected: u64,
    complete: Option<Instant>,
    timeline: Timeline,
    /// Nanoseconds in queues; always present, because three digits are a valid precision.
    waited: Option<Histogram<u64>>,
    /// Identification of the next IP packet.
    ip_id: u16,
    capture: Option<Capture>,
}

impl ReceivingHost {
    fn new(load: &TransferLoad, rtt: Duration) -> Self {
        ReceivingHost {
            receivers: (0..load.streams).map(|stream| TcpReceiver::new(stream, load.settings)).collect(),
            ready: VecDeque::new(),
            wakes: vec![None; load.streams as usize],
            arrived: 0,
            expected: load.size.0.div_ceil(u64::from(load.settings.mss)),
            complete: None,
            timeline: Timeline::new(rtt),
            waited: Histogram::new(3).ok(),
            ip_id: 0,
            capture: None,
        }
    }

    fn waiting(&self) -> QueueingTime {
        let Some(waited) = self.waited.as_ref() else { return QueueingTime::default() };
        let at = |share| Duration::from_nanos(waited.value_at_quantile(share));
        QueueingTime {
            mean: Duration::from_nanos(waited.mean() as u64),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: Duration::from_nanos(waited.max()),
        }
    }
}

impl SimEndpoint for ReceivingHost {
    type Sends = Reply;
    type Receives = Segment;

    fn receive(&mut self, packet: &Packet, segment: &Segment, now: Instant) {
        if let Some(capture) = &mut self.capture {
            capture.add_segment(packet, segment, now);
        }
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
            // The histogram grows with the recorded values, so no value is too large.
            let _ = waited.record_n(packet.queue_delay.as_nanos() as u64, u64::from(packet.count));
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
                if let Some((packet, reply)) = receiver.send(now) {
                    let reply = Reply { sent: now, ip_id: self.ip_id, ..reply };
                    self.ip_id = self.ip_id.wrapping_add(packet.count as u16);
                    if let Some(capture) = &mut self.capture {
                        capture.add_reply(&packet, &reply, now);
                    }
                    return Some((packet, reply));
                }
                self.wakes[stream as usize] = receiver.poll_timeout();
            }
            self.ready.pop_front();
        }
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.wakes.iter().flatten().min().copied()
    }
}

/// Arrived segments per interval.
struct Timeline {
    width: Duration,
    counts: Vec<u64>,
}

impl Timeline {
    /// Number of intervals at which neighbours are joined in pairs.
    const MAX_INTERVALS: usize = 8192;

    fn new(rtt: Duration) -> Self {
        Timeline { width: rtt.max(Duration::from_micros(100)), counts: Vec::new() }
    }

    fn add(&mut self, count: u64, now: Instant) {
        let mut index = self.index(now);
        while index >= Self::MAX_INTERVALS {
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

    /// Returns the end of start-up, and the goodput from there to `end`.
    fn steady(&self, end: Instant, mss: u32) -> Option<(Duration, BitRate)> {
        // The last interval is incomplete.
        let complete = &self.counts[..self.index(end).min(self.counts.len())];
        let rates: Vec<f64> = complete.iter().map(|count| *count as f64).collect();
        let first = find_steady_start(&rates)?;
        let began = self.width * first as u32;
        let segments: u64 = self.counts[first..].iter().sum();
        let bytes = Bytes(segments.saturating_mul(mss.into()));
        Some((began, bytes.per((end - Instant::ZERO).saturating_sub(began))))
    }
}

/// Returns true if the checksum is wrong, so that neither end accepts the packet.
fn is_damaged(packet: &Packet) -> bool {
    packet.changes.corruption.is_some_and(|damage| !damage.is_hidden)
}
