//! One-way delay: a FIFO for packets that keep their order, and a heap for packets that may overtake.
//!
//! A constant delay without jitter is the common case and costs a push and a pop. A timetable and
//! [`jitter`](super::jitter) only change the time at which a packet is due. A setting decides whether packets may
//! overtake, and only then the heap is used.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use lfn_base::time::Instant;

use super::jitter::{JitterDraws, LinkJitter};
use crate::hop_context::HopContext;
use crate::packet::{LinkEvent, Packet};
use crate::stage::{ImpairmentStage, Stage};
use crate::timetable::Timetable;

/// Delay of a hop and its variation.
#[derive(Clone)]
pub(super) struct DelaySettings {
    pub(super) delay: Timetable<Duration>,
    pub(super) jitter: LinkJitter,
}

/// Returns the minimum delay of a packet.
pub(crate) fn min_delay(delay: &Timetable<Duration>, jitter: &LinkJitter) -> Duration {
    let (shorter, _) = jitter.max_change();
    delay.values().min().unwrap_or_default().saturating_sub(shorter)
}

/// Forwards every packet after its delay.
pub(super) struct DelayStage {
    delay: Timetable<Duration>,
    epoch: Instant,
    /// Draws once per virtual packet if there is jitter.
    draws: JitterDraws,
    has_jitter: bool,
    may_overtake: bool,
    min_delay: Duration,
    /// In order of arrival, and therefore of time.
    in_order: VecDeque<(Instant, Packet)>,
    /// Packets that arrived while overtaking was allowed.
    reorderable: BinaryHeap<Reverse<ReorderablePacket>>,
    next_number: u64,
    /// Maximum due time of all packets so far. Packets that must not overtake are due no earlier.
    latest_due: Instant,
    /// Time at which the last packet left. A packet that arrives too late to leave before it leaves at this time.
    last_departure: Instant,
}

/// Packet that may be overtaken. Packets with the same due time leave in order of arrival.
struct ReorderablePacket {
    due: Instant,
    number: u64,
    packet: Packet,
}

impl DelayStage {
    /// Cuts a range where the delays of its virtual packets differ.
    fn push_with_jitter(&mut self, packet: Packet, now: Instant) {
        let delay = self.delay_at(now);
        let mut begin = 0;
        let mut due = None;
        for index in 0..packet.count {
            let drawn = self.draws.add_jitter(delay);
            let next = self.schedule(now + drawn);
            if let Some(before) = due.filter(|before| *before != next) {
                self.store(packet.part(begin, index - begin), before);
                begin = index;
            }
            due = Some(next);
        }
        if let Some(due) = due {
            self.store(packet.part(begin, packet.count - begin), due);
        }
    }

    fn delay_at(&self, now: Instant) -> Duration {
        self.delay.value_at(now.saturating_since(self.epoch))
    }

    /// Returns the time at which a packet leaves that should leave at `earliest` or later.
    fn schedule(&mut self, earliest: Instant) -> Instant {
        // After a reduction of the delay, packets still do not overtake packets in flight.
        let due = earliest.max(if self.may_overtake { self.last_departure } else { self.latest_due });
        self.latest_due = self.latest_due.max(due);
        due
    }

    fn store(&mut self, packet: Packet, due: Instant) {
        if self.may_overtake {
            self.reorderable.push(Reverse(ReorderablePacket { due, number: self.next_number, packet }));
            self.next_number += 1;
        } else {
            self.in_order.push_back((due, packet));
        }
    }
}

impl Stage for DelayStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        if self.has_jitter {
            return self.push_with_jitter(packet, now);
        }
        let due = self.schedule(now + self.delay_at(now));
        self.store(packet, due);
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        let next = self.next_event_at().filter(|due| *due <= now)?;
        self.last_departure = next;
        let reorderable = self.reorderable.peek().is_some_and(|Reverse(reorderable)| reorderable.due == next);
        let packet = if reorderable {
            self.reorderable.pop().map(|Reverse(reorderable)| reorderable.packet)
        } else {
            self.in_order.pop_front().map(|(_, packet)| packet)
        };
        packet.map(|packet| LinkEvent::Forward { packet, due: next })
    }

    fn next_event_at(&self) -> Option<Instant> {
        let in_order = self.in_order.front().map(|(due, _)| *due);
        match self.reorderable.peek() {
            Some(Reverse(reorderable)) => Some(in_order.map_or(reorderable.due, |due| due.min(reorderable.due))),
            None => in_order,
        }
    }

    fn min_delay(&self) -> Duration {
        self.min_delay
    }
}

