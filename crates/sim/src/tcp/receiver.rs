//! The receiving end: records arrived segments and acknowledges them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_link::{Changes, Packet};

use super::TcpSettings;
use super::wire::{Ack, MAX_SACK_BLOCKS, Reply, ReplyKind, SYN_OPTIONS, Segment, SegmentKind, flow};

/// The receiving end of one stream.
pub struct TcpReceiver {
    settings: TcpSettings,
    stream: u32,
    /// Next expected segment: all before it arrived.
    next: u64,
    /// Ranges that arrived after a hole: first segment to the segment after the last.
    out_of_order: BTreeMap<u64, u64>,
    /// First segments of the ranges that grew last, the latest first.
    recent: VecDeque<u64>,
    /// Segments that arrived in order and are not acknowledged yet.
    unacked: u32,
    /// Timestamp to echo: of the first unacknowledged segment, or of the last segment that moved the left edge.
    stamp: Instant,
    /// Deadline of the delayed acknowledgement.
    delayed: Option<Instant>,
    /// True if congestion is reported until the sender confirms its reaction.
    congestion: bool,
    out: VecDeque<(Packet, Reply)>,
    arrived: u64,
    duplicates: u64,
}

/// Minimum delay of an acknowledgement in Linux (`TCP_DELACK_MIN`).
const ACK_DELAY: Duration = Duration::from_millis(40);
/// SACK option: kind, length and padding; then each range (RFC 2018 §3).
const SACK_OPTION: u32 = 4;
const SACK_BLOCK: u32 = 8;

impl TcpReceiver {
    /// Creates a receiving end without any arrivals.
    pub fn new(stream: u32, settings: TcpSettings) -> Self {
        TcpReceiver {
            settings,
            stream,
            next: 0,
            out_of_order: BTreeMap::new(),
            recent: VecDeque::new(),
            unacked: 0,
            stamp: Instant::ZERO,
            delayed: None,
            congestion: false,
            out: VecDeque::new(),
            arrived: 0,
            duplicates: 0,
        }
    }

    /// Returns the segments that arrived, each counted once.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns the number of duplicate segments.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Handles a packet from the sender.
    pub fn receive(&mut self, packet: &Packet, segment: &Segment, now: Instant) {
        match segment.kind {
            SegmentKind::Syn => self.answer(ReplyKind::SynAck, 1, SYN_OPTIONS, segment.sent),
            SegmentKind::Data { first, reduced } => {
                if reduced {
                    self.congestion = false;
                }
                let Changes { is_marked: congestion, .. } = packet.changes;
                self.congestion |= congestion;
                let start = first + u64::from(packet.first);
                self.take(start, start + u64::from(packet.count), segment.sent, now);
            }
        }
    }

    /// Returns an acknowledgement that leaves now.
    pub fn send(&mut self, now: Instant) -> Option<(Packet, Reply)> {
        if self.delayed.is_some_and(|at| at <= now) {
            self.acknowledge_rest();
        }
        self.out.pop_front()
    }

