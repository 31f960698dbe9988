//! The requested pacing of a sender.

use lfn_base::units::BitRate;

use crate::evidence::figures::Figures;

/// Minimum share of the requested pacing in the goodput; headers and clocks take the rest.
const MIN_SHARE_OF_PACING: f64 = 0.9;

/// Returns true if the sender reached its requested pacing.
pub(super) fn is_limited_by_pacing(figures: &Figures, goodput: BitRate) -> bool {
    requested_pacing(figures).is_some_and(|pace| goodput.as_f64() >= MIN_SHARE_OF_PACING * pace.as_f64())
}

/// Returns the requested pacing of all streams together, if each has one.
pub(super) fn requested_pacing(figures: &Figures) -> Option<BitRate> {
    let paces = figures.streams.iter().map(|flow| Some(flow.sender_socket.pacing_requested?.0));
    paces.sum::<Option<u64>>().filter(|pace| *pace > 0).map(BitRate)
}
