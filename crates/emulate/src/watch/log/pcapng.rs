//! Packet log as a capture file, see [`lfn_packet::pcapng`].
//!
//! Each file belongs to one point: near or far, where packets cross between a side and the link, or the drops of the
//! link. In the file, each path has one interface. The kernel's frames are written unchanged, super-packets included,
//! so the size of a capture follows the traffic and not the number of packets. A range that the link cut out of a frame
//! is a frame of its own.

use lfn_link::LinkDirection;
use lfn_packet::pcapng::{self, CapturedPacket};

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
        let application = format!("lfn {}", env!("CARGO_PKG_VERSION"));
        pcapng::write_section(&application, &format!("lfn emulate, seed {}", self.seed), out);
        for capture_point in self.capture_points() {
            interface(capture_point, out);
        }
    }

    fn accepts(&self, record: &Record) -> bool {
        matches!(record, Record::Frame(frame) if frame.capture_point.point == self.point)
    }

    fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        let Record::Frame(frame) = record else { return };
        let wall = self.start.wall(frame.at);
        self.last = self.last.max(wall);
        if let Some(seen) = self.seen.get_mut(frame.capture_point.path) {
            *seen += 1;
        }
        let comment = comment(frame.direction, &frame.note);
        let packet = CapturedPacket {
            interface: frame.capture_point.path as u32,
            time: wall,
            bytes: &frame.bytes[..frame.captured],
            length: u32::try_from(frame.length).unwrap_or(u32::MAX),
            is_inbound: frame.is_inbound,
            // The emulator's own packets appear at only one point.
            id: frame.note.reply_mtu.is_none().then(|| packet_id(frame)),
            comment: comment.as_deref(),
        };
        pcapng::write_packet(&packet, out);
    }

    fn end(&mut self, _written: u64, missed: &[u64], out: &mut Vec<u8>) {
        for capture_point in self.capture_points() {
            let seen = self.seen.get(capture_point.path).copied().unwrap_or(0);
            let missed = missed.get(capture_point.index()).copied().unwrap_or(0);
            pcapng::write_statistics(capture_point.path as u32, self.last, seen + missed, missed, out);
        }
    }
}

fn interface(capture_point: CapturePoint, out: &mut Vec<u8>) {
    let (name, description) = match capture_point.point {
        TapPoint::Near => ("near", "between the near side and the link"),
        TapPoint::Far => ("far", "between the link and the far side"),
        TapPoint::Dropped => ("dropped", "dropped packets; the comment gives the reason"),
    };
    // The same numbering as in the names of the path ends.
    let number = if capture_point.path == 0 { String::new() } else { capture_point.path.to_string() };
    pcapng::write_interface(&format!("{name}{number}"), description, SNAP_LENGTH as u32, out);
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
}
