//! Clock of the links.

use lfn_sys::clock;

/// Returns the current time on the link's clock.
pub(super) fn now() -> lfn_core::time::Instant {
    lfn_core::time::Instant::from_nanos(clock::monotonic_nanos())
}
