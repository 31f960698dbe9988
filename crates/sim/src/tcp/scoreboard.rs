//! State of the segments that a sender sent: in flight, lost, or selectively acknowledged.
//!
//! The scoreboard counts segments, not bytes, and neighbours with the same state are one [`SegmentRun`]. So a window of
//! millions of segments is a few thousand entries, and the cost of an acknowledgement depends on its changes only. The
//! scoreboard decides nothing about windows. It detects losses as RACK does (RFC 8985), by the order in which runs were
//! sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use lfn_base::time::Instant;

/// The segments from the first not cumulatively acknowledged to the last sent.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    /// Adjoining runs, by their first segment.
    runs: BTreeMap<u64, SegmentRun>,
    /// First segments of the lost runs.
    lost: BTreeSet<u64>,
    /// Transmissions that may still be found lost, in order of sending.
    sent: VecDeque<Transmission>,
    /// All segments before this one are acknowledged.
    acknowledged: u64,
    /// Next segment that was never sent.
    next: u64,
    /// First segment after the highest one that arrived.
    highest: u64,
    in_flight: u64,
    sacked: u64,
}

/// Record of a transmission until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendRecord {
    pub(super) sent: Instant,
    /// Number of the transmission.
    pub(super) order: u64,
    /// Segments delivered before this transmission, for the delivery rate (as in Linux's `tcp_rate.c`).
    pub(super) delivered: u64,
    /// Delivery time of the last of these segments.
    pub(super) delivered_at: Instant,
    /// Send time of the segment that was delivered then.
    pub(super) first_sent: Instant,
    /// True if something other than the congestion window limited the sender.
    pub(super) limited: bool,
}

/// New facts from an acknowledgement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckSummary {
    pub(super) delivered: u64,
    /// Segments that were acknowledged cumulatively.
    pub(super) in_order: u64,
    /// The last-sent transmission among the arrived ones, its last arrived segment, and whether it was a
    /// retransmission.
    pub(super) latest: Option<(SendRecord, u64, bool)>,
    /// True if a segment that was never retransmitted arrived after a later one.
    pub(super) reordered: bool,
    /// Retransmission time of the segment at the left edge, if it was retransmitted and is acknowledged now. The end of
    /// time if it was considered lost and not retransmitted yet.
    pub(super) retransmitted_at: Option<Instant>,
}

/// Segments that were sent together and have the same state.
#[derive(Clone, Copy, Debug)]
struct SegmentRun {
    end: u64,
    status: SegmentState,
    stamp: SendRecord,
    resent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SegmentState {
    InFlight,
    Lost,
    Sacked,
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    start: u64,
    end: u64,
    order: u64,
    sent: Instant,
}

impl Scoreboard {
    /// Returns the segments in flight, as far as known.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the segments that arrived after a hole.
    pub(super) fn sacked(&self) -> u64 {
        self.sacked
    }

    /// Returns the first segment that is not cumulatively acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the next segment that was never sent.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns true if no segment waits for an acknowledgement.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns true if a segment waits for retransmission.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Returns the last send time of the first unacknowledged segment.
    pub(super) fn head_sent(&self) -> Option<Instant> {
        self.runs.first_key_value().map(|(_, run)| run.stamp.sent)
    }

    /// Records `count` new segments that leave; returns the first.
    pub(super) fn send(&mut self, count: u64, stamp: SendRecord) -> u64 {
        let (start, end) = (self.next, self.next + count);
        self.runs.insert(start, SegmentRun { end, status: SegmentState::InFlight, stamp, resent: false });
        self.sent.push_back(Transmission { start, end, order: stamp.order, sent: stamp.sent });
        self.next = end;
        self.in_flight += count;
        start
    }

    /// Records the retransmission of the first lost segments, up to `max_count`; returns the range.
    pub(super) fn resend(&mut self, max_count: u64, stamp: SendRecord) -> Option<(u64, u64)> {
        let start = *self.lost.first()?;
        let run = self.runs.get(&start)?;
        let end = run.end.min(start.saturating_add(max_count));
        self.split(end);
        self.lost.remove(&start);
        self.mark_resent(start, end, stamp);
        self.in_flight += end - start;
        Some((start, end))
    }

