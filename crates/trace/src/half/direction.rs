//! State of one direction, and the handling of its packets.

use std::collections::VecDeque;
use std::sync::LazyLock;

use lfn_base::time::Instant;

use super::arrivals::{Arrival, Arrivals};
use super::counts::{Counts, LossEvent};
use super::exchanges::Exchanges;
use super::gaps::{Gap, Gaps};
use super::packet::{AckPacket, DataPacket, PathRtt};
use super::rounds::{Round, Rounds};
use super::sent::{Run, SentRuns, micros};
use super::windows::Windows;
use crate::flags::{PacketFlag, PacketFlags};
use crate::limits::Limits;
use crate::on_demand::{OnDemand, Part};
use crate::sequence::Offsets;
use crate::series::{SentKind, Series};

/// Retransmissions without an answer that are an outage.
pub(crate) const MIN_UNANSWERED: u32 = 2;
/// Minimum silence before a retransmission after a timeout: the minimum of Linux, without its jitter.
pub(super) const MIN_TIMEOUT: u64 = 190_000_000;
/// Minimum time without packets that is an outage if packets are missing afterwards.
pub(super) const MIN_OUTAGE: u64 = 500_000_000;
/// Maximum number of missing packets: more is another counter.
pub(super) const MAX_JUMP: u64 = 20_000;
/// Tick of the timestamps of common kernels, with a margin.
pub(super) const MAX_TICK: u64 = 20_000_000;
/// A filled gap without timestamps and without an RTT is reordering up to this age.
pub(super) const MAX_REORDERING: u64 = 3_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingAck {
    pub(super) due: u64,
    pub(super) acknowledged: u64,
    pub(super) window: u64,
}

/// Bytes that are missing or were sent again.
#[derive(Debug, Default)]
struct Repairs {
    /// Bytes between others, which were lost or come late.
    gaps: Gaps,
    /// Acknowledged bytes that the capture lacks.
    missed: Gaps,
    /// Last retransmitted ranges, for reports of duplicates.
    resent: VecDeque<std::ops::Range<u64>>,
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
    repairs: OnDemand<Repairs>,
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
    /// First payload of the receiver after the acknowledgement of all data, and the time of this acknowledgement.
    pub(super) request: Option<u64>,
    pub(super) heard_all: u64,
    pub(super) accounted: u64,
    pub(super) window: u64,
    pub(super) last_sent: u64,
    pub(super) last_heard: u64,
    pub(super) last_timeout: u64,
    pub(super) last_timestamp: Option<u32>,
    pub(super) last_ip_id: Option<u16>,
    pub(super) last_payload: u32,
    /// The capture point is near the sender.
    pub(super) is_at_sender: bool,
    /// End of the highest range of a SACK option.
    pub(super) highest_sacked: u64,
    /// Data was sent again, and not all data before `highest_sacked` is acknowledged.
    pub(super) is_recovering: bool,
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
        self.begin_round(at, rtt);
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

    /// Handles bytes below the end of the sent data.
    fn old_data(&mut self, packet: &DataPacket, start: u64, end: u64, rtt: &PathRtt, flags: &mut PacketFlags) {
        let at = packet.at;
        let mut recorded_late = 0;
        self.repairs.missed.fill(start, end, self.limits.gaps, |gap| {
            if at.saturating_sub(gap.at) < 20_000_000 {
                recorded_late += gap.end - gap.start;
            }
        });
        if recorded_late > 0 {
            self.counts.missed = self.counts.missed.saturating_sub(recorded_late);
            self.counts.payload += recorded_late;
            return;
        }
        let mut kind = SentKind::Retransmission;
        let mut filled = 0;
        let silence = at.saturating_sub(self.last_heard.max(self.last_timeout));
        let is_timeout = silence >= MIN_TIMEOUT.max(rtt.base() * 3 / 2) && start <= self.known.max(self.acknowledged);
        if is_timeout {
            self.last_timeout = at;
            self.counts.unanswered_timeouts += 1;
        }
        let mut gaps = std::mem::take(&mut self.repairs.gaps);
        gaps.fill(start, end, self.limits.gaps, |gap| {
            kind = SentKind::FillsGap;
            filled += gap.end - gap.start;
            if is_late(&gap, packet, rtt) {
                self.counts.add_late(at.saturating_sub(gap.at));
                flags.insert(PacketFlag::OutOfOrder);
            } else {
                self.lost_before(&gap, silence, is_timeout, rtt);
                flags.insert(PacketFlag::Retransmission);
            }
            self.counts.payload += gap.end - gap.start;
            let (start, end) = (gap.start, gap.end);
            let size = (end - start) as u32;
            let run = Run {
                start,
                end,
                first_at: gap.at,
                last_at: at,
                size,
                fills_gap: true,
                timestamp: packet.timestamp.unwrap_or(0),
                ..Run::default()
            };
            self.sent.insert(run, self.limits.runs);
        });
        self.repairs.gaps = gaps;
        if filled < end - start {
            self.sent_again(packet, start, end, silence, is_timeout, flags);
        }
        if let Some(series) = &mut self.series {
            let length = (end - start) as u32;
            series.add_data(Instant::from_nanos(at), Offsets::relative(start), length, kind);
        }
    }

