//! What a receiver makes of the datagrams of one stream: received, missing, reordered, duplicates.
//!
//! What is missing is kept as ranges of numbers, each with the count of arrivals at which it opened. So a late arrival
//! is told from a duplicate exactly, its reordering extent (RFC 4737 §4.2.1) is a subtraction, and what is left at the
//! end are the loss bursts (RFC 3357) themselves. Ranges are bounded: beyond [`MOST_RANGES`] the oldest is given up as
//! lost, and what comes for it later can no longer be told from a duplicate and is counted apart.

use std::collections::VecDeque;

use super::figures::Received;
use super::jitter::Jitter;
use super::runs::Runs;

/// Most ranges of missing numbers kept, 24 bytes each.
pub const MOST_RANGES: usize = 8192;

/// Numbers from here on are nobody's: at a datagram a nanosecond they would take centuries.
const BEYOND: u64 = 1 << 63;

/// The account of one stream.
#[derive(Debug, Clone, Default)]
pub struct Receiver {
    /// One past the highest number seen.
    next: u64,
    missing: VecDeque<Missing>,
    /// How many numbers the ranges hold.
    missing_count: u64,
    /// Given up with the ranges there was no room for.
    given_up: u64,
    /// Below this number nothing is known any more.
    horizon: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    reordered_by_three: u64,
    too_late: u64,
    extents: Runs,
    bursts: Runs,
    /// The last arrivals but duplicates, for RFC 4737 §5.4.
    recent: [u64; 3],
    jitter: Jitter,
}

/// Numbers that have not come, `from` to before `to`.
#[derive(Debug, Clone, Copy)]
struct Missing {
    from: u64,
    to: u64,
    /// Datagrams received before the one that opened it.
    opened: u64,
}

/// What an arrival was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The highest number yet.
    InOrder,
    /// It had been missing.
    Late,
    /// It had come before.
    Duplicate,
    /// Too old to say whether it is a duplicate, or a number that cannot be.
    Unknown,
}

impl Receiver {
    /// A datagram came: its number from 0, and when it was sent and received, each in nanoseconds of that end's clock.
    pub fn arrived(&mut self, sequence: u64, sent: u64, received: u64) -> Arrival {
        let arrival = self.place(sequence);
        match arrival {
            Arrival::InOrder | Arrival::Late => {
                self.recent[(self.received % 3) as usize] = sequence;
                self.received += 1;
                self.jitter.arrived(sent, received);
            }
            Arrival::Duplicate => self.duplicates += 1,
            Arrival::Unknown => self.too_late += 1,
        }
        arrival
    }

    /// The sender says how many it sent: those after the last that came are lost too.
    pub fn finish(&mut self, sent: u64) {
        if sent > self.next && sent <= BEYOND {
            self.open(self.next, sent);
            self.next = sent;
        }
    }

    /// How many were received, each counted once.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// How many are missing by now; some may still come.
    pub fn missing(&self) -> u64 {
        self.missing_count + self.given_up
    }

    /// One past the highest number seen.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// How many came late.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// How many came again.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The jitter so far.
    pub fn jitter(&self) -> &Jitter {
        &self.jitter
    }

    /// Everything known by now; what is still missing counts as lost.
    pub fn figures(&self) -> Received {
        let mut bursts = self.bursts.clone();
        self.missing.iter().for_each(|range| bursts.add(range.to - range.from));
        Received {
            datagrams: self.received,
            lost: self.missing(),
            duplicates: self.duplicates,
            reordered: self.reordered,
            reordered_by_three: self.reordered_by_three,
            too_late: self.too_late,
            longest_burst: bursts.longest(),
            loss_bursts: bursts.counts(),
            most_extent: self.extents.longest(),
            extents: self.extents.counts(),
            jitter: self.jitter.smoothed(),
            variation: self.jitter.variation(),
            ..Received::default()
        }
    }

    fn place(&mut self, sequence: u64) -> Arrival {
        if sequence >= BEYOND {
            return Arrival::Unknown;
        }
        if sequence >= self.next {
            if sequence > self.next {
                self.open(self.next, sequence);
            }
            self.next = sequence + 1;
            return Arrival::InOrder;
        }
        let at = self.missing.partition_point(|range| range.to <= sequence);
        match self.missing.get(at) {
            Some(range) if range.from <= sequence => {
                let extent = self.received - range.opened;
                self.take(at, sequence);
                self.late(sequence, extent);
                Arrival::Late
            }
            _ if sequence < self.horizon => Arrival::Unknown,
            _ => Arrival::Duplicate,
        }
    }

    fn late(&mut self, sequence: u64, extent: u64) {
        self.reordered += 1;
        self.extents.add(extent);
        if self.received >= 3 && self.recent.iter().all(|&before| before > sequence) {
            self.reordered_by_three += 1;
        }
    }

    fn open(&mut self, from: u64, to: u64) {
        self.missing.push_back(Missing { from, to, opened: self.received });
        self.missing_count += to - from;
        self.bound();
    }

    /// Takes one number out of a range.
    fn take(&mut self, at: usize, sequence: u64) {
        let range = self.missing[at];
        self.missing_count -= 1;
        match (range.from == sequence, range.to == sequence + 1) {
            (true, true) => drop(self.missing.remove(at)),
            (true, false) => self.missing[at].from = sequence + 1,
            (false, true) => self.missing[at].to = sequence,
            (false, false) => {
                self.missing[at].to = sequence;
                self.missing.insert(at + 1, Missing { from: sequence + 1, ..range });
                self.bound();
            }
        }
    }

    fn bound(&mut self) {
        while self.missing.len() > MOST_RANGES {
            let Some(oldest) = self.missing.pop_front() else { return };
            let length = oldest.to - oldest.from;
            self.bursts.add(length);
            self.missing_count -= length;
            self.given_up += length;
            self.horizon = oldest.to;
        }
    }
}
