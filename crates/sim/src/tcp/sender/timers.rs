//! Timers of the sender.

use std::time::Duration;

use lfn_base::time::Instant;

use super::{SendFailure, State, TcpSender, Timers};

/// Consecutive timeouts after which Linux gives up (`tcp_retries2`).
const DATA_RETRIES: u32 = 15;
/// Maximum delay of an acknowledgement in Linux (`TCP_DELACK_MAX`).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

impl TcpSender {
    pub(super) fn run_timers(&mut self, now: Instant) {
        let due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        if due(self.timers.reordering) {
            self.timers.reordering = None;
            let flight = self.board.in_flight();
            let lost = self.detect(now);
            if lost > 0 && matches!(self.state, State::Open) {
                self.start_recovery(flight, false);
                if let State::Reducing { recovery: Some(recovery), .. } = &mut self.state {
                    recovery.on_ack(0, self.board.in_flight(), false);
                }
            }
        }
        if due(self.timers.retransmission) {
            self.on_timeout(now);
        } else if due(self.timers.probe) {
            self.timers.probe = None;
            self.probe_due = true;
        }
    }

    pub(super) fn restart_timeout(&mut self, now: Instant) {
        let timeout = self.rtt.timeout(self.backoff);
        self.timers.retransmission = (!self.board.is_empty()).then(|| now + timeout);
    }

    /// Arms a tail loss probe, which is sent after two round trips of silence (RFC 8985 §7.2).
    pub(super) fn arm_probe(&mut self, left: u64, now: Instant) {
        let quiet = matches!(self.state, State::Open) && self.board.sacked() == 0 && self.probing.is_none();
        if !quiet || self.board.is_empty() {
            return self.timers.probe = None;
        }
        let Some(smoothed) = self.rtt.smoothed().filter(|_| self.timers.probe.is_none()) else { return };
        let alone = self.board.in_flight() == 1 && left == 0;
        let wait = 2 * smoothed + if alone { MAX_ACK_DELAY } else { Duration::ZERO };
        let at = now + wait;
        self.timers.probe = self.timers.retransmission.map(|timeout| at.min(timeout));
    }

    fn on_timeout(&mut self, now: Instant) {
        self.timers = Timers::default();
        if self.board.is_empty() {
            return;
        }
        self.stats.timeouts += 1;
        self.backoff += 1;
        if self.backoff > DATA_RETRIES {
            return self.end(SendFailure::TimedOut);
        }
        // Segments sent within the last round trip may still be in flight.
        let since = Duration::from_nanos(now.as_nanos()).saturating_sub(self.rtt.smoothed().unwrap_or_default());
        self.board.on_timeout(Instant::ZERO + since);
        let is_repeated = matches!(self.state, State::Lost { .. });
        self.control.on_timeout(is_repeated);
        self.probing = None;
        if !is_repeated {
            self.reduced = true;
            self.state = State::Lost { until: self.board.next() };
        }
        self.timers.retransmission = Some(now + self.rtt.timeout(self.backoff));
    }
}
