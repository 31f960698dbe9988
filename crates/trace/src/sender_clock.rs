//! The clock of an end in its timestamps: how long its packets waited before the capture point.

/// Ticks of the clocks of common kernels, in nanoseconds.
const TICKS: [u64; 4] = [1_000_000, 4_000_000, 10_000_000, 100_000];
/// Minimum time from the first packet for a judgement of the tick.
const MIN_TIME: u64 = 1_000_000_000;
/// Maximum error of the measured tick.
const MAX_ERROR: f64 = 0.02;
/// Minimum delay that is a queue, in addition to the tick.
const MIN_DELAY: u64 = 20_000_000;

/// Compares the timestamps of an end with the times of its packets at the capture point.
#[derive(Debug, Default)]
pub(crate) struct SenderClock {
    first: Option<(u32, u64)>,
    tick: Option<u64>,
    /// Minimum of capture time minus timestamp, relative to the first packet.
    min: i64,
    packets: u64,
    delayed: u64,
}

impl SenderClock {
    /// Adds a packet with its timestamp. Packets that are later than the earliest one by `limit` nanoseconds have waited.
    pub(crate) fn add(&mut self, value: u32, at: u64, limit: u64) {
        let (first_value, first_at) = *self.first.get_or_insert((value, at));
        let (ticks, time) = (value.wrapping_sub(first_value), at.saturating_sub(first_at));
        if self.tick.is_none() && time >= MIN_TIME && ticks > 0 {
            let measured = time as f64 / f64::from(ticks);
            // A growing queue makes the first estimate too long; the next larger tick is far away.
            let fits = |tick: &u64| measured >= (1.0 - MAX_ERROR) * *tick as f64;
            self.tick = TICKS.into_iter().filter(fits).max();
        }
        let Some(tick) = self.tick else { return };
        let delay = time as i64 - (u64::from(ticks) * tick) as i64;
        self.min = self.min.min(delay);
        self.packets += 1;
        self.delayed += u64::from(delay - self.min > (limit.max(MIN_DELAY) + tick) as i64);
    }

    /// Returns the tick of the timestamps in nanoseconds, if it is known.
    pub(crate) fn tick(&self) -> Option<u64> {
        self.tick
    }

    /// Returns the share of the packets that waited; `None` without a known clock.
    pub(crate) fn delayed_share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.delayed as f64 / self.packets as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_waited_are_counted() {
        for (tick, wait, expected) in [(1, 0, 0.0), (1, 300, 1.0), (4, 300, 1.0), (10, 0, 0.0)] {
            let mut clock = SenderClock::default();
            for number in 0..500_u64 {
                let sent = 1000 + number * 20;
                let waited = if number == 0 { 0 } else { wait };
                clock.add((sent / tick) as u32, (sent + waited) * 1_000_000, 10_000_000);
            }
            assert_eq!(clock.delayed_share(), Some(expected), "{tick} {wait}");
        }
    }
}
