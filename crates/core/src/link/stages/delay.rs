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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn config(delay: Duration, jitter: &str) -> LinkConfig {
        LinkConfig { delay: delay.into(), jitter: jitter.parse().unwrap(), ..LinkConfig::default() }
    }

    fn at(ms: u32) -> Instant {
        Instant::ZERO + MS * ms
    }

    /// Ids and instants of all that leaves by `now`.
    fn leave(stage: &mut Delay, now: Instant) -> Vec<(u64, Instant)> {
        let forwarded = |event| match event {
            Event::Forward { packet, due } => (packet.id, due),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| stage.pop(now)).map(forwarded).collect()
    }

    #[test]
    fn a_shorter_delay_overtakes_only_where_packets_may() {
        for (jitter, expected) in [("0ms", [(0, at(30)), (1, at(30))]), ("0ms:reorder", [(1, at(11)), (0, at(30))])] {
            let mut stage = Delay::new(&config(30 * MS, jitter));
            stage.push(Packet::single(0, 60), at(0));
            stage.set(&config(10 * MS, jitter), at(1));
            stage.push(Packet::single(1, 60), at(1));
            assert_eq!(leave(&mut stage, at(99)), expected, "{jitter}");
        }
    }

    /// A caller may tell late of an arrival: it can no longer leave when it should have.
    #[test]
    fn nothing_leaves_before_what_has_left() {
        for jitter in ["0ms", "0ms:reorder"] {
            let mut stage = Delay::new(&config(30 * MS, jitter));
            stage.push(Packet::single(0, 60), at(0));
            stage.set(&config(10 * MS, jitter), at(1));
            assert_eq!(leave(&mut stage, at(40)), [(0, at(30))]);
            stage.push(Packet::single(1, 60), at(5));
            assert_eq!(leave(&mut stage, at(40)), [(1, at(30))], "{jitter}");
        }
    }

    #[test]
    fn packets_of_both_kinds_leave_in_order_of_time() {
        let mut stage = Delay::new(&config(30 * MS, "0ms:reorder"));
        stage.push(Packet::single(0, 60), at(0));
        stage.set(&config(10 * MS, "0ms"), at(1));
        stage.push(Packet::single(1, 60), at(1));
        stage.set(&config(10 * MS, "0ms:reorder"), at(2));
        stage.push(Packet::single(2, 60), at(2));
        assert_eq!(leave(&mut stage, at(99)), [(2, at(12)), (0, at(30)), (1, at(30))]);
        assert_eq!(stage.next(), None);
    }
}
