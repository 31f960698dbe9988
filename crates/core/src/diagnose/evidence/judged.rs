//! Which part of a test is judged, and what grew in it.

use std::time::Duration;

use super::Steady;
use crate::stats::steady_from;
use crate::tcp_info::TcpInfo;
use crate::units::Bytes;
use crate::wire::test::{Interval, StreamSample};

/// An interval shorter than this share of the first one says little (the rest at the end of a test).
const WHOLE: f64 = 0.5;

/// All but a short rest at the end.
pub(crate) fn whole_intervals(intervals: &[Interval]) -> &[Interval] {
    match intervals {
        [first, .., last] if length(last).as_secs_f64() < WHOLE * length(first).as_secs_f64() => {
            &intervals[..intervals.len() - 1]
        }
        all => all,
    }
}

/// The part past start-up, by what the figures say or what `omit` leaves: where everything begins that judges a steady
/// goodput.
pub(crate) fn steady(intervals: &[Interval], omit: Option<Duration>) -> Option<Steady> {
    let rate = |i: &Interval| Bytes(i.bytes).per(length(i)).as_f64();
    let from = match omit {
        Some(omit) => intervals.iter().position(|interval| interval.start >= omit)?,
        None => steady_from(&intervals.iter().map(rate).collect::<Vec<_>>())?,
    };
    let part = &intervals[from..];
    let (start, end) = (part.first()?.start, part.last()?.end);
    let bytes = part.iter().fold(0u64, |sum, interval| sum.saturating_add(interval.bytes));
    Some(Steady { start, end, goodput: Bytes(bytes).per(end.saturating_sub(start)) })
}

/// The judged part on the near end's clock, where the two clocks were compared, else on each end's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    begins: Duration,
    ends: Duration,
}

impl Judged {
    /// The steady part of the receiver's intervals; all of a test that has none.
    pub(super) fn of(whole: &[Interval], steady: Option<Steady>) -> Judged {
        let Some(steady) = steady else { return Judged { begins: Duration::ZERO, ends: Duration::MAX } };
        let begins = whole.iter().find(|interval| interval.start == steady.start).map(Interval::placed);
        let ends = whole.iter().find(|interval| interval.end == steady.end).map(Interval::placed);
        let (begins, ends) = begins.zip(ends).map_or((steady.start, steady.end), |(first, last)| (first.0, last.1));
        Judged { begins, ends }
    }

    /// Intervals whose middle lies in the judged part: each end notices its boundaries a little late.
    pub(super) fn within(self, intervals: &[Interval]) -> impl Iterator<Item = &Interval> {
        intervals.iter().filter(move |interval| (self.begins..=self.ends).contains(&interval.middle()))
    }

    /// The last sample of a stream before the judged part: what had been counted when that began.
    pub(super) fn before(self, intervals: &[Interval], stream: u16) -> Option<&StreamSample> {
        intervals.iter().rfind(|interval| interval.middle() < self.begins).and_then(|before| sample(before, stream))
    }

    /// How much a figure of a stream's kernel grew from there to `last`.
    pub(super) fn grown(
        self,
        intervals: &[Interval],
        stream: u16,
        last: u64,
        figure: fn(&TcpInfo) -> Option<u64>,
    ) -> u64 {
        let before = self.before(intervals, stream).and_then(|sample| figure(sample.tcp_info.as_ref()?));
        last.saturating_sub(before.unwrap_or(0))
    }
}

/// What an interval says of a stream.
pub(super) fn sample(interval: &Interval, stream: u16) -> Option<&StreamSample> {
    interval.streams.iter().find(|sample| sample.stream == stream)
}

/// How long an interval was.
pub(super) fn length(interval: &Interval) -> Duration {
    interval.end.saturating_sub(interval.start)
}
