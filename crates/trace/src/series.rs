//! Points of the pictures of one connection, in bounded memory.

mod bins;
#[cfg(test)]
mod tests;

use std::time::Duration;

use lfn_base::time::Instant;

use self::bins::{Bins, Merge};

pub use self::bins::Point;

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

/// Data that was sent in a bin of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRange {
    /// First byte in the stream.
    pub start: u64,
    /// End of the last byte in the stream. Merged points may have gaps between both.
    pub end: u64,
    /// Payload of the segments.
    pub bytes: u64,
    pub segments: u64,
}

/// Minimum, maximum and last value in a bin of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub min: u64,
    pub max: u64,
    pub last: u64,
}

/// Acknowledgements in a bin of time. All figures are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcknowledgedRange {
    /// End of the acknowledged data in the stream.
    pub offset: u64,
    /// Payload that was acknowledged in this bin, each byte once.
    pub acknowledged: u64,
    /// Highest byte that the receiver permits: acknowledged byte plus advertised window.
    pub window_end: u64,
    /// Receive window that the receiver advertised.
    pub window: Extent,
    /// Bytes in flight at the sender.
    pub in_flight: Extent,
}

/// RTT samples in a bin of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttSamples {
    pub min: Duration,
    pub max: Duration,
    pub sum: Duration,
    pub count: u32,
}

/// Points of the pictures of the data of one direction.
#[derive(Debug)]
pub struct Series {
    capacity: usize,
    /// Only points of this time are kept.
    kept: (Instant, Instant),
    new: Bins<SentRange>,
    retransmissions: Bins<SentRange>,
    fills: Bins<SentRange>,
    acknowledgements: Bins<AcknowledgedRange>,
    rtts: Bins<RttSamples>,
    /// All data before this byte is acknowledged, or was sent before the capture.
    acknowledged: Option<u64>,
}

impl Series {
    /// Creates an empty series with at most `capacity` points of each kind. Neighbouring points are merged beyond it.
    pub fn new(capacity: usize) -> Self {
        Series {
            capacity,
            kept: (Instant::ZERO, Instant::from_nanos(u64::MAX)),
            new: Bins::new(capacity),
            retransmissions: Bins::new(capacity),
            fills: Bins::new(capacity),
            acknowledgements: Bins::new(capacity),
            rtts: Bins::new(capacity),
            acknowledged: None,
        }
    }

    /// Keeps only points from `start` to `end`, so that a short time of a long connection has all its points.
    pub fn limited_to(mut self, start: Instant, end: Instant) -> Self {
        self.kept = (start, end);
        self
    }

    /// Adds a segment of data: `offset` is the first byte of the segment in the stream.
    pub fn add_data(&mut self, at: Instant, offset: u64, length: u32, kind: SentKind) {
        self.acknowledged.get_or_insert(offset);
        if !self.keeps(at) {
            return;
        }
        let bytes = u64::from(length);
        let sent = SentRange { start: offset, end: offset.saturating_add(bytes), bytes, segments: 1 };
        match kind {
            SentKind::New => self.new.add(at, sent),
            SentKind::Retransmission => self.retransmissions.add(at, sent),
            SentKind::FillsGap => self.fills.add(at, sent),
        }
    }

    /// Adds an acknowledgement up to `offset`, with the advertised window and the bytes in flight at the sender.
    pub fn add_acknowledgement(&mut self, at: Instant, offset: u64, window: u64, in_flight: u64) {
        let before = *self.acknowledged.get_or_insert(offset);
        self.acknowledged = Some(before.max(offset));
        if !self.keeps(at) {
            return;
        }
        let point = AcknowledgedRange {
            offset,
            acknowledged: offset.saturating_sub(before),
            window_end: offset.saturating_add(window),
            window: Extent::of(window),
            in_flight: Extent::of(in_flight),
        };
        self.acknowledgements.add(at, point);
    }

    /// Adds a sample of the RTT.
    pub fn add_rtt(&mut self, at: Instant, rtt: Duration) {
        if self.keeps(at) {
            self.rtts.add(at, RttSamples { min: rtt, max: rtt, sum: rtt, count: 1 });
        }
    }

    /// Returns the maximum number of points of each kind.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the sent data of one kind, in order of time.
    pub fn data(&self, kind: SentKind) -> &[Point<SentRange>] {
        match kind {
            SentKind::New => self.new.points(),
            SentKind::Retransmission => self.retransmissions.points(),
            SentKind::FillsGap => self.fills.points(),
        }
    }

    /// Returns the acknowledgements, in order of time.
    pub fn acknowledgements(&self) -> &[Point<AcknowledgedRange>] {
        self.acknowledgements.points()
    }

    /// Returns the RTT samples, in order of time.
    pub fn rtts(&self) -> &[Point<RttSamples>] {
        self.rtts.points()
    }

    fn keeps(&self, at: Instant) -> bool {
        self.kept.0 <= at && at <= self.kept.1
    }
}

impl Extent {
    fn of(value: u64) -> Self {
        Extent { min: value, max: value, last: value }
    }
}

impl RttSamples {
    /// Returns the mean of the samples.
    pub fn mean(&self) -> Duration {
        self.sum / self.count.max(1)
    }
}

impl Merge for SentRange {
    fn merge(&mut self, later: Self) {
        self.start = self.start.min(later.start);
        self.end = self.end.max(later.end);
        self.bytes = self.bytes.saturating_add(later.bytes);
        self.segments += later.segments;
    }
}

impl Merge for Extent {
    fn merge(&mut self, later: Self) {
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.last = later.last;
    }
}

impl Merge for AcknowledgedRange {
    fn merge(&mut self, later: Self) {
        self.offset = self.offset.max(later.offset);
        self.acknowledged = self.acknowledged.saturating_add(later.acknowledged);
        self.window_end = self.window_end.max(later.window_end);
        self.window.merge(later.window);
        self.in_flight.merge(later.in_flight);
    }
}

impl Merge for RttSamples {
    fn merge(&mut self, later: Self) {
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.sum = self.sum.saturating_add(later.sum);
        self.count = self.count.saturating_add(later.count);
    }
}
