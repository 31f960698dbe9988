//! CoDel (RFC 8289): drops packets after their wait stayed above a target for a whole interval.
//!
//! [`CoDelState`] is the control law alone. It computes with the wait of a packet and the bytes behind it, and decides
//! about every virtual packet at the moment it would leave. It also gives the time until which it certainly drops
//! nothing, so packets can be sent in slices until then. [`CoDelQueue`] is a queue under this law: one for `codel`, and
//! one per flow for FQ-CoDel.

use std::fmt;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{duration_argument, parse_unit_duration};
use lfn_packet::Ecn;

use super::backlog::Backlog;
use super::drop_tail::{Fifo, QueuedRange};
use super::error::DisciplineError;
use super::{FramingOverhead, TransmitLine};
use crate::outbox::Outbox;
use crate::packet::{DropCause, Packet};
use crate::setting::{Parts, SettingError};

/// Parameters of the CoDel discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// Acceptable standing wait (RFC 8289 §4.3): 5 to 10 % of the interval.
    pub target: Duration,
    /// Time in which a burst can drain (RFC 8289 §4.2): about the maximum RTT of the traffic. The default of 100 ms
    /// suits the Internet. A longer path needs its own RTT.
    pub interval: Duration,
}

impl Default for CoDel {
    /// Returns 5 ms and 100 ms (RFC 8289 §4.4).
    fn default() -> Self {
        CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl CoDel {
    pub(super) const FORM: &'static str = "codel:target=5ms:interval=100ms";

    pub(super) fn parse(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = CoDel::default();
        Ok(CoDel {
            target: parts.optional_key("target", parse_unit_duration)?.unwrap_or(default.target),
            interval: parts.optional_key("interval", parse_unit_duration)?.unwrap_or(default.interval),
        })
    }

    pub(super) fn check(&self) -> Result<(), DisciplineError> {
        const MAX_INTERVAL: Duration = Duration::from_secs(3600);
        let CoDel { target, interval } = *self;
        if interval > MAX_INTERVAL {
            return Err(DisciplineError::Interval(interval));
        }
        // A target of zero would treat the first packet of an idle line as a standing queue.
        if target.is_zero() || target >= interval {
            return Err(DisciplineError::Target { target, interval });
        }
        Ok(())
    }
}

impl fmt::Display for CoDel {
    /// Writes each parameter that differs from the default after a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = CoDel::default();
        for (name, value, default) in
            [("target", self.target, default.target), ("interval", self.interval, default.interval)]
        {
            if value != default {
                write!(f, ":{name}={}", duration_argument(value))?;
            }
        }
        Ok(())
    }
}

/// Queue under the CoDel control law.
#[derive(Debug, Default)]
pub(super) struct CoDelQueue {
    fifo: Fifo,
    /// Bytes of the virtual packets that were admitted and whose transmission has not started.
    bytes: u64,
    control: CoDelState,
}

/// Settings that the disciplines share.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueSettings {
    pub(super) codel: CoDel,
    /// A backlog up to this size, one packet of the maximum length, is not a standing queue.
    pub(super) largest: u64,
    /// Whether to mark ECN-capable packets instead of dropping them.
    pub(super) ecn: bool,
    pub(super) overhead: FramingOverhead,
}

/// First virtual packet of a queue, which is sent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadPacket {
    /// Bytes on the line.
    pub(super) bytes: u64,
    /// Whether the packet is marked. A marked packet is sent alone.
    pub(super) is_marked: bool,
}

impl CoDelQueue {
    pub(super) fn push(&mut self, waiting: QueuedRange, overhead: FramingOverhead) {
        self.bytes += overhead.range_bytes(&waiting.packet);
        self.fifo.push_merged(waiting);
    }

    /// Returns a range that was [popped](Self::pop) and not started to the front.
    pub(super) fn put_back(&mut self, waiting: QueuedRange) {
        self.fifo.push_front(waiting);
    }

    /// Drops packets from the front as CoDel decides at `now`, then starts the first remaining one.
    pub(super) fn dequeue(
        &mut self,
        now: Instant,
        settings: &QueueSettings,
        backlog: &mut Backlog,
        out: &mut Outbox,
    ) -> Option<HeadPacket> {
        let mut phase = Phase::First;
        loop {
            let Some(QueuedRange { packet, arrived_at }) = self.fifo.front() else {
                self.control.on_idle();
                return None;
            };
            let bytes = settings.overhead.packet_bytes(packet.first_wire_len());
            let may_mark = settings.ecn && packet.ecn != Ecn::NotCapable;
            self.bytes -= bytes;
            let decision =
                self.control.decide(&mut phase, now, now.saturating_since(*arrived_at), self.bytes, settings);
            match decision {
                CoDelDecision::Send => return Some(HeadPacket { bytes, is_marked: false }),
                CoDelDecision::Signal if may_mark => {
                    self.control.on_marked(phase, now, settings);
                    return Some(HeadPacket { bytes, is_marked: true });
                }
                CoDelDecision::Signal => {
                    backlog.remove(1, bytes);
                    if let Some(QueuedRange { packet, .. }) = self.fifo.pop(1) {
                        out.drop(packet, DropCause::Aqm, now);
                    }
                }
            }
        }
    }

    /// Returns how many virtual packets may follow in series from the point at which the line is free.
    /// [`on_packet_start`](Self::on_packet_start) certainly drops none of them.
    pub(super) fn packets_before_drop(&self, head: HeadPacket, line: &TransmitLine, settings: &QueueSettings) -> u32 {
        let free = line.free_point();
        let until = self.control.no_drop_before(free.at(), settings);
        // The packets that begin before then: as many as end before, and the first.
        line.packets_sent_by(free, Instant::from_nanos(until.as_nanos() - 1), head.bytes).saturating_add(1)
    }

