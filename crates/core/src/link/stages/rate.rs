//! The bottleneck: a line of constant rate with a queue in front of it.
//!
//! Line and queue are one stage because the queue empties at the pace of the line, and a queue that decides when it
//! hands over (CoDel) has to be asked at that moment. Time on the line is kept in nanoseconds and a remainder, so that
//! no rounding accumulates and a super-packet takes exactly as long as its virtual packets one by one.

use super::queue::{Admission, DropTail};
use crate::link::outbox::Outbox;
use crate::link::{DropCause, Event, LinkConfig, LinkStats, Packet, Stage};
use crate::time::Instant;
use crate::units::BitRate;

/// Queue and line.
pub(super) struct Bottleneck {
    queue: DropTail,
    /// Where the line is free again.
    line: Line,
    sending: Option<Sending>,
    /// Bytes that make up one slice.
    slice: u64,
    /// What has happened and was not yet popped.
    out: Outbox,
}

/// A slice on the line.
struct Sending {
    packet: Packet,
    /// The virtual packets whose last bit is known to be sent.
    sent: u32,
    /// When the first bit of the virtual packet after those was sent.
    since: Line,
    /// When the last bit of the last will have been sent.
    due: Instant,
}

impl Bottleneck {
    pub(super) fn new(config: &LinkConfig) -> Self {
        Bottleneck {
            queue: DropTail::new(config.queue),
            line: Line::new(config.rate),
            sending: None,
            slice: slice(config),
            out: Outbox::default(),
        }
    }

    /// Puts the next slice on the line, where it was left.
    fn start(&mut self) {
        let slice = self.slice;
        let most = |wire: u32| u32::try_from(slice / u64::from(wire.max(1))).unwrap_or(u32::MAX).max(1);
        let Some(packet) = self.queue.slice(most) else { return };
        let since = self.line;
        self.line.send(packet.bytes());
        self.sending = Some(Sending { packet, sent: 0, since, due: self.line.at() });
    }

    /// The slice on the line, if its last bit was sent by `now`; the next one follows without a gap.
    fn finish(&mut self, now: Instant) -> Option<Event> {
        let Sending { packet, sent, due, .. } = self.sending.take_if(|sending| sending.due <= now)?;
        self.queue.sent(packet.part(sent, packet.count - sent).bytes());
        self.start();
        Some(Event::Forward { packet, due })
    }

    /// Tells the queue of the virtual packets of the present slice that have gone by `now`.
    fn settle(&mut self, now: Instant) {
        let Some(sending) = &mut self.sending else { return };
        let left = sending.packet.count - sending.sent;
        if left == 1 {
            return;
        }
        let gone = sending.since.packets_by(now, sending.packet.wire).min(left - 1);
        if gone > 0 {
            let bytes = u64::from(gone) * u64::from(sending.packet.wire);
            sending.since.send(bytes);
            sending.sent += gone;
            self.queue.sent(bytes);
        }
    }
}

impl Stage for Bottleneck {
    fn push(&mut self, packet: Packet, now: Instant) {
        // The queue must be as it was at the arrival, however late the caller is with polling.
        while let Some(event) = self.finish(now) {
            self.out.push(event);
        }
        self.settle(now);
        let Admission { head, last } = self.queue.admit(packet);
        let refused = packet.count - head - u32::from(last);
        if refused > 0 {
            let packet = packet.part(head, refused);
            self.out.drop(packet, DropCause::Queue, now);
        }
        if self.sending.is_none() {
            self.line.idle_until(now);
            self.start();
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.out.is_empty() { self.finish(now) } else { self.out.pop(now) }
    }

    fn next(&self) -> Option<Instant> {
        self.out.next().or_else(|| self.sending.as_ref().map(|sending| sending.due))
    }

    /// What is on the line is sent as it was begun; the next slice follows at the new rate.
    fn set(&mut self, config: &LinkConfig, _now: Instant) {
        self.queue.set_limit(config.queue);
        self.line.set_rate(config.rate);
        self.slice = slice(config);
    }

    fn report(&self, stats: &mut LinkStats) {
        stats.queued.0 += self.queue.bytes().0;
        stats.queue_peak = stats.queue_peak.max(self.queue.peak());
    }
}

/// Bytes that make up one slice, rounded down: a slice is never longer than asked for.
fn slice(config: &LinkConfig) -> u64 {
    u64::try_from(u128::from(config.rate.0) * config.slice.as_nanos() / BYTE_NANOS).unwrap_or(u64::MAX)
}

/// Nanoseconds times bits per second that make a byte.
const BYTE_NANOS: u128 = 8_000_000_000;

/// A point of time on a line, exact: nanoseconds and `part`/`rate` of one more.
#[derive(Clone, Copy, Debug)]
struct Line {
    rate: u64,
    nanos: u64,
    /// Less than `rate`.
    part: u64,
}

impl Line {
    fn new(rate: BitRate) -> Self {
        Line { rate: rate.0.max(1), nanos: 0, part: 0 }
    }

    /// From this point on; less than a nanosecond is rounded up.
    fn set_rate(&mut self, rate: BitRate) {
        self.nanos = self.at().as_nanos();
        self.part = 0;
        self.rate = rate.0.max(1);
    }

    /// Moves on by the time so many bytes take.
    fn send(&mut self, bytes: u64) {
        let work = u128::from(bytes) * BYTE_NANOS + u128::from(self.part);
        // Nearly always the narrow division, which is several times faster.
        let (nanos, part) = match u64::try_from(work) {
            Ok(work) => (work / self.rate, work % self.rate),
            Err(_) => {
                let rate = u128::from(self.rate);
                (u64::try_from(work / rate).unwrap_or(u64::MAX), (work % rate) as u64)
            }
        };
        self.nanos = self.nanos.saturating_add(nanos);
        self.part = part;
    }

    /// The line has nothing to do before `now`.
    fn idle_until(&mut self, now: Instant) {
        if self.nanos < now.as_nanos() {
            self.nanos = now.as_nanos();
            self.part = 0;
        }
    }

    /// The first whole nanosecond that is not before this point.
    fn at(&self) -> Instant {
        Instant::from_nanos(self.nanos.saturating_add(u64::from(self.part > 0)))
    }

    /// How many packets of `wire` bytes, one after the other from here on, are wholly sent by `now`.
    fn packets_by(&self, now: Instant, wire: u32) -> u32 {
        let elapsed = u128::from(now.as_nanos().saturating_sub(self.nanos)) * u128::from(self.rate);
        let work = elapsed.saturating_sub(u128::from(self.part));
        u32::try_from(work / (u128::from(wire.max(1)) * BYTE_NANOS)).unwrap_or(u32::MAX)
    }
}
