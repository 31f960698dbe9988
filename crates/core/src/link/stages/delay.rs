//! One-way delay: a FIFO while nothing may overtake, and a heap beside it for what may.
//!
//! A constant delay without jitter is the common case and costs a push and a pop. A delay by timetable and
//! [`jitter`](super::jitter) only change when a packet is due; whether one that is due earlier may leave earlier is a
//! setting, and only then is there a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::jitter::Draws;
use crate::link::{Event, LinkConfig, Packet, Stage, Varying};
use crate::time::Instant;

/// Hands every packet on after its delay.
pub(super) struct Delay {
    delay: Varying<Duration>,
    epoch: Instant,
    /// Asked for each virtual packet while there is jitter.
    draws: Draws,
    has_jitter: bool,
    may_overtake: bool,
    least: Duration,
    /// In order of arrival, and so of time.
    in_order: VecDeque<(Instant, Packet)>,
    /// What came while packets might overtake.
    loose: BinaryHeap<Reverse<Loose>>,
    /// How many were ever put there.
    numbered: u64,
    /// When the last of all that came is due: what must not overtake comes no earlier.
    latest: Instant,
    /// When the last one left. One that comes too late to have left before it leaves with it.
    left: Instant,
}

/// A packet that may be overtaken; of those due at the same instant the first to come goes first.
struct Loose {
    due: Instant,
    number: u64,
    packet: Packet,
}

impl Delay {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut stage = Delay {
            delay: config.delay.clone(),
            epoch: config.epoch,
            draws: Draws::new(config),
            has_jitter: false,
            may_overtake: false,
            least: Duration::ZERO,
            in_order: VecDeque::new(),
            loose: BinaryHeap::new(),
            numbered: 0,
            latest: Instant::ZERO,
            left: Instant::ZERO,
        };
        stage.set(config, config.epoch);
        stage
    }

    /// Cuts a range where the delays of its virtual packets differ.
    fn scatter(&mut self, packet: Packet, now: Instant) {
        let delay = self.delay_at(now);
        let mut begun = 0;
        let mut due = None;
        for index in 0..packet.count {
            let drawn = self.draws.next(delay);
            let next = self.due(now + drawn);
            if let Some(before) = due.filter(|before| *before != next) {
                self.keep(packet.part(begun, index - begun), before);
                begun = index;
            }
            due = Some(next);
        }
        if let Some(due) = due {
            self.keep(packet.part(begun, packet.count - begun), due);
        }
    }

    fn delay_at(&self, now: Instant) -> Duration {
        self.delay.at(now.saturating_since(self.epoch))
    }

    /// When one leaves that ought to leave at `wanted`.
    fn due(&mut self, wanted: Instant) -> Instant {
        // After the delay was shortened nothing overtakes what is in flight, either.
        let due = wanted.max(if self.may_overtake { self.left } else { self.latest });
        self.latest = self.latest.max(due);
        due
    }

    fn keep(&mut self, packet: Packet, due: Instant) {
        if self.may_overtake {
            self.loose.push(Reverse(Loose { due, number: self.numbered, packet }));
            self.numbered += 1;
        } else {
            self.in_order.push_back((due, packet));
        }
    }
}

impl Stage for Delay {
    fn push(&mut self, packet: Packet, now: Instant) {
        if self.has_jitter {
            return self.scatter(packet, now);
        }
        let due = self.due(now + self.delay_at(now));
        self.keep(packet, due);
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        let next = self.next().filter(|due| *due <= now)?;
        self.left = next;
        let loose = self.loose.peek().is_some_and(|Reverse(loose)| loose.due == next);
        let packet = if loose {
            self.loose.pop().map(|Reverse(loose)| loose.packet)
        } else {
            self.in_order.pop_front().map(|(_, packet)| packet)
        };
        packet.map(|packet| Event::Forward { packet, due: next })
    }

    fn next(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|(due, _)| *due);
        match self.loose.peek() {
            Some(Reverse(loose)) => Some(in_order.map_or(loose.due, |due| due.min(loose.due))),
            None => in_order,
        }
    }

    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.delay = config.delay.clone();
        self.epoch = config.epoch;
        self.may_overtake = config.jitter.reorder;
        self.least = config.least_delay();
        self.has_jitter = !config.jitter.spread.is_zero();
        self.draws.set(&config.jitter);
    }

    fn least(&self) -> Duration {
        self.least
    }
}

impl Loose {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl Ord for Loose {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Loose {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Loose {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Loose {}
