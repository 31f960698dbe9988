//! State of one direction, and the handling of its new data.

use std::collections::VecDeque;
use std::sync::LazyLock;

use lfn_base::time::Instant;

use super::arrivals::Arrivals;
use super::counts::Counts;
use super::exchanges::Exchanges;
use super::gaps::{Gap, Gaps};
use super::packet::{DataPacket, PathRtt};
use super::rounds::{Round, Rounds};
use super::sent::{Run, SentRuns};
use super::windows::Windows;
use crate::flags::{PacketFlag, PacketFlags};
use crate::limits::Limits;
use crate::on_demand::{OnDemand, Part};
use crate::sequence::Offsets;
use crate::series::{SentKind, Series};

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAck {
    pub(super) due: u64,
    pub(super) acknowledged: u64,
    pub(super) window: u64,
}

/// Bytes that are missing or were sent again.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Bytes between others, which were lost or come late.
    pub(super) gaps: Gaps,
    /// Acknowledged bytes that the capture lacks.
    pub(super) missed: Gaps,
    /// Last retransmitted ranges, for reports of duplicates.
    pub(super) resent: VecDeque<std::ops::Range<u64>>,
}

impl Part for Repairs {
    fn unchanged() -> &'static Self {
        static UNCHANGED: LazyLock<Repairs> = LazyLock::new(Repairs::default);
        &UNCHANGED
    }
}

/// State of one direction.
#[derive(Debug, Default)]
pub(crate) struct Half {
    pub(crate) limits: Limits,
    pub(super) offsets: Offsets,
    /// End of the data that was sent.
    pub(super) next: u64,
    /// Highest acknowledgement that the capture point saw, and that the sender knows.
    pub(super) acknowledged: u64,
    pub(super) known: u64,
    /// Payload that was acknowledged, each byte once.
    pub(crate) acknowledged_payload: u64,
    pub(super) pending: VecDeque<PendingAck>,
    pub(super) sent: SentRuns,
    pub(super) repairs: OnDemand<Repairs>,
    pub(crate) windows: Windows,
    pub(crate) counts: OnDemand<Counts>,
    pub(crate) rounds: Rounds,
    pub(crate) exchanges: OnDemand<Exchanges>,
    pub(crate) arrivals: Arrivals,
    pub(super) round: Option<Box<Round>>,
    /// End of the data in flight at the start of the round.
    pub(super) mark: u64,
    /// Time since which no data is in flight.
    pub(super) drained: Option<u64>,
    /// Time of the current pause in which the window was too small for a packet.
    pub(super) blocked: u64,
    /// First payload of the receiver after the acknowledgement of all data, and the time of this acknowledgement.
    pub(super) request: Option<u64>,
    pub(super) heard_all: u64,
    pub(super) accounted: u64,
    pub(super) window: u64,
    pub(super) last_sent: u64,
    /// Time of the last packet of the receiver; that of the first data if there is none.
    pub(super) last_heard: u64,
    pub(super) last_timeout: u64,
    pub(super) last_timestamp: Option<u32>,
    pub(super) last_ip_id: Option<u16>,
    pub(super) last_payload: u32,
    /// The capture point is near the sender.
    pub(super) is_at_sender: bool,
    /// End of the highest range of a SACK option.
    pub(super) highest_sacked: u64,
    /// End of the data that was in flight at the last retransmission. Its acknowledgement ends the recovery (RFC 6675).
    pub(super) recovery_point: u64,
    pub(super) duplicate_acks: u32,
    pub(crate) series: Option<Box<Series>>,
}

impl Half {
    /// Creates a direction without data. The window is unknown.
    pub(crate) fn new() -> Self {
        Half { window: u64::MAX, ..Half::default() }
    }

    /// Returns the bytes in flight, and the window that the sender knows.
    pub(crate) fn flight_and_window(&self) -> (u64, u64) {
        (self.in_flight(), self.window)
    }

    /// Forgets the times with a full window, because the window scale was wrong.
    pub(crate) fn forget_full_windows(&mut self, factor: u64) {
        self.rounds.forget_full_windows();
        if let Some(round) = &mut self.round {
            round.full = 0;
        }
        if self.window != u64::MAX {
            self.window = self.window.saturating_mul(factor);
        }
        for ack in &mut self.pending {
            ack.window = ack.window.saturating_mul(factor);
        }
        self.windows.max = self.windows.max.saturating_mul(factor);
    }

    /// Sets the limits of the lists, and shortens the lists at once.
    pub(crate) fn shrink_to(&mut self, limits: Limits) {
        self.limits = limits;
        self.rounds.shrink_to(limits.rounds);
        self.arrivals.shrink_to(limits.arrivals);
        self.sent.shrink_to(limits.runs);
        self.pending.shrink_to(limits.pending.into());
    }

