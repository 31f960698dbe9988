//! Sent data that is not acknowledged, as a bounded list of runs.

use std::collections::VecDeque;

use super::arrivals::Arrival;

/// Consecutive bytes that were sent at about the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Time of the first and of the last packet, when they were sent for the first time.
    pub(crate) first_at: u64,
    pub(crate) last_at: u64,
    /// Beginning of merged packets: the time of its last packet is unknown, and `last_at` is that of the first one.
    pub(crate) is_part: bool,
    /// Payload of the largest packet.
    pub(crate) size: u32,
    /// Time of the last retransmission.
    pub(crate) resent_at: u64,
    pub(crate) resends: u8,
    /// Payload of the last retransmission.
    pub(crate) resent_size: u32,
    /// Timestamp of the first packet, or of the packet that filled a gap; 0 if the packet has none.
    pub(crate) timestamp: u32,
    /// The bytes filled a gap in the capture, so their first transmission was not seen.
    pub(crate) fills_gap: bool,
    /// Time from the first transmission to the SACK of the bytes, microseconds, at least 1; 0 if there was none.
    pub(crate) sacked_after: u32,
    /// The SACK came before any retransmission.
    pub(crate) is_reported: bool,
}

impl Run {
    pub(crate) fn length(&self) -> u64 {
        self.end - self.start
    }

    /// Returns the arrival of the first transmission, which was acknowledged after `rtt` microseconds; 0 if that is unknown.
    pub(super) fn passed(&self, rtt: u32) -> Arrival {
        let (at, rtt) = if self.fills_gap { (self.last_at, 0) } else { (self.first_at, rtt) };
        Arrival::passed(at, self.length() as u32, rtt, self.timestamp)
    }

    /// The receiver reported the bytes by SACK.
    pub(crate) fn is_sacked(&self) -> bool {
        self.sacked_after > 0
    }

    /// Returns the time from the last packet to `at` in microseconds, at least 1; 0 if it is unknown.
    pub(crate) fn age(&self, at: u64) -> u32 {
        if self.is_part { 0 } else { micros(at.saturating_sub(self.last_at)).max(1) }
    }

    /// Removes the bytes before `offset`, and returns them.
    fn take_before(&mut self, offset: u64) -> Run {
        let is_part = self.is_part || self.first_at != self.last_at;
        let taken = Run { end: offset, last_at: self.first_at, is_part, ..*self };
        self.start = offset;
        taken
    }

    fn has_history(&self) -> bool {
        self.resends > 0 || self.fills_gap
    }

    /// Returns true if the next run can be merged with this one.
    fn joins(&self, next: &Run) -> bool {
        let is_plain = !self.has_history() && !next.has_history();
        self.end == next.start && is_plain && self.is_sacked() == next.is_sacked()
    }
}

/// Runs in the order of their bytes.
#[derive(Debug, Default)]
pub(crate) struct SentRuns {
    runs: VecDeque<Run>,
    /// Limit of the last call of [`SentRuns::insert`].
    limit: u16,
}

impl SentRuns {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn front(&self) -> Option<&Run> {
        self.runs.front()
    }

    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    /// Adds a run. Most runs come last. With `limit` runs, neighbours without retransmissions are merged.
    pub(crate) fn insert(&mut self, run: Run, limit: u16) {
        self.limit = limit;
        if self.runs.len() >= usize::from(limit) {
            self.merge_neighbours(limit.into());
        }
        match self.runs.back() {
            Some(last) if last.end > run.start => {
                let at = self.runs.partition_point(|other| other.start < run.start);
                self.runs.insert(at, run);
            }
            _ => self.runs.push_back(run),
        }
    }

    /// Marks the bytes from `start` to `end` as sent again, and returns the marked bytes that the receiver may lack.
    pub(crate) fn resend(&mut self, start: u64, end: u64, at: u64, size: u32, mut each: impl FnMut(&Run)) {
        self.split_at(start);
        self.split_at(end);
        let first = self.runs.partition_point(|run| run.start < start);
        for run in self.runs.range_mut(first..).take_while(|run| run.start < end) {
            each(run);
            run.resends = run.resends.saturating_add(1);
            run.resent_at = at;
            run.resent_size = size;
        }
    }

    /// Marks the bytes of a SACK range that the receiver reports at `at`, and calls `each` with each run that was sent once.
    ///
    /// A run that is reported in part is split: a super-packet of the sender arrives as packets of their own. Without free
    /// entries, it stays whole and without a mark.
    pub(crate) fn sack(&mut self, start: u64, end: u64, at: u64, mut each: impl FnMut(&Run)) {
        for offset in [start, end] {
            if self.runs.len() < self.limit.into() {
                self.split_at(offset);
            }
        }
        let first = self.runs.partition_point(|run| run.start < start);
        for run in self.runs.range_mut(first..).take_while(|run| run.end <= end) {
            if run.sacked_after > 0 {
                continue;
            }
            run.sacked_after = run.age(at).max(1);
            run.is_reported = run.resends == 0;
            if run.is_reported {
                each(run);
            }
        }
    }

