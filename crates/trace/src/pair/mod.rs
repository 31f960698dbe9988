//! Comparison of two captures of the same packets: losses between the captures, and one-way delays.
//!
//! The caller adds the segments of both captures in the order of their times, with the clock of the far capture shifted by
//! the estimate of [`OffsetEstimate`]. Payload is matched by byte ranges, so the captures may have super-packets (TSO,
//! GRO) of different sizes. A segment without payload is matched by its header. A segment without its counterpart within
//! [`MATCH_TIME`] is lost or was missed by a capture.
//!
//! The end that is near is not known in advance. Both directions of a connection are recorded alike, and the direction
//! with the larger difference of the clocks is the one from near to far, because an RTT is positive.

mod direction;
mod offset;
mod samples;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_results::evidence::pair::PairEvidence;

use lfn_packet::{TcpEndpoint, TcpSegment};

use direction::Direction;
pub use offset::OffsetEstimate;

/// Time within which both captures of a packet must be added. A longer delay counts as a loss.
pub const MATCH_TIME: Duration = Duration::from_secs(10);

/// Maximum number of connections that are compared.
const MAX_CONNECTIONS: usize = 2000;

/// One of the two captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureSide {
    Near,
    Far,
}

impl CaptureSide {
    fn index(self) -> usize {
        self as usize
    }

    fn other(self) -> CaptureSide {
        match self {
            CaptureSide::Near => CaptureSide::Far,
            CaptureSide::Far => CaptureSide::Near,
        }
    }
}

/// Compares two captures.
#[derive(Debug)]
pub struct PairMatcher {
    /// Clock of the far capture minus the clock of the near capture, nanoseconds; an estimate.
    offset: i64,
    connections: HashMap<[TcpEndpoint; 2], PairedConnection>,
    /// Segments of each capture.
    packets: [u64; 2],
    skipped: u64,
    /// Times of the first and of the last segment of each capture, on the clock of the near capture.
    first: [Option<Instant>; 2],
    last: [Option<Instant>; 2],
}

/// A connection in both captures.
#[derive(Debug, Default)]
struct PairedConnection {
    /// From the smaller to the larger endpoint, and back.
    directions: [Direction; 2],
}

impl PairMatcher {
    /// Creates a matcher with an estimate of the clock offset: far minus near, nanoseconds.
    pub fn new(offset: i64) -> Self {
        PairMatcher {
            offset,
            connections: HashMap::new(),
            packets: [0; 2],
            skipped: 0,
            first: [None; 2],
            last: [None; 2],
        }
    }

    /// Adds a segment of one capture, with the time of this capture.
    pub fn add(&mut self, side: CaptureSide, at: Instant, segment: &TcpSegment) {
        let at = self.near_time(side, at);
        self.packets[side.index()] += 1;
        self.first[side.index()].get_or_insert(at);
        self.last[side.index()] = self.last[side.index()].max(Some(at));
        let is_up = segment.source <= segment.destination;
        let ends = if is_up { [segment.source, segment.destination] } else { [segment.destination, segment.source] };
        if !self.connections.contains_key(&ends) && self.connections.len() >= MAX_CONNECTIONS {
            self.skipped += 1;
            return;
        }
        let connection = self.connections.entry(ends).or_default();
        let (sent, back) = connection.split(is_up);
        back.acknowledge(segment);
        sent.add(side, at, segment);
    }

    /// Returns the time on the clock of the near capture, as far as the offset is known.
    pub fn near_time(&self, side: CaptureSide, at: Instant) -> Instant {
        match side {
            CaptureSide::Near => at,
            CaptureSide::Far => Instant::from_nanos(at.as_nanos().saturating_add_signed(self.offset.saturating_neg())),
        }
    }

    /// Ends the comparison.
    pub fn finish(mut self) -> PairEvidence {
        for connection in self.connections.values_mut() {
            for direction in &mut connection.directions {
                direction.finish(self.last);
            }
        }
        summary::summarize(self)
    }
}

impl PairedConnection {
    /// Returns the direction of a segment, and the other one.
    fn split(&mut self, is_up: bool) -> (&mut Direction, &mut Direction) {
        let [up, down] = &mut self.directions;
        if is_up { (up, down) } else { (down, up) }
    }
}
