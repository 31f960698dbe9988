//! Points of the pictures of one connection, in bounded memory.

use lfn_base::time::Instant;

/// Kind of a sent segment in the time-sequence picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentKind {
    /// Data that was not sent before.
    New,
    /// Data that was sent before.
    Retransmission,
    /// Data that fills a gap: it was lost before the capture point, or arrived late.
    FillsGap,
}

/// Points of the pictures of the data of one direction.
#[derive(Debug)]
pub struct Series {
    capacity: usize,
}

impl Series {
    /// Creates an empty series with at most `capacity` points of each kind. Neighbouring points are merged beyond it.
    pub fn new(capacity: usize) -> Self {
        Series { capacity }
    }

    /// Adds a segment of data: `offset` is the first byte of the segment in the stream.
    pub fn add_data(&mut self, _at: Instant, _offset: u64, _length: u32, _kind: SentKind) {}

    /// Adds an acknowledgement up to `offset`, with the advertised window and the bytes in flight at the sender.
    pub fn add_acknowledgement(&mut self, _at: Instant, _offset: u64, _window: u64, _in_flight: u64) {}

    /// Adds a sample of the RTT.
    pub fn add_rtt(&mut self, _at: Instant, _rtt: std::time::Duration) {}

    /// Returns the maximum number of points of each kind.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}
