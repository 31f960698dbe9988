//! The queue in front of a line: what is let in, what goes next, and what is dropped or marked meanwhile.
//!
//! It keeps no time of its own: the line in `rate` tells it what came when, asks it for the next packets at the moment
//! the line is free, and says when each has begun and when its bytes have left. What counts as held is every virtual
//! packet that was let in and whose last bit has not been sent, the one being sent included: a store-and-forward device
//! holds those bytes too, and so the longest wait is the limit divided by the rate. Bytes are counted as the line counts
//! them, with the overhead of its layer (as `tc` counts a backlog where `stab` names one). Each discipline has a file;
//! what they share, the limit and the account, is here.

mod codel;
mod drop_tail;
mod fq_codel;
mod red;
mod settings;

pub use codel::CoDel;
use codel::{Controlled, Rules};
pub(super) use drop_tail::Waiting;
use drop_tail::{Admission, Fifo, fit};
use fq_codel::Flows;
pub use fq_codel::FqCoDel;
pub use red::Red;
use red::{Arrival, Average};
pub(crate) use settings::packets;
pub use settings::{Discipline, DisciplineError, QueueLimit};

use super::line::{Line, Tariff};
use super::ranges::apart;
use crate::link::outbox::Outbox;
use crate::link::{DropCause, Ecn, LinkConfig, Packet};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// What waits for a line.
pub(super) struct Queue {
    limit: QueueLimit,
    rules: Rules,
    held: Held,
    peak: u64,
    order: Order,
}

/// What was let in and not yet wholly sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Virtual packets.
    packets: u64,
    /// As the line counts them.
    bytes: u64,
}

/// What waits, in the order of a discipline.
enum Order {
    DropTail(Fifo),
    CoDel(Box<Controlled>),
    FqCoDel(Box<Flows>),
    Red(Fifo, Box<Average>),
}