    /// Records a retransmission of the last segment as a probe, although it is not known to be lost; returns it.
    pub(super) fn probe(&mut self, stamp: SendRecord) -> Option<u64> {
        let start = self.next.checked_sub(1).filter(|last| *last >= self.acknowledged)?;
        self.split(start);
        if self.runs.get(&start)?.status != SegmentState::InFlight {
            return None;
        }
        self.mark_resent(start, self.next, stamp);
        Some(start)
    }

    /// Handles an acknowledgement of all segments before `to` and of the ranges `blocks`.
    pub(super) fn acknowledge(&mut self, to: u64, blocks: impl Iterator<Item = (u64, u64)>) -> AckSummary {
        let mut summary = AckSummary::default();
        let before = self.acknowledged;
        let to = to.min(self.next);
        if to > before {
            self.split(to);
            while let Some(first) = self.runs.first_entry().filter(|first| *first.key() < to) {
                let (start, run) = first.remove_entry();
                if start == before {
                    summary.retransmitted_at = run.retransmitted_at();
                }
                self.mark_arrived(start, run, &mut summary);
                if run.status == SegmentState::Sacked {
                    self.sacked -= run.end - start;
                }
            }
            self.acknowledged = to;
            summary.in_order = to - before;
        }
        for (from, to) in blocks {
            self.sack(from.max(self.acknowledged), to.min(self.next), &mut summary);
        }
        self.highest = self.highest.max(summary.latest.map_or(0, |(_, end, _)| end)).max(self.acknowledged);
        summary
    }

    /// Marks segments as lost that were sent before transmission `latest` and have waited for `wait` since. All
    /// segments of `latest` before `to` arrived. Returns the number of lost segments and the time of the next check.
    pub(super) fn detect(&mut self, latest: u64, to: u64, wait: Duration, now: Instant) -> (u64, Option<Instant>) {
        let mut found = 0;
        while let Some(entry) = self.sent.front().copied() {
            // Within one transmission, lower segments were sent earlier.
            let end = if entry.order == latest { entry.end.min(to) } else { entry.end };
            if entry.order > latest || end <= entry.start {
                break;
            }
            if end > self.acknowledged {
                let due = entry.sent + wait;
                if due > now {
                    return (found, Some(due));
                }
                found += self.mark_lost(entry.start, end, |stamp| stamp.order == entry.order);
            }
            match self.sent.front_mut() {
                Some(front) if end < entry.end => front.start = end,
                _ => drop(self.sent.pop_front()),
            }
        }
        (found, None)
    }

    /// Handles a timeout: the first segment and all sent by `before` are lost; returns how many.
    pub(super) fn on_timeout(&mut self, before: Instant) -> u64 {
        let first = self.acknowledged;
        self.split((first + 1).min(self.next));
        let head = self.mark_lost(first, first + 1, |_| true);
        let rest = self.mark_lost(first, self.next, |stamp| stamp.sent <= before);
        self.sent.retain(|entry| entry.sent > before);
        head + rest
    }

    /// Moves all lost segments back in flight, after a spurious loss detection.
    pub(super) fn restore_lost(&mut self) {
        for start in std::mem::take(&mut self.lost) {
            if let Some(run) = self.runs.get_mut(&start) {
                run.status = SegmentState::InFlight;
                self.in_flight += run.end - start;
            }
        }
        let entry = |(&start, run): (&u64, &SegmentRun)| Transmission {
            start,
            end: run.end,
            order: run.stamp.order,
            sent: run.stamp.sent,
        };
        let mut sent: Vec<Transmission> =
            self.runs.iter().filter(|(_, run)| run.status == SegmentState::InFlight).map(entry).collect();
        sent.sort_by_key(|entry| (entry.order, entry.start));
        self.sent = sent.into();
    }

