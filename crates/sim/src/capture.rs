//! Segments of a transfer, as a packet capture at one end shows them.

use core::net::{IpAddr, Ipv4Addr};

use lfn_base::time::Instant;
use lfn_link::{Ecn, Packet};
use lfn_packet::{MAX_SACK_RANGES, SackRange, TcpEndpoint, TcpFlags, TcpOptions, TcpSegment, Timestamps};

use super::tcp::{Ack, Reply, ReplyKind, Segment, SegmentKind, TcpSettings};

/// End of a transfer at which the packets are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferEnd {
    Sender,
    Receiver,
}

/// A captured segment and the time when it passed the capture point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedSegment {
    pub at: Instant,
    pub segment: TcpSegment,
}

/// Converts the packets of the model to TCP segments, and keeps them until they are taken.
#[derive(Debug)]
pub(crate) struct Capture {
    settings: TcpSettings,
    streams: Vec<CapturedStream>,
    segments: Vec<CapturedSegment>,
}

/// State of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct CapturedStream {
    /// Number and payload of the one segment that is shorter than the others.
    short: Option<(u64, u32)>,
}

const RECEIVER_PORT: u16 = 5001;
const FIRST_SENDER_PORT: u16 = 40_000;
/// Initial sequence numbers. The sender's is near the end of the range, so that long transfers wrap.
const SENDER_ISN: u32 = 0xfff0_0000;
const RECEIVER_ISN: u32 = 0x1000_0000;
const WINDOW_SCALE: u8 = 14;

impl Capture {
    pub(crate) fn new(settings: TcpSettings, streams: u32) -> Self {
        Capture { settings, streams: vec![CapturedStream::default(); streams as usize], segments: Vec::new() }
    }

    pub(crate) fn take(&mut self) -> Vec<CapturedSegment> {
        std::mem::take(&mut self.segments)
    }

    /// Adds a packet of the sender. A packet of several segments becomes several captured segments.
    pub(crate) fn add_segment(&mut self, packet: &Packet, segment: &Segment, at: Instant) {
        let (source, destination) = (sender_endpoint(segment.stream), RECEIVER);
        let timestamps = timestamps(segment.sent, segment.echo);
        match segment.kind {
            SegmentKind::Syn => {
                let mut flags = TcpFlags::SYN.0;
                if self.settings.ecn {
                    flags |= TcpFlags::ECE.0 | TcpFlags::CWR.0;
                }
                let options = TcpOptions { timestamps, ..self.syn_options() };
                let syn = TcpSegment {
                    sequence: SENDER_ISN,
                    ip_id: Some(segment.ip_id),
                    flags: TcpFlags(flags),
                    ..self.empty_segment(source, destination, options)
                };
                self.segments.push(CapturedSegment { at, segment: syn });
            }
            SegmentKind::Data { first, reduced } => {
                for index in packet.first..packet.first + packet.count {
                    let number = first + u64::from(index);
                    let is_last = index + 1 == packet.first + packet.count;
                    let length = if is_last { packet.last_wire_len } else { packet.wire_len };
                    let payload = length.saturating_sub(self.settings.headers);
                    if payload < self.settings.mss
                        && let Some(stream) = self.streams.get_mut(segment.stream as usize)
                    {
                        stream.short = Some((number, payload));
                    }
                    let flags = TcpFlags::ACK.0 | if reduced { TcpFlags::CWR.0 } else { 0 };
                    let options = TcpOptions { timestamps, ..TcpOptions::default() };
                    let data = TcpSegment {
                        sequence: self.sequence(segment.stream, number),
                        // Identifications wrap.
                        ip_id: Some(segment.ip_id.wrapping_add(index as u16)),
                        acknowledgement: RECEIVER_ISN.wrapping_add(1),
                        flags: TcpFlags(flags),
                        payload,
                        ecn: ecn_field(packet),
                        ..self.empty_segment(source, destination, options)
                    };
                    self.segments.push(CapturedSegment { at, segment: data });
                }
            }
        }
    }

