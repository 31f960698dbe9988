//! Statistics of the datagrams of one stream at the receiver: received, missing, reordered, duplicates.
//!
//! Missing numbers are kept as ranges, each with the count of arrivals at its start. So the receiver distinguishes late
//! arrivals from duplicates exactly, computes a reordering extent (RFC 4737 §4.2.1) by a subtraction, and has the loss
//! bursts (RFC 3357) as the ranges that are left at the end. The number of ranges is limited: above [`MAX_RANGES`] the
//! oldest range counts as lost, and its later arrivals, which can no longer be distinguished from duplicates, are
//! counted separately.

use std::collections::VecDeque;

use lfn_results::udp::figures::UdpReceived;

use super::jitter::JitterMeter;
use super::runs::Runs;

/// Maximum number of ranges of missing numbers, 24 bytes each.
pub const MAX_RANGES: usize = 8192;

/// Numbers from here on are invalid: at one datagram per nanosecond they would take centuries.
const MAX_SEQUENCE: u64 = 1 << 63;

/// Statistics of one stream at the receiver.
#[derive(Debug, Clone, Default)]
pub struct DatagramReceiver {
    /// One past the highest number seen.
    next: u64,
    missing: VecDeque<Missing>,
    /// Missing numbers in all ranges.
    missing_count: u64,
    /// Missing numbers of ranges that were removed for lack of room.
    given_up: u64,
    /// Numbers below this one are no longer known.
    horizon: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    reordered_by_three: u64,
    too_late: u64,
    extents: Runs,
    bursts: Runs,
    /// Last arrivals without duplicates, for RFC 4737 §5.4.
    recent: [u64; 3],
    jitter: JitterMeter,
}

/// Missing numbers: `from` to before `to`.
#[derive(Debug, Clone, Copy)]
struct Missing {
    from: u64,
    to: u64,
    /// Datagrams received before the range began.
    opened: u64,
}

/// Classification of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalKind {
    /// Highest number so far.
    InOrder,
    /// The number was missing.
    Late,
    /// The number had arrived before.
    Duplicate,
    /// The number is too old to be recognised as a duplicate, or invalid.
    Unknown,
}

impl DatagramReceiver {
    /// Records an arrival: its number from 0, and its send and receive times, each in nanoseconds of that end's clock.
    pub fn arrived(&mut self, sequence: u64, sent: u64, received: u64) -> ArrivalKind {
        let arrival = self.classify(sequence);
        match arrival {
            ArrivalKind::InOrder | ArrivalKind::Late => {
                self.recent[(self.received % 3) as usize] = sequence;
                self.received += 1;
                self.jitter.arrived(sent, received);
            }
            ArrivalKind::Duplicate => self.duplicates += 1,
            ArrivalKind::Unknown => self.too_late += 1,
        }
        arrival
    }

    /// Takes the number of sent datagrams: those after the last arrival are lost too.
    pub fn finish(&mut self, sent: u64) {
        if sent > self.next && sent <= MAX_SEQUENCE {
            self.add_missing(self.next, sent);
            self.next = sent;
        }
    }

    /// Returns the received datagrams, each counted once.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the missing datagrams so far; some may still arrive.
    pub fn missing(&self) -> u64 {
        self.missing_count + self.given_up
    }

    /// Returns the number after the highest one seen.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the reordered datagrams.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Returns the duplicate datagrams.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the jitter so far.
    pub fn jitter(&self) -> &JitterMeter {
        &self.jitter
    }

    /// Returns all figures so far; missing datagrams count as lost.
    pub fn figures(&self) -> UdpReceived {
        let mut bursts = self.bursts.clone();
        self.missing.iter().for_each(|range| bursts.add(range.to - range.from));
        UdpReceived {
            datagrams: self.received,
            lost: self.missing(),
            duplicates: self.duplicates,
            reordered: self.reordered,
            reordered_by_three: self.reordered_by_three,
            too_late: self.too_late,
            max_loss_burst: bursts.longest(),
            loss_bursts: bursts.counts(),
            max_reordering_extent: self.extents.longest(),
            reordering_extents: self.extents.counts(),
            jitter: self.jitter.smoothed(),
            delay_variation: self.jitter.variation(),
            ..UdpReceived::default()
        }
    }

    fn classify(&mut self, sequence: u64) -> ArrivalKind {
        if sequence >= MAX_SEQUENCE {
            return ArrivalKind::Unknown;
        }
        if sequence >= self.next {
            if sequence > self.next {
                self.add_missing(self.next, sequence);
            }
            self.next = sequence + 1;
            return ArrivalKind::InOrder;
        }
        let at = self.missing.partition_point(|range| range.to <= sequence);
        match self.missing.get(at) {
            Some(range) if range.from <= sequence => {
                let extent = self.received - range.opened;
                self.remove_missing(at, sequence);
                self.record_late(sequence, extent);
                ArrivalKind::Late
            }
            _ if sequence < self.horizon => ArrivalKind::Unknown,
            _ => ArrivalKind::Duplicate,
        }
    }

    fn record_late(&mut self, sequence: u64, extent: u64) {
        self.reordered += 1;
        self.extents.add(extent);
        if self.received >= 3 && self.recent.iter().all(|&before| before > sequence) {
            self.reordered_by_three += 1;
        }
    }

    fn add_missing(&mut self, from: u64, to: u64) {
        self.missing.push_back(Missing { from, to, opened: self.received });
        self.missing_count += to - from;
        self.limit_ranges();
    }

    /// Removes one number from a range.
    fn remove_missing(&mut self, at: usize, sequence: u64) {
        let range = self.missing[at];
        self.missing_count -= 1;
        match (range.from == sequence, range.to == sequence + 1) {
            (true, true) => drop(self.missing.remove(at)),
            (true, false) => self.missing[at].from = sequence + 1,
            (false, true) => self.missing[at].to = sequence,
            (false, false) => {
                self.missing[at].to = sequence;
                self.missing.insert(at + 1, Missing { from: sequence + 1, ..range });
                self.limit_ranges();
            }
        }
    }

    fn limit_ranges(&mut self) {
        while self.missing.len() > MAX_RANGES {
            let Some(oldest) = self.missing.pop_front() else { return };
            let length = oldest.to - oldest.from;
            self.bursts.add(length);
            self.missing_count -= length;
            self.given_up += length;
            self.horizon = oldest.to;
        }
    }
}
