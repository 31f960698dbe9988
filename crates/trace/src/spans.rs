//! Union of spans of time.

use std::time::Duration;

use lfn_base::time::Instant;

/// Maximum number of separate spans. Beyond it, the two with the shortest time between them are merged.
const MAX_SPANS: usize = 64;

/// Union of spans of time, in order and apart from each other.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<Span>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    start: Instant,
    end: Instant,
}

impl Spans {
    /// Adds a span of time, which may overlap others.
    pub(crate) fn add(&mut self, start: Instant, end: Instant) {
        let first = self.0.partition_point(|span| span.end < start);
        let last = self.0.partition_point(|span| span.start <= end);
        let touched = &self.0[first..last];
        let merged = Span {
            start: touched.first().map_or(start, |span| span.start.min(start)),
            end: touched.last().map_or(end, |span| span.end.max(end)),
        };
        self.0.splice(first..last, [merged]);
        if self.0.len() > MAX_SPANS {
            self.merge_nearest();
        }
    }

    fn merge_nearest(&mut self) {
        let gap = |at: &usize| self.0[*at].start.saturating_since(self.0[*at - 1].end);
        if let Some(at) = (1..self.0.len()).min_by_key(gap) {
            let removed = self.0.remove(at);
            self.0[at - 1].end = removed.end;
        }
    }

    /// Returns the start of the first span.
    pub(crate) fn start(&self) -> Instant {
        self.0.first().map_or(Instant::from_nanos(0), |span| span.start)
    }

    /// Returns the sum of all spans.
    pub(crate) fn duration(&self) -> Duration {
        self.0.iter().map(|span| span.end.saturating_since(span.start)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn union(spans: &[[u64; 2]]) -> (u64, u128, usize) {
        let mut union = Spans::default();
        for [start, end] in spans {
            union.add(Instant::from_nanos(*start), Instant::from_nanos(*end));
        }
        (union.start().as_nanos(), union.duration().as_nanos(), union.0.len())
    }

    #[test]
    fn overlapping_spans_count_once() {
        assert_eq!(union(&[]), (0, 0, 0));
        assert_eq!(union(&[[10, 20], [15, 30], [40, 50]]), (10, 30, 2));
        assert_eq!(union(&[[40, 50], [10, 20], [20, 40]]), (10, 40, 1));
        assert_eq!(union(&[[10, 50], [20, 30]]), (10, 40, 1));
        assert_eq!(union(&[[10, 20], [30, 40], [50, 60], [0, 100]]), (0, 100, 1));
    }

    #[test]
    fn many_spans_are_merged_at_short_gaps() {
        let spans: Vec<[u64; 2]> = (0..1000).map(|number| [number * 100, number * 100 + 50]).collect();
        let (start, duration, count) = union(&spans);
        assert_eq!((start, count), (0, MAX_SPANS));
        assert!((50_000..=99_950).contains(&duration), "{duration}");
    }
}
