//! Packets of a direction that passed or were lost, in the order of their sending: the input of the token bucket fit.

/// Minimum time within which neighbours are merged, nanoseconds.
const MIN_MERGE_TIME: u64 = 1000;
/// Maximum doublings of this time for one merge.
const MAX_DOUBLINGS: usize = 16;

/// Packets that passed, or one that was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// Time of sending, nanoseconds since 1970.
    pub(crate) at: u64,
    /// Bytes of payload together.
    pub(crate) length: u32,
    /// Time to the acknowledgement of the last packet, microseconds; 0 if it is unknown.
    pub(crate) rtt: u32,
    /// Timestamp of the sender; 0 if it is unknown. That of a lost packet may be the one of the packet before.
    pub(crate) timestamp: u32,
    pub(crate) is_lost: bool,
}

impl Arrival {
    pub(crate) fn passed(at: u64, length: u32, rtt: u32, timestamp: u32) -> Self {
        Arrival { at, length, rtt, timestamp, is_lost: false }
    }

    pub(crate) fn lost(at: u64, length: u32, timestamp: u32) -> Self {
        Arrival { at, length, rtt: 0, timestamp, is_lost: true }
    }
}

/// Arrivals of one direction.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    entries: Vec<Arrival>,
    /// Passed packets closer than this are merged.
    merge_within: u64,
    is_overflown: bool,
}

impl Arrivals {
    /// Adds packets. With `limit` entries, neighbours that passed are merged.
    pub(crate) fn push(&mut self, arrival: Arrival, limit: u16) {
        if self.is_overflown {
            return;
        }
        if self.entries.len() >= usize::from(limit) {
            self.merge_neighbours(limit.into());
        }
        if !self.is_overflown {
            self.entries.push(arrival);
        }
    }

    /// Merges neighbours until there are at most `limit`, and returns the free memory. The last of too many losses are forgotten.
    pub(crate) fn shrink_to(&mut self, limit: u16) {
        let limit = usize::from(limit);
        if self.entries.len() > limit {
            self.merge_neighbours(limit);
            self.entries.truncate(limit);
        }
        self.entries.shrink_to(limit);
    }

    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Arrival>()
    }

    /// Returns the entries in the order of time.
    pub(crate) fn into_sorted(mut self) -> Vec<Arrival> {
        self.entries.sort_by_key(|arrival| arrival.at);
        self.entries
    }

    /// Merges neighbours that passed, until a quarter of the entries is free.
    fn merge_neighbours(&mut self, limit: usize) {
        self.entries.sort_by_key(|arrival| arrival.at);
        let span = match (self.entries.first(), self.entries.last()) {
            (Some(first), Some(last)) => last.at.saturating_sub(first.at),
            _ => 0,
        };
        self.merge_within = self.merge_within.max(span / limit as u64).max(MIN_MERGE_TIME);
        for _ in 0..MAX_DOUBLINGS {
            let within = self.merge_within;
            self.entries.dedup_by(|next, last| {
                let is_near = !next.is_lost && !last.is_lost && next.at - last.at < within;
                if is_near {
                    last.length = last.length.saturating_add(next.length);
                    last.rtt = next.rtt;
                }
                is_near
            });
            if self.entries.len() <= limit * 3 / 4 {
                break;
            }
            self.merge_within = self.merge_within.saturating_mul(2);
        }
        // Too many losses to keep: the first ones show the bucket.
        self.is_overflown = self.entries.len() > limit * 7 / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_arrivals_keep_bytes_and_losses() {
        let mut arrivals = Arrivals::default();
        for number in 0..50_000_u64 {
            let is_lost = number % 1000 == 0;
            arrivals.push(Arrival { at: number * 1_000_000, length: 10, rtt: 0, timestamp: 0, is_lost }, 8192);
        }
        let entries = arrivals.into_sorted();
        assert!(entries.len() <= 8192);
        assert_eq!(entries.iter().map(|arrival| u64::from(arrival.length)).sum::<u64>(), 500_000);
        assert_eq!(entries.iter().filter(|arrival| arrival.is_lost).count(), 50);
    }
}
