//! Measurement of one step of a ramp at the receiver; `ramp` evaluates the figures.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_results::udp::ramp::{MAX_SLICES, StepReceived, StepSlice, StepSlices};

/// Send time of a slice at the start of a step. The slices double when more than [`MAX_SLICES`] are needed.
const MIN_SLICE: Duration = Duration::from_millis(1);

/// Accumulates one step at the receiver: a straight line through the transit times, by least squares.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepMeter {
    step: u32,
    datagrams: u64,
    first: Option<(u64, u64)>,
    last: u64,
    /// Sums of x, y, x·x, x·y: arrival and transit time in seconds since the first datagram.
    sums: [f64; 4],
    slices: SliceMeter,
}

/// Slices of the send time with their arrivals and their minimum transit times.
#[derive(Debug, Clone, Copy)]
struct SliceMeter {
    /// Send time of a slice, nanoseconds.
    width: u64,
    slices: [SliceCount; MAX_SLICES],
}

/// Arrivals of a slice.
#[derive(Debug, Clone, Copy, Default)]
struct SliceCount {
    datagrams: u64,
    /// Minimum transit time relative to the first datagram, nanoseconds.
    min_transit: i64,
}

impl StepMeter {
    /// Creates a meter for the step with this number.
    pub fn new(step: u32) -> Self {
        StepMeter { step, ..StepMeter::default() }
    }

    /// Returns the number of the step.
    pub fn step(&self) -> u32 {
        self.step
    }

    /// Records the first arrival of a datagram of the step; nanoseconds of each end's clock.
    pub fn arrived(&mut self, sent: u64, received: u64) {
        let (first_sent, first_received) = *self.first.get_or_insert((sent, received));
        self.datagrams += 1;
        self.last = self.last.max(received);
        let x = (i128::from(received) - i128::from(first_received)) as f64 / 1e9;
        let after = i128::from(sent) - i128::from(first_sent);
        let y = x - after as f64 / 1e9;
        self.slices.arrived(after, i128::from(received) - i128::from(first_received) - after);
        for (sum, value) in self.sums.iter_mut().zip([x, y, x * x, x * y]) {
            *sum += value;
        }
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> StepReceived {
        let (_, first) = self.first.unwrap_or_default();
        let time = Duration::from_nanos(self.last.saturating_sub(first));
        let (n, [x, y, xx, xy]) = (self.datagrams as f64, self.sums);
        let spread = n * xx - x * x;
        let slope = if spread > 0.0 { (n * xy - x * y) / spread } else { 0.0 };
        let delay_growth_seconds = Figure::new(slope * time.as_secs_f64()).unwrap_or_default();
        let slices = self.slices.figures();
        StepReceived { step: self.step, datagrams: self.datagrams, time, delay_growth_seconds, slices }
    }
}

impl Default for SliceMeter {
    fn default() -> Self {
        SliceMeter { width: MIN_SLICE.as_nanos() as u64, slices: [SliceCount::default(); MAX_SLICES] }
    }
}

impl SliceMeter {
    /// Records a datagram that was sent this long after the first one; nanoseconds. A datagram from before the first one
    /// counts in the first slice.
    fn arrived(&mut self, after: i128, transit: i128) {
        let after = u64::try_from(after.max(0)).unwrap_or(u64::MAX);
        while after / self.width >= MAX_SLICES as u64 {
            self.double();
        }
        let transit = i64::try_from(transit).unwrap_or(if transit < 0 { i64::MIN } else { i64::MAX });
        let slice = &mut self.slices[(after / self.width) as usize];
        slice.add(SliceCount { datagrams: 1, min_transit: transit });
    }

    /// Joins each two neighbouring slices.
    fn double(&mut self) {
        self.width = self.width.saturating_mul(2);
        let before = std::mem::take(&mut self.slices);
        for (slice, pair) in self.slices.iter_mut().zip(before.chunks(2)) {
            pair.iter().for_each(|part| slice.add(*part));
        }
    }

    fn figures(&self) -> StepSlices {
        let used = self.slices.iter().rposition(|slice| slice.datagrams > 0).map_or(0, |last| last + 1);
        let used = &self.slices[..used];
        let min = used.iter().filter(|slice| slice.datagrams > 0).map(|slice| slice.min_transit).min().unwrap_or(0);
        let delay = |slice: &SliceCount| match slice.datagrams {
            0 => 0.0,
            _ => (i128::from(slice.min_transit) - i128::from(min)) as f64 / 1e9,
        };
        let slices = used.iter().map(|slice| StepSlice {
            datagrams: slice.datagrams,
            delay_seconds: Figure::new(delay(slice)).unwrap_or_default(),
        });
        StepSlices { width: Duration::from_nanos(self.width), slices: slices.collect() }
    }
}

impl SliceCount {
    fn add(&mut self, other: SliceCount) {
        if other.datagrams == 0 {
            return;
        }
        self.min_transit =
            if self.datagrams == 0 { other.min_transit } else { self.min_transit.min(other.min_transit) };
        self.datagrams += other.datagrams;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a datagram each millisecond; datagram n takes `transit(n)` microseconds.
    fn figures(datagrams: u64, transit: impl Fn(u64) -> u64) -> StepSlices {
        let mut meter = StepMeter::new(1);
        for n in 0..datagrams {
            let sent = n * 1_000_000;
            meter.arrived(sent, sent + 5_000_000 + transit(n) * 1000);
        }
        meter.figures().slices
    }

    #[test]
    fn slices_double_with_the_length_of_the_step() {
        for (datagrams, width, used) in [(1, 1, 1), (16, 1, 16), (17, 2, 9), (500, 32, 16), (513, 64, 9)] {
            let found = figures(datagrams, |_| 0);
            assert_eq!(found.width, Duration::from_millis(width), "{datagrams}");
            assert_eq!(found.slices.len(), used, "{datagrams}");
            assert_eq!(found.slices.iter().map(|slice| slice.datagrams).sum::<u64>(), datagrams);
        }
    }

    #[test]
    fn delay_of_a_slice_is_its_minimum_above_the_step() {
        // The queue is empty for half of the step, then grows by 1 ms for each datagram.
        let found = figures(512, |n| 300 + n.saturating_sub(256) * 1000);
        let delays: Vec<f64> = found.slices.iter().map(|slice| slice.delay_seconds.get()).collect();
        assert!(delays[..9].iter().all(|delay| *delay == 0.0), "{delays:?}");
        assert_eq!(delays[10], 0.064, "{delays:?}");
        assert!(delays[9..].windows(2).all(|pair| pair[1] > pair[0]), "{delays:?}");
    }

    #[test]
    fn extreme_times_are_bounded() {
        let mut meter = StepMeter::new(1);
        for (sent, received) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX / 2, 7), (3, 3)] {
            meter.arrived(sent, received);
        }
        assert_eq!(meter.figures().slices.slices.iter().map(|slice| slice.datagrams).sum::<u64>(), 4);
        assert_eq!(StepMeter::new(1).figures().slices.slices, []);
    }
}
