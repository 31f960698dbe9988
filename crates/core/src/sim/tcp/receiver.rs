//! The receiving end: what arrived, and how it is answered.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use super::Settings;
use super::wire::{Ack, BLOCKS, Reply, ReplyKind, SYN_OPTIONS, Segment, SegmentKind, flow};
use crate::link::{Changes, Packet};
use crate::time::Instant;

/// One stream's receiving end.
pub struct Receiver {
    settings: Settings,
    stream: u32,
    /// The segment expected next: all before it arrived.
    next: u64,
    /// What arrived beyond it: first segments, and the segment behind the last.
    islands: BTreeMap<u64, u64>,
    /// First segments of the islands that grew last, the latest first.
    recent: VecDeque<u64>,
    /// Segments that arrived in order and are not acknowledged.
    owed: u32,
    /// The timestamp to echo: of the first of those, or of the last that moved the left edge.
    stamp: Instant,
    /// When those are acknowledged at the latest.
    delayed: Option<Instant>,
    /// Congestion is told until the sender says it has reacted.
    congestion: bool,
    out: VecDeque<(Packet, Reply)>,
    arrived: u64,
    again: u64,
}

/// Linux' least delay of an acknowledgement (`TCP_DELACK_MIN`).
const ACK_DELAY: Duration = Duration::from_millis(40);
/// The SACK option: kind, length and padding, and each range (RFC 2018 §3).
const SACK_OPTION: u32 = 4;
const SACK_BLOCK: u32 = 8;

impl Receiver {
    /// One to which nothing came.
    pub fn new(stream: u32, settings: Settings) -> Self {
        Receiver {
            settings,
            stream,
            next: 0,
            islands: BTreeMap::new(),
            recent: VecDeque::new(),
            owed: 0,
            stamp: Instant::ZERO,
            delayed: None,
            congestion: false,
            out: VecDeque::new(),
            arrived: 0,
            again: 0,
        }
    }

    /// Segments that arrived, each counted once.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Segments that arrived though they had before.
    pub fn again(&self) -> u64 {
        self.again
    }

    /// Takes a packet.
    pub fn receive(&mut self, packet: &Packet, segment: &Segment, now: Instant) {
        match segment.kind {
            SegmentKind::Syn => self.answer(ReplyKind::SynAck, 1, SYN_OPTIONS, segment.sent),
            SegmentKind::Data { first, reduced } => {
                if reduced {
                    self.congestion = false;
                }
                let Changes { congestion, .. } = packet.changes;
                self.congestion |= congestion;
                let start = first + u64::from(packet.first);
                self.take(start, start + u64::from(packet.count), segment.sent, now);
            }
        }
    }

    /// An answer that leaves now.
    pub fn send(&mut self, now: Instant) -> Option<(Packet, Reply)> {
        if self.delayed.is_some_and(|at| at <= now) {
            self.acknowledge_rest();
        }
        self.out.pop_front()
    }

    /// When a delayed acknowledgement is due.
    pub fn wake(&self) -> Option<Instant> {
        self.delayed
    }

    /// Segments `start..end` arrived together.
    fn take(&mut self, start: u64, end: u64, sent: Instant, now: Instant) {
        let acknowledged = self.next - u64::from(self.owed);
        if start <= acknowledged && sent > self.stamp {
            self.stamp = sent;
        }
        let count = end - start;
        let new = self.missing(start, end);
        self.arrived += new;
        self.again += count - new;
        if new == 0 {
            self.acknowledge_at_once(count, false, true);
        } else if start > self.next {
            self.insert(start, end);
            self.acknowledge_at_once(count, true, false);
        } else {
            let hole = !self.islands.is_empty();
            self.advance(end);
            if hole {
                self.acknowledge_at_once(count, false, false);
            } else {
                self.acknowledge_some(count, now);
            }
        }
    }

    /// How many of `start..end` did not arrive before.
    fn missing(&self, start: u64, end: u64) -> u64 {
        let start = start.max(self.next);
        if start >= end {
            return 0;
        }
        let overlap = |(&from, &to): (&u64, &u64)| to.min(end).saturating_sub(from.max(start));
        let before = self.islands.range(..start).next_back().map_or(0, overlap);
        end - start - before - self.islands.range(start..end).map(overlap).sum::<u64>()
    }

    /// An island grows, or comes to be, and is the latest.
    fn insert(&mut self, start: u64, end: u64) {
        let (mut low, mut high) = (start, end);
        if let Some((&from, &to)) = self.islands.range(..=start).next_back()
            && to >= start
        {
            (low, high) = (from, high.max(to));
        }
        while let Some((&from, &to)) = self.islands.range(low..=high).next() {
            self.islands.remove(&from);
            high = high.max(to);
        }
        self.islands.insert(low, high);
        let islands = &self.islands;
        self.recent.retain(|from| *from != low && islands.contains_key(from));
        self.recent.push_front(low);
        self.recent.truncate(BLOCKS);
    }

    /// The left edge moves to `to`, and over the islands it reaches.
    fn advance(&mut self, to: u64) {
        self.next = self.next.max(to);
        while let Some(first) = self.islands.first_entry().filter(|first| *first.key() <= self.next) {
            self.next = self.next.max(first.remove());
        }
        let islands = &self.islands;
        self.recent.retain(|from| islands.contains_key(from));
    }

    /// One acknowledgement for every so many segments; what is left over waits for the next, or for the timer.
    fn acknowledge_some(&mut self, count: u64, now: Instant) {
        let every = u64::from(self.settings.ack_every.max(1));
        let owed = u64::from(self.owed) + count;
        self.owed = (owed % every) as u32;
        let acks = owed / every;
        if acks > 0 {
            self.acknowledge(acks, every as u32, false, false);
        }
        self.delayed = (self.owed > 0).then(|| now + ACK_DELAY);
    }

    /// One acknowledgement for each of `count` segments.
    fn acknowledge_at_once(&mut self, count: u64, beyond: bool, duplicate: bool) {
        (self.owed, self.delayed) = (0, None);
        let step = u32::from(!duplicate);
        self.acknowledge(count, step, beyond, duplicate);
    }

    fn acknowledge_rest(&mut self) {
        (self.owed, self.delayed) = (0, None);
        self.acknowledge(1, 1, false, false);
    }

    fn acknowledge(&mut self, count: u64, step: u32, beyond: bool, duplicate: bool) {
        let mut blocks = [(0, 0); BLOCKS];
        let mut named = 0;
        for (block, from) in blocks.iter_mut().zip(&self.recent) {
            if let Some(to) = self.islands.get(from) {
                *block = (*from, *to);
                named += 1;
            }
        }
        let option = if named > 0 { SACK_OPTION + SACK_BLOCK * named } else { 0 };
        // A packet counts its virtual packets in 32 bits, and no range of segments is longer.
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let next = self.next - u64::from(self.owed);
        let ack = Ack { count, step, beyond, next, blocks, duplicate, congestion: self.congestion };
        self.answer(ReplyKind::Ack(ack), count, option, self.stamp);
    }

    fn answer(&mut self, kind: ReplyKind, count: u32, options: u32, echo: Instant) {
        let wire = self.settings.headers + options;
        let packet = Packet { flow: flow(self.stream), has_payload: false, ..Packet::several(0, count, wire, wire) };
        self.out.push_back((packet, Reply { stream: self.stream, kind, echo }));
    }
}
