//! Acknowledgements of the receiver.

use lfn_base::time::Instant;

use super::arrivals::Arrival;
use super::counts::LossEvent;
use super::direction::{Half, packets};
use super::gaps::Gap;
use super::packet::{AckPacket, PathRtt};
use crate::flags::{PacketFlag, PacketFlags};
use crate::sequence::Offsets;

/// Retransmissions without an answer that are an outage.
pub(crate) const MIN_UNANSWERED: u32 = 2;

impl Half {
    /// Handles an acknowledgement of the receiver. `sample` gets the time from the capture point to the receiver and back,
    /// in nanoseconds, if the packet shows one, and whether two full packets or more are acknowledged at once.
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
        // Data that an earlier acknowledgement reported. The ranges of this one are behind the data that it acknowledges.
        let reported = self.highest_sacked;
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
            let repairs = &mut *self.repairs;
            repairs.gaps.acknowledge(acknowledged, |gap| {
                self.counts.missed += gap.end - gap.start;
                repairs.missed.insert(Gap { at, ..gap }, self.limits.gaps);
            });
        }
        if acknowledged > self.acknowledged {
            self.duplicate_acks = 0;
            self.remove_acknowledged(at, acknowledged, reported, rtt, &mut sample);
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

    /// Removes the data up to `acknowledged`. `reported` is the end of the data that earlier acknowledgements reported by SACK.
    fn remove_acknowledged(
        &mut self,
        at: u64,
        acknowledged: u64,
        reported: u64,
        rtt: &PathRtt,
        sample: &mut impl FnMut(u64, bool),
    ) {
        let reported = if self.acknowledged < self.recovery_point { 0 } else { reported };
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
                if !run.is_sacked() && run.end < reported {
                    counts.overtaken += packets(run.length(), counts.mss);
                }
                newest = (!run.is_part).then_some(run.last_at);
                // The size of the packets within a super-packet is unknown.
                if run.size <= counts.mss {
                    counts.passed_size = counts.passed_size.max(run.size);
                }
                if !run.is_reported {
                    // The acknowledgement of data behind a filled gap is late.
                    let rtt = if is_clean { run.age(at) } else { 0 };
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
}

/// Returns true if the capture point is so near to the receiver that packets are not lost between both.
fn is_at_receiver(rtt: &PathRtt) -> bool {
    rtt.sender_min > 1_000_000 && rtt.receiver_min < rtt.sender_min / 20
}
