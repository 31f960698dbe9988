//! Crafted connections, as a capture at a chosen place shows them.

use core::net::{IpAddr, Ipv4Addr};

use lfn_base::time::Instant;
use lfn_packet::{MAX_SACK_RANGES, SackRange, TcpEndpoint, TcpFlags, TcpOptions, TcpSegment, Timestamps};
use lfn_results::evidence::capture::CaptureEvidence;
use lfn_trace::{Analysis, AnalysisOptions, Finished, PacketFlag, PacketFlags};

pub const MS: u64 = 1_000_000;
/// RTT between both ends.
pub const RTT: u64 = 50 * MS;
/// Payload of a full packet.
pub const MSS: u32 = 1000;
/// Time of the first data after the handshake.
pub const START: u64 = 100 * MS;
/// Time between the packets of a round trip.
pub const GAP: u64 = MS / 10;
/// Time of the first packet, since 1970.
const EPOCH: u64 = 1_700_000_000_000_000_000;
const RECEIVER_ISN: u32 = 77;

/// A captured packet; its time counts from the start of the capture.
#[derive(Clone, Copy)]
pub struct Captured {
    pub at: u64,
    pub segment: TcpSegment,
}

/// A connection whose first end sends data to the second end.
pub struct Flow {
    /// Times from the capture point to both ends and back.
    pub sender_rtt: u64,
    pub receiver_rtt: u64,
    isn: u32,
    packets: Vec<Captured>,
    /// Bytes that the receiver has sent.
    requested: u32,
}

/// Result of the analysis of one flow.
pub struct Analyzed {
    pub finished: Finished,
    flags: Vec<PacketFlags>,
}

impl Analyzed {
    /// Returns the evidence of the only connection.
    pub fn evidence(&self) -> &CaptureEvidence {
        assert_eq!(self.finished.connections.len(), 1);
        &self.finished.connections[0].evidence
    }

    pub fn count(&self, flag: PacketFlag) -> usize {
        self.flags.iter().filter(|flags| flags.contains(flag)).count()
    }
}

pub fn endpoint(number: u8, port: u16) -> TcpEndpoint {
    TcpEndpoint { address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)), port }
}

pub fn segment(flags: TcpFlags) -> TcpSegment {
    TcpSegment {
        source: endpoint(1, 40_000),
        destination: endpoint(2, 5001),
        ip_id: None,
        ttl: 64,
        ecn: 0,
        sequence: 0,
        acknowledgement: 0,
        flags,
        window: 60_000,
        payload: 0,
        options: TcpOptions::default(),
    }
}

/// Returns the time of a packet since 1970.
pub fn instant(at: u64) -> Instant {
    Instant::from_nanos(EPOCH + at)
}

/// Analyzes packets in this order.
pub fn analyze(packets: &[Captured]) -> Analyzed {
    let mut analysis = Analysis::new(AnalysisOptions::default());
    let flags = packets.iter().map(|packet| analysis.add(instant(packet.at), &packet.segment)).collect();
    Analyzed { finished: analysis.finish(), flags }
}

pub fn sack(options: &mut TcpOptions, ranges: &[SackRange]) {
    let mut sack = [SackRange::default(); MAX_SACK_RANGES];
    sack[..ranges.len()].copy_from_slice(ranges);
    (options.sack, options.sack_ranges) = (sack, ranges.len() as u8);
}

pub fn timestamps(segment: &mut TcpSegment, value: u32) {
    segment.options.timestamps = Some(Timestamps { value, echo: 0 });
}

impl Flow {
    /// Creates a flow that is captured at the sender.
    pub fn at_sender() -> Self {
        Flow::with_handshake(0, RTT)
    }

    /// Creates a flow that is captured at the receiver.
    pub fn at_receiver() -> Self {
        Flow::with_handshake(RTT - MS / 2, MS / 2)
    }

    pub fn with_handshake(sender_rtt: u64, receiver_rtt: u64) -> Self {
        let mut flow = Flow::without_handshake(sender_rtt, receiver_rtt, 1000);
        flow.handshake(0);
        flow
    }

    /// Creates a flow whose handshake the capture lacks. The first byte follows the sequence number `isn`.
    pub fn without_handshake(sender_rtt: u64, receiver_rtt: u64, isn: u32) -> Self {
        Flow { sender_rtt, receiver_rtt, isn, packets: Vec::new(), requested: 0 }
    }