    /// Removes the bytes before `end`, and calls `each` with each removed run.
    pub(crate) fn acknowledge(&mut self, end: u64, mut each: impl FnMut(&Run)) {
        while let Some(front) = self.runs.front_mut().filter(|run| run.start < end) {
            if front.end > end {
                each(&front.take_before(end));
                return;
            }
            let run = *front;
            self.runs.pop_front();
            each(&run);
        }
    }

    fn split_at(&mut self, offset: u64) {
        let at = self.runs.partition_point(|run| run.end <= offset);
        let Some(run) = self.runs.get_mut(at).filter(|run| run.start < offset) else { return };
        let first = run.take_before(offset);
        self.runs.insert(at, first);
    }

    /// Merges pairs of neighbours. If nothing can be merged, runs that the receiver reported are forgotten, then the oldest.
    fn merge_neighbours(&mut self, limit: usize) {
        let before = self.runs.len();
        let mut kept = 0;
        let mut joined = true;
        for number in 0..before {
            let run = self.runs[number];
            if !joined && self.runs[kept - 1].joins(&run) {
                let last = &mut self.runs[kept - 1];
                last.end = run.end;
                (last.last_at, last.is_part) = (run.last_at, run.is_part);
                last.size = last.size.max(run.size);
                joined = true;
            } else {
                self.runs[kept] = run;
                kept += 1;
                joined = false;
            }
        }
        self.runs.truncate(kept);
        if kept + 1 > before {
            let mut excess = kept.saturating_sub(limit * 3 / 4);
            self.runs.retain(|run| {
                let is_kept = !run.is_reported || excess == 0;
                excess -= usize::from(!is_kept);
                is_kept
            });
            self.runs.drain(..excess);
        }
    }

    /// Merges neighbours until there are at most `limit`, and returns the free memory.
    pub(crate) fn shrink_to(&mut self, limit: u16) {
        while self.runs.len() > usize::from(limit) {
            self.merge_neighbours(limit.into());
        }
        self.runs.shrink_to(limit.into());
    }
}

/// Returns microseconds that fit 32 bits.
fn micros(nanos: u64) -> u32 {
    u32::try_from(nanos / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, end: u64) -> Run {
        Run { start, end, first_at: start, last_at: end, size: 10, ..Run::default() }
    }

    #[test]
    fn retransmitted_part_of_a_run_is_split_off() {
        let mut sent = SentRuns::default();
        sent.insert(run(0, 100), 512);
        let mut resent = 0;
        sent.resend(30, 50, 7, 20, |run| resent += run.length());
        assert_eq!(resent, 20);
        let parts: Vec<_> = sent.runs.iter().map(|run| (run.start, run.end, run.resends)).collect();
        assert_eq!(parts, [(0, 30, 0), (30, 50, 1), (50, 100, 0)]);
        let mut acknowledged = Vec::new();
        sent.acknowledge(40, |run| acknowledged.push((run.start, run.end, run.resends)));
        assert_eq!(acknowledged, [(0, 30, 0), (30, 40, 1)]);
    }

    #[test]
    fn memory_is_bounded_and_no_byte_is_lost() {
        let mut sent = SentRuns::default();
        for number in 0..100_000 {
            sent.insert(run(number * 10, number * 10 + 10), 512);
        }
        assert!(sent.runs.len() <= 512);
        let mut bytes = 0;
        sent.acknowledge(u64::MAX, |run| bytes += run.length());
        assert_eq!(bytes, 1_000_000);
    }

    #[test]
    fn runs_that_cannot_be_merged_are_bounded_too() {
        let mut sent = SentRuns::default();
        for number in 0..10_000 {
            sent.insert(Run { resends: 1, ..run(number * 20, number * 20 + 10) }, 512);
        }
        assert!(sent.runs.len() <= 512);
    }

    #[test]
    fn reported_runs_are_forgotten_first() {
        let mut sent = SentRuns::default();
        for number in 0..1000 {
            sent.insert(run(number * 20, number * 20 + 10), 512);
            if number % 2 == 1 {
                sent.sack(number * 20, number * 20 + 10, number * 20 + 500, |_| {});
            }
        }
        assert!(sent.runs.iter().filter(|run| !run.is_sacked()).count() >= 380);
    }

    #[test]
    fn reported_part_of_a_run_is_split_off() {
        let mut sent = SentRuns::default();
        sent.insert(run(0, 100), 512);
        sent.sack(30, 50, 500, |_| {});
        let parts: Vec<_> = sent.runs.iter().map(|run| (run.start, run.end, run.is_sacked())).collect();
        assert_eq!(parts, [(0, 30, false), (30, 50, true), (50, 100, false)]);
    }

    #[test]
    fn reports_of_parts_do_not_grow_the_list() {
        let mut sent = SentRuns::default();
        sent.insert(run(0, 100_000), 512);
        for number in 0..10_000 {
            sent.sack(number * 10, number * 10 + 5, 200_000, |_| {});
        }
        assert!(sent.runs.len() <= 513);
    }

    #[test]
    fn time_of_the_last_packet_of_a_part_is_unknown() {
        let mut sent = SentRuns::default();
        sent.insert(run(0, 100), 512);
        let mut ages = Vec::new();
        sent.acknowledge(40, |run| ages.push((run.end, run.age(900_000))));
        sent.acknowledge(100, |run| ages.push((run.end, run.age(900_100))));
        assert_eq!(ages, [(40, 0), (100, 900)]);
    }
}
