//! The log as a capture: the blocks of pcapng (draft-ietf-opsawg-pcapng) that tcpdump and Wireshark need.
//!
//! Each path has three interfaces: near and far, where packets cross between a side and the link, and one for what goes
//! no further. Frames are written as the kernel had them, super-packets whole, so that a capture is of the size of the
//! traffic and not of its packets; a range that was cut out leaves as what it was cut to. There are crates for the
//! format; the four blocks needed are smaller than what would have to be converted for them.

use lfn_core::link::Direction;

use super::Encode;
use super::record::{Gone, Note, POINTS, Place, Point, Record, SNAP, Sight, Zero};
use crate::emulator::data_path::Unforeseen;

/// Writes sights.
pub(super) struct Capture {
    zero: Zero,
    seed: u64,
    paths: usize,
    /// Frames seen at each place.
    seen: Vec<u64>,
    /// When the last of them was, nanoseconds since 1970.
    last: u64,
}

/// Section header block, §4.1: always the first.
const SECTION: u32 = 0x0a0d_0d0a;
/// Interface description block, §4.2.
const INTERFACE: u32 = 1;
/// Interface statistics block, §4.6.
const STATISTICS: u32 = 5;
/// Enhanced packet block, §4.3.
const PACKET: u32 = 6;
/// Tells the reader which byte order it is: little endian here, on any machine.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// Time stamps are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Options of any block.
const COMMENT: u16 = 1;
const END_OF_OPTIONS: u16 = 0;

impl Capture {
    pub(super) fn new(zero: Zero, seed: u64, paths: usize) -> Self {
        Capture { zero, seed, paths, seen: vec![0; paths * POINTS], last: zero.wall }
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        (0..self.paths).flat_map(|path| Point::ALL.map(|point| Place { path, point }))
    }
}

impl Encode for Capture {
    fn begin(&mut self, out: &mut Vec<u8>) {
        const APPLICATION: u16 = 4;
        let mut block = Block::begin(out, SECTION);
        block.u32(BYTE_ORDER);
        // Version 1.0; the length of the section is not known.
        block.u16(1);
        block.u16(0);
        block.u64(u64::MAX);
        block.option(APPLICATION, format!("lfn {}", env!("CARGO_PKG_VERSION")).as_bytes());
        block.option(COMMENT, format!("lfn emulate, seed {}", self.seed).as_bytes());
        block.end_with_options();
        for place in self.places() {
            interface(place, out);
        }
    }

    fn record(&mut self, record: &Record, out: &mut Vec<u8>) {
        const FLAGS: u16 = 2;
        const PACKET_ID: u16 = 5;
        let Record::Sight(sight) = record else { return };
        let wall = self.zero.wall(sight.at);
        self.last = self.last.max(wall);
        if let Some(seen) = self.seen.get_mut(sight.place.index()) {
            *seen += 1;
        }
        let mut block = Block::begin(out, PACKET);
        block.u32(sight.place.index() as u32);
        block.time(wall);
        block.u32(sight.kept as u32);
        block.u32(u32::try_from(sight.length).unwrap_or(u32::MAX));
        block.padded(&sight.bytes[..sight.kept]);
        if let Some(comment) = comment(sight.direction, &sight.note) {
            block.option(COMMENT, comment.as_bytes());
        }
        // Inbound is 1, outbound 2, in the lowest two bits.
        block.option(FLAGS, &if sight.inbound { 1_u32 } else { 2 }.to_le_bytes());
        // The emulator's own packets are seen here and nowhere else.
        if sight.note.answer.is_none() {
            block.option(PACKET_ID, &packet_id(sight).to_le_bytes());
        }
        block.end_with_options();
    }

    fn end(&mut self, _written: u64, missed: &[u64], out: &mut Vec<u8>) {
        const RECEIVED: u16 = 4;
        const DROPPED: u16 = 5;
        for place in self.places() {
            let of = |counts: &[u64]| counts.get(place.index()).copied().unwrap_or(0);
            let mut block = Block::begin(out, STATISTICS);
            block.u32(place.index() as u32);
            block.time(self.last);
            block.option(RECEIVED, &(of(&self.seen) + of(missed)).to_le_bytes());
            block.option(DROPPED, &of(missed).to_le_bytes());
            block.end_with_options();
        }
    }
}