    /// Replaces the run `start..end` by a new transmission of it.
    fn mark_resent(&mut self, start: u64, end: u64, stamp: SendRecord) {
        self.runs.insert(start, SegmentRun { end, status: SegmentState::InFlight, stamp, resent: true });
        self.sent.push_back(Transmission { start, end, order: stamp.order, sent: stamp.sent });
    }

    /// Marks new segments of `from..to` as arrived, and joins them with arrived neighbours into one run.
    fn sack(&mut self, from: u64, to: u64, summary: &mut AckSummary) {
        if from >= to || self.runs.range(..=from).next_back().is_some_and(|(_, run)| run.is_sacked() && run.end >= to) {
            return;
        }
        self.split(from);
        self.split(to);
        let (mut low, mut high) = (from, to);
        let mut stamp = None;
        while let Some((&start, &run)) = self.runs.range(from..to).next() {
            self.runs.remove(&start);
            self.mark_arrived(start, run, summary);
            if !run.is_sacked() {
                self.sacked += run.end - start;
            }
            stamp = Some(run.stamp);
        }
        let Some(stamp) = stamp else { return };
        if let Some((&start, run)) = self.runs.range(..from).next_back()
            && run.is_sacked()
        {
            low = start;
        }
        if let Some(run) = self.runs.get(&to).copied().filter(SegmentRun::is_sacked) {
            self.runs.remove(&to);
            high = run.end;
        }
        self.runs.insert(low, SegmentRun { end: high, status: SegmentState::Sacked, stamp, resent: false });
    }

    /// Counts a run that arrived.
    fn mark_arrived(&mut self, start: u64, run: SegmentRun, summary: &mut AckSummary) {
        let count = run.end - start;
        match run.status {
            SegmentState::Sacked => return,
            SegmentState::InFlight => self.in_flight -= count,
            SegmentState::Lost => drop(self.lost.remove(&start)),
        }
        summary.delivered += count;
        summary.reordered |= !run.resent && start < self.highest;
        if summary.latest.is_none_or(|(stamp, end, _)| (stamp.order, end) < (run.stamp.order, run.end)) {
            summary.latest = Some((run.stamp, run.end, run.resent));
        }
    }

    /// Marks segments of `start..end` in flight as lost if `which` is true for them; returns how many.
    fn mark_lost(&mut self, start: u64, end: u64, which: impl Fn(&SendRecord) -> bool) -> u64 {
        // Arrived segments are one run, whatever their transmissions, and stay one run.
        for border in [start, end] {
            if self.runs.range(..border).next_back().is_some_and(|(_, run)| run.status == SegmentState::InFlight) {
                self.split(border);
            }
        }
        let mut count = 0;
        for (&start, run) in self.runs.range_mut(start..end) {
            if run.status == SegmentState::InFlight && which(&run.stamp) {
                run.status = SegmentState::Lost;
                self.lost.insert(start);
                count += run.end - start;
            }
        }
        self.in_flight -= count;
        count
    }

    /// Splits the run that contains `at`, if any, so that a run begins there.
    fn split(&mut self, at: u64) {
        let Some((&start, run)) = self.runs.range_mut(..at).next_back() else { return };
        if run.end <= at {
            return;
        }
        debug_assert!(start < at);
        let rest = *run;
        run.end = at;
        if rest.status == SegmentState::Lost {
            self.lost.insert(at);
        }
        self.runs.insert(at, rest);
    }
}

impl SegmentRun {
    fn retransmitted_at(&self) -> Option<Instant> {
        match self.status {
            _ if self.resent => Some(self.stamp.sent),
            SegmentState::Lost => Some(Instant::from_nanos(u64::MAX)),
            SegmentState::InFlight | SegmentState::Sacked => None,
        }
    }

    fn is_sacked(&self) -> bool {
        self.status == SegmentState::Sacked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// State of a single segment in the reference model.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct ReferenceScoreboard {
        status: SegmentState,
        order: u64,
        acknowledged: bool,
    }