    /// Returns the deadline of the delayed acknowledgement.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.delayed
    }

    /// Handles segments `start..end`, which arrived together.
    fn take(&mut self, start: u64, end: u64, sent: Instant, now: Instant) {
        let acknowledged = self.next - u64::from(self.unacked);
        if start <= acknowledged && sent > self.stamp {
            self.stamp = sent;
        }
        let count = end - start;
        let new = self.count_new(start, end);
        self.arrived += new;
        self.duplicates += count - new;
        if new == 0 {
            self.acknowledge_at_once(count, false, Some((start, end)));
        } else if start > self.next {
            self.insert(start, end);
            self.acknowledge_at_once(count, true, None);
        } else {
            let hole = !self.out_of_order.is_empty();
            self.advance(end);
            if hole {
                self.acknowledge_at_once(count, false, None);
            } else {
                self.acknowledge_some(count, now);
            }
        }
    }

    /// Returns how many of `start..end` are new.
    fn count_new(&self, start: u64, end: u64) -> u64 {
        let start = start.max(self.next);
        if start >= end {
            return 0;
        }
        let overlap = |(&from, &to): (&u64, &u64)| to.min(end).saturating_sub(from.max(start));
        let before = self.out_of_order.range(..start).next_back().map_or(0, overlap);
        end - start - before - self.out_of_order.range(start..end).map(overlap).sum::<u64>()
    }

    /// Adds or extends a range after a hole, and makes it the most recent.
    fn insert(&mut self, start: u64, end: u64) {
        let (mut low, mut high) = (start, end);
        if let Some((&from, &to)) = self.out_of_order.range(..=start).next_back()
            && to >= start
        {
            (low, high) = (from, high.max(to));
        }
        while let Some((&from, &to)) = self.out_of_order.range(low..=high).next() {
            self.out_of_order.remove(&from);
            high = high.max(to);
        }
        self.out_of_order.insert(low, high);
        let out_of_order = &self.out_of_order;
        self.recent.retain(|from| *from != low && out_of_order.contains_key(from));
        self.recent.push_front(low);
        self.recent.truncate(MAX_SACK_BLOCKS);
    }

    /// Moves the left edge to `to`, and beyond the ranges that it reaches.
    fn advance(&mut self, to: u64) {
        self.next = self.next.max(to);
        while let Some(first) = self.out_of_order.first_entry().filter(|first| *first.key() <= self.next) {
            self.next = self.next.max(first.remove());
        }
        let out_of_order = &self.out_of_order;
        self.recent.retain(|from| out_of_order.contains_key(from));
    }

    /// Sends one acknowledgement per `ack_every` segments. The rest waits for the next segment or for the timer.
    fn acknowledge_some(&mut self, count: u64, now: Instant) {
        let every = u64::from(self.settings.ack_every.max(1));
        let unacked = u64::from(self.unacked) + count;
        self.unacked = (unacked % every) as u32;
        let acks = unacked / every;
        if acks > 0 {
            self.acknowledge(acks, every as u32, false, None);
        }
        self.delayed = (self.unacked > 0).then(|| now + ACK_DELAY);
    }

    /// Sends one acknowledgement for each of `count` segments.
    fn acknowledge_at_once(&mut self, count: u64, beyond: bool, duplicate: Option<(u64, u64)>) {
        (self.unacked, self.delayed) = (0, None);
        let step = u32::from(duplicate.is_none());
        self.acknowledge(count, step, beyond, duplicate);
    }

    fn acknowledge_rest(&mut self) {
        (self.unacked, self.delayed) = (0, None);
        self.acknowledge(1, 1, false, None);
    }

    fn acknowledge(&mut self, count: u64, step: u32, beyond: bool, duplicate: Option<(u64, u64)>) {
        let mut blocks = [(0, 0); MAX_SACK_BLOCKS];
        let mut named = 0;
        for (block, from) in blocks.iter_mut().zip(&self.recent) {
            if let Some(to) = self.out_of_order.get(from) {
                *block = (*from, *to);
                named += 1;
            }
        }
        let option = if named > 0 { SACK_OPTION + SACK_BLOCK * named } else { 0 };
        // A packet counts its virtual packets in 32 bits, and no range of segments is longer.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let next = self.next - u64::from(self.unacked);
        let ack = Ack { count, step, beyond, next, blocks, duplicate, congestion: self.congestion };
        self.answer(ReplyKind::Ack(ack), count, option, self.stamp);
    }

    fn answer(&mut self, kind: ReplyKind, count: u32, options: u32, echo: Instant) {
        let wire = self.settings.headers + options;
        let packet =
            Packet { flow: flow(self.stream), has_payload: false, ..Packet::super_packet(0, count, wire, wire) };
        self.out.push_back((packet, Reply { stream: self.stream, kind, echo, sent: Instant::ZERO, ip_id: 0 }));
    }
}
