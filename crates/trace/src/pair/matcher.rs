//! Connections of both captures.

use std::collections::HashMap;

use lfn_base::time::Instant;
use lfn_packet::{TcpEndpoint, TcpSegment};

use super::direction::Direction;
use super::side::CaptureSide;

/// Maximum number of connections that are compared.
const MAX_CONNECTIONS: usize = 2000;

/// Compares two captures.
#[derive(Debug)]
pub struct PairMatcher {
    /// Clock of the far capture minus the clock of the near capture, nanoseconds; an estimate.
    pub(super) offset: i64,
    pub(super) connections: HashMap<[TcpEndpoint; 2], PairedConnection>,
    /// Segments of each capture.
    pub(super) packets: [u64; 2],
    pub(super) skipped: u64,
    /// Times of the first and of the last segment of each capture, on the clock of the near capture.
    pub(super) first: [Option<Instant>; 2],
    pub(super) last: [Option<Instant>; 2],
}

/// A connection in both captures.
#[derive(Debug, Default)]
pub(super) struct PairedConnection {
    /// From the smaller to the larger endpoint, and back.
    pub(super) directions: [Direction; 2],
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
}

impl PairedConnection {
    /// Returns the direction of a segment, and the other one.
    fn split(&mut self, is_up: bool) -> (&mut Direction, &mut Direction) {
        let [up, down] = &mut self.directions;
        if is_up { (up, down) } else { (down, up) }
    }
}
