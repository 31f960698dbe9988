//! Counters of one direction.

use std::sync::LazyLock;

use super::packet::DataPacket;
use super::segment_sizes::SegmentSizes;
use crate::on_demand::Part;

/// MSS of a direction with super-packets only, bytes: that of Ethernet with timestamps.
const USUAL_MSS: u32 = 1448;
/// Payload above the MSS: the packet is several packets for the network card.
const SUPER_PACKET: u32 = 9000;

/// Losses within one RTT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LossEvent {
    pub(crate) at: u64,
    pub(crate) losses: u64,
    /// RTT before the first loss, nanoseconds.
    pub(crate) rtt: u64,
}

/// A time without packets, nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Silence {
    pub(crate) fn time(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(crate) fn longer(self, other: Silence) -> Silence {
        if other.time() > self.time() { other } else { self }
    }
}

/// Counters of one direction with data.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Payload, each byte once, that the capture has.
    pub(crate) payload: u64,
    /// Data packets of the capture.
    pub(crate) packets: u64,
    /// Data packets on the path: a super-packet is several.
    pub(crate) path_packets: u64,
    pub(crate) mss: u32,
    pub(crate) sizes: SegmentSizes,
    /// MSS of the handshake.
    pub(crate) mss_limit: Option<u32>,
    pub(crate) short_packets: u64,
    /// Packets of one MSS that end a write of the application (PSH).
    pushed_packets: u64,
    pub(crate) max_in_flight: u64,
    /// Nanoseconds with a closed window and no data in flight.
    pub(crate) closed_while_idle: u64,
    pub(crate) resent: u64,
    pub(crate) lost_before: u64,
    pub(crate) lost_after: u64,
    pub(crate) spurious: u64,
    pub(crate) missed: u64,
    pub(crate) late: u64,
    /// Packets that arrived after later ones, by the reports of the receiver.
    pub(crate) overtaken: u64,
    pub(crate) max_lateness: u64,
    /// Reports of duplicates that a retransmission made, and of others.
    pub(crate) duplicate_reports: u64,
    pub(crate) network_duplicates: u64,
    pub(crate) timeouts: u64,
    pub(crate) timeout: u64,
    /// Retransmissions after timeouts since the last packet of the receiver.
    pub(crate) unanswered_timeouts: u32,
    /// Longest time without an answer to several retransmissions.
    pub(crate) outage: Silence,
    /// Longest pause after which packets are missing.
    pub(crate) jump: Silence,
    /// Largest packets that passed, and that were lost.
    pub(crate) passed_size: u32,
    pub(crate) lost_size: u32,
    pub(crate) events: Vec<LossEvent>,
    pub(crate) event_count: u64,
}

impl Part for Counts {
    fn unchanged() -> &'static Self {
        static UNCHANGED: LazyLock<Counts> = LazyLock::new(Counts::default);
        &UNCHANGED
    }
}

impl Counts {
    pub(super) fn add_packet(&mut self, packet: &DataPacket) {
        self.packets += 1;
        let limit = self.mss_limit.unwrap_or(SUPER_PACKET);
        if packet.payload <= limit {
            self.sizes.add(packet.payload);
        } else {
            self.sizes.add_super_packet(packet.payload);
        }
        self.mss = match self.sizes.largest_usual().payload {
            0 => limit.min(USUAL_MSS),
            usual => usual,
        };
        self.path_packets += u64::from(packet.payload.div_ceil(self.mss.max(1)).max(1));
        self.short_packets += u64::from(packet.payload < self.mss);
        self.pushed_packets += u64::from(packet.payload == self.mss && packet.is_pushed);
    }

    /// Returns the share of the full packets that are single packets and end a write of the application.
    pub(crate) fn pushed_share(&self) -> f64 {
        let full = self.sizes.largest_usual().packets;
        (self.pushed_packets as f64 / f64::from(full.max(1))).min(1.0)
    }

    pub(super) fn add_outage(&mut self, start: u64, end: u64) {
        self.outage = self.outage.longer(Silence { start, end });
    }

    pub(super) fn add_jump(&mut self, start: u64, end: u64) {
        self.jump = self.jump.longer(Silence { start, end });
    }

    pub(super) fn add_late(&mut self, lateness: u64) {
        self.late += 1;
        self.max_lateness = self.max_lateness.max(lateness);
    }

    pub(super) fn add_timeout(&mut self, silence: u64) {
        self.timeouts += 1;
        self.timeout += silence;
    }

    /// Adds losses of packets. Losses within the base RTT are one event. With `limit` events, later ones are only counted.
    pub(super) fn add_loss(&mut self, event: LossEvent, base: u64, limit: u16) {
        let within = base.max(1_000_000);
        if let Some(last) = self.events.last_mut()
            && event.at.abs_diff(last.at) <= within
        {
            last.losses += event.losses;
            return;
        }
        self.event_count += 1;
        if self.events.len() < usize::from(limit) {
            self.events.push(event);
        }
    }
}
