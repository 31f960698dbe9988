//! Simple reference of the rate stage: one packet after the other, with whole numbers.
//!
//! The line is a function: the integral of its rate gives the work up to an instant. A packet is sent when the line has
//! done the work of all earlier packets and its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use lfn_base::framing::{Framing, Layer};
use lfn_base::time::Instant;
use lfn_link::{CoDel, Discipline, DropCause, LinkConfig, Packet, QueueLimit};
use lfn_packet::Ecn;
use lfn_sim::ScriptedArrival;

use crate::support::singles;

const BYTE: u128 = 8_000_000_000;

/// Returns the bytes of a packet on the line.
pub fn line_bytes(config: &LinkConfig, wire: u32) -> u64 {
    match config.layer {
        Layer::EthernetHeader => u64::from(wire),
        layer => Framing { layer, ..Framing::default() }.wire_bytes(wire - 14),
    }
}

/// Returns the work of a range.
pub fn cost(config: &LinkConfig, packet: &Packet) -> u128 {
    let bytes =
        u64::from(packet.count - 1) * line_bytes(config, packet.wire_len) + line_bytes(config, packet.last_wire_len);
    u128::from(bytes) * BYTE
}

/// Work that a line can have done since the origin: bits times nanoseconds per second.
pub struct Integral {
    /// Start, work up to the start, and rate of each segment, as far as needed so far.
    segments: RefCell<Vec<(u64, u128, u64)>>,
    config: LinkConfig,
}

impl Integral {
    pub fn new(config: &LinkConfig) -> Self {
        Integral { segments: RefCell::default(), config: config.clone() }
    }

    /// Returns the constant rate.
    pub fn rate(&self) -> u64 {
        self.config.rate.as_constant().unwrap().0
    }

    /// Returns the maximum work up to `now`.
    pub fn at(&self, now: Instant) -> u128 {
        let now = now.as_nanos();
        self.extend(|begin, _| begin > now);
        let segments = self.segments.borrow();
        let (begin, work, rate) = segments[segments.partition_point(|(begin, ..)| *begin <= now) - 1];
        work + u128::from(now - begin) * u128::from(rate)
    }

    /// Returns the first whole nanosecond at which this work can be done.
    fn done(&self, work: u128) -> Instant {
        self.extend(|_, before| before >= work);
        let after = self.segments.borrow().partition_point(|(_, before, _)| *before < work);
        self.reach(after, work)
    }

    /// Returns the first whole nanosecond from which more work can be done: the end of a stall.
    fn resumed(&self, work: u128) -> Instant {
        self.extend(|_, before| before > work);
        let after = self.segments.borrow().partition_point(|(_, before, _)| *before <= work);
        self.reach(after, work)
    }

    fn reach(&self, after: usize, work: u128) -> Instant {
        let (begin, before, rate) = self.segments.borrow()[after.saturating_sub(1)];
        let nanos = if work == before { 0 } else { (work - before).div_ceil(u128::from(rate)) };
        Instant::from_nanos(begin + nanos as u64)
    }

    /// Adds periods of the timetable until a segment starts far enough, if the timetable continues.
    fn extend(&self, is_far: impl Fn(u64, u128) -> bool) {
        let epoch = self.config.epoch.as_nanos();
        let steps = self.config.rate.steps();
        let period = self.config.rate.period().map(|period| period.as_nanos() as u64);
        let mut segments = self.segments.borrow_mut();
        while segments.last().is_none_or(|(begin, work, _)| !is_far(*begin, *work)) {
            let round = (segments.len() / steps.len()) as u64;
            if round > 0 && period.is_none() {
                return;
            }
            for (index, (at, rate)) in steps.iter().enumerate() {
                // Before the epoch the first step applies.
                let is_first = round == 0 && index == 0;
                let begin = if is_first { 0 } else { epoch + round * period.unwrap_or(0) + at.as_nanos() as u64 };
                let before = segments.last();
                let work = before.map_or(0, |(from, work, rate)| work + u128::from(begin - from) * u128::from(*rate));
                segments.push((begin, work, rate.0));
            }
        }
    }
}

/// Packet in the reference.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// Position in [`singles`].
    pub index: usize,
    pub bytes: u64,
    pub came: Instant,
    pub ecn: Ecn,
    pub flow: u32,
}

/// Expected outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Forwarded { marked: bool, due: Instant, waited: Duration },
    Dropped { cause: DropCause, at: Instant },
}

/// Backlog: packets and their bytes.
pub type Held = (u64, u64);

/// Queue discipline, one packet at a time.
pub trait NaiveQueue {
    /// Adds a packet, and returns the packets dropped for it.
    fn arrive(&mut self, item: Item, held: Held) -> Vec<(Item, DropCause)>;
    /// Returns the next packet at `now`, whether it is marked, and the packets dropped before it.
    fn next(&mut self, now: Instant) -> (Option<(Item, bool)>, Vec<Item>);
    fn is_empty(&self) -> bool;
}

