//! TCP connections of a packet capture, and the evidence of what limited each of them.
//!
//! This crate is pure: it gets decoded segments with their times, and returns evidence. [`Analysis`] follows all
//! connections of a capture in bounded memory. [`Series`] has the points of the pictures.

#![forbid(unsafe_code)]

mod analysis;
mod flags;
mod series;

pub use analysis::{Analysis, AnalysisOptions, CaptureTotals, Connection, Finished};
pub use lfn_packet::TcpEndpoint;

pub use flags::{PacketFlag, PacketFlags};
pub use series::{AcknowledgedRange, Extent, Point, RttSamples, SentKind, SentRange, Series};
