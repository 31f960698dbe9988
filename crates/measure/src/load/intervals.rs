//! Meter: closes the intervals of a load, and samples every stream at the ends.

use std::time::Duration;

use lfn_results::host::{HostReport, Note};
use lfn_results::measure::{Interval, IntervalPart, StreamSample};

use super::host::HostWatch;

/// A stream that the meter samples.
pub(crate) trait MeteredStream {
    /// Returns the number of the stream.
    fn number(&self) -> u16;

    /// Returns the id of the thread that moves the data.
    fn thread(&self) -> i32;

    /// Returns the totals so far. `before` has those at the end of the last interval.
    fn totals(&self, before: &StreamTotals) -> StreamTotals;

    /// Returns the sample of an interval in which these counts were added.
    fn sample(&self, added: &StreamTotals) -> StreamSample;
}

/// Totals of a stream since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StreamTotals {
    pub(crate) bytes: u64,
    pub(crate) datagrams: u64,
    pub(crate) lost: u64,
    pub(crate) reordered: u64,
    pub(crate) duplicates: u64,
}

/// Intervals of one end. All times are counted from the start of the load.
#[derive(Debug)]
pub(crate) struct IntervalMeter {
    interval: Duration,
    parts_per_interval: u16,
    /// End of the last closed interval.
    last_end: Duration,
    /// Totals of each stream at the end of the last interval.
    counted: Vec<StreamTotals>,
    /// Parts of the current interval.
    parts: Vec<IntervalPart>,
    /// Bytes of all streams in closed parts.
    counted_in_parts: u64,
    intervals: Vec<Interval>,
    closed_count: usize,
    host: Option<HostWatch>,
}

impl StreamTotals {
    /// Returns totals of a stream that counts bytes only.
    pub(crate) fn of_bytes(bytes: u64) -> Self {
        StreamTotals { bytes, ..StreamTotals::default() }
    }

    fn since(&self, before: &StreamTotals) -> StreamTotals {
        StreamTotals {
            bytes: self.bytes.saturating_sub(before.bytes),
            datagrams: self.datagrams.saturating_sub(before.datagrams),
            lost: self.lost.saturating_sub(before.lost),
            reordered: self.reordered.saturating_sub(before.reordered),
            duplicates: self.duplicates.saturating_sub(before.duplicates),
        }
    }
}

impl IntervalMeter {
    pub(crate) fn new(interval: Duration, parts_per_interval: u16) -> Self {
        IntervalMeter {
            interval,
            parts_per_interval: parts_per_interval.max(1),
            last_end: Duration::ZERO,
            counted: Vec::new(),
            parts: Vec::new(),
            counted_in_parts: 0,
            intervals: Vec::new(),
            closed_count: 0,
            host: None,
        }
    }

    /// Changes the interval, before the first one is closed.
    pub(crate) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    pub(crate) fn interval(&self) -> Duration {
        self.interval
    }

    /// Samples this host too.
    pub(crate) fn set_host_watch(&mut self, watch: HostWatch) {
        self.host = Some(watch);
    }

    /// Returns the watch of this host. The meter then samples the host no longer.
    pub(crate) fn take_host_watch(&mut self) -> Option<HostWatch> {
        self.host.take()
    }

    pub(crate) fn host_watch(&self) -> Option<&HostWatch> {
        self.host.as_ref()
    }

    /// Ends the watch of this host.
    pub(crate) fn finish_host_watch(&mut self) -> (Option<HostReport>, Vec<Note>) {
        self.host.as_mut().map(HostWatch::finish).unwrap_or_default()
    }

    /// Adds a stream at this index, whose totals are zero.
    pub(crate) fn add_stream(&mut self, index: usize) {
        self.counted.insert(index, StreamTotals::default());
    }

    /// Starts the first interval again, for streams with these totals. Closed intervals stay.
    pub(crate) fn restart(&mut self, totals: Vec<StreamTotals>) {
        self.last_end = Duration::ZERO;
        self.counted = totals;
    }

    /// Returns the end of the current interval or part.
    pub(crate) fn next_end(&self) -> Duration {
        self.next_boundary().min(self.next_part_end())
    }

    /// Returns the end of the last closed interval.
    pub(crate) fn last_end(&self) -> Duration {
        self.last_end
    }

    /// Returns the number of intervals that ended when they were due.
    pub(crate) fn closed_count(&self) -> usize {
        self.closed_count
    }

    /// Returns the bytes of each stream in closed intervals.
    pub(crate) fn counted_bytes(&self) -> impl Iterator<Item = u64> {
        self.counted.iter().map(|totals| totals.bytes)
    }

    /// Returns whether a total has changed since the last interval.
    pub(crate) fn has_uncounted<S: MeteredStream>(&self, streams: impl Iterator<Item = S>) -> bool {
        streams.zip(&self.counted).any(|(stream, counted)| stream.totals(counted) != *counted)
    }

