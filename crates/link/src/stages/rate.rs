//! Rate stage: a line with a queue in front of it.
//!
//! Line and queue are one stage because the queue empties at the rate of the line, and CoDel decides at the moment of
//! dequeueing. A slice is sent in one step: consecutive virtual packets of one super-packet whose line time is within
//! the configured slice. They count as sent one by one, and leave together when the last one is sent. The arithmetic of
//! the line is in `line`.

use std::time::Duration;

use lfn_base::time::Instant;

use super::line::{LinePoint, TransmitLine};
use super::queue::{LineSettings, Queue, QueuedRange};
use crate::hop_context::HopContext;
use crate::outbox::Outbox;
use crate::packet::{LinkEvent, LinkStats, Packet};
use crate::stage::{ImpairmentStage, Stage};

/// Queue and line of one hop.
pub(super) struct RateStage {
    queue: Queue,
    line: TransmitLine,
    sending: Option<TransmittedSlice>,
    /// Line time of all slices that were sent.
    busy: Duration,
    /// Events that were not popped yet.
    out: Outbox,
}

/// Slice on the line.
struct TransmittedSlice {
    packet: Packet,
    /// Arrival in the queue.
    arrived_at: Instant,
    /// Time at which its first bit was sent.
    started_at: Instant,
    /// Virtual packets whose last bit is known to be sent.
    sent: u32,
    /// Bytes of the other virtual packets on the line.
    remaining_bytes: u64,
    /// Point at which the first of the other virtual packets starts.
    next_start: LinePoint,
    /// Work before a change of settings; the slice then has one virtual packet left.
    earlier_work: Option<EarlierWork>,
    /// Time at which the last bit of the slice is sent.
    due: Instant,
}

/// Work on a packet that started under other settings.
#[derive(Clone, Copy)]
struct EarlierWork {
    /// Size in bytes of the line when the packet started.
    bytes: u64,
    /// Work done before `next_start`.
    work: u128,
}

impl RateStage {
    /// Advances to `now` and puts the events up to then into `out`.
    fn advance(&mut self, now: Instant) {
        // A stall of the line may have ended before `now`.
        self.start_slice(now);
        while let Some(event) = self.finish_slice(now) {
            self.out.push(event);
            self.start_slice(now);
        }
    }

    /// Returns the slice on the line if its last bit was sent by `now`. The caller then [starts](Self::start_slice) the
    /// next one.
    fn finish_slice(&mut self, now: Instant) -> Option<LinkEvent> {
        if self.sending.as_ref()?.due > now {
            return None;
        }
        if self.queue.tracks_packets() {
            self.account_sent(now);
        }
        let TransmittedSlice { packet, sent, remaining_bytes: left_bytes, started_at, due, .. } =
            self.sending.take()?;
        self.queue.on_sent(packet.count - sent, left_bytes, due);
        self.busy += due - started_at;
        Some(LinkEvent::Forward { packet, due })
    }

    /// Puts the next slice on the line as soon as the line is free, unless the line is still stalled at `now`.
    fn start_slice(&mut self, now: Instant) {
        if self.sending.is_some() || self.line.is_stalled(now) {
            return;
        }
        if self.queue.is_empty() {
            return self.queue.on_idle();
        }
        self.line.idle_until_ready();
        let next_start = self.line.free_point();
        let Some(QueuedRange { mut packet, arrived_at }) = self.queue.take_slice(&mut self.line, &mut self.out) else {
            return;
        };
        let started_at = next_start.at();
        packet.queue_delay += started_at.saturating_since(arrived_at);
        let left_bytes = self.queue.overhead().range_bytes(&packet);
        self.line.send(left_bytes);
        let due = self.line.free_point().at();
        self.sending = Some(TransmittedSlice {
            packet,
            arrived_at,
            started_at,
            sent: 0,
            remaining_bytes: left_bytes,
            next_start,
            earlier_work: None,
            due,
        });
    }

    /// Reports the virtual packets of the present slice that were sent by `now` to the queue.
    fn account_sent(&mut self, now: Instant) {
        let Some(sending) = &mut self.sending else { return };
        let left = sending.packet.count - sending.sent;
        if left == 1 {
            return;
        }
        let bytes = self.queue.overhead().packet_bytes(sending.packet.wire_len);
        let gone = self.line.packets_sent_by(sending.next_start, now, bytes).min(left - 1);
        if gone == 0 {
            return;
        }
        sending.remaining_bytes -= u64::from(gone) * bytes;
        if !self.queue.tracks_packets() {
            self.line.advance(&mut sending.next_start, u64::from(gone) * bytes);
            sending.sent += gone;
            return self.queue.on_sent(gone, u64::from(gone) * bytes, now);
        }
        for _ in 0..gone {
            self.line.advance(&mut sending.next_start, bytes);
            sending.sent += 1;
            let at = sending.next_start.at();
            self.queue.on_sent(1, bytes, at);
            let next = if sending.sent + 1 < sending.packet.count {
                bytes
            } else {
                self.queue.overhead().packet_bytes(sending.packet.last_wire_len)
            };
            self.queue.on_packet_start(&sending.packet, sending.arrived_at, at, next);
        }
    }

