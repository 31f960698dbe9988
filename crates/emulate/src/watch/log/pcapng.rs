//! Packet log as a capture file, in the pcapng blocks (draft-ietf-opsawg-pcapng) that tcpdump and Wireshark need.
//!
//! Each file belongs to one point: near or far, where packets cross between a side and the link, or the drops of the
//! link. In the file, each path has one interface. The kernel's frames are written unchanged, super-packets included, so the size of a capture follows the
//! traffic and not the number of packets. A range that the link cut out of a frame is a frame of its own. No crate is
//! used for the format, because these four blocks are smaller than the conversion to a crate's types.

use lfn_link::LinkDirection;

use super::encode::Encode;
use super::record::{CapturePoint, CapturedFrame, DropReason, FrameNote, LogStart, Record, SNAP_LENGTH, TapPoint};
use crate::data_path::UnmodelledDrop;

/// Encoder of captured frames.
pub(super) struct PcapngEncoder {
    start: LogStart,
    seed: u64,
    point: TapPoint,
    /// Frames captured on each path.
    seen: Vec<u64>,
    /// Time of the last captured frame, nanoseconds since 1970.
    last: u64,
}

/// Section header block (§4.1). It is always the first block.
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface description block (§4.2).
const INTERFACE: u32 = 1;
/// Interface statistics block (§4.6).
const STATISTICS: u32 = 5;
/// Enhanced packet block (§4.3).
const PACKET: u32 = 6;
/// Magic number that shows the byte order: little endian here, on any machine.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// Timestamps are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Option code that all blocks have.
const COMMENT: u16 = 1;
const END_OF_OPTIONS: u16 = 0;

impl PcapngEncoder {
    pub(super) fn new(start: LogStart, seed: u64, paths: usize, point: TapPoint) -> Self {
        PcapngEncoder { start, seed, point, seen: vec![0; paths], last: start.wall }
    }

    fn capture_points(&self) -> impl Iterator<Item = CapturePoint> + use<> {
        let point = self.point;
        (0..self.seen.len()).map(move |path| CapturePoint { path, point })
    }
}

impl Encode for PcapngEncoder {
    fn begin(&mut self, out: &mut Vec<u8>) {
        const APPLICATION: u16 = 4;
        let mut block = Block::begin(out, SECTION);
        block.u32(BYTE_ORDER);
        // Version 1.0. The length of the section is not known.
        block.u16(1);
        block.u16(0);
        block.u64(u64::MAX);
        block.option(APPLICATION, format!("lfn {}", env!("CARGO_PKG_VERSION")).as_bytes());
        block.option(COMMENT, format!("lfn emulate, seed {}", self.seed).as_bytes());
        block.end_with_options();
        for capture_point in self.capture_points() {
            interface(capture_point, out);
        }
    }

    fn accepts(&self, record: &Record) -> bool {
        matches!(record, Record::Frame(frame) if frame.capture_point.point == self.point)
    }

    fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        const FLAGS: u16 = 2;
        const PACKET_ID: u16 = 5;
        let Record::Frame(frame) = record else { return };
        let wall = self.start.wall(frame.at);
        self.last = self.last.max(wall);
        if let Some(seen) = self.seen.get_mut(frame.capture_point.path) {
            *seen += 1;
        }
        let mut block = Block::begin(out, PACKET);
        block.u32(frame.capture_point.path as u32);
        block.time(wall);
        block.u32(frame.captured as u32);
        block.u32(u32::try_from(frame.length).unwrap_or(u32::MAX));
        block.padded(&frame.bytes[..frame.captured]);
        if let Some(comment) = comment(frame.direction, &frame.note) {
            block.option(COMMENT, comment.as_bytes());
        }
        // The lowest two bits are 1 for inbound and 2 for outbound.
        block.option(FLAGS, &if frame.is_inbound { 1_u32 } else { 2 }.to_le_bytes());
        // The emulator's own packets appear at only one point.
        if frame.note.reply_mtu.is_none() {
            block.option(PACKET_ID, &packet_id(frame).to_le_bytes());
        }
        block.end_with_options();
    }

    fn end(&mut self, _written: u64, missed: &[u64], out: &mut Vec<u8>) {
        const RECEIVED: u16 = 4;
        const DROPPED: u16 = 5;
        for capture_point in self.capture_points() {
            let seen = self.seen.get(capture_point.path).copied().unwrap_or(0);
            let missed = missed.get(capture_point.index()).copied().unwrap_or(0);
            let mut block = Block::begin(out, STATISTICS);
            block.u32(capture_point.path as u32);
            block.time(self.last);
            block.option(RECEIVED, &(seen + missed).to_le_bytes());
            block.option(DROPPED, &missed.to_le_bytes());
            block.end_with_options();
        }
    }
}

