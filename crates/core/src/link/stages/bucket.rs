//! Token buckets: a policer drops what exceeds, a shaper delays it.
//!
//! A bucket fills at `rate` up to `burst`, and a packet takes out as many bytes as it has on the wire; what finds too
//! few exceeds. The bucket is kept as the point of time at which it would be full again (the virtual scheduling of
//! ITU-T I.371, GCRA), counted in nanoseconds times bits per second: every sum is exact, nothing drifts. Neither is the
//! line: what conforms goes on at once, as fast as it came.

#[cfg(test)]
mod laws;

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::ranges::apart_as;
use crate::link::config::{check_rate, check_wait};
use crate::link::outbox::Outbox;
use crate::link::setting::{Parts, SettingError};
use crate::link::{DropCause, Event, LinkConfig, LinkError, LinkStats, Packet, Stage};
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// Drops what exceeds a rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// What passes in the long run, in bytes on the wire.
    pub rate: BitRate,
    /// What passes at once after a pause. No packet longer than this ever does.
    pub burst: Bytes,
}

/// Holds back what exceeds a rate and a burst until it conforms, as the kernel's `tbf` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// What passes in the long run, in bytes on the wire.
    pub rate: BitRate,
    /// What passes at once after a pause. A longer packet is dropped.
    pub burst: Bytes,
    /// Most bytes held back; what finds no room is dropped.
    pub limit: Bytes,
}

const POLICER: &str = "RATE:BURST, such as 10mbit:64KB";
const SHAPER: &str = "RATE:BURST or RATE:BURST:LIMIT, such as 10mbit:64KB:1MB";

impl FromStr for Policer {
    type Err = SettingError;

    /// `10mbit:64KB`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut parts = Parts::all(text, POLICER);
        let (rate, burst) = (parts.next("the rate", str::parse)?, parts.next("the burst", str::parse)?);
        parts.end()?;
        let policer = Policer { rate, burst };
        policer.check()?;
        Ok(policer)
    }
}

impl FromStr for Shaper {
    type Err = SettingError;

    /// `10mbit:64KB`, `10mbit:64KB:1MB`. Without a limit it holds what half a second sends, or a burst if that is more.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut parts = Parts::all(text, SHAPER);
        let (rate, burst): (BitRate, Bytes) =
            (parts.next("the rate", str::parse)?, parts.next("the burst", str::parse)?);
        let limit = parts.next_if_any(str::parse)?;
        parts.end()?;
        let shaper = Shaper { rate, burst, limit: limit.unwrap_or_else(|| Shaper::usual_limit(rate, burst)) };
        shaper.check()?;
        Ok(shaper)
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rate.typed(), self.burst.typed())
    }
}

impl fmt::Display for Shaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.rate.typed(), self.burst.typed(), self.limit.typed())
    }
}

impl Policer {
    /// Refuses one that nothing ever passes.
    pub fn check(&self) -> Result<(), LinkError> {
        check_bucket("policer", self.rate, self.burst)
    }
}

impl Shaper {
    /// What a shaper holds unless told otherwise.
    pub fn usual_limit(rate: BitRate, burst: Bytes) -> Bytes {
        const USUAL_WAIT: Duration = Duration::from_millis(500);
        burst.max(rate.times(USUAL_WAIT))
    }

    /// Refuses one that nothing ever passes, or whose queue takes longer to send than anyone waits.
    pub fn check(&self) -> Result<(), LinkError> {
        check_bucket("shaper", self.rate, self.burst)?;
        check_wait(self.limit.into(), self.limit, self.rate)
    }
}

fn check_bucket(what: &'static str, rate: BitRate, burst: Bytes) -> Result<(), LinkError> {
    if rate.0 == 0 {
        return Err(LinkError::BucketRate(what));
    }
    check_rate(rate)?;
    if burst.0 == 0 { Err(LinkError::BucketBurst(what)) } else { Ok(()) }
}

/// Time times rate: nanoseconds times bits per second.
type Work = u128;

/// What a byte takes.
const BYTE: Work = 8_000_000_000;

/// How full the bucket is, at any time from the last packet on.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: u64,
    burst: Work,
    /// When it is full again.
    full: Work,
}

impl Bucket {
    /// Full at `now`.
    fn new(rate: BitRate, burst: Bytes, now: Instant) -> Self {
        let rate = rate.0.max(1);
        Bucket { rate, burst: Work::from(burst.0) * BYTE, full: Work::from(now.as_nanos()) * Work::from(rate) }
    }

    /// Another rate and burst from `now` on. It keeps its tokens as far as they fit, or until when it is empty.
    fn renewed(before: Option<Bucket>, rate: BitRate, burst: Bytes, now: Instant) -> Self {
        let mut new = Bucket::new(rate, burst, now);
        let Some(before) = before else { return new };
        let empty = before.empty_at();
        new.full = if (new.rate, new.burst) == (before.rate, before.burst) {
            before.full
        } else if empty > now {
            new.work(empty) + new.burst
        } else {
            new.full + new.burst.saturating_sub(before.tokens(now))
        };
        new
    }