    /// Returns the bytes of memory of all parts.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let parts = self.counts.heap_bytes() + self.exchanges.heap_bytes();
        let round = self.round.as_ref().map_or(0, |_| size_of::<Round>());
        let pending = self.pending.capacity() * size_of::<PendingAck>();
        parts + round + pending + self.rounds.heap_bytes() + self.arrivals.heap_bytes() + self.sent.heap_bytes()
    }

    pub(crate) fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// Sets the number of the first byte.
    pub(crate) fn start_at(&mut self, sequence: u32) {
        if self.offsets.is_empty() {
            let offset = self.offsets.of(sequence);
            (self.next, self.acknowledged, self.known, self.mark) = (offset, offset, offset, offset);
        }
    }

    pub(crate) fn has_data(&self) -> bool {
        self.counts.payload > 0
    }

    /// Returns the time of the oldest data in flight, and how often it was sent again.
    pub(crate) fn oldest(&self) -> Option<(u64, u8, u32)> {
        self.sent.front().map(|run| (run.first_at, run.resends, run.size))
    }

    /// Handles payload of the sender.
    pub(crate) fn data(&mut self, packet: &DataPacket, rtt: &PathRtt) -> PacketFlags {
        let mut flags = PacketFlags::default();
        let at = packet.at;
        self.start_at(packet.sequence);
        self.advance(at, rtt);
        let start = self.offsets.of(packet.sequence);
        let end = start + u64::from(packet.payload);
        if packet.payload <= 1 && end <= self.next && start + 1 >= self.acknowledged && start + 1 == self.next {
            flags.insert(if self.window == 0 { PacketFlag::ZeroWindowProbe } else { PacketFlag::KeepAlive });
            return flags;
        }
        self.note_jump(packet);
        if self.last_heard == 0 {
            self.last_heard = at;
        }
        self.counts.add_packet(packet);
        if start >= self.next {
            self.new_data(packet, start, end, rtt, &mut flags);
        } else {
            self.old_data(packet, start, end.min(self.next), rtt, &mut flags);
            if end > self.next {
                self.new_data(packet, self.next, end, rtt, &mut flags);
            }
        }
        self.last_sent = at;
        self.last_timestamp = packet.timestamp;
        self.last_ip_id = packet.ip_id;
        self.last_payload = packet.payload;
        flags
    }

    fn new_data(&mut self, packet: &DataPacket, start: u64, end: u64, rtt: &PathRtt, flags: &mut PacketFlags) {
        let at = packet.at;
        if start > self.next && self.counts.payload == 0 {
            // Data before the start of the capture.
            (self.acknowledged, self.known) = (self.acknowledged.max(start), self.known.max(start));
        } else if start > self.next {
            flags.insert(PacketFlag::LostSegment);
            let (timestamp, ip_id) = (packet.timestamp, packet.ip_id);
            let (after, rtt) = (self.last_sent, rtt.last());
            let after_timestamp = self.last_timestamp.unwrap_or(0);
            let gap = Gap { start: self.next, end: start, at, timestamp, ip_id, after, rtt, after_timestamp };
            self.repairs.gaps.insert(gap, self.limits.gaps);
        }
        self.begin_round(packet, rtt);
        let payload = (end - start) as u32;
        let run = Run {
            start,
            end,
            first_at: packet.captured_at,
            last_at: packet.captured_at,
            size: payload,
            timestamp: packet.timestamp.unwrap_or(0),
            ..Run::default()
        };
        self.sent.insert(run, self.limits.runs);
        self.next = end;
        self.counts.payload += u64::from(payload);
        self.exchanges.sent(at, payload);
        let in_flight = self.in_flight();
        if let Some(round) = &mut self.round
            && in_flight > round.in_flight
        {
            (round.in_flight, round.window) = (in_flight, self.window);
        }
        self.counts.max_in_flight = self.counts.max_in_flight.max(in_flight);
        if self.is_full() {
            flags.insert(PacketFlag::WindowFull);
        }
        if let Some(series) = &mut self.series {
            series.add_data(Instant::from_nanos(at), Offsets::relative(start), payload, SentKind::New);
        }
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.next.saturating_sub(self.known)
    }

    pub(super) fn is_full(&self) -> bool {
        let in_flight = self.in_flight();
        // Away from the sender, the bytes in flight are an estimate.
        let tolerance = if self.is_at_sender { 0 } else { self.window / 16 };
        in_flight > 0
            && self.window != u64::MAX
            && in_flight.saturating_add(tolerance.max(u64::from(self.counts.mss))) > self.window
    }

    /// Ends the direction at the end of the connection.
    pub(crate) fn finish(&mut self, at: u64, rtt: &PathRtt) {
        self.advance(at, rtt);
        let mut rest = std::mem::take(&mut self.pending);
        while let Some(ack) = rest.pop_front() {
            self.account(ack.due);
            self.reach_sender(&ack, rtt);
        }
        if let Some(mut round) = self.round.take() {
            round.end = at.max(round.start).max(self.accounted);
            self.rounds.push(*round, self.limits.rounds);
        }
    }
}

pub(super) fn packets(bytes: u64, mss: u32) -> u64 {
    bytes.div_ceil(u64::from(mss.max(1))).max(1)
}
