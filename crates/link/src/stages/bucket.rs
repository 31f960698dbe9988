//! Token buckets: a policer drops packets that exceed the rate and burst, a shaper delays them.
//!
//! A bucket fills at `rate` up to `burst`. A packet takes as many bytes as it has on the wire, and exceeds the rate if
//! the bucket has fewer. The state of the bucket is the time at which it would be full again (virtual scheduling of ITU-T
//! I.371, GCRA), counted in nanoseconds times bits per second. Every sum is exact, so nothing drifts. A bucket is not a
//! line: conforming packets pass immediately, as fast as they arrive.

#[cfg(test)]
mod laws;

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};

use super::ranges::split_by_known_outcomes;
use crate::error::{LinkError, check_queue_time, check_rate};
use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::outbox::Outbox;
use crate::packet::{DropCause, LinkEvent, LinkStats, Packet};
use crate::setting::{Parts, SettingError};
use crate::stage::{ImpairmentStage, Stage};
use crate::value::{Effects, impl_value};

pub(super) const POLICER: Key = key!(
    Rate,
    "policer",
    "RATE:BURST",
    "10mbit:64KB",
    "Drop packets that exceed a rate and a burst, such as 10mbit:64KB",
    "Token bucket that drops packets above a rate and a burst."
);
pub(super) const SHAPER: Key = key!(
    Rate,
    "shaper",
    "RATE:BURST",
    "10mbit:64KB",
    "Delay packets that exceed a rate and a burst",
    "Token bucket that delays packets above a rate and a burst, up to a limit, like `tbf`: `10mbit:64KB:1MB`. The \
     default limit is half a second at the rate."
);

/// Drops packets that exceed a rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Long-term rate in bytes on the wire.
    pub rate: BitRate,
    /// Bytes that pass at once after a pause. A longer packet never passes.
    pub burst: Bytes,
}

/// Delays packets that exceed a rate and a burst until they conform, as the kernel's `tbf` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// Long-term rate in bytes on the wire.
    pub rate: BitRate,
    /// Bytes that pass at once after a pause. A longer packet is dropped.
    pub burst: Bytes,
    /// Maximum bytes that wait. Further packets are dropped.
    pub limit: Bytes,
}

const POLICER_FORM: &str = "RATE:BURST, such as 10mbit:64KB";
const SHAPER_FORM: &str = "RATE:BURST or RATE:BURST:LIMIT, such as 10mbit:64KB:1MB";

impl FromStr for Policer {
    type Err = SettingError;

    /// Reads the form `RATE:BURST`, such as `10mbit:64KB`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut parts = Parts::split(text, POLICER_FORM);
        let (rate, burst) = (parts.next("the rate", str::parse)?, parts.next("the burst", str::parse)?);
        parts.finish()?;
        let policer = Policer { rate, burst };
        policer.check()?;
        Ok(policer)
    }
}

impl FromStr for Shaper {
    type Err = SettingError;

    /// Reads `10mbit:64KB` or `10mbit:64KB:1MB`. The default limit is the bytes of half a second, or a burst if that is
    /// more.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut parts = Parts::split(text, SHAPER_FORM);
        let (rate, burst): (BitRate, Bytes) =
            (parts.next("the rate", str::parse)?, parts.next("the burst", str::parse)?);
        let limit = parts.next_optional(str::parse)?;
        parts.finish()?;
        let shaper = Shaper { rate, burst, limit: limit.unwrap_or_else(|| Shaper::default_limit(rate, burst)) };
        shaper.check()?;
        Ok(shaper)
    }
}

impl fmt::Display for Policer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.rate.to_argument(), self.burst.to_argument())
    }
}

impl fmt::Display for Shaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.rate.to_argument(), self.burst.to_argument(), self.limit.to_argument())
    }
}

impl Policer {
    /// Refuses a policer that never passes a packet.
    pub fn check(&self) -> Result<(), LinkError> {
        check_bucket("policer", self.rate, self.burst)
    }
}

impl Shaper {
    /// Returns the default limit of a shaper.
    pub fn default_limit(rate: BitRate, burst: Bytes) -> Bytes {
        const USUAL_WAIT: Duration = Duration::from_millis(500);
        burst.max(rate.times(USUAL_WAIT))
    }

    /// Refuses a shaper that never passes a packet, or whose queue takes too long to send.
    pub fn check(&self) -> Result<(), LinkError> {
        check_bucket("shaper", self.rate, self.burst)?;
        check_queue_time(self.limit.into(), self.limit, self.rate)
    }
}