    fn lost_before(&mut self, gap: &Gap, silence: u64, is_timeout: bool, rtt: &PathRtt) {
        let losses = packets(gap.end - gap.start, self.counts.mss);
        self.counts.lost_before += losses;
        self.counts.add_loss(LossEvent { at: gap.at, losses, rtt: gap.rtt }, rtt.base(), self.limits.events);
        if is_timeout {
            self.counts.add_timeout(silence);
        }
        if let Some(round) = &mut self.round {
            round.resent = round.resent.saturating_add(losses as u32);
            round.timeout += if is_timeout { silence } else { 0 };
        }
        let length = (gap.end - gap.start) as u32;
        // The lost packets came soon after the packet before them.
        let lost_at = (gap.after + 1).min(gap.at);
        self.arrivals.push(Arrival::lost(lost_at, length, gap.after_timestamp), self.limits.arrivals);
    }

    fn sent_again(
        &mut self,
        packet: &DataPacket,
        start: u64,
        end: u64,
        silence: u64,
        is_timeout: bool,
        flags: &mut PacketFlags,
    ) {
        let count = packets(end - start, self.counts.mss);
        self.counts.resent += count;
        let is_older =
            packet.timestamp.zip(self.last_timestamp).is_some_and(|(own, last)| (own.wrapping_sub(last) as i32) < 0);
        if is_older {
            // The original arrives after its retransmission.
            self.counts.add_late(0);
            self.counts.spurious += count;
            self.counts.lost_before = self.counts.lost_before.saturating_sub(count);
            flags.insert(PacketFlag::OutOfOrder);
            return;
        }
        if end <= self.acknowledged {
            self.counts.spurious += count;
            flags.insert(PacketFlag::SpuriousRetransmission);
            return;
        }
        if is_timeout {
            self.counts.add_timeout(silence);
        }
        let resent = &mut self.repairs.resent;
        if resent.len() >= usize::from(self.limits.resent) {
            resent.pop_front();
        }
        resent.push_back(start..end);
        self.is_recovering = true;
        let (arrivals, limit) = (&mut self.arrivals, self.limits.arrivals);
        self.sent.resend(start, end, packet.captured_at, packet.payload, |run| {
            if run.resends > 0 && !run.is_reported {
                arrivals.push(Arrival::lost(run.resent_at, run.length() as u32, 0), limit);
            }
        });
        if let Some(round) = &mut self.round {
            round.resent = round.resent.saturating_add(count as u32);
            round.timeout += if is_timeout { silence } else { 0 };
        }
        let is_fast = self.duplicate_acks >= 2 && start == self.acknowledged;
        flags.insert(if is_fast { PacketFlag::FastRetransmission } else { PacketFlag::Retransmission });
    }