    /// Takes up to `max` virtual packets from the front. The first one has started.
    pub(super) fn pop(&mut self, max: u32) -> Option<QueuedRange> {
        self.fifo.pop(max)
    }

    /// Starts the next virtual packet of the popped range after a wait of `waited`.
    pub(super) fn on_packet_start(&mut self, now: Instant, waited: Duration, bytes: u64, settings: &QueueSettings) {
        self.bytes -= bytes;
        let decision = self.control.decide(&mut Phase::First, now, waited, self.bytes, settings);
        debug_assert_eq!(decision, CoDelDecision::Send, "a slice was longer than sure");
    }

    /// Returns the bytes of the waiting packets.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    /// Drops the first virtual packet because the queue is full.
    pub(super) fn drop_first(&mut self, overhead: FramingOverhead) -> Option<(Packet, u64)> {
        let QueuedRange { packet, .. } = self.fifo.pop(1)?;
        let bytes = overhead.range_bytes(&packet);
        self.bytes -= bytes;
        Some((packet, bytes))
    }

    /// Notes that the queue was empty when the line was free.
    pub(super) fn on_idle(&mut self) {
        self.control.on_idle();
    }

    /// Removes all waiting packets in order, for another queue.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = QueuedRange> + '_ {
        self.bytes = 0;
        self.fifo.drain()
    }
}

/// State of the control law (RFC 8289 §5.3).
#[derive(Clone, Copy, Debug, Default)]
struct CoDelState {
    /// Time at which dropping begins if the wait stays above the target.
    first_above: Option<Instant>,
    /// Time of the next drop while dropping.
    drop_next: Instant,
    /// Packets dropped since dropping began.
    count: u32,
    /// Count at the start of dropping.
    last_count: u32,
    dropping: bool,
}

/// Progress of the dequeue routine of the RFC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first packet of this call.
    First,
    /// The packet after a drop while dropping.
    Dropping,
    /// The packet after the drop that started the dropping state.
    Entering,
}

/// Decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoDelDecision {
    Send,
    /// Signal congestion to the sender by a drop or a mark.
    Signal,
}

impl CoDelState {
    /// Runs the dequeue routine (RFC 8289 §5.5), one packet at a time.
    fn decide(
        &mut self,
        phase: &mut Phase,
        now: Instant,
        waited: Duration,
        left: u64,
        settings: &QueueSettings,
    ) -> CoDelDecision {
        let is_above_target = self.is_above_target(now, waited, left, settings);
        match *phase {
            Phase::First if !self.dropping => {
                if !is_above_target {
                    return CoDelDecision::Send;
                }
                *phase = Phase::Entering;
                return CoDelDecision::Signal;
            }
            Phase::First => {}
            // The packet after this drop is always sent.
            Phase::Entering => {
                self.start_dropping(now, settings);
                return CoDelDecision::Send;
            }
            Phase::Dropping if is_above_target => self.drop_next = self.control_law(self.drop_next, settings),
            Phase::Dropping => {}
        }
        if !is_above_target {
            self.dropping = false;
        }
        if !self.dropping || now < self.drop_next {
            return CoDelDecision::Send;
        }
        self.count = self.count.saturating_add(1);
        *phase = Phase::Dropping;
        CoDelDecision::Signal
    }

    /// Ends the routine after the last packet was marked instead of dropped.
    fn on_marked(&mut self, phase: Phase, now: Instant, settings: &QueueSettings) {
        match phase {
            Phase::Entering => self.start_dropping(now, settings),
            _ => self.drop_next = self.control_law(self.drop_next, settings),
        }
    }

    /// Reports whether the wait has been above the target for an interval (`ok_to_drop` of `dodequeue` in the RFC).
    fn is_above_target(&mut self, now: Instant, waited: Duration, left: u64, settings: &QueueSettings) -> bool {
        if waited < settings.codel.target || left <= settings.largest {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + settings.codel.interval);
                false
            }
            Some(first_above) => now >= first_above,
        }
    }

    /// Starts dropping. If the last dropping state ended recently, dropping continues at the rate that controlled the
    /// queue.
    fn start_dropping(&mut self, now: Instant, settings: &QueueSettings) {
        const LATELY: u32 = 16;
        let delta = self.count.saturating_sub(self.last_count);
        let is_lately = now < self.drop_next + settings.codel.interval * LATELY;
        self.dropping = true;
        self.count = if delta > 1 && is_lately { delta } else { 1 };
        self.drop_next = self.control_law(now, settings);
        self.last_count = self.count;
    }

    /// Returns the time of the drop after one at `after`: the interval shrinks with the square root of the count.
    fn control_law(&self, after: Instant, settings: &QueueSettings) -> Instant {
        let interval = settings.codel.interval.as_nanos() as f64;
        after + Duration::from_nanos((interval / f64::from(self.count.max(1)).sqrt()) as u64)
    }

    /// Resets the state because the queue was empty when the line was free.
    fn on_idle(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// Returns the time before which no starting packet is dropped or marked, if a packet was sent at `now`.
    fn no_drop_before(&self, now: Instant, settings: &QueueSettings) -> Instant {
        let until =
            if self.dropping { self.drop_next } else { self.first_above.unwrap_or(now + settings.codel.interval) };
        until.max(now + Duration::from_nanos(1))
    }
}