fn interface(place: Place, out: &mut Vec<u8>) {
    const NAME: u16 = 2;
    const DESCRIPTION: u16 = 3;
    const RESOLUTION: u16 = 9;
    let (name, description) = match place.point {
        Point::Near => ("near", "between the near side and the link"),
        Point::Far => ("far", "between the link and the far side"),
        Point::Dropped => ("dropped", "what goes no further; the comment says why"),
    };
    // As the ends themselves are called.
    let number = if place.path == 0 { String::new() } else { place.path.to_string() };
    let mut block = Block::begin(out, INTERFACE);
    block.u16(LINKTYPE_ETHERNET);
    block.u16(0);
    block.u32(SNAP as u32);
    block.option(NAME, format!("{name}{number}").as_bytes());
    block.option(DESCRIPTION, description.as_bytes());
    block.option(RESOLUTION, &[NANOSECONDS]);
    block.end_with_options();
}

/// The same wherever the frame, or a part of it, is seen (§4.3, `epb_packetid`).
fn packet_id(sight: &Sight) -> u64 {
    let direction = match sight.direction {
        Direction::Forward => 0,
        Direction::Return => 1,
    };
    (sight.place.path as u64) << 49 | direction << 48 | sight.serial
}

/// What is to be said of it in words.
fn comment(direction: Direction, note: &Note) -> Option<String> {
    let arrow = match direction {
        Direction::Forward => "near to far",
        Direction::Return => "far to near",
    };
    let gone = note.gone.map(|(gone, packets)| {
        let why = match gone {
            Gone::Dropped(cause) => format!("dropped by the link: {}", cause.word()),
            Gone::Lost(Unforeseen::NoRoom) => "lost by the emulator: no room".to_owned(),
            Gone::Lost(Unforeseen::SendFailed) => "lost by the emulator: could not be sent".to_owned(),
        };
        let packets = if packets > 1 { format!(" ({packets} packets)") } else { String::new() };
        format!("{arrow}: {why}{packets}")
    });
    let changes = [
        (note.is_copy, "a copy made by the link"),
        (note.marked, "marked by the link: congestion experienced"),
        (note.damaged, "damaged by the link"),
    ];
    let changes = changes.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what.to_owned());
    let answer = note.answer.map(|mtu| format!("sent by the link: {arrow}, a packet was too big, {mtu} bytes pass"));
    let all: Vec<String> = gone.into_iter().chain(answer).chain(changes).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// One block: its type, its length twice, and what is between, in multiples of four bytes (§3.1).
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

    /// A time stamp: the upper half comes first, whatever the byte order.
    fn time(&mut self, nanos: u64) {
        self.u32((nanos >> 32) as u32);
        self.u32(nanos as u32);
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.out.extend_from_slice(&[0; 3][..padding]);
    }

    /// §3.5.
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
    use lfn_core::link::DropCause;

    use super::*;

    #[test]
    fn what_befell_a_frame_is_said_in_words() {
        assert_eq!(comment(Direction::Forward, &Note::default()), None);
        let dropped = Note { gone: Some((Gone::Dropped(DropCause::Queue), 3)), is_copy: true, ..Note::default() };
        let said = comment(Direction::Return, &dropped);
        assert_eq!(
            said.as_deref(),
            Some("far to near: dropped by the link: queue (3 packets); a copy made by the link")
        );
        let lost = Note { gone: Some((Gone::Lost(Unforeseen::NoRoom), 1)), ..Note::default() };
        let answer = Note { answer: Some(1300), ..Note::default() };
        assert_eq!(
            comment(Direction::Return, &answer).as_deref(),
            Some("sent by the link: far to near, a packet was too big, 1300 bytes pass")
        );
        assert_eq!(comment(Direction::Forward, &lost).as_deref(), Some("near to far: lost by the emulator: no room"));
    }

    #[test]
    fn blocks_are_of_whole_words_whatever_is_in_them() {
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
