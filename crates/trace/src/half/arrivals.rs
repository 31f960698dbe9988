//! Packets of a direction that passed or were lost, in the order of their sending: the input of the token bucket fit.

/// Maximum number of entries without another limit. Beyond it, neighbours that passed are merged.
pub(crate) const MAX_ENTRIES: usize = 8192;

/// Packets that passed, or one that was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Time of sending, nanoseconds since 1970.
    pub(crate) at: u64,
    /// Bytes of payload together.
    pub(crate) length: u32,
    pub(crate) is_lost: bool,
}

/// Arrivals of one direction.
#[derive(Debug)]
pub(crate) struct Arrivals {
    entries: Vec<Arrival>,
    /// Maximum number of entries.
    pub(crate) limit: usize,
    losses: u32,
    /// Passed packets closer than this are merged.
    merge_within: u64,
    is_overflown: bool,
}

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { entries: Vec::new(), limit: MAX_ENTRIES, losses: 0, merge_within: 0, is_overflown: false }
    }
}

impl Arrivals {
    pub(crate) fn push(&mut self, arrival: Arrival) {
        self.losses += u32::from(arrival.is_lost);
        if let Some(last) = self.entries.last_mut()
            && !arrival.is_lost
            && !last.is_lost
            && arrival.at >= last.at
            && arrival.at - last.at < self.merge_within
        {
            last.length = last.length.saturating_add(arrival.length);
            return;
        }
        if self.entries.len() >= self.limit.max(16) {
            self.merge_neighbours();
        }
        if !self.is_overflown {
            self.entries.push(arrival);
        }
    }

    /// Returns the entries in the order of time.
    pub(crate) fn into_sorted(mut self) -> Vec<Arrival> {
        self.entries.sort_by_key(|arrival| arrival.at);
        self.entries
    }

    fn merge_neighbours(&mut self) {
        let span = match (self.entries.first(), self.entries.last()) {
            (Some(first), Some(last)) => last.at.saturating_sub(first.at),
            _ => 0,
        };
        self.merge_within = (self.merge_within * 2).max(span / self.limit.max(16) as u64 * 2).max(1000);
        let mut merged: Vec<Arrival> = Vec::with_capacity(self.entries.len() / 2 + 16);
        for arrival in self.entries.drain(..) {
            match merged.last_mut() {
                Some(last)
                    if !arrival.is_lost
                        && !last.is_lost
                        && arrival.at >= last.at
                        && arrival.at - last.at < self.merge_within =>
                {
                    last.length = last.length.saturating_add(arrival.length);
                }
                _ => merged.push(arrival),
            }
        }
        // Too many losses to keep: the first ones show the bucket.
        self.is_overflown = merged.len() > self.limit.max(16) * 7 / 8;
        self.entries = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_arrivals_keep_bytes_and_losses() {
        let mut arrivals = Arrivals::default();
        for number in 0..50_000_u64 {
            arrivals.push(Arrival { at: number * 1_000_000, length: 10, is_lost: number % 1000 == 0 });
        }
        let entries = arrivals.into_sorted();
        assert!(entries.len() <= MAX_ENTRIES);
        assert_eq!(entries.iter().map(|arrival| u64::from(arrival.length)).sum::<u64>(), 500_000);
        assert_eq!(entries.iter().filter(|arrival| arrival.is_lost).count(), 50);
    }
}