impl_value!(Policer, to_string);
impl_value!(Shaper, to_string);

impl Effects for Policer {
    fn check(&self) -> Result<(), LinkError> {
        Policer::check(self)
    }
}

impl Effects for Shaper {
    fn check(&self) -> Result<(), LinkError> {
        Shaper::check(self)
    }
}

fn check_bucket(what: &'static str, rate: BitRate, burst: Bytes) -> Result<(), LinkError> {
    if rate.0 == 0 {
        return Err(LinkError::ZeroBucketRate(what));
    }
    check_rate(rate)?;
    if burst.0 == 0 { Err(LinkError::ZeroBucketBurst(what)) } else { Ok(()) }
}

/// Time times rate, in nanoseconds times bits per second.
type Work = u128;

/// Work of one byte.
const BYTE_WORK: Work = 8_000_000_000;

/// Level of a bucket, at any time from the last packet on.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: u64,
    burst: Work,
    /// Time at which the bucket is full again.
    full_at: Work,
}

impl Bucket {
    /// Creates a bucket that is full at `now`.
    fn new(rate: BitRate, burst: Bytes, now: Instant) -> Self {
        let rate = rate.0.max(1);
        Bucket { rate, burst: Work::from(burst.0) * BYTE_WORK, full_at: Work::from(now.as_nanos()) * Work::from(rate) }
    }

    /// Applies another rate and burst from `now` on. The bucket keeps its tokens as far as they fit, or the time at
    /// which it is empty.
    fn reconfigured(before: Option<Bucket>, rate: BitRate, burst: Bytes, now: Instant) -> Self {
        let mut new = Bucket::new(rate, burst, now);
        let Some(before) = before else { return new };
        let empty = before.empty_at();
        new.full_at = if (new.rate, new.burst) == (before.rate, before.burst) {
            before.full_at
        } else if empty > now {
            new.work(empty) + new.burst
        } else {
            new.full_at + new.burst.saturating_sub(before.tokens(now))
        };
        new
    }

    /// Takes the tokens of packets of `wire` bytes, one after the other, while tokens last. Returns how many of `max`
    /// packets conform.
    fn take_conforming(&mut self, now: Instant, wire: u32, most: u32) -> u32 {
        let bytes = self.tokens(now) / BYTE_WORK;
        let conforming = bytes.checked_div(Work::from(wire)).unwrap_or(Work::MAX);
        let taken = u32::try_from(conforming).map_or(most, |conforming| conforming.min(most));
        self.full_at = self.full_at.max(self.work(now));
        self.borrow(u64::from(taken) * u64::from(wire));
        taken
    }

    /// Takes tokens that exist only from [`empty_at`](Self::empty_at) on.
    fn borrow(&mut self, bytes: u64) {
        self.full_at += Work::from(bytes) * BYTE_WORK;
    }

    /// Returns the first whole nanosecond by which the bucket has received all tokens that were taken so far.
    fn empty_at(&self) -> Instant {
        let nanos = self.full_at.saturating_sub(self.burst).div_ceil(Work::from(self.rate));
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns how many packets of `wire` bytes, one after the other from [`empty_at`](Self::empty_at) on, conform by
    /// `now`.
    fn conforming_by(&self, now: Instant, wire: u32) -> u32 {
        let work = (self.work(now) + self.burst).saturating_sub(self.full_at);
        u32::try_from(work / (Work::from(wire.max(1)) * BYTE_WORK)).unwrap_or(u32::MAX)
    }

    /// Reports whether a packet of `wire` bytes can ever conform.
    fn can_hold(&self, wire: u32) -> bool {
        Work::from(wire) * BYTE_WORK <= self.burst
    }

    /// Returns the whole bytes of tokens that the bucket receives within `time`.
    fn bytes_in(&self, time: Duration) -> u64 {
        u64::try_from(Work::from(self.rate) * time.as_nanos() / BYTE_WORK).unwrap_or(u64::MAX)
    }

    /// Returns the tokens in the bucket.
    fn tokens(&self, now: Instant) -> Work {
        self.burst.saturating_sub(self.full_at.saturating_sub(self.work(now)))
    }

    fn work(&self, time: Instant) -> Work {
        Work::from(time.as_nanos()) * Work::from(self.rate)
    }
}

/// Outcome of a virtual packet at a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketOutcome {
    Conforms,
    Waits,
    Dropped,
}