    pub fn handshake(&mut self, at: u64) {
        let options =
            TcpOptions { mss: Some(MSS as u16), window_scale: Some(7), sack_permitted: true, ..TcpOptions::default() };
        let syn = TcpSegment { sequence: self.isn, options, ..segment(TcpFlags::SYN) };
        self.push(at, syn);
        let answer = TcpSegment {
            sequence: RECEIVER_ISN,
            acknowledgement: self.isn.wrapping_add(1),
            options,
            ..segment(TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0))
        };
        self.push(at + self.receiver_rtt, answer);
        self.reverse();
        let established = TcpSegment {
            sequence: self.isn.wrapping_add(1),
            acknowledgement: RECEIVER_ISN + 1,
            ..segment(TcpFlags::ACK)
        };
        self.push(at + self.receiver_rtt + self.sender_rtt, established);
    }

    fn push(&mut self, at: u64, segment: TcpSegment) -> &mut TcpSegment {
        self.packets.push(Captured { at, segment });
        &mut self.packets.last_mut().unwrap().segment
    }

    /// Lets the last packet come from the receiver.
    fn reverse(&mut self) -> &mut TcpSegment {
        let segment = self.last();
        std::mem::swap(&mut segment.source, &mut segment.destination);
        segment
    }

    /// Returns the packet that was added last.
    pub fn last(&mut self) -> &mut TcpSegment {
        &mut self.packets.last_mut().unwrap().segment
    }

    /// Returns the sequence number of a byte of the stream.
    pub fn sequence(&self, offset: u32) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset)
    }

    /// Adds a packet of the sender.
    pub fn data(&mut self, at: u64, offset: u32, payload: u32) -> &mut TcpSegment {
        let (sequence, acknowledgement) = (self.sequence(offset), RECEIVER_ISN + 1 + self.requested);
        self.push(at, TcpSegment { sequence, acknowledgement, payload, ..segment(TcpFlags::ACK) })
    }

    /// Adds an acknowledgement of all data before `offset`.
    pub fn ack(&mut self, at: u64, offset: u32) -> &mut TcpSegment {
        let (sequence, acknowledgement) = (RECEIVER_ISN + 1 + self.requested, self.sequence(offset));
        self.push(at, TcpSegment { sequence, acknowledgement, ..segment(TcpFlags::ACK) });
        self.reverse()
    }

    /// Adds a request of the receiver, which acknowledges all data before `offset`.
    pub fn request(&mut self, at: u64, offset: u32) {
        self.ack(at, offset).payload = 100;
        self.requested += 100;
    }

    /// Sends packets with these numbers from `at` on; each of them is acknowledged.
    pub fn send(&mut self, at: u64, numbers: std::ops::Range<u32>) {
        let first = numbers.start;
        for number in numbers {
            let at = at + u64::from(number - first) * GAP;
            self.data(at, number * MSS, MSS);
            self.ack(at + self.receiver_rtt, (number + 1) * MSS);
        }
    }

    /// Sends round trips of 20 packets, from the packet `first` on, and returns the time of the next round trip.
    pub fn rounds(&mut self, at: u64, first: u32, count: u32) -> u64 {
        for round in 0..count {
            let number = first + round * 20;
            self.send(at + u64::from(round) * RTT, number..number + 20);
        }
        at + u64::from(count) * RTT
    }

    /// Sends 20 packets from the packet `first` on. The tenth of them is not acknowledged at first.
    pub fn round_with_gap(&mut self, at: u64, first: u32, is_captured: bool) {
        let lost = first + 10;
        for number in first..first + 20 {
            let at = at + u64::from(number - first) * GAP;
            if number != lost || is_captured {
                self.data(at, number * MSS, MSS);
            }
            if number != lost {
                self.ack(at + self.receiver_rtt, lost.min(number + 1) * MSS);
            }
        }
    }

    /// Returns the packets in the order of their times, with IP identifications that count up.
    pub fn sorted(mut self) -> Vec<Captured> {
        self.packets.sort_by_key(|packet| packet.at);
        let mut ids = [0; 2];
        for Captured { segment, .. } in &mut self.packets {
            let id = &mut ids[usize::from(segment.source.port == 5001)];
            *id += 1;
            segment.ip_id = segment.ip_id.or(Some(*id));
        }
        self.packets
    }

    pub fn analyze(self) -> Analyzed {
        analyze(&self.sorted())
    }
}