    /// Handles an acknowledgement of the receiver. `is_new_rtt` gets the time from the capture point to the receiver and
    /// back, if the packet shows one.
    pub(crate) fn acknowledge(
        &mut self,
        packet: &AckPacket<'_>,
        rtt: &PathRtt,
        mut sample: impl FnMut(u64, bool),
    ) -> PacketFlags {
        let mut flags = PacketFlags::default();
        let at = packet.at;
        self.start_at(packet.acknowledgement);
        self.advance(at, rtt);
        let acknowledged = self.offsets.of(packet.acknowledgement);
        self.windows.add(packet, self.counts.mss, &mut flags);
        self.note_sack(packet, acknowledged);
        if acknowledged > self.next {
            flags.insert(PacketFlag::AckLostSegment);
            let missing = acknowledged - self.next;
            // One byte is the FIN.
            if missing > 1 {
                self.counts.missed += missing;
                let (start, end) = (self.next, acknowledged);
                let gap = Gap { start, end, at, timestamp: None, ip_id: None, after: 0, rtt: 0, after_timestamp: 0 };
                self.repairs.missed.insert(gap, self.limits.gaps);
            }
            self.next = acknowledged;
        }
        if !self.repairs.gaps.is_empty() {
            self.counts.missed += self.repairs.gaps.acknowledge(acknowledged);
        }
        if acknowledged > self.acknowledged {
            self.duplicate_acks = 0;
            self.remove_acknowledged(packet, acknowledged, rtt, &mut sample);
            self.acknowledged_payload += acknowledged - self.acknowledged;
            self.acknowledged = acknowledged;
        } else if acknowledged == self.acknowledged
            && packet.payload == 0
            && !self.sent.is_empty()
            && !packet.is_control
        {
            self.duplicate_acks += 1;
            flags.insert(PacketFlag::DuplicateAck);
        }
        self.end_silence(at);
        if self.sent.is_empty() {
            if self.heard_all == 0 {
                self.heard_all = at;
            }
            if packet.payload > 0 && self.request.is_none() {
                self.request = Some(at);
            }
        }
        self.last_heard = at;
        self.is_at_sender = rtt.sender_min < rtt.base() / 10;
        self.pend(at + rtt.to_sender(), packet.window, packet.is_window_known);
        self.advance(at, rtt);
        let in_flight = self.in_flight();
        if let Some(series) = &mut self.series {
            let offset = Offsets::relative(self.acknowledged);
            series.add_acknowledgement(Instant::from_nanos(at), offset, packet.window, in_flight);
        }
        flags
    }

    /// Records a time in which several retransmissions had no answer.
    fn end_silence(&mut self, at: u64) {
        if self.counts.unanswered_timeouts == 0 {
            return;
        }
        if self.counts.unanswered_timeouts >= MIN_UNANSWERED {
            let start = self.last_heard.max(self.sent.front().map_or(0, |run| run.first_at));
            self.counts.add_outage(start, at);
        }
        self.counts.unanswered_timeouts = 0;
    }

    fn note_sack(&mut self, packet: &AckPacket<'_>, acknowledged: u64) {
        for (number, range) in packet.sack.iter().enumerate() {
            let (start, end) = (self.offsets.of(range.start), self.offsets.of(range.end));
            if start >= end || end > self.next {
                continue;
            }
            let within = |outer: &lfn_packet::SackRange, offsets: &mut Offsets| {
                offsets.of(outer.start) <= start && end <= offsets.of(outer.end)
            };
            let is_duplicate = number == 0
                && (end <= acknowledged || packet.sack.get(1).is_some_and(|outer| within(outer, &mut self.offsets)));
            if is_duplicate {
                let resent = self.repairs.resent.iter().position(|range| range.start < end && start < range.end);
                match resent {
                    Some(number) => {
                        self.repairs.resent.remove(number);
                        self.counts.duplicate_reports += 1;
                    }
                    None => self.counts.network_duplicates += 1,
                }
            } else {
                let (arrivals, limit) = (&mut self.arrivals, self.limits.arrivals);
                self.sent.sack(start, end, packet.at, |run| arrivals.push(run.passed(run.sacked_after), limit));
                self.highest_sacked = self.highest_sacked.max(end);
            }
        }
    }