impl Queue {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Queue {
            limit: config.queue,
            rules: rules(config),
            held: Held::default(),
            peak: 0,
            order: Order::new(config, config.epoch),
        }
    }

    /// Takes up other settings. What waits goes on waiting, also if it is more than fits now, and under another discipline
    /// in the order in which it came. `sending` is on the line and held too.
    pub(super) fn set(&mut self, config: &LinkConfig, sending: Option<Packet>, now: Instant) {
        let waiting = self.order.drain();
        self.limit = config.queue;
        self.rules = rules(config);
        if !self.order.set(config) {
            self.order = Order::new(config, now);
        }
        self.held = sending.iter().fold(Held::default(), |held, packet| held.with(packet, self.rules.tariff));
        for waiting in waiting {
            self.held = self.held.with(&waiting.packet, self.rules.tariff);
            self.order.push(waiting, &self.rules);
        }
    }

    /// Takes in what may come in, as if the virtual packets came one after the other, and drops the rest, or what it
    /// would rather do without.
    pub(super) fn admit(&mut self, packet: Packet, now: Instant, rate: BitRate, out: &mut Outbox) {
        match &self.order {
            Order::DropTail(_) | Order::CoDel(_) => self.admit_what_fits(packet, now, out),
            Order::FqCoDel(_) => self.admit_at_a_cost(packet, now, out),
            Order::Red(..) => self.admit_by_average(packet, now, rate, out),
        }
    }

    /// True if letting `packet` in may change what goes after the virtual packet on the line, which is of `sending`.
    pub(super) fn is_disturbed(&self, packet: &Packet, sending: &Packet) -> bool {
        match &self.order {
            Order::FqCoDel(flows) => !flows.are_one(packet, sending) || !self.has_room(packet),
            _ => false,
        }
    }

    /// True if the first virtual packet has to be on the line, where it cannot be dropped, before the others come.
    pub(super) fn wants_first_sent(&self, packet: &Packet) -> bool {
        matches!(self.order, Order::FqCoDel(_)) && packet.count > 1 && !self.has_room(packet)
    }

    /// The next slice, as the line is free, its first virtual packet begun. Its bytes are held until they are
    /// [`sent`](Self::sent).
    pub(super) fn take(&mut self, line: &mut Line, out: &mut Outbox) -> Option<Waiting> {
        let Queue { rules, held, .. } = self;
        let (head, mut waiting) = match &mut self.order {
            Order::DropTail(fifo) | Order::Red(fifo, _) => {
                let front = &fifo.front()?.packet;
                let most = if front.count == 1 { 1 } else { line.slice(rules.tariff.one(front.wire)) };
                return fifo.pop(most);
            }
            Order::CoDel(queue) => {
                let head = queue.begin(line.free().at(), rules, held, out)?;
                let most = line.slice(head.bytes).min(queue.sure(head, line, rules));
                (head, queue.pop(if head.is_marked { 1 } else { most })?)
            }
            Order::FqCoDel(flows) => flows.take(line, rules, held, out)?,
        };
        if head.is_marked {
            mark(&mut waiting.packet);
        }
        Some(waiting)
    }

    /// True if it is to be told of every virtual packet that begins.
    pub(super) fn follows(&self) -> bool {
        matches!(self.order, Order::CoDel(_) | Order::FqCoDel(_))
    }

    /// The next virtual packet of `slice` begins, which came at `came`.
    pub(super) fn follow(&mut self, slice: &Packet, came: Instant, now: Instant, bytes: u64) {
        let waited = now.saturating_since(came);
        match &mut self.order {
            Order::CoDel(queue) => queue.follow(now, waited, bytes, &self.rules),
            Order::FqCoDel(flows) => flows.follow(slice, now, waited, bytes, &self.rules),
            Order::DropTail(_) | Order::Red(..) => {}
        }
    }

    /// Puts back what was taken and will not be sent now.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        match &mut self.order {
            Order::DropTail(fifo) | Order::Red(fifo, _) => fifo.push_front(waiting),
            Order::CoDel(queue) => queue.put_back(waiting),
            Order::FqCoDel(flows) => flows.put_back(waiting),
        }
    }

    /// The last bit of so many bytes, of so many packets, has been sent at `now`.
    pub(super) fn sent(&mut self, packets: u32, bytes: u64, now: Instant) {
        self.held.sent(u64::from(packets), bytes);
        if self.held.packets == 0
            && let Order::Red(_, average) = &mut self.order
        {
            average.idle(now);
        }
    }

    /// The line is free and nothing waits.
    pub(super) fn idle(&mut self) {
        match &mut self.order {
            Order::DropTail(_) | Order::Red(..) => {}
            Order::CoDel(queue) => queue.idle(),
            Order::FqCoDel(flows) => flows.idle(),
        }
    }

    /// True if nothing waits; something may be on the line.
    pub(super) fn is_empty(&self) -> bool {
        match &self.order {
            Order::DropTail(fifo) | Order::Red(fifo, _) => fifo.is_empty(),
            Order::CoDel(queue) => queue.is_empty(),
            Order::FqCoDel(flows) => flows.is_empty(),
        }
    }

    pub(super) fn tariff(&self) -> Tariff {
        self.rules.tariff
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.held.bytes)
    }

    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak)
    }

    fn admit_what_fits(&mut self, packet: Packet, now: Instant, out: &mut Outbox) {
        let bytes = self.rules.tariff.all(&packet);
        if self.held.has_room(u64::from(packet.count), bytes, self.limit) {
            return self.take_in_all(packet, bytes, now);
        }
        let Admission { head, last } = fit(&packet, &self.held, self.limit, self.rules.tariff);
        let refused = packet.count - head - u32::from(last);
        if head > 0 {
            self.take_in(packet.part(0, head), now);
        }
        if last {
            self.take_in(packet.part(packet.count - 1, 1), now);
        }
        out.drop(packet.part(head, refused), DropCause::Queue, now);
    }

    /// All comes in; what is too much then is dropped where most waits, but no more than comes in.
    fn admit_at_a_cost(&mut self, packet: Packet, now: Instant, out: &mut Outbox) {
        if self.has_room(&packet) {
            return self.take_in(packet, now);
        }
        let Order::FqCoDel(flows) = &mut self.order else { return };
        let tariff = self.rules.tariff;
        let mut run: Option<Packet> = None;
        for index in 0..packet.count {
            let single = packet.part(index, 1);
            let bytes = tariff.one(single.last_wire);
            let mut owed = if self.held.packets == 0 { 0 } else { bytes };
            self.held.add(1, bytes);
            flows.push(Waiting { packet: single, since: now }, &self.rules);
            while owed > 0 && !self.held.is_within(self.limit) {
                let Some((dropped, bytes)) = flows.drop_from_fattest(&self.rules) else { break };
                self.held.sent(1, bytes);
                owed = owed.saturating_sub(bytes);
                if let Some(before) = join(&mut run, dropped) {
                    out.drop(before, DropCause::Queue, now);
                }
            }
            self.peak = self.peak.max(self.held.bytes);
        }
        if let Some(last) = run {
            out.drop(last, DropCause::Queue, now);
        }
    }

    /// Each virtual packet comes in, or not, by the average that it finds; those of a like fate stay together.
    fn admit_by_average(&mut self, packet: Packet, now: Instant, rate: BitRate, out: &mut Outbox) {
        let Order::Red(fifo, average) = &mut self.order else { return };
        let (held, limit, tariff) = (&mut self.held, self.limit, self.rules.tariff);
        let may_mark = self.rules.ecn && packet.ecn != Ecn::NotCapable;
        let decide = |left: u32| {
            let fate = match average.arrive(held, now, rate) {
                Arrival::Pass => Fate::In,
                Arrival::Signal if may_mark => Fate::Marked,
                Arrival::Signal | Arrival::Drop => return (Fate::Dropped(DropCause::Aqm), 1),
            };
            let bytes = tariff.one(if left == 1 { packet.last_wire } else { packet.wire });
            if !held.has_room(1, bytes, limit) {
                return (Fate::Dropped(DropCause::Queue), 1);
            }
            held.add(1, bytes);
            (fate, 1)
        };
        apart(packet, decide, |fate, mut packet| {
            match fate {
                Fate::Dropped(cause) => return out.drop(packet, cause, now),
                Fate::Marked => mark(&mut packet),
                Fate::In => {}
            }
            fifo.push(Waiting { packet, since: now });
        });
        self.peak = self.peak.max(self.held.bytes);
    }

    fn take_in(&mut self, packet: Packet, now: Instant) {
        self.take_in_all(packet, self.rules.tariff.all(&packet), now);
    }

    fn take_in_all(&mut self, packet: Packet, bytes: u64, now: Instant) {
        self.held.add(u64::from(packet.count), bytes);
        self.peak = self.peak.max(self.held.bytes);
        self.order.push(Waiting { packet, since: now }, &self.rules);
    }

    fn has_room(&self, packet: &Packet) -> bool {
        self.held.has_room(u64::from(packet.count), self.rules.tariff.all(packet), self.limit)
    }
}

