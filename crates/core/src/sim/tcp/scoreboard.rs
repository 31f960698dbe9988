//! What a sender knows of the segments it sent: in flight, lost, or selectively acknowledged.
//!
//! Segments are counted, not bytes, and neighbours that fare alike are one [`Run`]: a window of millions of segments is
//! a few thousand entries, and what an acknowledgement costs goes with what it changes. It decides nothing about
//! windows; loss it decides as RACK does (RFC 8985), by the order in which runs were sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::time::Instant;

/// The segments from the first not cumulatively acknowledged to the last sent.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    /// By first segment; they adjoin.
    runs: BTreeMap<u64, Run>,
    /// First segments of the runs that are lost.
    lost: BTreeSet<u64>,
    /// What was sent, in the order of sending, as far as it may still be found lost.
    sent: VecDeque<Entry>,
    /// All before this is acknowledged.
    acknowledged: u64,
    /// The next one never sent.
    next: u64,
    /// Behind the last one known to have arrived.
    highest: u64,
    flying: u64,
    sacked: u64,
}

/// What is kept of each transmission until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// When it was sent.
    pub(super) sent: Instant,
    /// Counts transmissions.
    pub(super) order: u64,
    /// Segments delivered by then, and when the last of those was: for the delivery rate (as in Linux' `tcp_rate.c`).
    pub(super) delivered: u64,
    /// When the last of those was delivered.
    pub(super) delivered_at: Instant,
    /// When the one was sent that was delivered then.
    pub(super) first_sent: Instant,
    /// True if something else than the congestion window held the sender back.
    pub(super) limited: bool,
}

/// What an acknowledgement says that was not known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Segments that arrived.
    pub(super) delivered: u64,
    /// Of these, acknowledged cumulatively.
    pub(super) in_order: u64,
    /// The transmission sent last of those that arrived, how far it is known to have come, and whether it was one again.
    pub(super) latest: Option<(Stamp, u64, bool)>,
    /// Something never sent again arrived after what was sent later.
    pub(super) reordered: bool,
    /// When the segment at the left edge was sent again, if it was and is acknowledged now; the end of time if it was
    /// taken for lost and not sent again yet.
    pub(super) sent_again: Option<Instant>,
}

/// Segments sent together that fared alike.
#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    fate: Fate,
    stamp: Stamp,
    resent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flying,
    Lost,
    Sacked,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u64,
    end: u64,
    order: u64,
    sent: Instant,
}

impl Scoreboard {
    /// Segments that are somewhere on the path, as far as is known.
    pub(super) fn flying(&self) -> u64 {
        self.flying
    }

    /// Segments that arrived beyond a hole.
    pub(super) fn sacked(&self) -> u64 {
        self.sacked
    }

    /// All before this is acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The next segment never sent.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// True if nothing sent waits for an acknowledgement.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// True if something waits to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// When the first segment not acknowledged was sent last.
    pub(super) fn head_sent(&self) -> Option<Instant> {
        self.runs.first_key_value().map(|(_, run)| run.stamp.sent)
    }

    /// `count` segments never sent before leave; gives the first.
    pub(super) fn send(&mut self, count: u64, stamp: Stamp) -> u64 {
        let (start, end) = (self.next, self.next + count);
        self.runs.insert(start, Run { end, fate: Fate::Flying, stamp, resent: false });
        self.sent.push_back(Entry { start, end, order: stamp.order, sent: stamp.sent });
        self.next = end;
        self.flying += count;
        start
    }

    /// The first of the lost leave again, `most` of them at most; gives the range.
    pub(super) fn resend(&mut self, most: u64, stamp: Stamp) -> Option<(u64, u64)> {
        let start = *self.lost.first()?;
        let run = self.runs.get(&start)?;
        let end = run.end.min(start.saturating_add(most));
        self.split(end);
        self.lost.remove(&start);
        self.fly_again(start, end, stamp);
        self.flying += end - start;
        Some((start, end))
    }

    /// The last segment sent leaves once more as a probe, though it is not known to be lost; gives it.
    pub(super) fn probe(&mut self, stamp: Stamp) -> Option<u64> {
        let start = self.next.checked_sub(1).filter(|last| *last >= self.acknowledged)?;
        self.split(start);
        if self.runs.get(&start)?.fate != Fate::Flying {
            return None;
        }
        self.fly_again(start, self.next, stamp);
        Some(start)
    }

