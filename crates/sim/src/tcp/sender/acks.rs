//! Acknowledgements at the sender: delivered and lost segments, and their effect on the window.

use std::time::Duration;

use lfn_base::time::Instant;

use super::{State, TcpSender};
use crate::tcp::control::AckSample;
use crate::tcp::recovery::Recovery;
use crate::tcp::scoreboard::AckSummary;
use crate::tcp::wire::Ack;

/// Segments after a hole that make it a loss, if no reordering was seen (RFC 5681's duplicate acknowledgements).
const DUPLICATES: u64 = 3;

impl TcpSender {
    pub(super) fn acknowledged(&mut self, ack: &Ack, echo: Instant, now: Instant) {
        let flight = self.board.in_flight();
        let blocks = ack.blocks.into_iter().filter(|(from, to)| from < to);
        let summary = self.board.acknowledge(ack.next, blocks);
        self.reordering.is_seen |= summary.reordered;
        if ack.duplicate.is_some() {
            self.reordering.widen(self.board.acknowledged(), self.board.next());
        }
        let rtt = self.update_rtt(&summary, now);
        let lost = self.detect(now);
        if ack.congestion {
            self.on_ecn_mark();
        }
        if summary.delivered == 0 && lost == 0 {
            return;
        }
        self.resolve_probe(ack);
        self.change_state(&summary, lost, flight, echo);
        self.notify_control(&summary, lost, rtt, now);
        if summary.in_order > 0 {
            self.backoff = 0;
            self.timers.probe = None;
        }
        // As long as acknowledgements are for segments sent before the head, they cannot cover the head (Linux's
        // `tcp_clean_rtx_queue`): with a filling queue, the RTT grows beyond the timeout.
        let head = self.board.head_sent();
        if summary.in_order > 0 || summary.latest.zip(head).is_some_and(|((stamp, ..), head)| stamp.sent < head) {
            self.restart_timeout(now);
        }
    }

    /// Updates RTT and delivery rate; returns the RTT if there is a sample.
    fn update_rtt(&mut self, summary: &AckSummary, now: Instant) -> Option<Duration> {
        let (stamp, end, resent) = summary.latest?;
        self.delivery.count += summary.delivered;
        self.delivery.at = now;
        self.delivery.first_sent = stamp.sent;
        let rtt = now.saturating_since(stamp.sent);
        // An acknowledgement that arrives too soon after a retransmission is for the original segment.
        let doubtful = resent && self.rtt.min_rtt().is_some_and(|min_rtt| rtt < min_rtt);
        if !doubtful && self.rack.is_none_or(|(order, to, _)| (order, to) < (stamp.order, end)) {
            self.rack = Some((stamp.order, end, rtt));
        }
        if resent {
            return None;
        }
        self.rtt.sample(rtt);
        Some(rtt)
    }

    /// Looks for losses as of `now`; returns the number of lost segments.
    pub(super) fn detect(&mut self, now: Instant) -> u64 {
        let Some((order, to, rtt)) = self.rack else { return 0 };
        let (lost, next_check) = self.board.detect(order, to, rtt + self.reordering_window(), now);
        self.timers.reordering = next_check;
        lost
    }

    /// Returns the reordering window: the time that an overtaken segment may still need (RFC 8985 §6.2, step 4).
    fn reordering_window(&self) -> Duration {
        let in_recovery = !matches!(self.state, State::Open);
        if !self.reordering.is_seen && (in_recovery || self.board.sacked() >= DUPLICATES) {
            return Duration::ZERO;
        }
        let max_window = self.rtt.smoothed().unwrap_or_default();
        (self.rtt.min_rtt().unwrap_or_default() / 4 * self.reordering.quarters).min(max_window)
    }

    fn on_ecn_mark(&mut self) {
        if !matches!(self.state, State::Open) {
            return;
        }
        self.reduced = true;
        if let Some(target) = self.control.on_congestion() {
            self.stats.ecn_events += 1;
            let recovery = Some(Recovery::new(target, self.board.in_flight()));
            self.state = State::Reducing { until: self.board.next(), recovery, lossy: false };
        }
    }

    fn change_state(&mut self, summary: &AckSummary, lost: u64, flight: u64, echo: Instant) {
        self.undo_if_spurious(summary, echo);
        let reached = |until| self.board.acknowledged() >= until;
        match self.state {
            State::Reducing { until, .. } | State::Lost { until } if reached(until) => self.state = State::Open,
            _ => {}
        }
        let merely_marked = matches!(self.state, State::Reducing { lossy: false, .. });
        if lost > 0 && (merely_marked || matches!(self.state, State::Open)) {
            self.start_recovery(flight, merely_marked);
        }
        if let State::Reducing { recovery: Some(recovery), .. } = &mut self.state {
            recovery.on_ack(summary.delivered, self.board.in_flight(), summary.in_order > 0 && lost == 0);
        }
    }

    /// Starts a recovery after a loss. `marked` is true if a congestion mark has already reduced the window.
    pub(super) fn start_recovery(&mut self, flight: u64, marked: bool) {
        let until = self.board.next();
        if let (true, State::Reducing { recovery, .. }) = (marked, self.state) {
            self.state = State::Reducing { until, recovery, lossy: true };
            return;
        }
        self.stats.loss_events += 1;
        self.reordering.on_recovery();
        let recovery = self.control.on_congestion().map(|target| Recovery::new(target, flight));
        self.reduced = recovery.is_some();
        self.state = State::Reducing { until, recovery, lossy: true };
    }

    /// Undoes a reduction by Eifel detection (RFC 3522, 4015): if the acknowledgement that moves the left edge is for
    /// the original segment, nothing was lost there.
    fn undo_if_spurious(&mut self, summary: &AckSummary, echo: Instant) {
        if matches!(self.state, State::Reducing { lossy: true, .. } | State::Lost { .. })
            && summary.retransmitted_at.is_some_and(|at| echo < at)
        {
            self.state = State::Open;
            self.control.undo();
            self.board.restore_lost();
            self.reordering.is_seen = true;
            self.stats.undone_reductions += 1;
        }
    }

    fn notify_control(&mut self, summary: &AckSummary, lost: u64, rtt: Option<Duration>, now: Instant) {
        let Some((stamp, ..)) = summary.latest else { return };
        self.control.on_ack(&AckSample {
            now,
            count: summary.delivered,
            delivered: self.delivery.count,
            next: self.board.acknowledged(),
            sent: self.board.next(),
            in_flight: self.board.in_flight(),
            lost,
            stamp,
            rtt,
            full: std::mem::take(&mut self.full),
            in_recovery: matches!(self.state, State::Reducing { .. }),
        });
        self.stats.max_window = self.stats.max_window.max(self.control.window());
        if self.stats.started.is_none() && !self.control.is_starting() {
            self.stats.started = Some(now);
        }
    }

    fn resolve_probe(&mut self, ack: &Ack) {
        let Some(probing) = self.probing.filter(|probing| self.board.acknowledged() >= probing.end) else { return };
        self.probing = None;
        // The probe filled an unseen hole (RFC 8985 §7.4.2).
        if probing.is_retransmission && ack.duplicate.is_none() && matches!(self.state, State::Open) {
            self.stats.loss_events += 1;
            self.control.on_congestion();
        }
    }
}
