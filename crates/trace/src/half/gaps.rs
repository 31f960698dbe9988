//! Bytes that the capture lacks between the bytes that it has.

/// Bytes that were skipped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gap {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Time of the packet after the gap, with its timestamp and IP identification.
    pub(crate) at: u64,
    pub(crate) timestamp: Option<u32>,
    pub(crate) ip_id: Option<u16>,
    /// Time of the packet before the gap.
    pub(crate) after: u64,
    /// Timestamp of the packet before the gap; 0 if it has none.
    pub(crate) after_timestamp: u32,
    /// RTT before the gap, nanoseconds.
    pub(crate) rtt: u64,
}

/// Gaps in the order of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    gaps: Vec<Gap>,
}

impl Gaps {
    pub(crate) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Adds a gap after all others. With `limit` gaps, the oldest is forgotten.
    pub(crate) fn insert(&mut self, gap: Gap, limit: u16) {
        let excess = (self.gaps.len() + 1).saturating_sub(usize::from(limit));
        self.gaps.drain(..excess);
        self.gaps.push(gap);
    }

    /// Removes the bytes from `start` to `end` from the gaps, and calls `each` with each removed part. Beyond `limit` gaps, the
    /// last are forgotten.
    pub(crate) fn fill(&mut self, start: u64, end: u64, limit: u16, mut each: impl FnMut(Gap)) {
        if self.gaps.iter().all(|gap| gap.start >= end || gap.end <= start) {
            return;
        }
        let mut rest = Vec::with_capacity(self.gaps.len() + 1);
        for gap in self.gaps.drain(..) {
            let filled = Gap { start: gap.start.max(start), end: gap.end.min(end), ..gap };
            if filled.start >= filled.end {
                rest.push(gap);
                continue;
            }
            each(filled);
            for part in [Gap { end: filled.start, ..gap }, Gap { start: filled.end, ..gap }] {
                if part.start < part.end {
                    rest.push(part);
                }
            }
        }
        rest.truncate(limit.into());
        self.gaps = rest;
    }

    /// Removes the bytes before `end`, and calls `each` with each removed part.
    pub(crate) fn acknowledge(&mut self, end: u64, each: impl FnMut(Gap)) {
        if self.gaps.first().is_some_and(|gap| gap.start < end) {
            self.fill(0, end, u16::MAX, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_parts_are_removed() {
        let mut gaps = Gaps::default();
        let gap = Gap { start: 10, end: 50, at: 1, timestamp: None, ip_id: None, after: 0, after_timestamp: 0, rtt: 0 };
        gaps.insert(gap, 8);
        let mut filled = Vec::new();
        gaps.fill(20, 30, 8, |gap| filled.push((gap.start, gap.end)));
        gaps.fill(0, 15, 8, |gap| filled.push((gap.start, gap.end)));
        assert_eq!(filled, [(20, 30), (10, 15)]);
        let mut rest = 0;
        gaps.acknowledge(100, |gap| rest += gap.end - gap.start);
        assert_eq!(rest, 5 + 20);
    }
}