    /// Adds a packet of the receiver. A packet of several acknowledgements becomes several captured segments.
    pub(crate) fn add_reply(&mut self, packet: &Packet, reply: &Reply, at: Instant) {
        let (source, destination) = (RECEIVER, sender_endpoint(reply.stream));
        let timestamps = timestamps(reply.sent, reply.echo);
        match reply.kind {
            ReplyKind::SynAck => {
                let flags = TcpFlags::SYN.0 | TcpFlags::ACK.0 | if self.settings.ecn { TcpFlags::ECE.0 } else { 0 };
                let options = TcpOptions { timestamps, ..self.syn_options() };
                let answer = TcpSegment {
                    sequence: RECEIVER_ISN,
                    ip_id: Some(reply.ip_id),
                    acknowledgement: SENDER_ISN.wrapping_add(1),
                    flags: TcpFlags(flags),
                    ..self.empty_segment(source, destination, options)
                };
                self.segments.push(CapturedSegment { at, segment: answer });
            }
            ReplyKind::Ack(ack) => {
                for index in packet.first..packet.first + packet.count {
                    let ack = ack.at(index);
                    let flags = TcpFlags::ACK.0 | if ack.congestion { TcpFlags::ECE.0 } else { 0 };
                    let mut options = TcpOptions { timestamps, ..TcpOptions::default() };
                    self.write_ranges(reply.stream, &ack, &mut options);
                    let window = self.settings.window.0 >> WINDOW_SCALE;
                    let acknowledgement = TcpSegment {
                        sequence: RECEIVER_ISN.wrapping_add(1),
                        ip_id: Some(reply.ip_id.wrapping_add(index as u16)),
                        acknowledgement: self.sequence(reply.stream, ack.next),
                        flags: TcpFlags(flags),
                        window: u16::try_from(window).unwrap_or(u16::MAX),
                        ..self.empty_segment(source, destination, options)
                    };
                    self.segments.push(CapturedSegment { at, segment: acknowledgement });
                }
            }
        }
    }

    /// Writes the SACK option: the duplicate first (RFC 2883), then the ranges that arrived after a hole.
    fn write_ranges(&self, stream: u32, ack: &Ack, options: &mut TcpOptions) {
        let arrived = ack.blocks.into_iter().filter(|(from, to)| from < to);
        let ranges = ack.duplicate.into_iter().chain(arrived).take(MAX_SACK_RANGES);
        for (slot, (from, to)) in options.sack.iter_mut().zip(ranges) {
            *slot = SackRange { start: self.sequence(stream, from), end: self.sequence(stream, to) };
            options.sack_ranges += 1;
        }
    }

    fn syn_options(&self) -> TcpOptions {
        TcpOptions {
            mss: u16::try_from(self.settings.mss + TIMESTAMPS_LENGTH).ok(),
            window_scale: Some(WINDOW_SCALE),
            sack_permitted: true,
            ..TcpOptions::default()
        }
    }

    fn empty_segment(&self, source: TcpEndpoint, destination: TcpEndpoint, options: TcpOptions) -> TcpSegment {
        TcpSegment {
            source,
            destination,
            ip_id: None,
            ttl: 64,
            ecn: 0,
            sequence: 0,
            acknowledgement: 0,
            flags: TcpFlags::default(),
            window: u16::MAX,
            payload: 0,
            options,
        }
    }

    /// Returns the sequence number of the first byte of a segment.
    fn sequence(&self, stream: u32, number: u64) -> u32 {
        let mss = u64::from(self.settings.mss);
        let short = self.streams.get(stream as usize).and_then(|stream| stream.short);
        let missing = match short {
            Some((short, payload)) if number > short => mss - u64::from(payload),
            _ => 0,
        };
        // Sequence numbers wrap.
        SENDER_ISN.wrapping_add(1).wrapping_add((number * mss - missing) as u32)
    }
}

