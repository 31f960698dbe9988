//! Measurement of one step of a ramp at the receiver; `ramp` evaluates the figures.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_results::udp::ramp::StepReceived;

/// Accumulates one step at the receiver: a straight line through the transit times, by least squares.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepMeter {
    step: u32,
    datagrams: u64,
    first: Option<(u64, u64)>,
    last: u64,
    /// Sums of x, y, x·x, x·y: arrival and transit time in seconds since the first datagram.
    sums: [f64; 4],
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
        let y = x - (i128::from(sent) - i128::from(first_sent)) as f64 / 1e9;
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
        StepReceived { step: self.step, datagrams: self.datagrams, time, delay_growth_seconds }
    }
}
