//! Clock of this process, for the pure state machines, which get the time as an argument.

use lfn_base::time::Instant;
use lfn_sys::clock;

/// Returns the current time (`CLOCK_MONOTONIC`).
pub fn now() -> Instant {
    Instant::from_nanos(clock::monotonic_nanos())
}
