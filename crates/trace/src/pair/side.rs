//! The two captures, and the time in which both must have a packet.

use std::time::Duration;

/// Time within which both captures of a packet must be added. A longer delay counts as a loss.
pub const MATCH_TIME: Duration = Duration::from_secs(10);

/// One of the two captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureSide {
    Near,
    Far,
}

impl CaptureSide {
    pub(super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn other(self) -> CaptureSide {
        match self {
            CaptureSide::Near => CaptureSide::Far,
            CaptureSide::Far => CaptureSide::Near,
        }
    }
}