    /// Takes up an acknowledgement of all before `to` and of the ranges `blocks`.
    pub(super) fn acknowledge(&mut self, to: u64, blocks: impl Iterator<Item = (u64, u64)>) -> News {
        let mut news = News::default();
        let before = self.acknowledged;
        let to = to.min(self.next);
        if to > before {
            self.split(to);
            while let Some(first) = self.runs.first_entry().filter(|first| *first.key() < to) {
                let (start, run) = first.remove_entry();
                if start == before {
                    news.sent_again = run.sent_again();
                }
                self.arrive(start, run, &mut news);
                if run.fate == Fate::Sacked {
                    self.sacked -= run.end - start;
                }
            }
            self.acknowledged = to;
            news.in_order = to - before;
        }
        for (from, to) in blocks {
            self.sack(from.max(self.acknowledged), to.min(self.next), &mut news);
        }
        self.highest = self.highest.max(news.latest.map_or(0, |(_, end, _)| end)).max(self.acknowledged);
        news
    }

    /// Finds lost what was sent before transmission `latest`, of which all before `to` arrived, and has had `wait` since
    /// it was sent; gives how many segments, and when to look again.
    pub(super) fn detect(&mut self, latest: u64, to: u64, wait: Duration, now: Instant) -> (u64, Option<Instant>) {
        let mut found = 0;
        while let Some(entry) = self.sent.front().copied() {
            // Within one transmission what lies before is sent before.
            let end = if entry.order == latest { entry.end.min(to) } else { entry.end };
            if entry.order > latest || end <= entry.start {
                break;
            }
            if end > self.acknowledged {
                let due = entry.sent + wait;
                if due > now {
                    return (found, Some(due));
                }
                found += self.lose(entry.start, end, |stamp| stamp.order == entry.order);
            }
            match self.sent.front_mut() {
                Some(front) if end < entry.end => front.start = end,
                _ => drop(self.sent.pop_front()),
            }
        }
        (found, None)
    }

    /// After a timeout: the first segment is lost, and all that was sent by `before`; gives how many.
    pub(super) fn time_out(&mut self, before: Instant) -> u64 {
        let first = self.acknowledged;
        self.split((first + 1).min(self.next));
        let head = self.lose(first, first + 1, |_| true);
        let rest = self.lose(first, self.next, |stamp| stamp.sent <= before);
        self.sent.retain(|entry| entry.sent > before);
        head + rest
    }

    /// It turned out that nothing was lost after all.
    pub(super) fn find_again(&mut self) {
        for start in std::mem::take(&mut self.lost) {
            if let Some(run) = self.runs.get_mut(&start) {
                run.fate = Fate::Flying;
                self.flying += run.end - start;
            }
        }
        let entry =
            |(&start, run): (&u64, &Run)| Entry { start, end: run.end, order: run.stamp.order, sent: run.stamp.sent };
        let mut sent: Vec<Entry> = self.runs.iter().filter(|(_, run)| run.fate == Fate::Flying).map(entry).collect();
        sent.sort_by_key(|entry| (entry.order, entry.start));
        self.sent = sent.into();
    }

    /// Replaces the run that is exactly `start..end` by a new transmission of it.
    fn fly_again(&mut self, start: u64, end: u64, stamp: Stamp) {
        self.runs.insert(start, Run { end, fate: Fate::Flying, stamp, resent: true });
        self.sent.push_back(Entry { start, end, order: stamp.order, sent: stamp.sent });
    }

