//! Transmission line: exact transmission times at a rate that may follow a timetable.
//!
//! A [`LinePoint`] is an instant in nanoseconds with a remainder, so rounding errors do not accumulate and a
//! super-packet takes exactly as long as its virtual packets one by one. The unit of work is bits times nanoseconds per
//! second: at a rate of `r` b/s the line does `r` units of work in a nanosecond. Every step of a timetable is on a
//! whole nanosecond, so its work is a whole number and the integral over steps is exact. The queue and the slices are
//! in `rate`.

use lfn_base::framing::{ETHERNET_HEADER, Framing, Layer};
use lfn_base::time::Instant;
use lfn_base::units::BitRate;

use crate::hop_context::HopContext;
use crate::packet::Packet;
use crate::timetable::Timetable;

/// Work of one byte.
const BYTE_WORK: u64 = 8_000_000_000;

/// Line, and the point up to which its work is known.
pub(super) struct TransmitLine {
    rates: RateTimetable,
    /// Point at which the line is free again.
    free: LinePoint,
    /// Maximum line time of a slice, nanoseconds.
    slice: u64,
    /// Maximum bytes of a slice at the rate at `free`, rounded down.
    slice_bytes: u64,
    /// Rate for which `slice_bytes` was computed.
    slice_rate: u64,
}

/// Instant on a line: `nanos` plus `part`/`rate` nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinePoint {
    nanos: u64,
    /// Less than `rate`; zero if `rate` is zero.
    part: u64,
    /// Rate from this point on, b/s.
    rate: u64,
    /// Time of the next step of the timetable, after this point.
    until: u64,
}

/// Rates of a line over all time.
struct RateTimetable {
    table: Timetable<BitRate>,
    epoch: Instant,
    /// Length of the timetable and its total work, if it repeats.
    period: Option<(u64, u128)>,
}

impl TransmitLine {
    pub(super) fn new(rate: &Timetable<BitRate>, context: &HopContext) -> Self {
        let rates = RateTimetable::new(rate, context.epoch);
        let free = rates.point_at(0);
        let mut line = TransmitLine { rates, free, slice: 0, slice_bytes: 0, slice_rate: 0 };
        line.set_slice(context);
        line
    }

    /// Applies other rates. Packets from `free` on are sent at these rates.
    pub(super) fn set(&mut self, rate: &Timetable<BitRate>, context: &HopContext) {
        self.rates = RateTimetable::new(rate, context.epoch);
        self.free = self.rates.point_at(self.free.at().as_nanos());
        self.set_slice(context);
    }

    pub(super) fn free_point(&self) -> LinePoint {
        self.free
    }

    /// Returns the rate at the point at which the line is free.
    pub(super) fn rate(&self) -> BitRate {
        BitRate(self.free.rate)
    }

    /// Returns the first instant at which the line can send: `free`, or the end of a stall at that point.
    pub(super) fn ready_at(&self) -> Instant {
        if self.free.rate > 0 { self.free.at() } else { self.rates.next_nonzero(self.free).at() }
    }