/// What became of virtual packets that came together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    In,
    Marked,
    Dropped(DropCause),
}

impl Order {
    fn new(config: &LinkConfig, now: Instant) -> Self {
        match &config.discipline {
            Discipline::DropTail => Order::DropTail(Fifo::default()),
            Discipline::CoDel(_) => Order::CoDel(Box::default()),
            Discipline::FqCoDel(settings) => Order::FqCoDel(Box::new(Flows::new(settings))),
            Discipline::Red(settings) => Order::Red(Fifo::default(), Box::new(Average::new(config, settings, now))),
        }
    }

    /// Other settings of the same discipline; false if it is another.
    fn set(&mut self, config: &LinkConfig) -> bool {
        match (self, &config.discipline) {
            (Order::DropTail(_), Discipline::DropTail) | (Order::CoDel(_), Discipline::CoDel(_)) => {}
            (Order::FqCoDel(flows), Discipline::FqCoDel(settings)) if flows.count() == settings.flows as usize => {
                flows.set(settings);
            }
            (Order::Red(_, average), Discipline::Red(settings)) => average.set(settings, config.queue),
            _ => return false,
        }
        true
    }

    fn push(&mut self, waiting: Waiting, rules: &Rules) {
        match self {
            Order::DropTail(fifo) | Order::Red(fifo, _) => fifo.push(waiting),
            Order::CoDel(queue) => queue.push(waiting, rules.tariff),
            Order::FqCoDel(flows) => flows.push(waiting, rules),
        }
    }

    /// All that waits, in the order in which it came.
    fn drain(&mut self) -> Vec<Waiting> {
        match self {
            Order::DropTail(fifo) | Order::Red(fifo, _) => fifo.drain().collect(),
            Order::CoDel(queue) => queue.drain().collect(),
            Order::FqCoDel(flows) => flows.drain(),
        }
    }
}

impl Held {
    fn with(mut self, packet: &Packet, tariff: Tariff) -> Held {
        self.add(u64::from(packet.count), tariff.all(packet));
        self
    }

    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// True if so much fits beside what is held. An empty queue takes one packet, however small the limit.
    fn has_room(&self, packets: u64, bytes: u64, limit: QueueLimit) -> bool {
        if self.packets == 0 && packets == 1 {
            return true;
        }
        match limit {
            QueueLimit::Bytes(limit) => self.bytes.saturating_add(bytes) <= limit.0,
            QueueLimit::Packets(limit) => self.packets.saturating_add(packets) <= u64::from(limit),
        }
    }

    fn is_within(&self, limit: QueueLimit) -> bool {
        match limit {
            QueueLimit::Bytes(limit) => self.bytes <= limit.0,
            QueueLimit::Packets(limit) => self.packets <= u64::from(limit),
        }
    }

    fn sent(&mut self, packets: u64, bytes: u64) {
        debug_assert!(bytes <= self.bytes && packets <= self.packets);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.packets = self.packets.saturating_sub(packets);
    }
}

/// Makes one range of `run` and the virtual packet behind it, if they are of one; else gives back the run before.
fn join(run: &mut Option<Packet>, next: Packet) -> Option<Packet> {
    match run {
        Some(before) if before.is_followed_by(&next) => {
            before.append(&next);
            None
        }
        _ => run.replace(next),
    }
}

/// Congestion experienced; a packet that says so already says no more.
fn mark(packet: &mut Packet) {
    packet.changes.congestion |= packet.ecn == Ecn::Capable;
    packet.ecn = Ecn::Congested;
}

fn rules(config: &LinkConfig) -> Rules {
    let codel = match config.discipline {
        Discipline::CoDel(codel) => codel,
        Discipline::FqCoDel(FqCoDel { codel, .. }) => codel,
        Discipline::DropTail | Discipline::Red(_) => CoDel::default(),
    };
    let tariff = Tariff(config.layer);
    let largest = u32::try_from(config.largest_packet.0).unwrap_or(u32::MAX);
    Rules { codel, largest: tariff.one(largest), ecn: config.ecn, tariff }
}
