//! The shown part of a connection.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_plot::{Axis, Panel, Unit};
use lfn_results::evidence::capture::CaptureEvidence;
use lfn_trace::{AcknowledgedRange, Point, Series};

/// Shortest time that a picture shows.
const MIN_SPAN: Duration = Duration::from_millis(1);

/// Shortest time that a picture shows, relative to its start, so that the labels of time stay short.
const MIN_SPAN_OF_START: f64 = 1e-4;

/// Time of a connection that pictures show, since its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub from: Duration,
    pub to: Duration,
}

/// A connection with the points of its pictures.
#[derive(Debug)]
pub(super) struct PlottedConnection<'a> {
    pub evidence: &'a CaptureEvidence,
    pub series: &'a Series,
    /// Time of the first packet, since 1970.
    pub start: Instant,
    /// Name of the capture and of the connection.
    pub name: &'a str,
}

/// The shown part of a connection.
pub(super) struct View<'a> {
    pub evidence: &'a CaptureEvidence,
    pub series: &'a Series,
    /// Shown time, in seconds since the first packet.
    pub from: f64,
    pub to: f64,
    start: Instant,
    /// Name of the capture and of the connection.
    pub name: &'a str,
}

impl<'a> View<'a> {
    /// Returns an empty plot over the shown time.
    pub fn panel(&self, name: &str, y: Axis) -> Panel {
        Panel::new(name, Axis::exact("time since the first packet", Unit::Seconds, self.from, self.to), y)
    }

    /// Returns the view of a connection.
    pub fn new(connection: &PlottedConnection<'a>, range: Option<TimeRange>) -> Self {
        let evidence = connection.evidence;
        let range = range.unwrap_or(TimeRange { from: Duration::ZERO, to: evidence.duration });
        let from = range.from.min(evidence.duration);
        let to = range.to.min(evidence.duration).max(from + MIN_SPAN.max(from.mul_f64(MIN_SPAN_OF_START)));
        View {
            evidence,
            series: connection.series,
            from: from.as_secs_f64(),
            to: to.as_secs_f64(),
            start: connection.start,
            name: connection.name,
        }
    }

    /// Returns the seconds since the first packet of the connection.
    pub fn seconds(&self, at: Instant) -> f64 {
        at.saturating_since(self.start).as_secs_f64()
    }

    /// Returns the points that the picture shows, and the last one before them, where lines begin.
    pub fn shown<V>(&self, points: &'a [Point<V>]) -> &'a [Point<V>] {
        let first = points.partition_point(|point| self.seconds(point.end) < self.from);
        let end = points.partition_point(|point| self.seconds(point.start) <= self.to);
        &points[first.saturating_sub(1).min(end)..end]
    }

    /// Returns the acknowledgements within the shown time.
    pub fn acknowledgements(&self) -> impl Iterator<Item = &'a Point<AcknowledgedRange>> {
        let from = self.from;
        let start = self.start;
        let points = self.shown(self.series.acknowledgements()).iter();
        points.filter(move |point| point.end.saturating_since(start).as_secs_f64() >= from)
    }

    /// Returns the acknowledged payload within the shown time.
    pub fn acknowledged(&self) -> Bytes {
        Bytes(self.acknowledgements().map(|point| point.value.acknowledged).fold(0, u64::saturating_add))
    }
}
