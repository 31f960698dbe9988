//! The shown part of a connection, and its figures in words.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{Bytes, show_duration};
use lfn_results::evidence::capture::CaptureEvidence;
use lfn_trace::{AcknowledgedRange, Point, Series};

use super::{PlottedConnection, TimeRange, shorten};

/// Shortest time that a picture shows.
const MIN_SPAN: Duration = Duration::from_millis(1);

/// Shortest time that a picture shows, relative to its start, so that the labels of time stay short.
const MIN_SPAN_OF_START: f64 = 1e-4;

/// Maximum number of characters of a name, so that the figures after the name stay.
const MAX_NAME: usize = 44;

/// Longest time, in units of the base RTT, that shows single gaps.
const MAX_IDLE_SPAN: f64 = 50.0;

/// A gap in the acknowledgements of this share of the base RTT is idle time.
const MIN_GAP: f64 = 0.2;

/// The shown part of a connection.
pub struct View<'a> {
    pub evidence: &'a CaptureEvidence,
    pub series: &'a Series,
    /// Shown time, in seconds since the first packet.
    pub from: f64,
    pub to: f64,
    start: Instant,
    /// Name of the capture and of the connection.
    pub name: String,
}

impl<'a> View<'a> {
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
            name: shorten(connection.name, MAX_NAME),
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

    /// Returns the share of the shown time without acknowledged data: the gaps of a fifth of the base RTT and above.
    /// None if the base RTT is unknown, or if the picture cannot show these gaps.
    pub fn idle_share(&self) -> Option<f64> {
        let min_gap = MIN_GAP * self.evidence.rtt.base.as_secs_f64();
        if min_gap == 0.0 || self.to - self.from > MAX_IDLE_SPAN * self.evidence.rtt.base.as_secs_f64() {
            return None;
        }
        let (mut idle, mut last) = (0.0, self.from);
        for point in self.acknowledgements().filter(|point| point.value.acknowledged > 0) {
            let (start, end) = (self.seconds(point.start).max(self.from), self.seconds(point.end).min(self.to));
            if end - start > min_gap {
                return None;
            }
            if start - last >= min_gap {
                idle += start - last;
            }
            last = end;
        }
        if self.to - last >= min_gap {
            idle += self.to - last;
        }
        Some((idle / (self.to - self.from)).clamp(0.0, 1.0))
    }

    /// Returns the sender and the receiver.
    pub fn ends(&self) -> String {
        format!("{} → {}", self.evidence.sender, self.evidence.receiver)
    }

    /// Returns the main figures of the shown time.
    pub fn facts(&self) -> String {
        let span = Duration::from_secs_f64(self.to - self.from);
        let bytes = self.acknowledged();
        let mut facts = format!("{} in {}, {}", bytes.decimal(), show_duration(span), bytes.per(span));
        if !self.evidence.rtt.base.is_zero() {
            facts += &format!(", base RTT {}", show_duration(self.evidence.rtt.base));
        }
        if let Some(idle) = self.idle_share() {
            facts += &format!(", idle {:.0} % of the time", idle * 100.0);
        }
        facts
    }

    /// Returns all of these for the description.
    pub fn summary(&self) -> String {
        format!("{}. {}: {}", self.ends(), self.name, self.facts())
    }
}