/// Computes the expected outcome of every packet.
pub fn expect(config: &LinkConfig, arrivals: &[ScriptedArrival], queue: &mut dyn NaiveQueue) -> Vec<Expected> {
    let mut server =
        Server { integral: Integral::new(config), free: 0, sending: None, held: (0, 0), outcomes: Vec::new(), queue };
    for (index, ScriptedArrival { at, packet }) in singles(arrivals).into_iter().enumerate() {
        server.outcomes.push(None);
        server.advance(at);
        if server.sending.is_none() {
            server.free = server.free.max(server.integral.at(at));
        }
        let bytes = line_bytes(config, packet.last_wire_len);
        let item = Item { index, bytes, came: at, ecn: packet.ecn, flow: packet.flow };
        server.arrive(item, at);
        server.advance(at);
    }
    while server.sending.is_some() || !server.queue.is_empty() {
        let at = match &server.sending {
            Some((_, _, due)) => *due,
            None => server.integral.resumed(server.free),
        };
        server.advance(at);
    }
    server.outcomes.into_iter().map(|outcome| outcome.expect("a outcome for each")).collect()
}

struct Server<'a> {
    integral: Integral,
    /// Work after which the line is free.
    free: u128,
    /// Packet on the line, its outcome, and its time.
    sending: Option<(Item, Expected, Instant)>,
    held: Held,
    outcomes: Vec<Option<Expected>>,
    queue: &'a mut dyn NaiveQueue,
}

impl Server<'_> {
    fn arrive(&mut self, item: Item, now: Instant) {
        let before = self.held;
        self.held = (before.0 + 1, before.1 + item.bytes);
        for (dropped, cause) in self.queue.arrive(item, before) {
            self.drop(dropped, cause, now);
        }
    }

    fn advance(&mut self, now: Instant) {
        loop {
            if let Some((item, outcome, due)) = self.sending {
                if due > now {
                    return;
                }
                self.held = (self.held.0 - 1, self.held.1 - item.bytes);
                self.outcomes[item.index] = Some(outcome);
                self.sending = None;
            }
            let begin = self.integral.resumed(self.free);
            if begin > now {
                return;
            }
            let (next, dropped) = self.queue.next(begin);
            for item in dropped {
                self.drop(item, DropCause::Aqm, begin);
            }
            let Some((item, marked)) = next else { return };
            self.free += u128::from(item.bytes) * BYTE;
            let due = self.integral.done(self.free);
            let waited = begin.saturating_since(item.came);
            self.sending = Some((item, Expected::Forwarded { marked, due, waited }, due));
        }
    }

    fn drop(&mut self, item: Item, cause: DropCause, at: Instant) {
        self.held = (self.held.0 - 1, self.held.1 - item.bytes);
        assert_eq!(self.outcomes[item.index].replace(Expected::Dropped { cause, at }), None);
    }
}

/// Reports whether a packet of `bytes` bytes fits. An empty queue accepts one packet.
pub fn fits(limit: QueueLimit, held: Held, bytes: u64) -> bool {
    held.0 == 0
        || match limit {
            QueueLimit::Bytes(limit) => held.1 + bytes <= limit.0,
            QueueLimit::Packets(limit) => held.0 < u64::from(limit),
        }
}

/// First in, first out.
pub struct DropTail {
    limit: QueueLimit,
    items: VecDeque<Item>,
}

impl DropTail {
    pub fn new(config: &LinkConfig) -> Self {
        DropTail { limit: config.queue, items: VecDeque::new() }
    }
}

impl NaiveQueue for DropTail {
    fn arrive(&mut self, item: Item, held: Held) -> Vec<(Item, DropCause)> {
        if !fits(self.limit, held, item.bytes) {
            return vec![(item, DropCause::Queue)];
        }
        self.items.push_back(item);
        Vec::new()
    }