fn interface(capture_point: CapturePoint, out: &mut Vec<u8>) {
    const NAME: u16 = 2;
    const DESCRIPTION: u16 = 3;
    const RESOLUTION: u16 = 9;
    let (name, description) = match capture_point.point {
        TapPoint::Near => ("near", "between the near side and the link"),
        TapPoint::Far => ("far", "between the link and the far side"),
        TapPoint::Dropped => ("dropped", "dropped packets; the comment gives the reason"),
    };
    // The same numbering as in the names of the path ends.
    let number = if capture_point.path == 0 { String::new() } else { capture_point.path.to_string() };
    let mut block = Block::begin(out, INTERFACE);
    block.u16(LINKTYPE_ETHERNET);
    block.u16(0);
    block.u32(SNAP_LENGTH as u32);
    block.option(NAME, format!("{name}{number}").as_bytes());
    block.option(DESCRIPTION, description.as_bytes());
    block.option(RESOLUTION, &[NANOSECONDS]);
    block.end_with_options();
}

/// Returns an id that is the same at every point where the frame, or a part of it, is captured (§4.3, `epb_packetid`).
fn packet_id(frame: &CapturedFrame) -> u64 {
    let direction = match frame.direction {
        LinkDirection::Forward => 0,
        LinkDirection::Return => 1,
    };
    (frame.capture_point.path as u64) << 49 | direction << 48 | frame.serial
}

/// Returns the comment of a frame.
fn comment(direction: LinkDirection, note: &FrameNote) -> Option<String> {
    let arrow = match direction {
        LinkDirection::Forward => "near to far",
        LinkDirection::Return => "far to near",
    };
    let drop = note.drop.map(|(reason, packets)| {
        let why = match reason {
            DropReason::Link(cause) => format!("dropped by the link: {}", cause.name()),
            DropReason::Emulator(UnmodelledDrop::RingFull) => "lost by the emulator: ring full".to_owned(),
            DropReason::Emulator(UnmodelledDrop::SendFailed) => "lost by the emulator: could not be sent".to_owned(),
        };
        let packets = if packets > 1 { format!(" ({packets} packets)") } else { String::new() };
        format!("{arrow}: {why}{packets}")
    });
    let changes = [
        (note.is_copy, "a copy made by the link"),
        (note.is_marked, "marked by the link: congestion experienced"),
        (note.is_corrupted, "corrupted by the link"),
    ];
    let changes = changes.into_iter().filter(|(is_set, _)| *is_set).map(|(_, text)| text.to_owned());
    let reply = note.reply_mtu.map(|mtu| format!("sent by the link: {arrow}, packet too big, MTU {mtu} bytes"));
    let all: Vec<String> = drop.into_iter().chain(reply).chain(changes).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A block: its type, its length, the body, and its length again. All parts are multiples of four bytes (§3.1).
struct Block<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    fn begin(out: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = out.len();
        let mut block = Block { out, start };
        block.u32(kind);
        block.u32(0);
        block
    }

    fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a timestamp. The upper half comes first in any byte order.
    fn time(&mut self, nanos: u64) {
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.extend_from_slice(&[0; 3][..padding]);
    }

    /// Writes an option (§3.5).
    fn option(&mut self, code: u16, value: &[u8]) {
        self.u16(code);
        self.u16(value.len() as u16);
        self.padded(value);
    }

    fn end_with_options(mut self) {
        self.u16(END_OF_OPTIONS);
        self.u16(0);
        let length = (self.out.len() - self.start + 4) as u32;
        self.u32(length);
        self.out[self.start + 4..self.start + 8].copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use lfn_link::DropCause;

    use super::*;

    #[test]
    fn comments_describe_drops_copies_and_replies() {
        assert_eq!(comment(LinkDirection::Forward, &FrameNote::default()), None);
        let dropped =
            FrameNote { drop: Some((DropReason::Link(DropCause::Queue), 3)), is_copy: true, ..FrameNote::default() };
        let text = comment(LinkDirection::Return, &dropped);
        assert_eq!(
            text.as_deref(),
            Some("far to near: dropped by the link: queue (3 packets); a copy made by the link")
        );
        let lost =
            FrameNote { drop: Some((DropReason::Emulator(UnmodelledDrop::RingFull), 1)), ..FrameNote::default() };
        let reply = FrameNote { reply_mtu: Some(1300), ..FrameNote::default() };
        assert_eq!(
            comment(LinkDirection::Return, &reply).as_deref(),
            Some("sent by the link: far to near, packet too big, MTU 1300 bytes")
        );
        assert_eq!(
            comment(LinkDirection::Forward, &lost).as_deref(),
            Some("near to far: lost by the emulator: ring full")
        );
    }

    #[test]
    fn blocks_are_padded_to_whole_words() {
        for length in 0..9 {
            let mut out = vec![0xff; length];
            let mut block = Block::begin(&mut out, PACKET);
            block.padded(&vec![1; length]);
            block.option(COMMENT, &vec![2; length]);
            block.end_with_options();
            let block = &out[length..];
            assert_eq!(block.len(), 8 + length.next_multiple_of(4) + 4 + length.next_multiple_of(4) + 4 + 4);
            assert_eq!(block[4..8], (block.len() as u32).to_le_bytes());
            assert_eq!(block[block.len() - 4..], block[4..8]);
        }
    }
}
