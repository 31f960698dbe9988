//! The line itself: how long bytes take on it, exactly, at a rate that may change by a timetable.
//!
//! A [`Point`] is an instant on the line in nanoseconds and a remainder, so that no rounding accumulates and a
//! super-packet takes exactly as long as its virtual packets one by one. Work is counted in bits times nanoseconds per
//! second: at a rate of `r` b/s the line does `r` of it in a nanosecond, so every step of a timetable, which lies on a
//! whole nanosecond, is a whole number of work and the integral over steps is exact. What the work is for, the queue
//! and the slices, is in `rate`.

use crate::framing::{Framing, Layer};
use crate::link::{LinkConfig, Packet, Varying};
use crate::time::Instant;
use crate::units::BitRate;

/// Work that one byte is.
const BYTE: u64 = 8_000_000_000;

/// A line, and the point up to which its work is known.
pub(super) struct Line {
    rates: Rates,
    /// Where it is free again.
    free: Point,
    /// Nanoseconds of line time that one slice may take.
    slice: u64,
    /// The same in bytes at the rate at `free`, rounded down.
    slice_bytes: u64,
    /// The rate that was reckoned for.
    slice_rate: u64,
}

/// An instant on a line: `nanos` and `part`/`rate` of one more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    nanos: u64,
    /// Less than `rate`; zero where that is zero.
    part: u64,
    /// In force from here on, b/s.
    rate: u64,
    /// The next step of the timetable: after this point.
    until: u64,
}

/// The rates of a line over all time.
struct Rates {
    table: Varying<BitRate>,
    epoch: Instant,
    /// Length of the timetable and the work done in it, if it repeats.
    period: Option<(u64, u128)>,
}

impl Line {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let rates = Rates::new(config);
        let free = rates.from(0);
        let mut line = Line { rates, free, slice: 0, slice_bytes: 0, slice_rate: 0 };
        line.set_slice(config);
        line
    }

    /// Other rates from now on. What is to be sent from `free` on is sent at these.
    pub(super) fn set(&mut self, config: &LinkConfig) {
        self.rates = Rates::new(config);
        self.free = self.rates.from(self.free.at().as_nanos());
        self.set_slice(config);
    }

    /// Where the line is free again.
    pub(super) fn free(&self) -> Point {
        self.free
    }

    /// In force where it is free.
    pub(super) fn rate(&self) -> BitRate {
        BitRate(self.free.rate)
    }

    /// The first instant from which on it can send: `free`, or when a standstill ends then.
    pub(super) fn ready(&self) -> Instant {
        if self.free.rate > 0 { self.free.at() } else { self.rates.resume(self.free).at() }
    }

    /// True if it is free but cannot send before `now` is over.
    pub(super) fn stands_still(&self, now: Instant) -> bool {
        self.free.rate == 0 && self.ready() > now
    }

    /// It is free earlier than what was sent last would have taken.
    pub(super) fn leave_at(&mut self, end: Point) {
        self.free = end;
    }

    /// The line has nothing to do before `now`.
    pub(super) fn idle_until(&mut self, now: Instant) {
        let now = now.as_nanos();
        if self.free.nanos < now {
            self.free =
                if now < self.free.until { Point { nanos: now, part: 0, ..self.free } } else { self.rates.from(now) };
        }
    }

    /// The line does nothing before a standstill ends.
    pub(super) fn idle_until_ready(&mut self) {
        if self.free.rate == 0 {
            self.free = self.rates.resume(self.free);
        }
    }

    /// Sends so many bytes from where it is free.
    pub(super) fn send(&mut self, bytes: u64) {
        self.rates.send(&mut self.free, bytes);
    }

    /// Sends the rest of a packet of so many bytes, `done` of whose work is done, from `now` on: the point it gives.
    pub(super) fn send_rest(&mut self, bytes: u64, done: u128, now: Instant) -> Point {
        let from = self.rates.from(now.as_nanos());
        self.free = from;
        self.rates.carry(&mut self.free, (u128::from(bytes) * u128::from(BYTE)).saturating_sub(done));
        from
    }

    /// Moves `point` on by the time that so many bytes take.
    pub(super) fn pass(&self, point: &mut Point, bytes: u64) {
        self.rates.send(point, bytes);
    }

    /// The work done between `point` and `now`.
    pub(super) fn work(&self, point: Point, now: Instant) -> u128 {
        self.rates.work(point, now.as_nanos())
    }

    /// How many packets of so many bytes, one after the other from `point` on, are wholly sent by `now`.
    pub(super) fn packets_by(&self, point: Point, now: Instant, bytes: u64) -> u32 {
        let each = bytes.max(1);
        // Nearly always narrow, which is several times faster.
        let narrow = (now.as_nanos() <= point.until)
            .then(|| now.as_nanos().saturating_sub(point.nanos).checked_mul(point.rate))
            .flatten()
            .zip(each.checked_mul(BYTE));
        match narrow {
            Some((work, each)) => u32::try_from(work.saturating_sub(point.part) / each).unwrap_or(u32::MAX),
            None => {
                let work = self.work(point, now);
                u32::try_from(work / (u128::from(each) * u128::from(BYTE))).unwrap_or(u32::MAX)
            }
        }
    }

    /// How many packets of so many bytes make up a slice from where the line is free: at least one, and else no more
    /// than the time of a slice takes.
    pub(super) fn slice(&mut self, bytes: u64) -> u32 {
        let end = self.free.nanos.saturating_add(self.slice);
        if end >= self.free.until {
            return self.packets_by(self.free, Instant::from_nanos(end), bytes).max(1);
        }
        if self.slice_rate != self.free.rate {
            self.slice_rate = self.free.rate;
            let bytes = u128::from(self.slice_rate) * u128::from(self.slice) / u128::from(BYTE);
            self.slice_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        }
        u32::try_from(self.slice_bytes / bytes.max(1)).unwrap_or(u32::MAX).max(1)
    }

    fn set_slice(&mut self, config: &LinkConfig) {
        self.slice = u64::try_from(config.slice.as_nanos()).unwrap_or(u64::MAX);
        (self.slice_bytes, self.slice_rate) = (0, 0);
    }
}