    /// Takes the tokens for packets of `wire` bytes, one after the other, as far as they are there; gives how many
    /// of `most` conform.
    fn take_conforming(&mut self, now: Instant, wire: u32, most: u32) -> u32 {
        let bytes = self.tokens(now) / BYTE;
        let conforming = bytes.checked_div(Work::from(wire)).unwrap_or(Work::MAX);
        let taken = u32::try_from(conforming).map_or(most, |conforming| conforming.min(most));
        self.full = self.full.max(self.work(now));
        self.borrow(u64::from(taken) * u64::from(wire));
        taken
    }

    /// Takes tokens that are there only from [`empty_at`](Self::empty_at) on.
    fn borrow(&mut self, bytes: u64) {
        self.full += Work::from(bytes) * BYTE;
    }

    /// When the tokens taken so far will all have been there: the first whole nanosecond that is not before.
    fn empty_at(&self) -> Instant {
        let nanos = self.full.saturating_sub(self.burst).div_ceil(Work::from(self.rate));
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How many packets of `wire` bytes, one after the other from when it is empty on, conform by `now`.
    fn repaid(&self, now: Instant, wire: u32) -> u32 {
        let work = (self.work(now) + self.burst).saturating_sub(self.full);
        u32::try_from(work / (Work::from(wire.max(1)) * BYTE)).unwrap_or(u32::MAX)
    }

    /// True if a packet of `wire` bytes ever conforms.
    fn can_hold(&self, wire: u32) -> bool {
        Work::from(wire) * BYTE <= self.burst
    }

    /// What comes in within `time`, in whole bytes.
    fn bytes_in(&self, time: Duration) -> u64 {
        u64::try_from(Work::from(self.rate) * time.as_nanos() / BYTE).unwrap_or(u64::MAX)
    }

    /// What is in it.
    fn tokens(&self, now: Instant) -> Work {
        self.burst.saturating_sub(self.full.saturating_sub(self.work(now)))
    }

    fn work(&self, time: Instant) -> Work {
        Work::from(time.as_nanos()) * Work::from(self.rate)
    }
}

/// How a virtual packet fares at a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Conforms,
    Waits,
    IsDropped,
}

/// The stage of a [`Policer`].
pub(super) struct Police {
    bucket: Option<Bucket>,
    out: Outbox,
}

impl Police {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let bucket = config.policer.map(|policer| Bucket::new(policer.rate, policer.burst, config.epoch));
        Police { bucket, out: Outbox::default() }
    }
}

impl Stage for Police {
    fn push(&mut self, packet: Packet, now: Instant) {
        let Some(bucket) = &mut self.bucket else { return self.out.forward(packet, now) };
        let body = packet.count - 1;
        let head = bucket.take_conforming(now, packet.wire, body);
        let is_last_in = bucket.take_conforming(now, packet.last_wire, 1) == 1;
        let fates = [(true, head), (false, body - head), (is_last_in, 1)];
        apart_as(packet, fates, |conforms, packet| {
            if conforms { self.out.forward(packet, now) } else { self.out.drop(packet, DropCause::Policer, now) }
        });
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        self.out.pop(now)
    }

    fn next(&self) -> Option<Instant> {
        self.out.next()
    }

    fn set(&mut self, config: &LinkConfig, now: Instant) {
        self.bucket = config.policer.map(|Policer { rate, burst }| Bucket::renewed(self.bucket, rate, burst, now));
    }
}

/// The stage of a [`Shaper`].
///
/// As long as anything waits the bucket is empty, and packets leave at its rate, like those on a line: in slices, so that
/// super-packets stay large. A slice leaves when its last virtual packet conforms: the queue behind gets together what
/// would come one by one, each up to a slice later, and may overflow at another packet than with single ones.
pub(super) struct Shape {
    bucket: Option<Bucket>,
    queue: Queue,
    leaving: Option<Leaving>,
    /// Most time that the packets of one slice are apart.
    slice: Duration,
    out: Outbox,
}

/// What is held back, in order, and when it came.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Packet, Instant)>,
    limit: u64,
    /// Of the virtual packets that do not conform yet.
    bytes: u64,
    peak: u64,
}

/// The next slice to leave.
struct Leaving {
    packet: Packet,
    came: Instant,
    /// The virtual packets known to conform.
    gone: u32,
    /// The bucket as it was before those after them took their tokens.
    before: Bucket,
    /// When the last of them conforms.
    due: Instant,
}

