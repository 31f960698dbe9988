//! Comparison of two captures of the same packets: losses between the captures, and one-way delays.
//!
//! The caller adds the segments of both captures in the order of their times, with the clock of the far capture shifted by
//! the estimate of [`OffsetEstimate`]. Payload is matched by byte ranges, so the captures may have super-packets (TSO,
//! GRO) of different sizes. A segment without payload is matched by its header. A segment without its counterpart within
//! [`side::MATCH_TIME`] is lost or was missed by a capture.
//!
//! The end that is near is not known in advance. Both directions of a connection are recorded alike, and the direction
//! with the larger difference of the clocks is the one from near to far, because an RTT is positive.

mod direction;
mod matcher;
mod offset;
mod samples;
mod side;
mod summary;
#[cfg(test)]
mod tests;

pub use matcher::PairMatcher;
pub use offset::OffsetEstimate;
pub use side::CaptureSide;
