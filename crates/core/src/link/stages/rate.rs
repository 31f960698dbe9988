//! The bottleneck: a line with a queue in front of it.
//!
//! Line and queue are one stage because the queue empties at the pace of the line, and a queue that decides when it
//! hands over (CoDel) has to be asked at that moment. What is sent in one go is a slice: consecutive virtual packets of
//! one super-packet that the line takes no longer for than asked. They count as sent one by one, and leave together
//! when the last is. The arithmetic of the line is in `line`.

use std::time::Duration;

use super::line::{Line, Point};
use super::queue::{Queue, Waiting};
use crate::link::outbox::Outbox;
use crate::link::{Event, LinkConfig, LinkStats, Packet, Stage};
use crate::time::Instant;

/// Queue and line.
pub(super) struct Bottleneck {
    queue: Queue,
    line: Line,
    sending: Option<Sending>,
    /// Line time of all slices that were sent.
    busy: Duration,
    /// What has happened and was not yet popped.
    out: Outbox,
}

/// A slice on the line.
struct Sending {
    packet: Packet,
    /// When it came into the queue.
    came: Instant,
    /// When its first bit was sent.
    began: Instant,
    /// The virtual packets whose last bit is known to be sent.
    sent: u32,
    /// What the others are held as, in the bytes of the line.
    left: u64,
    /// When the first bit of the first of them was sent.
    since: Point,
    /// Where the settings were changed meanwhile: it is the only one left then.
    done: Option<Done>,
    /// When the last bit of the last will have been sent.
    due: Instant,
}

/// What is done of a packet that began under other settings.
#[derive(Clone, Copy)]
struct Done {
    /// Bytes of the line that it began as.
    of: u64,
    /// The work that was done of them before `since`.
    work: u128,
}

impl Bottleneck {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Bottleneck {
            queue: Queue::new(config),
            line: Line::new(config),
            sending: None,
            busy: Duration::ZERO,
            out: Outbox::default(),
        }
    }

    /// Moves on to `now`: what happened until then is in `out`.
    fn advance(&mut self, now: Instant) {
        // The line may have stood still until before `now`.
        self.start(now);
        while let Some(event) = self.finish(now) {
            self.out.push(event);
            self.start(now);
        }
    }

    /// The slice on the line, if its last bit was sent by `now`. The next is to be [started](Self::start).
    fn finish(&mut self, now: Instant) -> Option<Event> {
        if self.sending.as_ref()?.due > now {
            return None;
        }
        if self.queue.follows() {
            self.settle(now);
        }
        let Sending { packet, sent, left, began, due, .. } = self.sending.take()?;
        self.queue.sent(packet.count - sent, left, due);
        self.busy += due - began;
        Some(Event::Forward { packet, due })
    }

    /// Puts the next slice on the line, where it was left, unless it still stands still at `now`.
    fn start(&mut self, now: Instant) {
        if self.sending.is_some() || self.line.stands_still(now) {
            return;
        }
        if self.queue.is_empty() {
            return self.queue.idle();
        }
        self.line.idle_until_ready();
        let since = self.line.free();
        let Some(Waiting { mut packet, since: came }) = self.queue.take(&mut self.line, &mut self.out) else { return };
        let began = since.at();
        packet.waited += began.saturating_since(came);
        let left = self.queue.tariff().all(&packet);
        self.line.send(left);
        let due = self.line.free().at();
        self.sending = Some(Sending { packet, came, began, sent: 0, left, since, done: None, due });
    }

    /// Tells the queue of the virtual packets of the present slice that have gone by `now`.
    fn settle(&mut self, now: Instant) {
        let Some(sending) = &mut self.sending else { return };
        let left = sending.packet.count - sending.sent;
        if left == 1 {
            return;
        }
        let bytes = self.queue.tariff().one(sending.packet.wire);
        let gone = self.line.packets_by(sending.since, now, bytes).min(left - 1);
        if gone == 0 {
            return;
        }
        sending.left -= u64::from(gone) * bytes;
        if !self.queue.follows() {
            self.line.pass(&mut sending.since, u64::from(gone) * bytes);
            sending.sent += gone;
            return self.queue.sent(gone, u64::from(gone) * bytes, now);
        }
        for _ in 0..gone {
            self.line.pass(&mut sending.since, bytes);
            sending.sent += 1;
            let at = sending.since.at();
            self.queue.sent(1, bytes, at);
            let next = if sending.sent + 1 < sending.packet.count {
                bytes
            } else {
                self.queue.tariff().one(sending.packet.last_wire)
            };
            self.queue.follow(&sending.packet, sending.came, at, next);
        }
    }

    fn admit(&mut self, packet: Packet, now: Instant) {
        let rate = self.line.rate();
        self.queue.admit(packet, now, rate, &mut self.out);
    }

    /// Ends the present slice with the virtual packet on the line at `now`; the others go back.
    fn cut(&mut self, now: Instant) {
        self.settle(now);
        let Some(sending) = &mut self.sending else { return };
        let (all, keep) = (sending.packet, sending.sent + 1);
        if keep == all.count {
            return;
        }
        let mut back = all.part(keep, all.count - keep);
        back.waited = back.waited.saturating_sub(sending.began.saturating_since(sending.came));
        self.queue.put_back(Waiting { packet: back, since: sending.came });
        sending.packet = all.part(0, keep);
        sending.left = self.queue.tariff().one(sending.packet.last_wire);
        let mut end = sending.since;
        self.line.pass(&mut end, sending.left);
        self.line.leave_at(end);
        sending.due = end.at();
    }

    /// Goes on with the virtual packet on the line at other rates; the rest of the slice was cut off.
    fn resume(&mut self, config: &LinkConfig, now: Instant) {
        let Some(sending) = &mut self.sending else {
            // Until now it had nothing to send, or stood still.
            self.line.idle_until(now);
            return self.line.set(config);
        };
        let before = sending.done.unwrap_or(Done { of: sending.left, work: 0 });
        let done = Done { work: before.work + self.line.work(sending.since, now), ..before };
        self.line.set(config);
        sending.since = self.line.send_rest(done.of, done.work, now.max(sending.since.at()));
        (sending.done, sending.due) = (Some(done), self.line.free().at());
    }
}

