//! Arrival times of packets: converts the kernel's timestamps, which use the wall clock, to the clock of the model.
//!
//! Both clocks run at the same speed, so their offset is constant until the wall clock is set. Until then, a timestamp
//! is trusted however old it is: a thread that was stopped for seconds sends late, and the accuracy report must show
//! this. After the clock was set, a waiting packet may have a timestamp from before or after the change. Usually the
//! order of arrivals and the current time exclude one of the two. Otherwise the arrival time counts as unknown.

use std::time::Duration;

use lfn_base::time::Instant;

/// Converter of kernel timestamps to the clock of the model.
pub(super) struct KernelTimestamps {
    /// Wall clock minus model clock, nanoseconds.
    offset: i128,
    /// Offset before the wall clock was set, while packets with older timestamps may still wait.
    previous_offset: Option<i128>,
    /// Latest arrival so far. No later packet arrived earlier.
    latest: Instant,
}

/// Simultaneous readings of both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockSample {
    /// In nanoseconds of `CLOCK_REALTIME`.
    pub(super) wall: u64,
    pub(super) model: Instant,
}

/// Arrival time of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArrivalTime {
    Known(Instant),
    /// Not known. The value is an estimate.
    Unknown(Instant),
}

/// Maximum error of a clock sample, and maximum difference of two arrival times that count as equal.
const TOLERANCE: Duration = Duration::from_millis(1);

impl KernelTimestamps {
    /// Creates a converter. Call this before the first packet.
    pub(super) fn new(sample: ClockSample) -> Self {
        KernelTimestamps { offset: sample.offset(), previous_offset: None, latest: sample.model }
    }

    /// Updates the offset. Call this before the timestamps of a batch are converted.
    pub(super) fn add_sample(&mut self, sample: ClockSample) {
        let offset = sample.offset();
        if (offset - self.offset).unsigned_abs() > TOLERANCE.as_nanos() {
            // If the clock was set several times while packets wait, the oldest offset is kept.
            self.previous_offset.get_or_insert(self.offset);
        }
        self.offset = offset;
    }

    /// Forgets the previous offset. Call this when all packets before the last sample are converted.
    pub(super) fn batch_done(&mut self) {
        self.previous_offset = None;
    }

    /// Converts the timestamp of a packet. Call this in the order of arrival.
    pub(super) fn arrival_time(&mut self, stamp: u64, now: Instant) -> ArrivalTime {
        let by = |offset: i128| u64::try_from(i128::from(stamp) - offset).ok().map(Instant::from_nanos);
        // Several processors take the timestamps. So timestamps may be slightly out of order, or slightly later than
        // the sample.
        let could_be = |at: &Instant| *at + TOLERANCE >= self.latest && *at <= now + TOLERANCE;
        let arrival_time = match self.previous_offset {
            None => by(self.offset)
                .filter(|at| *at <= now + TOLERANCE)
                .map_or(ArrivalTime::Unknown(now), ArrivalTime::Known),
            Some(previous) => match [previous, self.offset].map(|offset| by(offset).filter(could_be)) {
                [Some(at), None] | [None, Some(at)] => ArrivalTime::Known(at),
                [Some(one), Some(other)] if one.max(other) - one.min(other) <= TOLERANCE => ArrivalTime::Known(other),
                [_, at] => ArrivalTime::Unknown(at.unwrap_or(now)),
            },
        };
        let (ArrivalTime::Known(at) | ArrivalTime::Unknown(at)) = arrival_time;
        let at = at.min(now);
        self.latest = self.latest.max(at);
        match arrival_time {
            ArrivalTime::Known(_) => ArrivalTime::Known(at),
            ArrivalTime::Unknown(_) => ArrivalTime::Unknown(at),
        }
    }
}

impl ClockSample {
    fn offset(&self) -> i128 {
        i128::from(self.wall) - i128::from(self.model.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_000_000_000_000;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(START + millis * 1_000_000)
    }

    /// Reading of a wall clock that is `ahead` seconds fast.
    fn wall(millis: u64, ahead: u64) -> u64 {
        at(millis).as_nanos() + ahead * 1_000_000_000
    }

    fn sample(millis: u64, ahead: u64) -> ClockSample {
        ClockSample { wall: wall(millis, ahead), model: at(millis) }
    }

    #[test]
    fn old_timestamps_are_trusted() {
        let mut timestamps = KernelTimestamps::new(sample(0, 500));
        timestamps.add_sample(sample(4_000, 500));
        for millis in [10, 20, 3_999] {
            assert_eq!(timestamps.arrival_time(wall(millis, 500), at(4_000)), ArrivalTime::Known(at(millis)));
        }
        assert_eq!(
            timestamps.arrival_time(wall(4_001, 500), at(4_000)),
            ArrivalTime::Known(at(4_000)),
            "no packet arrives in the future"
        );
        assert_eq!(
            timestamps.arrival_time(wall(9_000, 500), at(4_000)),
            ArrivalTime::Unknown(at(4_000)),
            "no plausible timestamp"
        );
        assert_eq!(timestamps.arrival_time(0, at(4_000)), ArrivalTime::Unknown(at(4_000)));
    }

    #[test]
    fn timestamps_survive_a_change_of_the_wall_clock() {
        for (before, after) in [(500, 530), (500, 470)] {
            let mut timestamps = KernelTimestamps::new(sample(0, before));
            timestamps.add_sample(sample(100, before));
            timestamps.arrival_time(wall(99, before), at(100));
            // The clock was set at 300 ms, and sampled only at 2 s.
            timestamps.add_sample(sample(2_000, after));
            for millis in [110, 299] {
                assert_eq!(timestamps.arrival_time(wall(millis, before), at(2_000)), ArrivalTime::Known(at(millis)));
            }
            for millis in [301, 1_999] {
                assert_eq!(timestamps.arrival_time(wall(millis, after), at(2_000)), ArrivalTime::Known(at(millis)));
            }
            timestamps.batch_done();
            assert_eq!(timestamps.arrival_time(wall(2_001, after), at(2_002)), ArrivalTime::Known(at(2_001)));
        }
    }

    #[test]
    fn ambiguous_timestamps_are_unknown() {
        let mut timestamps = KernelTimestamps::new(sample(0, 500));
        // Set back by 1 s: the packet arrived at 2 s before the change, or at 3 s after it.
        timestamps.add_sample(sample(5_000, 499));
        assert_eq!(timestamps.arrival_time(wall(2_000, 500), at(5_000)), ArrivalTime::Unknown(at(3_000)));
        assert_eq!(timestamps.arrival_time(wall(4_500, 500), at(5_000)), ArrivalTime::Known(at(4_500)));
    }
}
