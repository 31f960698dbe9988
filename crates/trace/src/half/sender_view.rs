//! The view of the sender: acknowledgements that have reached it, its bytes in flight, and its round trips.

use super::direction::{Half, PendingAck, packets};
use super::packet::{DataPacket, PathRtt};
use super::retransmissions::MIN_TIMEOUT;
use super::rounds::{Pause, Round};

/// Maximum number of copies that a sender sends after timeouts (`net.ipv4.tcp_retries2` of Linux).
const MAX_RETRIES: u64 = 15;

/// Minimum time without packets that is an outage if packets are missing afterwards.
const MIN_OUTAGE: u64 = 500_000_000;
/// Maximum number of missing packets: more is another counter.
const MAX_JUMP: u64 = 20_000;

impl Half {
    /// Adds an acknowledgement that reaches the sender at `due`.
    pub(super) fn pend(&mut self, due: u64, window: u64, is_window_known: bool) {
        let window = if is_window_known { window } else { u64::MAX };
        let joins = self.pending_is_full_within(due);
        let last = self.pending.back().map_or(0, |last| last.due);
        if joins {
            self.pending.pop_back();
        }
        self.pending.push_back(PendingAck { due: due.max(last), acknowledged: self.acknowledged, window });
    }

    fn pending_is_full_within(&self, due: u64) -> bool {
        let (Some(first), Some(last)) = (self.pending.front(), self.pending.back()) else { return false };
        let (count, limit) = (self.pending.len(), usize::from(self.limits.pending));
        count >= limit
            || (count > limit / 2 && due.saturating_sub(last.due) < last.due.saturating_sub(first.due) / limit as u64)
    }

    /// Lets the sender have all acknowledgements if the data at `at` can be the answer to a request: the request followed them.
    fn hear_request(&mut self, at: u64, rtt: &PathRtt) {
        if self.request.is_some_and(|request| at >= request + rtt.sender_min) {
            for ack in &mut self.pending {
                ack.due = ack.due.min(at);
            }
        }
    }

    /// Applies the acknowledgements that have reached the sender by `at`, and accounts for the time.
    pub(crate) fn advance(&mut self, at: u64, rtt: &PathRtt) {
        while let Some(ack) = self.pending.front().copied().filter(|ack| ack.due <= at) {
            self.pending.pop_front();
            self.account(ack.due);
            self.reach_sender(&ack, rtt);
        }
        self.account(at);
    }

    pub(super) fn account(&mut self, at: u64) {
        let time = at.saturating_sub(self.accounted);
        let is_full = self.is_full();
        let is_closed = self.window == 0;
        let is_shrunk = self.window.saturating_mul(2) < self.windows.max;
        if let Some(round) = &mut self.round {
            round.full += if is_full { time } else { 0 };
            round.closed += if is_closed { time } else { 0 };
            round.shrunk += if is_shrunk { time } else { 0 };
        } else if self.has_data() {
            self.counts.closed_while_idle += if is_closed { time } else { 0 };
            self.blocked += if self.is_blocked() { time } else { 0 };
        }
        self.accounted = self.accounted.max(at);
    }

    /// Returns true if the window is too small for a packet: a sender waits for a larger one (RFC 9293 section 3.8.6.2.1).
    fn is_blocked(&self) -> bool {
        self.window < u64::from(self.counts.mss).min(self.windows.max / 2)
    }

    pub(super) fn reach_sender(&mut self, ack: &PendingAck, rtt: &PathRtt) {
        let before = self.known;
        self.known = self.known.max(ack.acknowledged);
        self.window = ack.window;
        let Some(round) = &mut self.round else { return };
        round.acknowledged += self.known - before;
        if self.known >= self.next {
            round.end = ack.due;
            round.is_drained = true;
            let has_timeout = round.timeout > 0;
            self.rounds.push(**round, self.limits.rounds);
            self.round = None;
            self.drained = Some(ack.due);
            // A queue before the sender delays the acknowledgement too, but is no delay of the receiver.
            let prompt = rtt.receiver_min + rtt.to_sender();
            self.exchanges.drained(ack.due, prompt, self.counts.mss, has_timeout);
        } else if self.known >= self.mark {
            round.end = ack.due;
            self.rounds.push(**round, self.limits.rounds);
            self.mark = self.next;
            **round = Round { start: ack.due, end: ack.due, ..Round::default() };
        }
    }

    /// Returns the packets that a sender with consecutive identifications sent since the last one and that the capture lacks.
    fn missing_before(&self, packet: &DataPacket) -> Option<u64> {
        let jump = u64::from(packet.ip_id?.wrapping_sub(self.last_ip_id?));
        jump.checked_sub(packets(u64::from(self.last_payload), self.counts.mss) + 1)
    }

    /// Records a pause after which identifications are missing: the packets of the pause were lost before the capture.
    pub(super) fn note_jump(&mut self, packet: &DataPacket) {
        let pause = packet.at.saturating_sub(self.last_sent);
        let is_jump = self.missing_before(packet).is_some_and(|missing| (1..MAX_JUMP).contains(&missing));
        if pause >= MIN_OUTAGE && is_jump {
            self.counts.add_jump(self.last_sent, packet.at);
            if let Some(round) = &mut self.round {
                round.timeout += pause;
                round.full = round.full.saturating_sub(pause);
            }
        }
    }

    /// Begins a round trip with new data after a pause.
    pub(super) fn begin_round(&mut self, packet: &DataPacket, rtt: &PathRtt) {
        let at = packet.at;
        self.hear_request(at, rtt);
        self.advance(at, rtt);
        if self.round.is_some() {
            (self.request, self.heard_all) = (None, 0);
            return;
        }
        let mut pause = Pause::default();
        let mut timeout = 0;
        // Data leaves the sender before it reaches the capture point.
        if let Some(drained) = self.drained.take() {
            match self.request {
                Some(request) => {
                    pause.receiver = request.saturating_sub(self.heard_all);
                    pause.sender = at.saturating_sub(request + rtt.sender_min);
                }
                None => {
                    pause.blocked = self.blocked.min(at.saturating_sub(drained));
                    pause.idle = at.saturating_sub(drained + self.blocked);
                }
            }
            // The copies that timeouts sent before this one were lost.
            let is_timeout = self.missing_before(packet).is_some_and(|missing| (1..=MAX_RETRIES).contains(&missing));
            if is_timeout && pause.idle >= MIN_TIMEOUT {
                timeout = std::mem::take(&mut pause.idle);
                self.counts.add_timeout(timeout);
            }
            let limit = (rtt.base() / 20).max(5_000_000);
            self.exchanges.resumed(at, pause.sender + pause.idle + pause.blocked + timeout, limit);
        }
        (self.request, self.heard_all, self.blocked) = (None, 0, 0);
        self.mark = self.next + 1;
        self.round = Some(Box::new(Round { start: at, end: at, pause, timeout, ..Round::default() }));
    }
}