impl Point {
    /// The first whole nanosecond that is not before this point.
    pub(super) fn at(self) -> Instant {
        Instant::from_nanos(self.nanos.saturating_add(u64::from(self.part > 0)))
    }
}

impl Rates {
    fn new(config: &LinkConfig) -> Self {
        // One step that starts over is no timetable.
        let table = config.rate.as_constant().map_or_else(|| config.rate.clone(), Varying::constant);
        let period = table.period().map(|period| {
            let nanos = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
            let ends = table.steps().iter().skip(1).map(|(at, _)| *at).chain([period]);
            let lengths = table.steps().iter().zip(ends).map(|((from, rate), to)| (to.saturating_sub(*from), rate));
            (nanos, lengths.map(|(length, rate)| u128::from(rate.0) * length.as_nanos()).sum())
        });
        Rates { table, epoch: config.epoch, period }
    }

    /// The point at a whole nanosecond. Before the epoch the first step is in force already.
    fn from(&self, nanos: u64) -> Point {
        let since = Instant::from_nanos(nanos).saturating_since(self.epoch);
        let until = self.table.step_after(since).map_or(u64::MAX, |step| (self.epoch + step).as_nanos());
        Point { nanos, part: 0, rate: self.table.at(since).0, until }
    }

    /// The first point from `point` on at which the rate is not zero.
    fn resume(&self, mut point: Point) -> Point {
        while point.rate == 0 && point.until < u64::MAX {
            point = self.from(point.until);
        }
        if point.rate == 0 { Point { nanos: u64::MAX, ..point } } else { point }
    }

    fn send(&self, point: &mut Point, bytes: u64) {
        // Nearly always: less than 2 GB, at a constant rate or well within a step of the timetable.
        if let Some(work) = bytes.checked_mul(BYTE).and_then(|work| work.checked_add(point.part))
            && let Some(nanos) = work.checked_div(point.rate)
            && let Some(end) = point.nanos.checked_add(nanos)
            && end < point.until
        {
            (point.nanos, point.part) = (end, work % point.rate);
            return;
        }
        self.carry(point, u128::from(bytes) * u128::from(BYTE));
    }

    /// Moves `point` on by so much work, to the first instant at which it is done.
    fn carry(&self, point: &mut Point, work: u128) {
        if work == 0 {
            return;
        }
        // Counted from the whole nanosecond: what is done already of it is to be done again.
        let mut work = work + u128::from(point.part);
        point.part = 0;
        loop {
            let room = u128::from(point.until - point.nanos) * u128::from(point.rate);
            if work < room || work == room && point.until == u64::MAX {
                let rate = u128::from(point.rate);
                // Less than `until - nanos`, and less than `rate`.
                point.nanos += (work / rate) as u64;
                point.part = (work % rate) as u64;
                return;
            }
            work -= room;
            if point.until == u64::MAX {
                *point = Point { nanos: u64::MAX, part: 0, ..*point };
                return;
            }
            let done = point.until;
            *point = self.from(point.until);
            if work == 0 {
                debug_assert_eq!(point.nanos, done);
                return;
            }
            self.skip_periods(point, &mut work);
        }
    }

    /// Whole rounds of the timetable, but for the last: where in that the work is done is to be found step by step.
    fn skip_periods(&self, point: &mut Point, work: &mut u128) {
        let Some((period, in_period)) = self.period else { return };
        let rounds = work.saturating_sub(1).checked_div(in_period).unwrap_or(0);
        if rounds > 0 {
            *work -= rounds * in_period;
            let skipped = rounds.saturating_mul(u128::from(period));
            let nanos = u64::try_from(skipped).unwrap_or(u64::MAX).saturating_add(point.nanos);
            *point = self.from(nanos);
        }
    }

    /// The work done between `point` and `now`.
    fn work(&self, mut point: Point, now: u64) -> u128 {
        if now <= point.nanos {
            return 0;
        }
        let part = u128::from(point.part);
        let mut work = 0;
        while point.until < now {
            work += u128::from(point.until - point.nanos) * u128::from(point.rate);
            point = self.from(point.until);
            if let Some((period, in_period)) = self.period {
                let rounds = (now - point.nanos) / period;
                work += u128::from(rounds) * in_period;
                point = self.from(point.nanos + rounds * period);
            }
        }
        work += u128::from(now - point.nanos) * u128::from(point.rate);
        work.saturating_sub(part)
    }
}

/// What a packet costs a line in bytes: with the overhead of the layer at which its rate is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tariff(pub(super) Layer);

impl Tariff {
    /// Of one packet of `wire` bytes, Ethernet header included; never zero.
    pub(super) fn one(self, wire: u32) -> u64 {
        const ETHERNET_HEADER: u32 = 14;
        match self.0 {
            // As it comes, also where it is no Ethernet frame.
            Layer::EthernetHeader => u64::from(wire),
            layer => Framing { layer, ..Framing::default() }.wire_bytes(wire.saturating_sub(ETHERNET_HEADER)),
        }
        .max(1)
    }

    /// Of a whole range.
    pub(super) fn all(self, packet: &Packet) -> u64 {
        u64::from(packet.count - 1) * self.one(packet.wire) + self.one(packet.last_wire)
    }
}