    /// Closes the current interval if it is over, keeps it and returns it.
    pub(crate) fn close_due<S: MeteredStream>(
        &mut self,
        now: Duration,
        streams: impl Iterator<Item = S>,
    ) -> Option<&Interval> {
        let interval = self.take_due(now, streams)?;
        self.intervals.push(interval);
        self.intervals.last()
    }

    /// Closes the current interval if it is over, and returns it without keeping it.
    pub(crate) fn take_due<S: MeteredStream>(
        &mut self,
        now: Duration,
        streams: impl Iterator<Item = S>,
    ) -> Option<Interval> {
        if now < self.next_boundary() {
            if now >= self.next_part_end() {
                let total = streams.map(|stream| stream.totals(&StreamTotals::default()).bytes).sum();
                self.close_part(now, total);
            }
            return None;
        }
        self.closed_count += 1;
        Some(self.take(now, streams))
    }

    /// Closes the current interval now and keeps it.
    pub(crate) fn close<S: MeteredStream>(&mut self, now: Duration, streams: impl Iterator<Item = S>) {
        let interval = self.take(now, streams);
        self.intervals.push(interval);
    }

    /// Closes the current interval now, and returns it without keeping it.
    pub(crate) fn take<S: MeteredStream>(&mut self, now: Duration, streams: impl Iterator<Item = S>) -> Interval {
        let host = &mut self.host;
        let sample = |(stream, counted): (S, &mut StreamTotals)| {
            let totals = stream.totals(counted);
            let added = totals.since(&std::mem::replace(counted, totals));
            let thread = host.as_mut().and_then(|host| host.thread(stream.number(), stream.thread()));
            StreamSample { thread, ..stream.sample(&added) }
        };
        let streams: Vec<StreamSample> = streams.zip(&mut self.counted).map(sample).collect();
        if self.parts_per_interval > 1 {
            self.close_part(now, self.counted_bytes().sum());
        }
        Interval {
            start: std::mem::replace(&mut self.last_end, now),
            end: now,
            bytes: streams.iter().map(|sample| sample.bytes).sum(),
            streams,
            slices: std::mem::take(&mut self.parts),
            host: self.host.as_mut().and_then(HostWatch::sample),
            ..Interval::default()
        }
    }

    /// Returns the closed intervals that were kept.
    pub(crate) fn take_intervals(&mut self) -> Vec<Interval> {
        std::mem::take(&mut self.intervals)
    }

    fn next_boundary(&self) -> Duration {
        next_multiple(self.last_end, self.interval)
    }

    /// Returns the end of the current part; never, if intervals have no parts.
    fn next_part_end(&self) -> Duration {
        if self.parts_per_interval == 1 {
            return Duration::MAX;
        }
        let last = self.parts.last().map_or(self.last_end, |part| part.end);
        next_multiple(last, self.interval / u32::from(self.parts_per_interval))
    }

    fn close_part(&mut self, now: Duration, total: u64) {
        let bytes = total.saturating_sub(std::mem::replace(&mut self.counted_in_parts, total));
        self.parts.push(IntervalPart { end: now, bytes });
    }
}

/// Returns the next multiple of `step` after `last`, so that a late boundary does not shift the later ones.
fn next_multiple(last: Duration, step: Duration) -> Duration {
    let passed = last.as_nanos() / step.as_nanos().max(1);
    let next = (passed + 1).saturating_mul(step.as_nanos());
    Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Stream(u64);

    impl MeteredStream for Stream {
        fn number(&self) -> u16 {
            0
        }

        fn thread(&self) -> i32 {
            0
        }

        fn totals(&self, _before: &StreamTotals) -> StreamTotals {
            StreamTotals::of_bytes(self.0)
        }

        fn sample(&self, added: &StreamTotals) -> StreamSample {
            StreamSample { bytes: added.bytes, ..StreamSample::default() }
        }
    }

    fn streams(bytes: u64) -> impl Iterator<Item = Stream> {
        std::iter::once(Stream(bytes))
    }

    #[test]
    fn late_end_does_not_shift_later_intervals() {
        let ms = Duration::from_millis;
        let mut meter = IntervalMeter::new(ms(100), 1);
        meter.add_stream(0);
        assert!(meter.take_due(ms(99), streams(5)).is_none());
        let late = meter.take_due(ms(130), streams(7)).unwrap();
        assert_eq!((late.start, late.end, late.bytes), (ms(0), ms(130), 7));
        assert_eq!(meter.next_end(), ms(200));
        let next = meter.take_due(ms(200), streams(10)).unwrap();
        assert_eq!((next.start, next.bytes, meter.closed_count()), (ms(130), 3, 2));
    }

    #[test]
    fn parts_add_up_to_their_interval() {
        let ms = Duration::from_millis;
        let mut meter = IntervalMeter::new(ms(100), 2);
        meter.add_stream(0);
        assert!(meter.take_due(ms(50), streams(4)).is_none());
        let interval = meter.take_due(ms(100), streams(10)).unwrap();
        let parts: Vec<u64> = interval.slices.iter().map(|part| part.bytes).collect();
        assert_eq!((interval.bytes, parts), (10, vec![4, 6]));
    }
}