    fn admit(&mut self, packet: Packet, now: Instant) {
        let rate = self.line.rate();
        self.queue.admit(packet, now, rate, &mut self.out);
    }

    /// Ends the present slice with the virtual packet on the line at `now`. The other packets return to the queue.
    fn cut_slice(&mut self, now: Instant) {
        self.account_sent(now);
        let Some(sending) = &mut self.sending else { return };
        let (all, keep) = (sending.packet, sending.sent + 1);
        if keep == all.count {
            return;
        }
        let mut back = all.part(keep, all.count - keep);
        back.queue_delay = back.queue_delay.saturating_sub(sending.started_at.saturating_since(sending.arrived_at));
        self.queue.put_back(QueuedRange { packet: back, arrived_at: sending.arrived_at });
        sending.packet = all.part(0, keep);
        sending.remaining_bytes = self.queue.overhead().packet_bytes(sending.packet.last_wire_len);
        let mut end = sending.next_start;
        self.line.advance(&mut end, sending.remaining_bytes);
        self.line.set_free_at(end);
        sending.due = end.at();
    }

    /// Continues the virtual packet on the line at other rates. The rest of the slice was cut off.
    fn apply_rates(&mut self, settings: &LineSettings, context: &HopContext, now: Instant) {
        let Some(sending) = &mut self.sending else {
            // The line was idle or stalled until now.
            self.line.idle_until(now);
            return self.line.set(&settings.rate, context);
        };
        let before = sending.earlier_work.unwrap_or(EarlierWork { bytes: sending.remaining_bytes, work: 0 });
        let done = EarlierWork { work: before.work + self.line.work_between(sending.next_start, now), ..before };
        self.line.set(&settings.rate, context);
        sending.next_start = self.line.send_rest(done.bytes, done.work, now.max(sending.next_start.at()));
        (sending.earlier_work, sending.due) = (Some(done), self.line.free_point().at());
    }
}

impl Stage for RateStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        // The queue must have its state as of the arrival, however late the caller polls.
        self.advance(now);
        match &self.sending {
            Some(sending) if self.queue.changes_order(&packet, &sending.packet) => self.cut_slice(now),
            Some(_) => self.account_sent(now),
            None => self.line.idle_until(now),
        }
        let mut rest = packet;
        if self.sending.is_none() && self.queue.must_send_first(&packet) {
            self.admit(packet.part(0, 1), now);
            self.start_slice(now);
            rest = packet.part(1, packet.count - 1);
        }
        self.admit(rest, now);
        self.start_slice(now);
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        if self.out.is_empty() {
            // A stall of the line may have ended.
            self.start_slice(now);
        }
        if !self.out.is_empty() {
            return self.out.pop(now);
        }
        let event = self.finish_slice(now)?;
        self.start_slice(now);
        Some(event)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at().or_else(|| match &self.sending {
            Some(sending) => Some(sending.due),
            // The line is stalled until then.
            None => (!self.queue.is_empty()).then(|| self.line.ready_at()),
        })
    }

    fn add_stats(&self, stats: &mut LinkStats) {
        stats.queued.0 += self.queue.bytes().0;
        stats.queue_peak = stats.queue_peak.max(self.queue.peak());
        stats.busy = stats.busy.max(self.busy);
    }
}

impl ImpairmentStage for RateStage {
    type Settings = LineSettings;

    fn new(settings: LineSettings, context: &HopContext) -> Self {
        RateStage {
            queue: Queue::new(&settings, context),
            line: TransmitLine::new(&settings.rate, context),
            sending: None,
            busy: Duration::ZERO,
            out: Outbox::default(),
        }
    }

    /// Continues the virtual packet on the line at the new rate from `now` on, with the overhead it started with.
    fn set(&mut self, settings: LineSettings, context: &HopContext, now: Instant) {
        self.advance(now);
        self.cut_slice(now);
        self.apply_rates(&settings, context, now);
        let sending = self.sending.as_ref().map(|sending| sending.packet.part(sending.sent, 1));
        self.queue.set(&settings, context, sending, now);
        if let Some(sending) = &mut self.sending {
            // The backlog counts the packet under the new layer from now on.
            sending.remaining_bytes = self.queue.overhead().packet_bytes(sending.packet.last_wire_len);
        }
        self.start_slice(now);
    }
}