/// Stage of a [`Policer`].
pub(super) struct PolicerStage {
    bucket: Option<Bucket>,
    out: Outbox,
}

impl Stage for PolicerStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        let Some(bucket) = &mut self.bucket else { return self.out.forward(packet, now) };
        let body = packet.count - 1;
        let head = bucket.take_conforming(now, packet.wire_len, body);
        let is_last_in = bucket.take_conforming(now, packet.last_wire_len, 1) == 1;
        let fates = [(true, head), (false, body - head), (is_last_in, 1)];
        split_by_known_outcomes(packet, fates, |conforms, packet| {
            if conforms { self.out.forward(packet, now) } else { self.out.drop(packet, DropCause::Policer, now) }
        });
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        self.out.pop(now)
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at()
    }
}

impl ImpairmentStage for PolicerStage {
    type Settings = Option<Policer>;

    fn new(settings: Option<Policer>, context: &HopContext) -> Self {
        let bucket = settings.map(|policer| Bucket::new(policer.rate, policer.burst, context.epoch));
        PolicerStage { bucket, out: Outbox::default() }
    }

    fn set(&mut self, settings: Option<Policer>, _context: &HopContext, now: Instant) {
        self.bucket = settings.map(|Policer { rate, burst }| Bucket::reconfigured(self.bucket, rate, burst, now));
    }
}

/// Stage of a [`Shaper`].
///
/// While packets wait the bucket is empty, and packets leave at its rate like packets on a line: in slices, so that
/// super-packets stay large. A slice leaves when its last virtual packet conforms. The next queue receives the packets
/// of a slice together, each up to a slice later than single packets. An overflow there may drop another packet than
/// with single packets.
pub(super) struct ShaperStage {
    bucket: Option<Bucket>,
    queue: ShaperQueue,
    next_slice: Option<NextSlice>,
    /// Maximum time between the first and the last packet of a slice.
    slice: Duration,
    out: Outbox,
}

/// Waiting packets in order, with their times of arrival.
#[derive(Default)]
struct ShaperQueue {
    waiting: VecDeque<(Packet, Instant)>,
    limit: u64,
    /// Bytes of the virtual packets that do not conform yet.
    bytes: u64,
    peak: u64,
}

/// Next slice to leave.
struct NextSlice {
    packet: Packet,
    arrived_at: Instant,
    /// Number of virtual packets known to conform.
    released: u32,
    /// Bucket before the virtual packets after these took their tokens.
    bucket_before: Bucket,
    /// Time at which the last of them conforms.
    due: Instant,
}

impl ShaperStage {
    /// Prepares the next slice to leave.
    fn prepare_slice(&mut self) {
        let Some(bucket) = &mut self.bucket else { return };
        let Some((packet, came)) = self.queue.take_slice(bucket.bytes_in(self.slice)) else { return };
        let before = *bucket;
        bucket.borrow(packet.bytes());
        self.next_slice =
            Some(NextSlice { packet, arrived_at: came, released: 0, bucket_before: before, due: bucket.empty_at() });
    }

    /// Returns the next slice if all of it conforms by `now`, and prepares the slice after it.
    fn release_slice(&mut self, now: Instant) -> Option<LinkEvent> {
        let NextSlice { mut packet, arrived_at: came, released: gone, due, .. } =
            self.next_slice.take_if(|leaving| leaving.due <= now)?;
        self.queue.remove(packet.part(gone, packet.count - gone).bytes());
        self.prepare_slice();
        packet.queue_delay += due - came;
        Some(LinkEvent::Forward { packet, due })
    }

    /// Removes the virtual packets of the next slice that conform by `now` from the queue.
    fn release_conforming(&mut self, now: Instant) {
        let Some(NextSlice { packet, released: gone, bucket_before: before, .. }) = &mut self.next_slice else {
            return;
        };
        let left = packet.count - *gone;
        let conforming = before.conforming_by(now, packet.wire_len).min(left - 1);
        if conforming > 0 {
            let bytes = u64::from(conforming) * u64::from(packet.wire_len);
            before.borrow(bytes);
            *gone += conforming;
            self.queue.remove(bytes);
        }
    }

