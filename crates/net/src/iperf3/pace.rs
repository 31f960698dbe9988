//! When the next block may be sent, so that a stream keeps its rate on average.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::units::{BitRate, Bytes};

/// How far a sender that was held up may run after its rate. More would be a burst the path has not asked for.
const CATCH_UP: Duration = Duration::from_millis(100);

/// Shorter waits are not worth a system call: the next block makes up for them.
const WORTH: Duration = Duration::from_micros(50);

/// How long a thread sleeps at most before it looks whether it should stop.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The rate of one stream.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<BitRate>,
    /// When what was sent so far is due at the rate.
    due: Instant,
}

impl Pace {
    pub(super) fn new(rate: Option<BitRate>, now: Instant) -> Self {
        Pace { rate: rate.filter(|rate| rate.0 > 0), due: now }
    }

    /// Sleeps until the next block may be sent.
    pub(super) fn wait(&mut self, stop: &AtomicBool) {
        if self.rate.is_none() {
            return;
        }
        loop {
            let now = Instant::now();
            let left = self.due.saturating_duration_since(now);
            if left < WORTH || stop.load(Ordering::Relaxed) {
                self.due = self.due.max(now.checked_sub(CATCH_UP).unwrap_or(now));
                return;
            }
            thread::sleep(left.min(LOOK_UP));
        }
    }

    /// Counts what was sent.
    pub(super) fn sent(&mut self, bytes: u64) {
        if let Some(rate) = self.rate {
            self.due += rate.time_for(Bytes(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_a_sender_held_up_does_not_run_after_all_of_it() {
        let stop = AtomicBool::new(false);
        let begun = Instant::now();
        let mut pace = Pace::new(Some(BitRate(8_000_000)), begun);
        for _ in 0..10 {
            pace.wait(&stop);
            pace.sent(10_000);
        }
        // 90 ms have to pass before the tenth block; the eleventh waits for the hundredth millisecond.
        pace.wait(&stop);
        assert!(begun.elapsed() >= Duration::from_millis(99), "{:?}", begun.elapsed());
        pace.due = begun.checked_sub(Duration::from_secs(5)).unwrap();
        pace.wait(&stop);
        assert!(pace.due + CATCH_UP <= Instant::now() && pace.due + 2 * CATCH_UP > begun);
    }

    #[test]
    fn no_rate_is_no_wait_and_a_stop_ends_one() {
        let (begun, stop) = (Instant::now(), AtomicBool::new(true));
        let mut slow = Pace::new(Some(BitRate(1)), begun);
        slow.sent(1 << 20);
        slow.wait(&stop);
        let mut none = Pace::new(None, begun);
        none.sent(u64::MAX);
        none.wait(&AtomicBool::new(false));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