    #[derive(Clone, Debug)]
    enum Act {
        Send(u64),
        Resend(u64),
        Probe,
        /// Shares of the outstanding segments: the left edge, and ranges after it.
        Hear(f64, Vec<(f64, u64)>),
        Detect(f64),
        TimeOut(u64),
        FindAgain,
    }

    fn act() -> impl Strategy<Value = Act> {
        let ranges = prop::collection::vec((0.0..1.0, 1_u64..20), 0..3);
        prop_oneof![
            4 => (1_u64..30).prop_map(Act::Send),
            3 => (1_u64..30).prop_map(Act::Resend),
            1 => Just(Act::Probe),
            6 => (prop_oneof![Just(0.0), 0.0..0.4], ranges).prop_map(|(to, ranges)| Act::Hear(to, ranges)),
            4 => (0.0..1.1).prop_map(Act::Detect),
            1 => (0_u64..50).prop_map(Act::TimeOut),
            1 => Just(Act::FindAgain),
        ]
    }

    /// The scoreboard, and a reference model with one entry per segment.
    #[derive(Default)]
    struct Pair {
        board: Scoreboard,
        plain: Vec<ReferenceScoreboard>,
        order: u64,
    }

    impl Pair {
        fn stamp(&mut self) -> SendRecord {
            self.order += 1;
            let sent = Instant::from_nanos(self.order);
            SendRecord { sent, order: self.order, delivered: 0, delivered_at: sent, first_sent: sent, limited: false }
        }

        fn fly(&mut self, start: u64, end: u64) {
            let order = self.order;
            for segment in &mut self.plain[start as usize..end as usize] {
                *segment = ReferenceScoreboard { status: SegmentState::InFlight, order, acknowledged: false };
            }
        }

        fn act(&mut self, act: &Act) {
            match act {
                Act::Send(count) => {
                    let stamp = self.stamp();
                    let start = self.board.send(*count, stamp);
                    assert_eq!(start, self.plain.len() as u64);
                    let new =
                        ReferenceScoreboard { status: SegmentState::InFlight, order: self.order, acknowledged: false };
                    self.plain.extend(std::iter::repeat_n(new, *count as usize));
                }
                Act::Resend(max_count) => self.resend(*max_count),
                Act::Probe => {
                    let stamp = self.stamp();
                    if let Some(start) = self.board.probe(stamp) {
                        self.fly(start, start + 1);
                    }
                }
                Act::Hear(to, ranges) => self.acknowledge(*to, ranges),
                Act::Detect(share) => self.detect(*share),
                Act::TimeOut(ago) => self.on_timeout(self.order.saturating_sub(*ago)),
                Act::FindAgain => {
                    self.board.restore_lost();
                    let lost = self.plain.iter_mut().filter(|segment| segment.status == SegmentState::Lost);
                    lost.for_each(|segment| segment.status = SegmentState::InFlight);
                }
            }
        }

        fn resend(&mut self, max_count: u64) {
            let lost = |segment: &ReferenceScoreboard| segment.status == SegmentState::Lost && !segment.acknowledged;
            let first = self.plain.iter().position(lost);
            let stamp = self.stamp();
            let range = self.board.resend(max_count, stamp);
            assert_eq!(range.map(|(start, _)| start as usize), first);
            let Some((start, end)) = range else { return };
            assert!(end > start && end - start <= max_count);
            assert!(self.plain[start as usize..end as usize].iter().all(lost));
            self.fly(start, end);
        }

