//! What the sender makes of an answer: what arrived, what was lost, and what that does to the window.

use std::time::Duration;

use super::{Sender, State};
use crate::sim::tcp::control::Acknowledged;
use crate::sim::tcp::repair::Repair;
use crate::sim::tcp::scoreboard::News;
use crate::sim::tcp::wire::Ack;
use crate::time::Instant;

/// Segments beyond a hole that make it a loss, where nothing was ever reordered (RFC 5681's duplicate acknowledgements).
const DUPLICATES: u64 = 3;

impl Sender {
    pub(super) fn acknowledged(&mut self, ack: &Ack, echo: Instant, now: Instant) {
        let flight = self.board.flying();
        let blocks = ack.blocks.into_iter().filter(|(from, to)| from < to);
        let news = self.board.acknowledge(ack.next, blocks);
        self.reordering.seen |= news.reordered;
        if ack.duplicate {
            self.reordering.was_impatient(self.board.acknowledged(), self.board.next());
        }
        let rtt = self.learn(&news, now);
        let lost = self.detect(now);
        if ack.congestion {
            self.marked();
        }
        if news.delivered == 0 && lost == 0 {
            return;
        }
        self.resolve_probe(ack);
        self.change_state(&news, lost, flight, echo);
        self.tell_control(&news, lost, rtt, now);
        if news.in_order > 0 {
            self.backoff = 0;
            self.timers.probe = None;
        }
        // As long as news is of what left before the head did, the head cannot be told of yet (Linux'
        // `tcp_clean_rtx_queue`): a queue that fills makes the round trip outgrow the timeout.
        let head = self.board.head_sent();
        if news.in_order > 0 || news.latest.zip(head).is_some_and(|((stamp, ..), head)| stamp.sent < head) {
            self.restart_timeout(now);
        }
    }

    /// Round trip and delivery rate; gives the round trip if there is a sample.
    fn learn(&mut self, news: &News, now: Instant) -> Option<Duration> {
        let (stamp, end, resent) = news.latest?;
        self.delivery.count += news.delivered;
        self.delivery.at = now;
        self.delivery.first_sent = stamp.sent;
        let rtt = now.saturating_since(stamp.sent);
        // What was sent again and came too soon was the first of the two.
        let doubtful = resent && self.rtt.least().is_some_and(|least| rtt < least);
        if !doubtful && self.rack.is_none_or(|(order, to, _)| (order, to) < (stamp.order, end)) {
            self.rack = Some((stamp.order, end, rtt));
        }
        if resent {
            return None;
        }
        self.rtt.sample(rtt);
        Some(rtt)
    }

    /// Looks for losses as of `now`; gives how many segments.
    pub(super) fn detect(&mut self, now: Instant) -> u64 {
        let Some((order, to, rtt)) = self.rack else { return 0 };
        let (lost, again) = self.board.detect(order, to, rtt + self.patience(), now);
        self.timers.reordering = again;
        lost
    }

    /// How long what was overtaken may still come (RFC 8985 §6.2, step 4).
    fn patience(&self) -> Duration {
        let repairing = !matches!(self.state, State::Open);
        if !self.reordering.seen && (repairing || self.board.sacked() >= DUPLICATES) {
            return Duration::ZERO;
        }
        let most = self.rtt.smoothed().unwrap_or_default();
        (self.rtt.least().unwrap_or_default() / 4 * self.reordering.quarters).min(most)
    }

    fn marked(&mut self) {
        if !matches!(self.state, State::Open) {
            return;
        }
        self.reduced = true;
        if let Some(target) = self.control.congested() {
            self.stats.ecn_events += 1;
            let repair = Some(Repair::new(target, self.board.flying()));
            self.state = State::Reducing { until: self.board.next(), repair, lossy: false };
        }
    }

    fn change_state(&mut self, news: &News, lost: u64, flight: u64, echo: Instant) {
        self.take_back(news, echo);
        let reached = |until| self.board.acknowledged() >= until;
        match self.state {
            State::Reducing { until, .. } | State::Lost { until } if reached(until) => self.state = State::Open,
            _ => {}
        }
        let merely_marked = matches!(self.state, State::Reducing { lossy: false, .. });
        if lost > 0 && (merely_marked || matches!(self.state, State::Open)) {
            self.repair(flight, merely_marked);
        }
        if let State::Reducing { repair: Some(repair), .. } = &mut self.state {
            repair.acknowledged(news.delivered, self.board.flying(), news.in_order > 0 && lost == 0);
        }
    }

    /// A loss, while nothing else was wrong but perhaps a mark that has lowered the window already.
    pub(super) fn repair(&mut self, flight: u64, marked: bool) {
        let until = self.board.next();
        if let (true, State::Reducing { repair, .. }) = (marked, self.state) {
            self.state = State::Reducing { until, repair, lossy: true };
            return;
        }
        self.stats.loss_events += 1;
        self.reordering.repaired();
        let repair = self.control.congested().map(|target| Repair::new(target, flight));
        self.reduced = repair.is_some();
        self.state = State::Reducing { until, repair, lossy: true };
    }

    /// Eifel (RFC 3522, 4015): if the answer that moves the left edge is to the original, nothing was lost there.
    fn take_back(&mut self, news: &News, echo: Instant) {
        if matches!(self.state, State::Reducing { lossy: true, .. } | State::Lost { .. })
            && news.sent_again.is_some_and(|at| echo < at)
        {
            self.state = State::Open;
            self.control.undo();
            self.board.find_again();
            self.reordering.seen = true;
            self.stats.undone += 1;
        }
    }

    fn tell_control(&mut self, news: &News, lost: u64, rtt: Option<Duration>, now: Instant) {
        let Some((stamp, ..)) = news.latest else { return };
        self.control.acknowledged(&Acknowledged {
            now,
            count: news.delivered,
            delivered: self.delivery.count,
            next: self.board.acknowledged(),
            sent: self.board.next(),
            flying: self.board.flying(),
            lost,
            stamp,
            rtt,
            full: std::mem::take(&mut self.full),
            repairing: matches!(self.state, State::Reducing { .. }),
        });
        self.stats.most_window = self.stats.most_window.max(self.control.window());
        if self.stats.started.is_none() && !self.control.is_starting() {
            self.stats.started = Some(now);
        }
    }

    fn resolve_probe(&mut self, ack: &Ack) {
        let Some(probing) = self.probing.filter(|probing| self.board.acknowledged() >= probing.end) else { return };
        self.probing = None;
        // The probe filled a hole that nobody had seen (RFC 8985 §7.4.2).
        if probing.again && !ack.duplicate && matches!(self.state, State::Open) {
            self.stats.loss_events += 1;
            self.control.congested();
        }
    }
}
