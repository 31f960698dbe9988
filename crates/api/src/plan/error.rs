//! Reasons why there is no plan.

use lfn_base::framing::Layer;
use lfn_base::geometry::RouteError;
use lfn_base::plan::PlanError;
use lfn_base::units::BitRate;

use crate::error_kind::ErrorKind;

/// Reasons why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanRequestError {
    #[error("the capacity is missing: give --rate or --link")]
    NoCapacity,
    #[error("--link {link} has no fixed rate: give --rate too")]
    LinkWithoutRate { link: String },
    #[error("--rate {rate} exceeds the capacity of {link}, {capacity}")]
    RateAboveLink { rate: BitRate, link: String, capacity: BitRate },
    #[error("a VLAN tag needs Ethernet, but this capacity counts {}", .0.describe())]
    VlanWithoutEthernet(Layer),
    #[error("--mtu: {0} bytes is too large; the maximum of an IP packet is 65,535")]
    MtuTooLarge(u64),
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl PlanRequestError {
    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}