impl Stage for Bottleneck {
    fn push(&mut self, packet: Packet, now: Instant) {
        // The queue must be as it was at the arrival, however late the caller is with polling.
        self.advance(now);
        match &self.sending {
            Some(sending) if self.queue.is_disturbed(&packet, &sending.packet) => self.cut(now),
            Some(_) => self.settle(now),
            None => self.line.idle_until(now),
        }
        let mut rest = packet;
        if self.sending.is_none() && self.queue.wants_first_sent(&packet) {
            self.admit(packet.part(0, 1), now);
            self.start(now);
            rest = packet.part(1, packet.count - 1);
        }
        self.admit(rest, now);
        self.start(now);
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.out.is_empty() {
            // Where the line stood still.
            self.start(now);
        }
        if !self.out.is_empty() {
            return self.out.pop(now);
        }
        let event = self.finish(now)?;
        self.start(now);
        Some(event)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next().or_else(|| match &self.sending {
            Some(sending) => Some(sending.due),
            // The line stands still, and goes on then.
            None => (!self.queue.is_empty()).then(|| self.line.ready()),
        })
    }

    /// The virtual packet on the line goes on at the new rate from `now` on, with the overhead it began with.
    fn set(&mut self, config: &LinkConfig, now: Instant) {
        self.advance(now);
        self.cut(now);
        self.resume(config, now);
        let sending = self.sending.as_ref().map(|sending| sending.packet.part(sending.sent, 1));
        self.queue.set(config, sending, now);
        if let Some(sending) = &mut self.sending {
            // Held as under the new layer from now on.
            sending.left = self.queue.tariff().one(sending.packet.last_wire);
        }
        self.start(now);
    }

    fn report(&self, stats: &mut LinkStats) {
        stats.queued.0 += self.queue.bytes().0;
        stats.queue_peak = stats.queue_peak.max(self.queue.peak());
        stats.busy = stats.busy.max(self.busy);
    }
}