    /// Returns the outcomes of the virtual packets of `packet`, which arrive in order at `now`.
    fn admit(&mut self, packet: &Packet, now: Instant) -> [(BucketOutcome, u32); 4] {
        let Some(bucket) = &mut self.bucket else { return [(BucketOutcome::Conforms, packet.count); 4] };
        let body = packet.count - 1;
        let is_idle = self.next_slice.is_none();
        let head = if is_idle { bucket.take_conforming(now, packet.wire_len, body) } else { 0 };
        let waiting = self.queue.admit(bucket, packet.wire_len, body - head);
        let refused = body - head - waiting;
        let last = if is_idle && waiting == 0 && bucket.take_conforming(now, packet.last_wire_len, 1) == 1 {
            BucketOutcome::Conforms
        } else if self.queue.admit(bucket, packet.last_wire_len, 1) == 1 {
            BucketOutcome::Waits
        } else {
            BucketOutcome::Dropped
        };
        [(BucketOutcome::Conforms, head), (BucketOutcome::Waits, waiting), (BucketOutcome::Dropped, refused), (last, 1)]
    }

    /// Forwards all waiting packets, because a stage without a bucket delays nothing.
    fn release_all(&mut self, now: Instant) {
        let next = self.next_slice.take().map(|leaving| (leaving.packet, leaving.arrived_at));
        for (mut packet, came) in next.into_iter().chain(self.queue.waiting.drain(..)) {
            packet.queue_delay += now - came;
            self.out.forward(packet, now);
        }
        self.queue.bytes = 0;
    }
}

impl Stage for ShaperStage {
    fn push(&mut self, packet: Packet, now: Instant) {
        if self.bucket.is_none() {
            return self.out.forward(packet, now);
        }
        // The queue must have its state as of the arrival, however late the caller polls.
        while let Some(event) = self.release_slice(now) {
            self.out.push(event);
        }
        self.release_conforming(now);
        let fates = self.admit(&packet, now);
        split_by_known_outcomes(packet, fates, |fate, packet| match fate {
            BucketOutcome::Conforms => self.out.forward(packet, now),
            BucketOutcome::Waits => self.queue.waiting.push_back((packet, now)),
            BucketOutcome::Dropped => self.out.drop(packet, DropCause::Shaper, now),
        });
        if self.next_slice.is_none() {
            self.prepare_slice();
        }
    }

    fn pop(&mut self, now: Instant) -> Option<LinkEvent> {
        if self.out.is_empty() { self.release_slice(now) } else { self.out.pop(now) }
    }

    fn next_event_at(&self) -> Option<Instant> {
        self.out.next_event_at().or_else(|| self.next_slice.as_ref().map(|leaving| leaving.due))
    }

    fn add_stats(&self, stats: &mut LinkStats) {
        stats.queued.0 += self.queue.bytes;
        stats.queue_peak = stats.queue_peak.max(Bytes(self.queue.peak));
    }
}

impl ImpairmentStage for ShaperStage {
    type Settings = Option<Shaper>;

    fn new(settings: Option<Shaper>, context: &HopContext) -> Self {
        let mut stage = ShaperStage {
            bucket: None,
            queue: ShaperQueue::default(),
            next_slice: None,
            slice: context.slice,
            out: Outbox::default(),
        };
        stage.set(settings, context, context.epoch);
        stage
    }

    /// The slice that leaves next keeps its time. The other packets follow the new settings.
    fn set(&mut self, settings: Option<Shaper>, context: &HopContext, now: Instant) {
        while let Some(event) = self.release_slice(now) {
            self.out.push(event);
        }
        self.slice = context.slice;
        self.queue.limit = settings.map_or(0, |shaper| shaper.limit.0);
        self.bucket = settings.map(|Shaper { rate, burst, .. }| Bucket::reconfigured(self.bucket, rate, burst, now));
        if self.bucket.is_none() {
            self.release_all(now);
        }
    }
}

impl ShaperQueue {
    /// Makes room for as many of `count` virtual packets of `wire` bytes as fit and can ever conform.
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

    /// Takes up to `max` bytes of virtual packets from the front, but at least one packet. They count until they are
    /// [removed](Self::remove).
    fn take_slice(&mut self, most: u64) -> Option<(Packet, Instant)> {
        let (front, came) = self.waiting.front_mut()?;
        let count = u32::try_from(most / u64::from(front.wire_len.max(1))).unwrap_or(u32::MAX).max(1);
        if count >= front.count {
            return self.waiting.pop_front();
        }
        let slice = front.part(0, count);
        *front = front.part(count, front.count - count);
        Some((slice, *came))
    }

    fn remove(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