impl ImpairmentStage for DelayStage {
    type Settings = DelaySettings;

    fn new(settings: DelaySettings, context: &HopContext) -> Self {
        let mut stage = DelayStage {
            delay: settings.delay.clone(),
            epoch: context.epoch,
            draws: JitterDraws::new(&settings.jitter, context),
            has_jitter: false,
            may_overtake: false,
            min_delay: Duration::ZERO,
            in_order: VecDeque::new(),
            reorderable: BinaryHeap::new(),
            next_number: 0,
            latest_due: Instant::ZERO,
            last_departure: Instant::ZERO,
        };
        stage.set(settings, context, context.epoch);
        stage
    }

    fn set(&mut self, settings: DelaySettings, context: &HopContext, _now: Instant) {
        let DelaySettings { delay, jitter } = settings;
        self.epoch = context.epoch;
        self.may_overtake = jitter.reorder;
        self.min_delay = min_delay(&delay, &jitter);
        self.delay = delay;
        self.has_jitter = !jitter.spread.is_zero();
        self.draws.set(&jitter);
    }
}

impl ReorderablePacket {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl Ord for ReorderablePacket {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ReorderablePacket {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReorderablePacket {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ReorderablePacket {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn context() -> HopContext {
        crate::LinkConfig::default().context()
    }

    fn settings(delay: Duration, jitter: &str) -> DelaySettings {
        DelaySettings { delay: delay.into(), jitter: jitter.parse().unwrap() }
    }

    fn at(ms: u32) -> Instant {
        Instant::ZERO + MS * ms
    }

    /// Returns ids and times of all packets that leave by `now`.
    fn leave(stage: &mut DelayStage, now: Instant) -> Vec<(u64, Instant)> {
        let forwarded = |event| match event {
            LinkEvent::Forward { packet, due } => (packet.id, due),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(|| stage.pop(now)).map(forwarded).collect()
    }

    #[test]
    fn shorter_delay_overtakes_only_with_reorder() {
        for (jitter, expected) in [("0ms", [(0, at(30)), (1, at(30))]), ("0ms:reorder", [(1, at(11)), (0, at(30))])] {
            let mut stage = DelayStage::new(settings(30 * MS, jitter), &context());
            stage.push(Packet::single(0, 60), at(0));
            stage.set(settings(10 * MS, jitter), &context(), at(1));
            stage.push(Packet::single(1, 60), at(1));
            assert_eq!(leave(&mut stage, at(99)), expected, "{jitter}");
        }
    }

    /// A caller may report an arrival late, so the packet cannot leave at its proper time.
    #[test]
    fn late_arrival_leaves_after_earlier_departures() {
        for jitter in ["0ms", "0ms:reorder"] {
            let mut stage = DelayStage::new(settings(30 * MS, jitter), &context());
            stage.push(Packet::single(0, 60), at(0));
            stage.set(settings(10 * MS, jitter), &context(), at(1));
            assert_eq!(leave(&mut stage, at(40)), [(0, at(30))]);
            stage.push(Packet::single(1, 60), at(5));
            assert_eq!(leave(&mut stage, at(40)), [(1, at(30))], "{jitter}");
        }
    }

    #[test]
    fn packets_leave_in_time_order_after_mode_change() {
        let mut stage = DelayStage::new(settings(30 * MS, "0ms:reorder"), &context());
        stage.push(Packet::single(0, 60), at(0));
        stage.set(settings(10 * MS, "0ms"), &context(), at(1));
        stage.push(Packet::single(1, 60), at(1));
        stage.set(settings(10 * MS, "0ms:reorder"), &context(), at(2));
        stage.push(Packet::single(2, 60), at(2));
        assert_eq!(leave(&mut stage, at(99)), [(2, at(12)), (0, at(30)), (1, at(30))]);
        assert_eq!(stage.next_event_at(), None);
    }
}
