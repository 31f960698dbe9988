//! CoDel (RFC 8289): drops when packets have waited longer than a target for a whole interval.
//!
//! [`Control`] is the control law alone: arithmetic on the time a packet has waited and the bytes left behind, asked about
//! every virtual packet at the moment it would leave. It can say until when it is sure to let pass whatever comes, so
//! that packets can be sent in slices until then. [`Controlled`] is a queue under it: the only one of `codel`, and one for
//! every flow of FQ-CoDel.

use std::fmt;
use std::time::Duration;

use super::drop_tail::{Fifo, Waiting};
use super::settings::DisciplineError;
use super::{Held, Line, Tariff};
use crate::link::outbox::Outbox;
use crate::link::setting::{Parts, SettingError};
use crate::link::{DropCause, Ecn, Packet};
use crate::time::Instant;
use crate::units::{parse_unit_duration, typed_duration};

/// What CoDel is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDel {
    /// The standing wait that is acceptable (RFC 8289 §4.3): 5 to 10 % of the interval.
    pub target: Duration,
    /// The time a burst has to drain (RFC 8289 §4.2): about the longest round trip of the traffic. The default of 100 ms
    /// is the Internet's; a longer path wants its round-trip time.
    pub interval: Duration,
}

impl Default for CoDel {
    /// 5 ms and 100 ms (RFC 8289 §4.4).
    fn default() -> Self {
        CoDel { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

impl CoDel {
    pub(super) const FORM: &'static str = "codel:target=5ms:interval=100ms";

    pub(super) fn read(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = CoDel::default();
        Ok(CoDel {
            target: parts.key("target", parse_unit_duration)?.unwrap_or(default.target),
            interval: parts.key("interval", parse_unit_duration)?.unwrap_or(default.interval),
        })
    }

    pub(super) fn check(&self) -> Result<(), DisciplineError> {
        const MOST_INTERVAL: Duration = Duration::from_secs(3600);
        let CoDel { target, interval } = *self;
        if interval > MOST_INTERVAL {
            return Err(DisciplineError::Interval(interval));
        }
        // A target of zero would take the very first packet of an idle line for a standing queue.
        if target.is_zero() || target >= interval {
            return Err(DisciplineError::Target { target, interval });
        }
        Ok(())
    }
}

impl fmt::Display for CoDel {
    /// The parameters as typed, each behind a colon, without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = CoDel::default();
        for (name, value, default) in
            [("target", self.target, default.target), ("interval", self.interval, default.interval)]
        {
            if value != default {
                write!(f, ":{name}={}", typed_duration(value))?;
            }
        }
        Ok(())
    }
}

/// A queue under CoDel.
#[derive(Debug, Default)]
pub(super) struct Controlled {
    fifo: Fifo,
    /// Of the virtual packets that were let in and not yet begun to be sent.
    bytes: u64,
    control: Control,
}

/// What CoDel goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) codel: CoDel,
    /// A backlog of no more than this is no standing queue: one packet of the largest size.
    pub(super) largest: u64,
    /// Whether ECN-capable packets are marked instead of dropped.
    pub(super) ecn: bool,
    pub(super) tariff: Tariff,
}

/// The first virtual packet of a queue, that is to be sent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// What it costs the line.
    pub(super) bytes: u64,
    /// It is marked, and so goes alone.
    pub(super) is_marked: bool,
}

impl Controlled {
    pub(super) fn push(&mut self, waiting: Waiting, tariff: Tariff) {
        self.bytes += tariff.all(&waiting.packet);
        self.fifo.push_joined(waiting);
    }

    /// What was [popped](Self::pop) and not begun goes back.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.fifo.push_front(waiting);
    }

    /// Drops from the front what CoDel wants dropped as of `now`, then begins the first that is left.
    pub(super) fn begin(&mut self, now: Instant, rules: &Rules, held: &mut Held, out: &mut Outbox) -> Option<Head> {
        let mut phase = Phase::First;
        loop {
            let Some(Waiting { packet, since }) = self.fifo.front() else {
                self.control.idle();
                return None;
            };
            let bytes = rules.tariff.one(packet.first_wire());
            let may_mark = rules.ecn && packet.ecn != Ecn::NotCapable;
            self.bytes -= bytes;
            let verdict = self.control.judge(&mut phase, now, now.saturating_since(*since), self.bytes, rules);
            match verdict {
                Verdict::Send => return Some(Head { bytes, is_marked: false }),
                Verdict::Signal if may_mark => {
                    self.control.marked(phase, now, rules);
                    return Some(Head { bytes, is_marked: true });
                }
                Verdict::Signal => {
                    held.sent(1, bytes);
                    if let Some(Waiting { packet, .. }) = self.fifo.pop(1) {
                        out.drop(packet, DropCause::Aqm, now);
                    }
                }
            }
        }
    }

    /// How many virtual packets may follow without asking, one after the other from where the line is free: what
    /// [`follow`](Self::follow) is sure to let pass.
    pub(super) fn sure(&self, head: Head, line: &Line, rules: &Rules) -> u32 {
        let free = line.free();
        let until = self.control.quiet_until(free.at(), rules);
        // The packets that begin before then: as many as end before, and the first.
        line.packets_by(free, Instant::from_nanos(until.as_nanos() - 1), head.bytes).saturating_add(1)
    }

    /// The virtual packets from the front that go now, the first of them begun.
    pub(super) fn pop(&mut self, most: u32) -> Option<Waiting> {
        self.fifo.pop(most)
    }

    /// The next virtual packet of what was popped begins, having waited so long.
    pub(super) fn follow(&mut self, now: Instant, waited: Duration, bytes: u64, rules: &Rules) {
        self.bytes -= bytes;
        let verdict = self.control.judge(&mut Phase::First, now, waited, self.bytes, rules);
        debug_assert_eq!(verdict, Verdict::Send, "a slice was longer than sure");
    }

    /// Bytes of what waits.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fifo.is_empty()
    }

    /// Drops the first virtual packet because the queue is full.
    pub(super) fn drop_first(&mut self, tariff: Tariff) -> Option<(Packet, u64)> {
        let Waiting { packet, .. } = self.fifo.pop(1)?;
        let bytes = tariff.all(&packet);
        self.bytes -= bytes;
        Some((packet, bytes))
    }

    /// There was nothing to send when the line was free.
    pub(super) fn idle(&mut self) {
        self.control.idle();
    }

    /// All that waits, in order, to be kept elsewhere.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Waiting> + '_ {
        self.bytes = 0;
        self.fifo.drain()
    }
}

