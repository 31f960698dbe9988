//! Wait of a sender for the time of its next burst.

use std::sync::atomic::{AtomicBool, Ordering};

use lfn_base::time::Instant;
use lfn_sys::clock::{monotonic_nanos, sleep_until};

/// Time that an exact wait spins before a departure: about the duration of a wake-up.
const SPIN_NANOS: u64 = 20_000;

/// Minimum wait that is worth a system call; the next burst compensates shorter ones.
const MIN_SLEEP_NANOS: u64 = 50_000;

/// Maximum sleep, so that the thread notices the stop flag.
const POLL_INTERVAL_NANOS: u64 = 20_000_000;

/// Precision of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPrecision {
    /// Spins before the time, to leave on time.
    Exact,
    /// Skips short waits, to save processor time.
    Sleep,
}

/// Waits until `due` or until `stop` is set.
pub(super) fn wait_until(due: Instant, precision: WaitPrecision, stop: &AtomicBool) {
    let due = due.as_nanos();
    loop {
        let now = monotonic_nanos();
        if now >= due || stop.load(Ordering::Relaxed) {
            return;
        }
        let latest = now + POLL_INTERVAL_NANOS;
        match precision {
            WaitPrecision::Exact if due - now <= SPIN_NANOS => std::hint::spin_loop(),
            WaitPrecision::Exact => sleep_until((due - SPIN_NANOS).min(latest)),
            WaitPrecision::Sleep if due - now < MIN_SLEEP_NANOS => return,
            WaitPrecision::Sleep => sleep_until(due.min(latest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn wait_ends_at_its_time_or_at_the_stop() {
        let (begun, stopped) = (std::time::Instant::now(), AtomicBool::new(true));
        wait_until(Instant::from_nanos(u64::MAX), WaitPrecision::Sleep, &stopped);
        assert!(begun.elapsed() < Duration::from_secs(10));
        for precision in [WaitPrecision::Sleep, WaitPrecision::Exact] {
            let due = Instant::from_nanos(monotonic_nanos() + 30_000_000);
            wait_until(due, precision, &AtomicBool::new(false));
            assert!(monotonic_nanos() + MIN_SLEEP_NANOS >= due.as_nanos());
        }
    }
}