    /// Marks as arrived what is not yet within `from..to`, and makes one run of it and its neighbours that arrived.
    fn sack(&mut self, from: u64, to: u64, news: &mut News) {
        if from >= to || self.runs.range(..=from).next_back().is_some_and(|(_, run)| run.is_sacked() && run.end >= to) {
            return;
        }
        self.split(from);
        self.split(to);
        let (mut low, mut high) = (from, to);
        let mut stamp = None;
        while let Some((&start, &run)) = self.runs.range(from..to).next() {
            self.runs.remove(&start);
            self.arrive(start, run, news);
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
        if let Some(run) = self.runs.get(&to).copied().filter(Run::is_sacked) {
            self.runs.remove(&to);
            high = run.end;
        }
        self.runs.insert(low, Run { end: high, fate: Fate::Sacked, stamp, resent: false });
    }

    /// Accounts for a run that is known to have arrived.
    fn arrive(&mut self, start: u64, run: Run, news: &mut News) {
        let count = run.end - start;
        match run.fate {
            Fate::Sacked => return,
            Fate::Flying => self.flying -= count,
            Fate::Lost => drop(self.lost.remove(&start)),
        }
        news.delivered += count;
        news.reordered |= !run.resent && start < self.highest;
        if news.latest.is_none_or(|(stamp, end, _)| (stamp.order, end) < (run.stamp.order, run.end)) {
            news.latest = Some((run.stamp, run.end, run.resent));
        }
    }

    /// Marks as lost what is in flight within `start..end` and of which `which` holds; gives how many.
    fn lose(&mut self, start: u64, end: u64, which: impl Fn(&Stamp) -> bool) -> u64 {
        // What arrived is one run however it was sent, and stays one.
        for border in [start, end] {
            if self.runs.range(..border).next_back().is_some_and(|(_, run)| run.fate == Fate::Flying) {
                self.split(border);
            }
        }
        let mut count = 0;
        for (&start, run) in self.runs.range_mut(start..end) {
            if run.fate == Fate::Flying && which(&run.stamp) {
                run.fate = Fate::Lost;
                self.lost.insert(start);
                count += run.end - start;
            }
        }
        self.flying -= count;
        count
    }

    /// Makes `at` a border between runs, if it is inside one.
    fn split(&mut self, at: u64) {
        let Some((&start, run)) = self.runs.range_mut(..at).next_back() else { return };
        if run.end <= at {
            return;
        }
        debug_assert!(start < at);
        let rest = *run;
        run.end = at;
        if rest.fate == Fate::Lost {
            self.lost.insert(at);
        }
        self.runs.insert(at, rest);
    }
}

impl Run {
    fn sent_again(&self) -> Option<Instant> {
        match self.fate {
            _ if self.resent => Some(self.stamp.sent),
            Fate::Lost => Some(Instant::from_nanos(u64::MAX)),
            Fate::Flying | Fate::Sacked => None,
        }
    }