    fn remove_acknowledged(
        &mut self,
        packet: &AckPacket<'_>,
        acknowledged: u64,
        rtt: &PathRtt,
        sample: &mut impl FnMut(u64, bool),
    ) {
        let at = packet.at;
        let highest_sacked = if self.is_recovering { 0 } else { self.highest_sacked };
        self.is_recovering &= acknowledged < self.highest_sacked;
        if self.sent.is_empty() {
            return;
        }
        let (counts, limits) = (&mut *self.counts, self.limits);
        let mut arrive = |arrival| self.arrivals.push(arrival, limits.arrivals);
        let mut newest = None;
        let mut is_clean = true;
        self.sent.acknowledge(acknowledged, |run| {
            if run.fills_gap {
                is_clean = false;
                if !run.is_reported {
                    arrive(run.passed(0));
                }
                return;
            }
            if run.resends == 0 {
                is_clean &= !run.is_sacked();
                // Later data arrived first, and nothing was sent again.
                if !run.is_sacked() && run.end < highest_sacked {
                    counts.overtaken += packets(run.length(), counts.mss);
                }
                newest = Some(run.last_at);
                // The size of the packets within a super-packet is unknown.
                if run.size <= counts.mss {
                    counts.passed_size = counts.passed_size.max(run.size);
                }
                if !run.is_reported {
                    // The acknowledgement of data behind a filled gap is late.
                    let rtt = if is_clean { micros(at.saturating_sub(run.last_at)).max(1) } else { 0 };
                    arrive(run.passed(rtt));
                }
                return;
            }
            is_clean = false;
            let since = at.saturating_sub(run.resent_at);
            let lost = packets(run.length(), counts.mss);
            // An acknowledgement that is too early for the retransmission is for the original.
            if since < rtt.receiver_min * 3 / 4 || is_at_receiver(rtt) {
                counts.spurious += lost;
                if !run.is_reported {
                    arrive(run.passed(0));
                }
                return;
            }
            // All retransmissions but the last one were lost too.
            counts.lost_after += lost * u64::from(run.resends);
            if run.resent_size <= counts.mss {
                counts.passed_size = counts.passed_size.max(run.resent_size);
            }
            counts.lost_size = counts.lost_size.max(run.size.min(counts.mss));
            let event = LossEvent { at: run.first_at, losses: lost, rtt: rtt.last() };
            counts.add_loss(event, rtt.base(), limits.events);
            if !run.is_reported {
                let length = run.length() as u32;
                arrive(Arrival::lost(run.first_at, length, run.timestamp));
                arrive(Arrival::passed(run.resent_at, length, 0, 0));
            }
        });
        if let Some(sent_at) = newest.filter(|_| is_clean) {
            let time = at.saturating_sub(sent_at);
            // A receiver acknowledges two full packets at once, and may delay the acknowledgement of one.
            sample(time, acknowledged - self.acknowledged >= 2 * u64::from(self.counts.mss));
            if let Some(round) = &mut self.round {
                let whole = time + rtt.sender_last;
                round.rtt = if round.rtt == 0 { whole } else { round.rtt.min(whole) };
            }
            if let Some(series) = &mut self.series {
                let whole = std::time::Duration::from_nanos(time + rtt.sender_last);
                series.add_rtt(Instant::from_nanos(at), whole);
            }
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

/// Returns true if the capture point is so near to the receiver that packets are not lost between both.
fn is_at_receiver(rtt: &PathRtt) -> bool {
    rtt.sender_min > 1_000_000 && rtt.receiver_min < rtt.sender_min / 20
}

/// Returns true if a packet that fills a gap is the original, which arrived late.
fn is_late(gap: &Gap, packet: &DataPacket, rtt: &PathRtt) -> bool {
    let age = packet.at.saturating_sub(gap.at);
    if let (Some(after), Some(own)) = (gap.timestamp, packet.timestamp) {
        let newer = own.wrapping_sub(after) as i32;
        // A retransmission cannot follow within a tick of the clock on a path that is longer.
        if newer != 0 || rtt.base() > MAX_TICK {
            return newer <= 0;
        }
    }
    let expected = rtt.base();
    age < if expected > 0 { (expected / 2).max(200_000) } else { MAX_REORDERING }
}

pub(super) fn packets(bytes: u64, mss: u32) -> u64 {
    bytes.div_ceil(u64::from(mss.max(1))).max(1)
}