    /// Reports whether the line is free but stalled until after `now`.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.free.rate == 0 && self.ready_at() > now
    }

    /// Moves the point at which the line is free to an earlier one.
    pub(super) fn set_free_at(&mut self, end: LinePoint) {
        self.free = end;
    }

    /// Keeps the line idle until `now`.
    pub(super) fn idle_until(&mut self, now: Instant) {
        let now = now.as_nanos();
        if self.free.nanos < now {
            self.free = if now < self.free.until {
                LinePoint { nanos: now, part: 0, ..self.free }
            } else {
                self.rates.point_at(now)
            };
        }
    }

    /// Keeps the line idle until a stall ends.
    pub(super) fn idle_until_ready(&mut self) {
        if self.free.rate == 0 {
            self.free = self.rates.next_nonzero(self.free);
        }
    }

    /// Sends `bytes` bytes from the point at which the line is free.
    pub(super) fn send(&mut self, bytes: u64) {
        self.rates.send(&mut self.free, bytes);
    }

    /// Sends the rest of a packet of `bytes` bytes from `now` on, when `done` work is done. Returns the point of `now`.
    pub(super) fn send_rest(&mut self, bytes: u64, done: u128, now: Instant) -> LinePoint {
        let from = self.rates.point_at(now.as_nanos());
        self.free = from;
        self.rates.advance_by_work(&mut self.free, (u128::from(bytes) * u128::from(BYTE_WORK)).saturating_sub(done));
        from
    }

    /// Moves `point` forward by the time to send `bytes` bytes.
    pub(super) fn advance(&self, point: &mut LinePoint, bytes: u64) {
        self.rates.send(point, bytes);
    }

    /// Returns the work between `point` and `now`.
    pub(super) fn work_between(&self, point: LinePoint, now: Instant) -> u128 {
        self.rates.work_between(point, now.as_nanos())
    }

    /// Returns how many packets of `bytes` bytes, in series from `point` on, are completely sent by `now`.
    pub(super) fn packets_sent_by(&self, point: LinePoint, now: Instant, bytes: u64) -> u32 {
        let each = bytes.max(1);
        // 64 bits nearly always suffice and are several times faster.
        let narrow = (now.as_nanos() <= point.until)
            .then(|| now.as_nanos().saturating_sub(point.nanos).checked_mul(point.rate))
            .flatten()
            .zip(each.checked_mul(BYTE_WORK));
        match narrow {
            Some((work, each)) => u32::try_from(work.saturating_sub(point.part) / each).unwrap_or(u32::MAX),
            None => {
                let work = self.work_between(point, now);
                u32::try_from(work / (u128::from(each) * u128::from(BYTE_WORK))).unwrap_or(u32::MAX)
            }
        }
    }

    /// Returns how many packets of `bytes` bytes form a slice from the point at which the line is free: as many as the
    /// time of a slice allows, but at least one.
    pub(super) fn slice_packets(&mut self, bytes: u64) -> u32 {
        let end = self.free.nanos.saturating_add(self.slice);
        if end >= self.free.until {
            return self.packets_sent_by(self.free, Instant::from_nanos(end), bytes).max(1);
        }
        if self.slice_rate != self.free.rate {
            self.slice_rate = self.free.rate;
            let bytes = u128::from(self.slice_rate) * u128::from(self.slice) / u128::from(BYTE_WORK);
            self.slice_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        u32::try_from(self.slice_bytes / bytes.max(1)).unwrap_or(u32::MAX).max(1)
    }

    fn set_slice(&mut self, context: &HopContext) {
        self.slice = u64::try_from(context.slice.as_nanos()).unwrap_or(u64::MAX);
        (self.slice_bytes, self.slice_rate) = (0, 0);
    }
}

impl LinePoint {
    /// Returns the first whole nanosecond at or after this point.
    pub(super) fn at(self) -> Instant {
        Instant::from_nanos(self.nanos.saturating_add(u64::from(self.part > 0)))
    }
}

impl RateTimetable {
    fn new(rate: &Timetable<BitRate>, epoch: Instant) -> Self {
        // A single step that repeats is a constant.
        let table = rate.as_constant().map_or_else(|| rate.clone(), Timetable::constant);
        let period = table.period().map(|period| {
            let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
            let ends = table.steps().iter().skip(1).map(|(at, _)| *at).chain([period]);
            let lengths = table.steps().iter().zip(ends).map(|((from, rate), to)| (to.saturating_sub(*from), rate));
            (nanos, lengths.map(|(length, rate)| u128::from(rate.0) * length.as_nanos()).sum())
        });
        RateTimetable { table, epoch, period }
    }

    /// Returns the point at a whole nanosecond. Before the epoch the first step applies.
    fn point_at(&self, nanos: u64) -> LinePoint {
        let since = Instant::from_nanos(nanos).saturating_since(self.epoch);
        let until = self.table.next_step_after(since).map_or(u64::MAX, |step| (self.epoch + step).as_nanos());
        LinePoint { nanos, part: 0, rate: self.table.value_at(since).0, until }
    }

