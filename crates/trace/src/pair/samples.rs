//! Differences between the times of both captures, in bounded memory.

/// Maximum number of kept samples.
const CAPACITY: usize = 2048;

/// Differences in nanoseconds: the minimum and the maximum of all, and an even selection.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    range: Option<(i64, i64)>,
    kept: Vec<i64>,
    /// Each sample whose number is a multiple of this power of two is kept.
    shift: u32,
    count: u64,
}

impl Samples {
    /// Adds a difference of two times.
    pub(super) fn add(&mut self, difference: i64) {
        let (min, max) = self.range.unwrap_or((difference, difference));
        self.range = Some((min.min(difference), max.max(difference)));
        if self.count.trailing_zeros() >= self.shift || self.count == 0 {
            self.kept.push(difference);
        }
        self.count += 1;
        if self.kept.len() >= CAPACITY {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.shift += 1;
        }
    }

    /// Returns the minimum of all differences.
    pub(super) fn min(&self) -> Option<i64> {
        self.range.map(|(min, _)| min)
    }

    /// Returns the maximum of all differences.
    pub(super) fn max(&self) -> Option<i64> {
        self.range.map(|(_, max)| max)
    }

    /// Returns the median of the kept differences.
    pub(super) fn median(&self) -> Option<i64> {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    /// Returns the kept differences.
    pub(super) fn kept(&self) -> &[i64] {
        &self.kept
    }
}
