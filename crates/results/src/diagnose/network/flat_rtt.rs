//! Flat RTT: the packets of a load wait in no queue.

use std::time::Duration;

use crate::evidence::figures::Figures;

/// Maximum RTT of the settled intervals without a queue, in base RTTs.
pub(in crate::diagnose) const MAX_FLAT_FACTOR: f64 = 1.15;
/// Added to this RTT: delayed acknowledgements and pauses of a host.
const FLAT_MARGIN: Duration = Duration::from_millis(1);

/// Returns true if no queue delays the packets of the settled intervals.
pub(super) fn has_flat_rtt(figures: &Figures) -> bool {
    let flat = figures.base_rtt.mul_f64(MAX_FLAT_FACTOR) + FLAT_MARGIN;
    let loaded = Duration::try_from_secs_f64(figures.course.median_of(|at| at.rtt.as_secs_f64())).unwrap_or_default();
    !loaded.is_zero() && loaded <= flat
}