/// Length of the timestamps option with its padding, which the MSS of the handshake does not count.
const TIMESTAMPS_LENGTH: u32 = 12;

const RECEIVER: TcpEndpoint = TcpEndpoint { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), port: RECEIVER_PORT };

fn sender_endpoint(stream: u32) -> TcpEndpoint {
    // A transfer has at most 1,024 streams.
    TcpEndpoint { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), port: FIRST_SENDER_PORT.wrapping_add(stream as u16) }
}

/// Returns the option with clocks of milliseconds, as Linux has them.
fn timestamps(value: Instant, echo: Instant) -> Option<Timestamps> {
    // The clock of the kernel wraps too.
    let clock = |at: Instant| (at.as_nanos() / 1_000_000 + 1) as u32;
    Some(Timestamps { value: clock(value), echo: clock(echo) })
}

/// Returns the ECN field of the IP header (RFC 3168 §5).
fn ecn_field(packet: &Packet) -> u8 {
    match packet.ecn {
        _ if packet.changes.is_marked => 3,
        Ecn::NotCapable => 0,
        Ecn::Capable => 2,
        Ecn::Congested => 3,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::{BitRate, Bytes};
    use lfn_link::{LinkConfig, LinkDirection, Policer};

    use super::*;
    use crate::transfer::{Transfer, TransferLoad, TransferOutcome, TransferReport};

    const SIZE: u64 = 3_000_001;

    /// Runs a transfer through a policer, and returns the captured segments and the figures.
    fn captured(end: TransferEnd) -> (Vec<CapturedSegment>, TransferReport) {
        let forward = LinkConfig {
            rate: BitRate(100_000_000).into(),
            delay: Duration::from_millis(20).into(),
            queue: Bytes(1_000_000).into(),
            policer: Some(Policer { rate: BitRate(10_000_000), burst: Bytes(60_000) }),
            ..LinkConfig::default()
        };
        let back = LinkConfig { direction: LinkDirection::Return, policer: None, ..forward.clone() };
        let load = TransferLoad { size: Bytes(SIZE), streams: 1, settings: TcpSettings::default() };
        let mut transfer = Transfer::new(load, Duration::from_millis(40), &[forward], &[back]).unwrap();
        transfer.capture_at(end);
        assert_eq!(transfer.advance(u64::MAX), Some(TransferOutcome::Complete));
        (transfer.take_captured(), transfer.report())
    }

    fn data(segments: &[CapturedSegment]) -> Vec<&TcpSegment> {
        segments.iter().map(|captured| &captured.segment).filter(|segment| segment.payload > 0).collect()
    }

    #[test]
    fn sender_capture_has_all_bytes_and_retransmissions() {
        let (segments, report) = captured(TransferEnd::Sender);
        let data = data(&segments);
        let mut first_time = std::collections::BTreeMap::new();
        for segment in &data {
            first_time.insert(segment.sequence.wrapping_sub(SENDER_ISN), u64::from(segment.payload));
        }
        assert_eq!(first_time.values().sum::<u64>(), SIZE);
        assert_eq!((data.len() - first_time.len()) as u64, report.senders.retransmitted);
        assert!(report.senders.retransmitted > 50, "{report:?}");
    }

    #[test]
    fn receiver_capture_lacks_the_dropped_segments() {
        let (at_sender, report) = captured(TransferEnd::Sender);
        let (at_receiver, _) = captured(TransferEnd::Receiver);
        let lost = data(&at_sender).len() - data(&at_receiver).len();
        assert_eq!(lost as u64, report.links[0].dropped.total().packets);
    }

    #[test]
    fn capture_times_never_step_back() {
        for end in [TransferEnd::Sender, TransferEnd::Receiver] {
            let (segments, _) = captured(end);
            assert!(segments.is_sorted_by_key(|captured| captured.at));
        }
    }
}
