//! Clock of the links.

use lfn_sys::clock;

/// Returns the current time on the link's clock.
pub(super) fn now() -> lfn_base::time::Instant {
    lfn_base::time::Instant::from_nanos(clock::monotonic_nanos())
}