/// The state of the control law (RFC 8289 §5.3).
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    /// If the wait stays above the target, dropping begins then.
    first_above: Option<Instant>,
    /// When the next packet is to be dropped, while dropping.
    drop_next: Instant,
    /// Packets dropped since dropping began.
    count: u32,
    /// The count with which it began.
    last_count: u32,
    dropping: bool,
}

/// How far the dequeue routine of the RFC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first packet it looked at.
    First,
    /// The one after a drop while dropping.
    Dropping,
    /// The one after the drop with which dropping began.
    Entering,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Send,
    /// It tells its sender of congestion: by its loss, or by a mark.
    Signal,
}

impl Control {
    /// The dequeue routine (RFC 8289 §5.5), one packet at a time.
    fn judge(&mut self, phase: &mut Phase, now: Instant, waited: Duration, left: u64, rules: &Rules) -> Verdict {
        let is_long = self.is_long(now, waited, left, rules);
        match *phase {
            Phase::First if !self.dropping => {
                if !is_long {
                    return Verdict::Send;
                }
                *phase = Phase::Entering;
                return Verdict::Signal;
            }
            Phase::First => {}
            // Whatever it is, it is sent.
            Phase::Entering => {
                self.enter(now, rules);
                return Verdict::Send;
            }
            Phase::Dropping if is_long => self.drop_next = self.law(self.drop_next, rules),
            Phase::Dropping => {}
        }
        if !is_long {
            self.dropping = false;
        }
        if !self.dropping || now < self.drop_next {
            return Verdict::Send;
        }
        self.count = self.count.saturating_add(1);
        *phase = Phase::Dropping;
        Verdict::Signal
    }

    /// The packet of the last verdict was marked and goes: the routine is over for now.
    fn marked(&mut self, phase: Phase, now: Instant, rules: &Rules) {
        match phase {
            Phase::Entering => self.enter(now, rules),
            _ => self.drop_next = self.law(self.drop_next, rules),
        }
    }

    /// True if the wait has been above the target for an interval (`ok_to_drop` of `dodequeue` in the RFC).
    fn is_long(&mut self, now: Instant, waited: Duration, left: u64, rules: &Rules) -> bool {
        if waited < rules.codel.target || left <= rules.largest {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + rules.codel.interval);
                false
            }
            Some(first_above) => now >= first_above,
        }
    }

    /// Dropping begins; at the rate that controlled the queue when it was last above the target, if that was lately.
    fn enter(&mut self, now: Instant, rules: &Rules) {
        const LATELY: u32 = 16;
        let delta = self.count.saturating_sub(self.last_count);
        let is_lately = now < self.drop_next + rules.codel.interval * LATELY;
        self.dropping = true;
        self.count = if delta > 1 && is_lately { delta } else { 1 };
        self.drop_next = self.law(now, rules);
        self.last_count = self.count;
    }

    /// When the next is dropped after one at `after`: the interval shrinks with the square root of the count.
    fn law(&self, after: Instant, rules: &Rules) -> Instant {
        let interval = rules.codel.interval.as_nanos() as f64;
        after + Duration::from_nanos((interval / f64::from(self.count.max(1)).sqrt()) as u64)
    }

    /// The queue was empty when the line was free.
    fn idle(&mut self) {
        self.first_above = None;
        self.dropping = false;
    }

    /// No packet that begins before then is dropped or marked, whatever comes, if one was sent at `now`.
    fn quiet_until(&self, now: Instant, rules: &Rules) -> Instant {
        let until = if self.dropping { self.drop_next } else { self.first_above.unwrap_or(now + rules.codel.interval) };
        until.max(now + Duration::from_nanos(1))
    }
}