    fn next(&mut self, _now: Instant) -> (Option<(Item, bool)>, Vec<Item>) {
        (self.items.pop_front().map(|item| (item, false)), Vec::new())
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// RFC 8289 §5.3 to §5.6, line by line. Marks work as in Linux: a marked packet ends the dequeue routine.
#[derive(Debug)]
pub struct CoDelState {
    pub items: VecDeque<Item>,
    target: Duration,
    interval: Duration,
    max_packet: u64,
    ecn: bool,
    /// Zero means "not above", as in the RFC.
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl CoDelState {
    pub fn new(config: &LinkConfig, codel: CoDel) -> Self {
        CoDelState {
            items: VecDeque::new(),
            target: codel.target,
            interval: codel.interval,
            max_packet: line_bytes(config, config.largest_packet.0 as u32),
            ecn: config.ecn,
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }

    fn control_law(&self, t: u64, count: u32) -> u64 {
        t + (self.interval.as_nanos() as f64 / f64::from(count).sqrt()) as u64
    }

    fn do_dequeue(&mut self, now: Instant) -> (Option<Item>, bool) {
        let Some(item) = self.items.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        let sojourn = now.saturating_since(item.came);
        if sojourn < self.target || self.bytes() <= self.max_packet {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now.as_nanos() + self.interval.as_nanos() as u64;
        } else if now.as_nanos() >= self.first_above_time {
            return (Some(item), true);
        }
        (Some(item), false)
    }

    pub fn dequeue(&mut self, at: Instant) -> (Option<(Item, bool)>, Vec<Item>) {
        let now = at.as_nanos();
        let mut dropped = Vec::new();
        let may_mark = |ecn: bool, item: &Option<Item>| ecn && item.is_some_and(|item| item.ecn != Ecn::NotCapable);
        // A mark of an earlier queue is not a mark of this queue.
        let marked = |item: Option<Item>| item.map(|item| (item, item.ecn == Ecn::Capable));
        let plain = |item: Option<Item>| item.map(|item| (item, false));
        let (mut item, mut ok_to_drop) = self.do_dequeue(at);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.count += 1;
                if may_mark(self.ecn, &item) {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                    return (marked(item), dropped);
                }
                dropped.extend(item);
                (item, ok_to_drop) = self.do_dequeue(at);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            let is_marked = may_mark(self.ecn, &item);
            if !is_marked {
                dropped.extend(item);
                (item, _) = self.do_dequeue(at);
            }
            self.dropping = true;
            let delta = self.count - self.last_count;
            self.count = 1;
            let lately = now < self.drop_next + 16 * self.interval.as_nanos() as u64;
            if delta > 1 && lately {
                self.count = delta;
            }
            self.drop_next = self.control_law(now, self.count);
            self.last_count = self.count;
            if is_marked {
                return (marked(item), dropped);
            }
        }
        (plain(item), dropped)
    }
}

/// CoDel over a FIFO.
pub struct Codel {
    limit: QueueLimit,
    state: CoDelState,
}

impl Codel {
    pub fn new(config: &LinkConfig) -> Self {
        let Discipline::CoDel(codel) = config.discipline else { panic!("not codel") };
        Codel { limit: config.queue, state: CoDelState::new(config, codel) }
    }
}

impl NaiveQueue for Codel {
    fn arrive(&mut self, item: Item, held: Held) -> Vec<(Item, DropCause)> {
        if !fits(self.limit, held, item.bytes) {
            return vec![(item, DropCause::Queue)];
        }
        self.state.items.push_back(item);
        Vec::new()
    }

    fn next(&mut self, now: Instant) -> (Option<(Item, bool)>, Vec<Item>) {
        self.state.dequeue(now)
    }

    fn is_empty(&self) -> bool {
        self.state.items.is_empty()
    }
}

/// RFC 8290 §4.1 and §4.2, line by line.
pub struct FqCodel {
    limit: QueueLimit,
    quantum: i64,
    queues: Vec<CoDelState>,
    deficits: Vec<i64>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
}

impl FqCodel {
    pub fn new(config: &LinkConfig) -> Self {
        let Discipline::FqCoDel(fq) = config.discipline else { panic!("not fq-codel") };
        FqCodel {
            limit: config.queue,
            quantum: fq.quantum.0 as i64,
            queues: (0..fq.flows).map(|_| CoDelState::new(config, fq.codel)).collect(),
            deficits: vec![0; fq.flows as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    fn is_within(&self, held: Held) -> bool {
        match self.limit {
            QueueLimit::Bytes(limit) => held.1 <= limit.0,
            QueueLimit::Packets(limit) => held.0 <= u64::from(limit),
        }
    }
}

impl NaiveQueue for FqCodel {
    fn arrive(&mut self, item: Item, held: Held) -> Vec<(Item, DropCause)> {
        // The hash is the same as in the link. The RFC does not define it.
        let hash = u64::from(item.flow.wrapping_mul(0x9e37_79b1));
        let index = ((hash * self.queues.len() as u64) >> 32) as usize;
        self.queues[index].items.push_back(item);
        if !self.new.contains(&index) && !self.old.contains(&index) {
            self.deficits[index] = self.quantum;
            self.new.push_back(index);
        }
        let mut dropped = Vec::new();
        let mut held = (held.0 + 1, held.1 + item.bytes);
        let mut owed = if held.0 == 1 { 0 } else { item.bytes };
        while owed > 0 && !self.is_within(held) {
            let most = self.queues.iter().map(CoDelState::bytes).max().unwrap();
            let fattest = self.queues.iter_mut().find(|queue| queue.bytes() == most).unwrap();
            let Some(first) = fattest.items.pop_front() else { break };
            held = (held.0 - 1, held.1 - first.bytes);
            owed = owed.saturating_sub(first.bytes);
            dropped.push((first, DropCause::Queue));
        }
        dropped
    }

    fn next(&mut self, now: Instant) -> (Option<(Item, bool)>, Vec<Item>) {
        let mut all_dropped = Vec::new();
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let Some(&index) = list.front() else { return (None, all_dropped) };
            if self.deficits[index] <= 0 {
                self.deficits[index] += self.quantum;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let (next, dropped) = self.queues[index].dequeue(now);
            all_dropped.extend(dropped);
            let Some((item, marked)) = next else {
                list.pop_front();
                if is_new {
                    self.old.push_back(index);
                }
                continue;
            };
            self.deficits[index] -= item.bytes as i64;
            return (Some((item, marked)), all_dropped);
        }
    }

    fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.items.is_empty())
    }
}