    fn is_sacked(&self) -> bool {
        self.fate == Fate::Sacked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a segment is, kept for each of them alone.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Plain {
        fate: Fate,
        order: u64,
        acknowledged: bool,
    }

    #[derive(Clone, Debug)]
    enum Act {
        Send(u64),
        Resend(u64),
        Probe,
        /// Shares of what is outstanding: the left edge, and ranges beyond it.
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

    /// The board, and the same for each segment alone.
    #[derive(Default)]
    struct Pair {
        board: Scoreboard,
        plain: Vec<Plain>,
        order: u64,
    }

    impl Pair {
        fn stamp(&mut self) -> Stamp {
            self.order += 1;
            let sent = Instant::from_nanos(self.order);
            Stamp { sent, order: self.order, delivered: 0, delivered_at: sent, first_sent: sent, limited: false }
        }

        fn fly(&mut self, start: u64, end: u64) {
            let order = self.order;
            for segment in &mut self.plain[start as usize..end as usize] {
                *segment = Plain { fate: Fate::Flying, order, acknowledged: false };
            }
        }

        fn act(&mut self, act: &Act) {
            match act {
                Act::Send(count) => {
                    let stamp = self.stamp();
                    let start = self.board.send(*count, stamp);
                    assert_eq!(start, self.plain.len() as u64);
                    let new = Plain { fate: Fate::Flying, order: self.order, acknowledged: false };
                    self.plain.extend(std::iter::repeat_n(new, *count as usize));
                }
                Act::Resend(most) => self.resend(*most),
                Act::Probe => {
                    let stamp = self.stamp();
                    if let Some(start) = self.board.probe(stamp) {
                        self.fly(start, start + 1);
                    }
                }
                Act::Hear(to, ranges) => self.hear(*to, ranges),
                Act::Detect(share) => self.detect(*share),
                Act::TimeOut(ago) => self.time_out(self.order.saturating_sub(*ago)),
                Act::FindAgain => {
                    self.board.find_again();
                    let lost = self.plain.iter_mut().filter(|segment| segment.fate == Fate::Lost);
                    lost.for_each(|segment| segment.fate = Fate::Flying);
                }
            }
        }

        fn resend(&mut self, most: u64) {
            let lost = |segment: &Plain| segment.fate == Fate::Lost && !segment.acknowledged;
            let first = self.plain.iter().position(lost);
            let stamp = self.stamp();
            let range = self.board.resend(most, stamp);
            assert_eq!(range.map(|(start, _)| start as usize), first);
            let Some((start, end)) = range else { return };
            assert!(end > start && end - start <= most);
            assert!(self.plain[start as usize..end as usize].iter().all(lost));
            self.fly(start, end);
        }

        fn hear(&mut self, share: f64, ranges: &[(f64, u64)]) {
            let outstanding = (self.board.next() - self.board.acknowledged()) as f64;
            let at = |share: f64| self.board.acknowledged() + (outstanding * share) as u64;
            let to = at(share);
            let ranges: Vec<_> = ranges.iter().map(|(share, count)| (at(*share), at(*share) + count)).collect();
            let news = self.board.acknowledge(to, ranges.iter().copied());
            let (mut delivered, mut latest) = (0, None);
            for (index, segment) in (0_u64..).zip(&mut self.plain) {
                let inside = ranges.iter().any(|(from, to)| (*from..*to).contains(&index));
                if !segment.acknowledged && segment.fate != Fate::Sacked && (index < to || inside) {
                    delivered += 1;
                    latest = latest.max(Some((segment.order, index + 1)));
                    segment.fate = Fate::Sacked;
                }
                segment.acknowledged |= index < to;
            }
            assert_eq!(news.delivered, delivered);
            assert_eq!(news.latest.map(|(stamp, end, _)| (stamp.order, end)), latest);
        }

        /// As if the transmission at this share of all had arrived wholly.
        fn detect(&mut self, share: f64) {
            let order = (self.order as f64 * share) as u64;
            let end = self.board.next();
            let (found, again) = self.board.detect(order, end, Duration::ZERO, Instant::from_nanos(u64::MAX));
            let mut expected = 0;
            for segment in self.plain.iter_mut().filter(|segment| !segment.acknowledged) {
                if segment.fate == Fate::Flying && segment.order <= order {
                    segment.fate = Fate::Lost;
                    expected += 1;
                }
            }
            assert_eq!((found, again), (expected, None));
        }

        fn time_out(&mut self, before: u64) {
            let found = self.board.time_out(Instant::from_nanos(before));
            let mut expected = 0;
            let first = self.board.acknowledged();
            for (index, segment) in (0_u64..).zip(&mut self.plain).filter(|(_, segment)| !segment.acknowledged) {
                if segment.fate == Fate::Flying && (index == first || segment.order <= before) {
                    segment.fate = Fate::Lost;
                    expected += 1;
                }
            }
            assert_eq!(found, expected);
        }

        fn check(&self) {
            let outstanding = || self.plain.iter().filter(|segment| !segment.acknowledged);
            let count = |fate| outstanding().filter(|segment| segment.fate == fate).count() as u64;
            let board = &self.board;
            assert_eq!(board.flying(), count(Fate::Flying));
            assert_eq!(board.sacked(), count(Fate::Sacked));
            assert_eq!(board.has_lost(), count(Fate::Lost) > 0);
            assert_eq!(board.is_empty(), outstanding().next().is_none());
            let mut at = board.acknowledged();
            for (start, run) in &board.runs {
                assert_eq!(*start, at);
                assert!(self.plain[at as usize..run.end as usize].iter().all(|segment| segment.fate == run.fate));
                assert_eq!(board.lost.contains(start), run.fate == Fate::Lost);
                at = run.end;
            }
            assert_eq!(at, board.next());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn runs_say_what_segments_would(acts in prop::collection::vec(act(), 1..60)) {
            let mut pair = Pair::default();
            for act in &acts {
                pair.act(act);
                pair.check();
            }
        }
    }

    #[test]
    fn what_lies_before_an_arrival_of_the_same_flight_is_lost() {
        let mut pair = Pair::default();
        pair.act(&Act::Send(40));
        let news = pair.board.acknowledge(5, [(6, 40)].into_iter());
        let (stamp, to, _) = news.latest.unwrap();
        assert_eq!((news.delivered, news.in_order, to), (39, 5, 40));
        let wait = Duration::from_nanos(10);
        let found = |pair: &mut Pair, now| pair.board.detect(stamp.order, to, wait, Instant::from_nanos(now));
        assert_eq!(found(&mut pair, 10), (0, Some(Instant::from_nanos(11))));
        assert_eq!(found(&mut pair, 11), (1, None));
        let again = pair.stamp();
        assert_eq!(pair.board.resend(100, again), Some((5, 6)));
        // Whether the first or the second answers, the timestamp must say.
        assert_eq!(pair.board.acknowledge(40, std::iter::empty()).sent_again, Some(again.sent));
    }
}