        fn acknowledge(&mut self, share: f64, ranges: &[(f64, u64)]) {
            let outstanding = (self.board.next() - self.board.acknowledged()) as f64;
            let at = |share: f64| self.board.acknowledged() + (outstanding * share) as u64;
            let to = at(share);
            let ranges: Vec<_> = ranges.iter().map(|(share, count)| (at(*share), at(*share) + count)).collect();
            let summary = self.board.acknowledge(to, ranges.iter().copied());
            let (mut delivered, mut latest) = (0, None);
            for (index, segment) in (0_u64..).zip(&mut self.plain) {
                let inside = ranges.iter().any(|(from, to)| (*from..*to).contains(&index));
                if !segment.acknowledged && segment.status != SegmentState::Sacked && (index < to || inside) {
                    delivered += 1;
                    latest = latest.max(Some((segment.order, index + 1)));
                    segment.status = SegmentState::Sacked;
                }
                segment.acknowledged |= index < to;
            }
            assert_eq!(summary.delivered, delivered);
            assert_eq!(summary.latest.map(|(stamp, end, _)| (stamp.order, end)), latest);
        }

        /// Acts as if the transmission at this share of all had arrived completely.
        fn detect(&mut self, share: f64) {
            let order = (self.order as f64 * share) as u64;
            let end = self.board.next();
            let (found, next_check) = self.board.detect(order, end, Duration::ZERO, Instant::from_nanos(u64::MAX));
            let mut expected = 0;
            for segment in self.plain.iter_mut().filter(|segment| !segment.acknowledged) {
                if segment.status == SegmentState::InFlight && segment.order <= order {
                    segment.status = SegmentState::Lost;
                    expected += 1;
                }
            }
            assert_eq!((found, next_check), (expected, None));
        }

        fn on_timeout(&mut self, before: u64) {
            let found = self.board.on_timeout(Instant::from_nanos(before));
            let mut expected = 0;
            let first = self.board.acknowledged();
            for (index, segment) in (0_u64..).zip(&mut self.plain).filter(|(_, segment)| !segment.acknowledged) {
                if segment.status == SegmentState::InFlight && (index == first || segment.order <= before) {
                    segment.status = SegmentState::Lost;
                    expected += 1;
                }
            }
            assert_eq!(found, expected);
        }

        fn check(&self) {
            let outstanding = || self.plain.iter().filter(|segment| !segment.acknowledged);
            let count = |status| outstanding().filter(|segment| segment.status == status).count() as u64;
            let board = &self.board;
            assert_eq!(board.in_flight(), count(SegmentState::InFlight));
            assert_eq!(board.sacked(), count(SegmentState::Sacked));
            assert_eq!(board.has_lost(), count(SegmentState::Lost) > 0);
            assert_eq!(board.is_empty(), outstanding().next().is_none());
            let mut at = board.acknowledged();
            for (start, run) in &board.runs {
                assert_eq!(*start, at);
                assert!(self.plain[at as usize..run.end as usize].iter().all(|segment| segment.status == run.status));
                assert_eq!(board.lost.contains(start), run.status == SegmentState::Lost);
                at = run.end;
            }
            assert_eq!(at, board.next());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn scoreboard_matches_the_reference_model(acts in prop::collection::vec(act(), 1..60)) {
            let mut pair = Pair::default();
            for act in &acts {
                pair.act(act);
                pair.check();
            }
        }
    }

    #[test]
    fn segment_before_an_arrival_of_its_flight_is_lost() {
        let mut pair = Pair::default();
        pair.act(&Act::Send(40));
        let summary = pair.board.acknowledge(5, [(6, 40)].into_iter());
        let (stamp, to, _) = summary.latest.unwrap();
        assert_eq!((summary.delivered, summary.in_order, to), (39, 5, 40));
        let wait = Duration::from_nanos(10);
        let found = |pair: &mut Pair, now| pair.board.detect(stamp.order, to, wait, Instant::from_nanos(now));
        assert_eq!(found(&mut pair, 10), (0, Some(Instant::from_nanos(11))));
        assert_eq!(found(&mut pair, 11), (1, None));
        let resent = pair.stamp();
        assert_eq!(pair.board.resend(100, resent), Some((5, 6)));
        // Only the timestamp shows whether the first or the second transmission is answered.
        assert_eq!(pair.board.acknowledge(40, std::iter::empty()).retransmitted_at, Some(resent.sent));
    }
}