    /// Returns the first point from `point` on with a rate above zero.
    fn next_nonzero(&self, mut point: LinePoint) -> LinePoint {
        while point.rate == 0 && point.until < u64::MAX {
            point = self.point_at(point.until);
        }
        if point.rate == 0 { LinePoint { nanos: u64::MAX, ..point } } else { point }
    }

    fn send(&self, point: &mut LinePoint, bytes: u64) {
        // The common case is less than 2 GB at a constant rate or well within a step of the timetable.
        if let Some(work) = bytes.checked_mul(BYTE_WORK).and_then(|work| work.checked_add(point.part))
            && let Some(nanos) = work.checked_div(point.rate)
            && let Some(end) = point.nanos.checked_add(nanos)
            && end < point.until
        {
            (point.nanos, point.part) = (end, work % point.rate);
            return;
        }
        self.advance_by_work(point, u128::from(bytes) * u128::from(BYTE_WORK));
    }

    /// Moves `point` forward by `work`, to the first instant at which this work is done.
    fn advance_by_work(&self, point: &mut LinePoint, work: u128) {
        if work == 0 {
            return;
        }
        // The count starts at the whole nanosecond, so the work already done in it is added again.
        let mut work = work + u128::from(point.part);
        point.part = 0;
        loop {
            let room = u128::from(point.until - point.nanos) * u128::from(point.rate);
            if work < room || work == room && point.until == u64::MAX {
                let rate = u128::from(point.rate);
                // The quotient is below `until - nanos`, the remainder below `rate`.
                point.nanos += (work / rate) as u64;
                point.part = (work % rate) as u64;
                return;
            }
            work -= room;
            if point.until == u64::MAX {
                *point = LinePoint { nanos: u64::MAX, part: 0, ..*point };
                return;
            }
            let done = point.until;
            *point = self.point_at(point.until);
            if work == 0 {
                debug_assert_eq!(point.nanos, done);
                return;
            }
            self.skip_periods(point, &mut work);
        }
    }

    /// Skips whole periods of the timetable except the last. Within the last period the end is found step by step.
    fn skip_periods(&self, point: &mut LinePoint, work: &mut u128) {
        let Some((period, in_period)) = self.period else { return };
        let rounds = work.saturating_sub(1).checked_div(in_period).unwrap_or(0);
        if rounds > 0 {
            *work -= rounds * in_period;
            let skipped = rounds.saturating_mul(u128::from(period));
            let nanos = u64::try_from(skipped).unwrap_or(u64::MAX).saturating_add(point.nanos);
            *point = self.point_at(nanos);
        }
    }

    /// Returns the work between `point` and `now`.
    fn work_between(&self, mut point: LinePoint, now: u64) -> u128 {
        if now <= point.nanos {
            return 0;
        }
        let part = u128::from(point.part);
        let mut work = 0;
        while point.until < now {
            work += u128::from(point.until - point.nanos) * u128::from(point.rate);
            point = self.point_at(point.until);
            if let Some((period, in_period)) = self.period {
                let rounds = (now - point.nanos) / period;
                work += u128::from(rounds) * in_period;
                point = self.point_at(point.nanos + rounds * period);
            }
        }
        work += u128::from(now - point.nanos) * u128::from(point.rate);
        work.saturating_sub(part)
    }
}

/// Bytes that a packet occupies on a line, including the overhead of the layer at which the rate is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramingOverhead(pub(super) Layer);

impl FramingOverhead {
    /// Returns the bytes of one packet of `wire` bytes with its Ethernet header; never zero.
    pub(super) fn packet_bytes(self, wire: u32) -> u64 {
        match self.0 {
            // Frames count as they are, even if they are not Ethernet frames.
            Layer::EthernetHeader => u64::from(wire),
            layer => Framing { layer, ..Framing::default() }.wire_bytes(wire.saturating_sub(ETHERNET_HEADER)),
        }
        .max(1)
    }

    /// Returns the bytes of a whole range.
    pub(super) fn range_bytes(self, packet: &Packet) -> u64 {
        u64::from(packet.count - 1) * self.packet_bytes(packet.wire_len) + self.packet_bytes(packet.last_wire_len)
    }
}
