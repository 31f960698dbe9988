//! Bytes that are sent again, and bytes that fill a gap.

use lfn_base::time::Instant;

use super::arrivals::Arrival;
use super::counts::LossEvent;
use super::direction::{Half, packets};
use super::gaps::Gap;
use super::packet::{DataPacket, PathRtt};
use super::sent::Run;
use crate::flags::{PacketFlag, PacketFlags};
use crate::sequence::Offsets;
use crate::series::SentKind;

/// Minimum silence before a retransmission after a timeout: the minimum of Linux, without its jitter.
pub(super) const MIN_TIMEOUT: u64 = 190_000_000;
/// Tick of the timestamps of common kernels, with a margin.
const MAX_TICK: u64 = 20_000_000;
/// A filled gap without timestamps and without an RTT is reordering up to this age.
const MAX_REORDERING: u64 = 3_000_000;

impl Half {
    /// Handles bytes below the end of the sent data.
    pub(super) fn old_data(
        &mut self,
        packet: &DataPacket,
        start: u64,
        end: u64,
        rtt: &PathRtt,
        flags: &mut PacketFlags,
    ) {
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
        self.recovery_point = self.next;
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
