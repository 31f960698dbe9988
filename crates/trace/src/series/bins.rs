//! Points over time in bins that widen: at most a fixed number of points for a connection of any length.

use lfn_base::time::Instant;

/// Figures of a point that take in the figures of another point.
pub trait Merge {
    /// Adds the figures of `later`, which were added after these.
    fn merge(&mut self, later: Self);
}

/// Figures of a bin of time. A bin has the segments of one moment, or of a longer time after a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point<V> {
    /// Time of the first and of the last segment.
    pub start: Instant,
    pub end: Instant,
    pub value: V,
}

/// Points in order of time. Bins are 2^`shift` nanoseconds wide; bins without a segment take no memory.
#[derive(Clone, Debug)]
pub struct Bins<V> {
    capacity: usize,
    shift: u32,
    points: Vec<Point<V>>,
}

impl<V: Merge> Bins<V> {
    /// Creates bins for at most `capacity` points.
    pub fn new(capacity: usize) -> Self {
        Bins { capacity, shift: 0, points: Vec::new() }
    }

    /// Adds figures at a time, which may be earlier than the times before.
    pub fn add(&mut self, at: Instant, value: V) {
        if self.capacity == 0 {
            return;
        }
        let bin = self.bin(at);
        // Nearly every segment is at the end.
        let earlier = match self.points.last() {
            Some(last) if self.bin(last.start) > bin => self.points.partition_point(|p| self.bin(p.start) <= bin),
            _ => self.points.len(),
        };
        let point = Point { start: at, end: at, value };
        match earlier.checked_sub(1).filter(|&place| self.bin(self.points[place].start) == bin) {
            Some(place) => self.points[place].merge(point),
            None => self.points.insert(earlier, point),
        }
        if self.points.len() > self.capacity {
            self.widen();
        }
    }

    /// Returns the points in order of time.
    pub fn points(&self) -> &[Point<V>] {
        &self.points
    }

    fn bin(&self, at: Instant) -> u64 {
        at.as_nanos().checked_shr(self.shift).unwrap_or(0)
    }

    /// Doubles the width of the bins until a quarter of the points is free, so that this happens rarely.
    fn widen(&mut self) {
        let enough = (self.capacity * 3 / 4).max(1);
        while self.points.len() > enough {
            self.shift += 1;
            let shift = self.shift;
            let bin = |point: &Point<V>| point.start.as_nanos().checked_shr(shift).unwrap_or(0);
            let mut merged: Vec<Point<V>> = Vec::with_capacity(self.points.len());
            for point in self.points.drain(..) {
                match merged.last_mut().filter(|last| bin(last) == bin(&point)) {
                    Some(last) => last.merge(point),
                    None => merged.push(point),
                }
            }
            self.points = merged;
        }
    }
}

impl<V: Merge> Point<V> {
    fn merge(&mut self, later: Self) {
        self.start = self.start.min(later.start);
        self.end = self.end.max(later.end);
        self.value.merge(later.value);
    }
}
