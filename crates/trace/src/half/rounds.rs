//! Round trips of one direction: from the sending of data to the acknowledgement of this data.

/// One round trip, or several merged ones. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Round {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Bytes that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Minimum of the RTT between both ends; 0 without a sample.
    pub(crate) rtt: u64,
    /// Maximum bytes in flight at the sender.
    pub(crate) in_flight: u64,
    /// Window at that time; `u64::MAX` if unknown.
    pub(crate) window: u64,
    /// Time with a full window.
    pub(crate) full: u64,
    /// Time with a closed window.
    pub(crate) closed: u64,
    /// Time with a window of less than half its maximum.
    pub(crate) shrunk: u64,
    /// Packets that were sent again.
    pub(crate) resent: u32,
    /// Time waited for a timeout.
    pub(crate) timeout: u64,
    /// All data was acknowledged at the end.
    pub(crate) is_drained: bool,
    /// Pause before the round.
    pub(crate) pause: Pause,
}

/// Time without data in flight, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pause {
    /// The receiver's application had not sent its next request.
    pub(crate) receiver: u64,
    /// The sender's application had a request.
    pub(crate) sender: u64,
    /// The sender's application had no request.
    pub(crate) idle: u64,
    /// The window was too small for a packet.
    pub(crate) blocked: u64,
}

impl Pause {
    pub(crate) fn total(&self) -> u64 {
        self.application() + self.blocked
    }

    /// Returns the time of the applications.
    pub(crate) fn application(&self) -> u64 {
        self.receiver + self.sender + self.idle
    }
}

impl Round {
    pub(crate) fn time(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        match self.time() {
            0 => 0.0,
            time => self.acknowledged as f64 * 1e9 / time as f64,
        }
    }

    fn absorb(&mut self, next: &Round) {
        self.acknowledged += next.acknowledged;
        self.rtt = match (self.rtt, next.rtt) {
            (0, rtt) | (rtt, 0) => rtt,
            (a, b) => a.min(b),
        };
        if next.in_flight > self.in_flight {
            (self.in_flight, self.window) = (next.in_flight, next.window);
        }
        self.full += next.full;
        self.closed += next.closed;
        self.shrunk += next.shrunk;
        self.resent = self.resent.saturating_add(next.resent);
        self.timeout += next.timeout;
        self.is_drained = next.is_drained;
        self.pause.receiver += next.pause.receiver;
        self.pause.sender += next.pause.sender;
        self.pause.idle += next.pause.idle;
        self.pause.blocked += next.pause.blocked;
        self.end = next.end;
    }
}

/// Finished round trips in order.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    rounds: Vec<Round>,
}

impl Rounds {
    /// Adds a round trip. With `limit` round trips, neighbours are merged.
    pub(crate) fn push(&mut self, round: Round, limit: u16) {
        while self.rounds.len() >= usize::from(limit) {
            self.merge_neighbours();
        }
        self.rounds.push(round);
    }

    /// Merges neighbours until there are at most `limit`, and returns the free memory.
    pub(crate) fn shrink_to(&mut self, limit: u16) {
        while self.rounds.len() > usize::from(limit) {
            self.merge_neighbours();
        }
        self.rounds.shrink_to(usize::from(limit));
    }

    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.rounds.capacity() * size_of::<Round>()
    }

    pub(crate) fn forget_full_windows(&mut self) {
        for round in &mut self.rounds {
            round.full = 0;
        }
    }

    pub(crate) fn as_slice(&self) -> &[Round] {
        &self.rounds
    }

    /// Merges pairs of neighbours. A pause stays between rounds if it is long.
    fn merge_neighbours(&mut self) {
        let mut joined = false;
        self.rounds.dedup_by(|next, last| {
            joined = !joined;
            if joined {
                last.absorb(next);
            }
            joined
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_rounds_keep_all_bytes_and_times() {
        let mut rounds = Rounds::default();
        for number in 0..10_000_u64 {
            let start = number * 10;
            rounds.push(Round { start, end: start + 10, acknowledged: 7, ..Round::default() }, 1024);
        }
        let rounds = rounds.as_slice();
        assert!(rounds.len() <= 1024);
        assert_eq!(rounds.iter().map(|round| round.acknowledged).sum::<u64>(), 70_000);
        assert_eq!(rounds.last().map(|round| round.end), Some(100_000));
    }
}