impl Shape {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut stage =
            Shape { bucket: None, queue: Queue::default(), leaving: None, slice: config.slice, out: Outbox::default() };
        stage.set(config, config.epoch);
        stage
    }

    /// Prepares the next slice to leave.
    fn start(&mut self) {
        let Some(bucket) = &mut self.bucket else { return };
        let Some((packet, came)) = self.queue.slice(bucket.bytes_in(self.slice)) else { return };
        let before = *bucket;
        bucket.borrow(packet.bytes());
        self.leaving = Some(Leaving { packet, came, gone: 0, before, due: bucket.empty_at() });
    }

    /// The next slice, if all of it conforms by `now`; the one after it follows.
    fn finish(&mut self, now: Instant) -> Option<Event> {
        let Leaving { mut packet, came, gone, due, .. } = self.leaving.take_if(|leaving| leaving.due <= now)?;
        self.queue.left(packet.part(gone, packet.count - gone).bytes());
        self.start();
        packet.waited += due - came;
        Some(Event::Forward { packet, due })
    }

    /// Takes off the queue the virtual packets of the next slice that conform by `now`.
    fn settle(&mut self, now: Instant) {
        let Some(Leaving { packet, gone, before, .. }) = &mut self.leaving else { return };
        let left = packet.count - *gone;
        let conforming = before.repaid(now, packet.wire).min(left - 1);
        if conforming > 0 {
            let bytes = u64::from(conforming) * u64::from(packet.wire);
            before.borrow(bytes);
            *gone += conforming;
            self.queue.left(bytes);
        }
    }

    /// How the virtual packets of `packet` fare that come at `now`: in order, and as if one came after the other.
    fn admit(&mut self, packet: &Packet, now: Instant) -> [(Fate, u32); 4] {
        let Some(bucket) = &mut self.bucket else { return [(Fate::Conforms, packet.count); 4] };
        let body = packet.count - 1;
        let is_idle = self.leaving.is_none();
        let head = if is_idle { bucket.take_conforming(now, packet.wire, body) } else { 0 };
        let waiting = self.queue.admit(bucket, packet.wire, body - head);
        let refused = body - head - waiting;
        let last = if is_idle && waiting == 0 && bucket.take_conforming(now, packet.last_wire, 1) == 1 {
            Fate::Conforms
        } else if self.queue.admit(bucket, packet.last_wire, 1) == 1 {
            Fate::Waits
        } else {
            Fate::IsDropped
        };
        [(Fate::Conforms, head), (Fate::Waits, waiting), (Fate::IsDropped, refused), (last, 1)]
    }

    /// Without a bucket nothing has to wait.
    fn release(&mut self, now: Instant) {
        let next = self.leaving.take().map(|leaving| (leaving.packet, leaving.came));
        for (mut packet, came) in next.into_iter().chain(self.queue.waiting.drain(..)) {
            packet.waited += now - came;
            self.out.forward(packet, now);
        }
        self.queue.bytes = 0;
    }
}

impl Stage for Shape {
    fn push(&mut self, packet: Packet, now: Instant) {
        if self.bucket.is_none() {
            return self.out.forward(packet, now);
        }
        // The queue must be as it was at the arrival, however late the caller is with polling.
        while let Some(event) = self.finish(now) {
            self.out.push(event);
        }
        self.settle(now);
        let fates = self.admit(&packet, now);
        apart_as(packet, fates, |fate, packet| match fate {
            Fate::Conforms => self.out.forward(packet, now),
            Fate::Waits => self.queue.waiting.push_back((packet, now)),
            Fate::IsDropped => self.out.drop(packet, DropCause::Shaper, now),
        });
        if self.leaving.is_none() {
            self.start();
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Event> {
        if self.out.is_empty() { self.finish(now) } else { self.out.pop(now) }
    }

    fn next(&self) -> Option<Instant> {
        self.out.next().or_else(|| self.leaving.as_ref().map(|leaving| leaving.due))
    }

    /// The slice that is next to leave does so when it was to; the others go by the new settings.
    fn set(&mut self, config: &LinkConfig, now: Instant) {
        while let Some(event) = self.finish(now) {
            self.out.push(event);
        }
        self.slice = config.slice;
        self.queue.limit = config.shaper.map_or(0, |shaper| shaper.limit.0);
        self.bucket = config.shaper.map(|Shaper { rate, burst, .. }| Bucket::renewed(self.bucket, rate, burst, now));
        if self.bucket.is_none() {
            self.release(now);
        }
    }

    fn report(&self, stats: &mut LinkStats) {
        stats.queued.0 += self.queue.bytes;
        stats.queue_peak = stats.queue_peak.max(Bytes(self.queue.peak));
    }
}

impl Queue {
    /// Makes room for as many of `count` virtual packets of `wire` bytes as fit, and could ever conform.
    fn admit(&mut self, bucket: &Bucket, wire: u32, count: u32) -> u32 {
        if !bucket.can_hold(wire) {
            return 0;
        }
        let room = self.limit.saturating_sub(self.bytes);
        let fitting = room.checked_div(u64::from(wire)).unwrap_or(u64::MAX);
        let admitted = u32::try_from(fitting).map_or(count, |fitting| fitting.min(count));
        self.bytes += u64::from(admitted) * u64::from(wire);
        self.peak = self.peak.max(self.bytes);
        admitted
    }

    /// Virtual packets from the front, `most` bytes of them or one; they count until they have [`left`](Self::left).
    fn slice(&mut self, most: u64) -> Option<(Packet, Instant)> {
        let (front, came) = self.waiting.front_mut()?;
        let count = u32::try_from(most / u64::from(front.wire.max(1))).unwrap_or(u32::MAX).max(1);
        if count >= front.count {
            return self.waiting.pop_front();
        }
        let slice = front.part(0, count);
        *front = front.part(count, front.count - count);
        Some((slice, *came))
    }

    fn left(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
