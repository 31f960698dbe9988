//! Steady window of a test, and the growth of counters in it.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::stats::find_steady_start;
use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use crate::measure::{Interval, StreamSample};

/// Steady part of a test, after start-up, on the receiver's clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SteadyPart {
    /// Start of the steady part.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// End of the steady part.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Steady goodput: bytes received in the steady part over its length.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
}

/// Minimum length of the last interval as a share of the first; a shorter one is ignored.
const MIN_LAST_INTERVAL: f64 = 0.5;

/// Returns all intervals except for a short last one.
pub(crate) fn full_intervals(intervals: &[Interval]) -> &[Interval] {
    match intervals {
        [first, .., last] if length(last).as_secs_f64() < MIN_LAST_INTERVAL * length(first).as_secs_f64() => {
            &intervals[..intervals.len() - 1]
        }
        all => all,
    }
}

/// Returns the steady part, after the detected start-up or after `omit`. All computations of a steady goodput use this
/// function.
pub(crate) fn steady_part(intervals: &[Interval], omit: Option<Duration>) -> Option<SteadyPart> {
    let rate = |i: &Interval| Bytes(i.bytes).per(length(i)).as_f64();
    let from = match omit {
        Some(omit) => intervals.iter().position(|interval| interval.start >= omit)?,
        None => find_steady_start(&intervals.iter().map(rate).collect::<Vec<_>>())?,
    };
    let part = &intervals[from..];
    let (start, end) = (part.first()?.start, part.last()?.end);
    let bytes = part.iter().fold(0u64, |sum, interval| sum.saturating_add(interval.bytes));
    Some(SteadyPart { start, end, goodput: Bytes(bytes).per(end.saturating_sub(start)) })
}

/// Steady window on the near end's clock if the two clocks were compared, else on each end's own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct SteadyWindow {
    start: Duration,
    end: Duration,
}

impl SteadyWindow {
    /// Returns the steady part of the receiver's intervals, or the whole test if it has none.
    pub(super) fn of(whole: &[Interval], steady: Option<SteadyPart>) -> SteadyWindow {
        let Some(steady) = steady else { return SteadyWindow { start: Duration::ZERO, end: Duration::MAX } };
        let begins = whole.iter().find(|interval| interval.start == steady.start).map(Interval::placed);
        let ends = whole.iter().find(|interval| interval.end == steady.end).map(Interval::placed);
        let (begins, ends) = begins.zip(ends).map_or((steady.start, steady.end), |(first, last)| (first.0, last.1));
        SteadyWindow { start: begins, end: ends }
    }

    /// Returns the intervals with their middle in the steady window: each end notices its boundaries a little late.
    pub(super) fn intervals_within(self, intervals: &[Interval]) -> impl Iterator<Item = &Interval> {
        intervals.iter().filter(move |interval| (self.start..=self.end).contains(&interval.middle()))
    }

    /// Returns the last sample of a stream before the steady window, which has the counts at its start.
    pub(super) fn sample_before(self, intervals: &[Interval], stream: u16) -> Option<&StreamSample> {
        intervals.iter().rfind(|interval| interval.middle() < self.start).and_then(|before| sample(before, stream))
    }

    /// Returns the growth of a figure of the stream's kernel from the start of the window to `last`.
    pub(super) fn growth(
        self,
        intervals: &[Interval],
        stream: u16,
        last: u64,
        figure: fn(&TcpInfo) -> Option<u64>,
    ) -> u64 {
        let before = self.sample_before(intervals, stream).and_then(|sample| figure(sample.tcp_info.as_ref()?));
        last.saturating_sub(before.unwrap_or(0))
    }
}

/// Returns the sample of a stream in an interval.
pub(super) fn sample(interval: &Interval, stream: u16) -> Option<&StreamSample> {
    interval.streams.iter().find(|sample| sample.stream == stream)
}

/// Returns the length of an interval.
pub(super) fn length(interval: &Interval) -> Duration {
    interval.end.saturating_sub(interval.start)
}
