//! Pacing of one stream: the time at which the next block may be sent, so that the average rate is kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};

/// Maximum lag that a delayed sender makes up for. More would be a burst that the user did not request.
const MAX_LAG: Duration = Duration::from_millis(100);

/// Minimum wait that is worth a system call; the next block compensates shorter ones.
const MIN_SLEEP: Duration = Duration::from_micros(50);

/// Maximum sleep of a thread before it checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Pacing rate of one stream.
#[derive(Debug)]
pub(crate) struct SendPacer {
    rate: Option<BitRate>,
    /// Time at which all data sent so far is due at the rate.
    due: Instant,
}

impl SendPacer {
    pub(crate) fn new(rate: Option<BitRate>, now: Instant) -> Self {
        SendPacer { rate: rate.filter(|rate| rate.0 > 0), due: now }
    }

    /// Sleeps until the next block may be sent.
    pub(crate) fn wait(&mut self, stop: &AtomicBool) {
        if self.rate.is_none() {
            return;
        }
        loop {
            let now = Instant::now();
            let left = self.due.saturating_duration_since(now);
            if left < MIN_SLEEP || stop.load(Ordering::Relaxed) {
                self.due = self.due.max(now.checked_sub(MAX_LAG).unwrap_or(now));
                return;
            }
            thread::sleep(left.min(POLL_INTERVAL));
        }
    }

    /// Counts the bytes of a sent block.
    pub(crate) fn count(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            self.due += rate.time_for(Bytes(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_kept_and_a_lag_is_limited() {
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        let mut pace = SendPacer::new(Some(BitRate(8_000_000)), begun);
        for _ in 0..10 {
            pace.wait(&stop);
            pace.count(10_000);
        }
        // The tenth block needs 90 ms to pass; the eleventh waits for the hundredth millisecond.
        pace.wait(&stop);
        assert!(begun.elapsed() >= Duration::from_millis(99), "{:?}", begun.elapsed());
        pace.due = begun.checked_sub(Duration::from_secs(5)).unwrap();
        pace.wait(&stop);
        assert!(pace.due + MAX_LAG <= Instant::now() && pace.due + 2 * MAX_LAG > begun);
    }

    #[test]
    fn stop_and_missing_rate_do_not_wait() {
        let (begun, stop) = (Instant::now(), AtomicBool::new(true));
        let mut slow = SendPacer::new(Some(BitRate(1)), begun);
        slow.count(1 << 20);
        slow.wait(&stop);
        let mut none = SendPacer::new(None, begun);
        none.count(u64::MAX);
        none.wait(&AtomicBool::new(false));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
