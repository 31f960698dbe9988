//! TCP connections of a packet capture, and the evidence of what limited each of them.
//!
//! This crate is pure: it gets decoded segments with their times, and returns evidence. [`Analysis`] follows all
//! connections of a capture in bounded memory. [`Series`] has the points of the pictures.
//!
//! | module | contents |
//! | --- | --- |
//! | `connection` | both ends of a connection, and its handshake |
//! | `half` | the data of one direction: losses, windows, exchanges and round trips |
//! | `judge` | the limit of each round trip, and the periods |
//! | `mptcp` | subflows of the same MPTCP connection |
//! | `totals` | sums over connections |
//! | `shared_path` | connections between the same hosts |
//! | `bucket` | the fit of a token bucket to the losses |
//! | `evidence` | the figures of a finished connection |
//! | `pair` | the comparison of two captures of the same packets |

#![forbid(unsafe_code)]

mod analysis;
mod bucket;
mod connection;
mod copies;
mod evidence;
mod flags;
mod half;
mod histogram;
mod judge;
mod limits;
mod mptcp;
mod on_demand;
mod pair;
mod queue;
mod report;
mod round_trip;
mod sender_clock;
mod sent_packets;
mod sequence;
mod series;
mod shared_path;
mod spans;
mod totals;

pub use analysis::Analysis;
pub use flags::{PacketFlag, PacketFlags};
pub use pair::{CaptureSide, OffsetEstimate, PairMatcher};
pub use report::{AnalysisOptions, CaptureTotals, Connection, Finished, MptcpConnection, Subflow};
pub use series::{AcknowledgedRange, Extent, Point, RttSamples, SentKind, SentRange, Series};
pub use totals::{ConnectionTotals, FindingTotal, LimitTime};
