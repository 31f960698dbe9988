//! Facts about a hop that several stages need and no stage owns.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;

/// Direction in which a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinkDirection {
    /// From the near side to the far side.
    #[default]
    Forward,
    /// From the far side to the near side.
    Return,
}

impl LinkDirection {
    /// Returns the opposite direction.
    pub fn other(self) -> LinkDirection {
        match self {
            LinkDirection::Forward => LinkDirection::Return,
            LinkDirection::Return => LinkDirection::Forward,
        }
    }
}

/// Place of a hop and the packets on it. The fields are those of [`LinkConfig`](super::LinkConfig).
#[derive(Clone, Copy, Debug)]
pub(super) struct HopContext {
    pub(super) seed: u64,
    pub(super) direction: LinkDirection,
    pub(super) hop: u32,
    pub(super) epoch: Instant,
    pub(super) largest_packet: Bytes,
    pub(super) slice: Duration,
}
