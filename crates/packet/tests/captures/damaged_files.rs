//! Empty, truncated, endless and hostile files.

use std::io::{self, Read};

use lfn_packet::capture::{
    CaptureError, Compression, DamageReason, MAX_BLOCK, MAX_BYTES_WITHOUT_PACKET, MAX_INTERFACES,
};

use crate::files::{Contents, MICROSECONDS, ORDERS, Order, PcapFile, PcapngFile, read_all};

fn damage(contents: &Contents) -> Option<DamageReason> {
    match contents.error {
        Some(CaptureError::Damaged { reason, .. }) => Some(reason),
        _ => None,
    }
}

#[test]
fn files_that_are_no_captures_are_named() {
    assert_eq!(read_all(&b""[..]).message(), "the file is empty");
    for bytes in [&b"a"[..], b"abc", b"<html><body>", &[0; 100], &[0xff; 100], b"\x0a\x0d\x0d\x0a\x1c\0\0\0abcd"] {
        let contents = read_all(bytes);
        assert!(matches!(contents.error, Some(CaptureError::NotACapture { .. })), "{}", contents.message());
    }
    let gzip = read_all(&b"\x1f\x8b\x08\0\0\0\0\0"[..]);
    assert!(matches!(gzip.error, Some(CaptureError::Compressed(Compression::Gzip))));
    assert_eq!(gzip.message(), "the file is compressed with gzip");
}

#[test]
fn pcap_truncated_at_any_byte_keeps_whole_packets() {
    for order in ORDERS {
        let file = PcapFile::new(order, MICROSECONDS, 1).packet(1, 2, b"abcd", 9).packet(1, 3, b"efghij", 6);
        let ends = [24, 24 + 20, 24 + 20 + 22];
        assert_eq!(file.bytes.len(), ends[2]);
        for length in 0..file.bytes.len() {
            let contents = read_all(&file.bytes[..length]);
            let whole = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(contents.frames.len(), whole.saturating_sub(1));
            let packet = contents.frames.len() as u64 + 1;
            match contents.error {
                Some(CaptureError::Empty) => assert_eq!(length, 0),
                Some(CaptureError::NotACapture { .. }) => assert!(length < 4),
                Some(CaptureError::TruncatedHeader) => assert!((4..24).contains(&length)),
                Some(CaptureError::Truncated { packet: number }) => assert_eq!((number, length > 24), (packet, true)),
                None => assert!(ends.contains(&length)),
                Some(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn pcapng_truncated_at_any_byte_keeps_whole_packets() {
    for order in ORDERS {
        let start = PcapngFile::new(order).interface(1, 0, &[(2, b"eth0")]);
        let mut ends = vec![PcapngFile::new(order).bytes.len(), start.bytes.len()];
        let mut file = start;
        for frame in [&b"abcde"[..], b"fg"] {
            file = file.packet_with(0, 1, frame, 9, &[(1, b"note")]);
            ends.push(file.bytes.len());
        }
        for length in 1..file.bytes.len() {
            let contents = read_all(&file.bytes[..length]);
            let whole = ends.iter().filter(|end| **end <= length).count();
            assert_eq!(contents.frames.len(), whole.saturating_sub(2));
            let packet = contents.frames.len() as u64 + 1;
            match contents.error {
                Some(CaptureError::NotACapture { .. }) => assert!(length < 4),
                Some(CaptureError::TruncatedHeader) => assert!(length < 12),
                Some(CaptureError::Truncated { packet: number }) => assert_eq!(number, packet),
                None => assert!(ends.contains(&length)),
                Some(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn message_of_a_truncated_file_has_the_packet() {
    let file = PcapFile::new(Order::Little, MICROSECONDS, 1).packet(1, 2, b"abcd", 9).packet(1, 3, b"efghij", 6);
    let contents = read_all(&file.bytes[..file.bytes.len() - 1]);
    assert_eq!(contents.message(), "the file ends within packet 2");
}

#[test]
fn lengths_above_the_limit_are_refused() {
    for length in [MAX_BLOCK as u32 + 1, u32::MAX - 5, u32::MAX] {
        for order in ORDERS {
            let mut pcap = PcapFile::new(order, MICROSECONDS, 1).packet(0, 0, b"a", 1).bytes;
            for field in [0, 0, length, 100] {
                pcap.extend(order.u32(field));
            }
            pcap.extend([0; 1_000]);
            let contents = read_all(pcap.as_slice());
            assert!(matches!(contents.error, Some(CaptureError::TooLong { packet: 2, .. })), "{}", contents.message());
            let mut pcapng = PcapngFile::new(order).interface(1, 0, &[]).packet(0, 0, b"a", 1).bytes;
            pcapng.extend(order.u32(6));
            pcapng.extend(order.u32(length & !3));
            pcapng.extend([0; 1_000]);
            let contents = read_all(pcapng.as_slice());
            assert!(contents.message().contains("packet 2"), "{}", contents.message());
            assert_eq!(contents.frames.len(), 1);
        }
    }
}

#[test]
fn block_lengths_must_be_whole_words_and_agree() {
    for order in ORDERS {
        for length in [0, 4, 8, 13, 14, 15] {
            let mut bytes = PcapngFile::new(order).bytes;
            bytes.extend(order.u32(0xbad));
            bytes.extend(order.u32(length));
            bytes.extend([0; 100]);
            assert_eq!(damage(&read_all(bytes.as_slice())), Some(DamageReason::BlockLength { length }));
        }
        let mut bytes = PcapngFile::new(order).block(0xbad, b"abcd").bytes;
        bytes.truncate(bytes.len() - 4);
        bytes.extend(order.u32(20));
        let reason = DamageReason::BlockLengths { first: 16, last: 20 };
        let contents = read_all(bytes.as_slice());
        assert_eq!(damage(&contents), Some(reason));
        assert_eq!(
            contents.message(),
            "the file is damaged at packet 1: a block begins with the length 16 and ends with the length 20"
        );
    }
}

#[test]
fn packets_longer_than_their_block_are_damage() {
    for order in ORDERS {
        for kind in [2, 6] {
            for captured in [5, 8, 100, u32::MAX - 2, u32::MAX] {
                let mut body = [0; 12].to_vec();
                body.extend(order.u32(captured));
                body.extend(order.u32(captured));
                body.extend([0; 4]);
                let file = PcapngFile::new(order).interface(1, 0, &[]).block(kind, &body);
                assert_eq!(damage(&read_all(file.bytes.as_slice())), Some(DamageReason::PacketLength));
            }
        }
    }
}

#[test]
fn blocks_too_short_for_their_kind_are_damage() {
    for order in ORDERS {
        for kind in [1, 2, 3, 5, 6, 0x0a0d_0d0a] {
            let file = PcapngFile::new(order).interface(1, 0, &[]).block(kind, &[]);
            let contents = read_all(file.bytes.as_slice());
            assert!(damage(&contents).is_some(), "kind {kind}: {}", contents.message());
        }
    }
}

#[test]
fn packets_of_unknown_interfaces_are_damage() {
    let file = PcapngFile::new(Order::Little).interface(1, 0, &[]).packet(1, 0, b"a", 1);
    let contents = read_all(file.bytes.as_slice());
    assert_eq!(damage(&contents), Some(DamageReason::Interface { interface: 1, count: 1 }));
    let file = PcapngFile::new(Order::Little).interface(1, 0, &[]).section(Order::Big).packet(0, 0, b"a", 1);
    let reason = damage(&read_all(file.bytes.as_slice()));
    assert_eq!(reason, Some(DamageReason::Interface { interface: 0, count: 0 }));
    let file = PcapngFile::new(Order::Little).simple_packet(b"a", 1);
    assert!(damage(&read_all(file.bytes.as_slice())).is_some());
}

#[test]
fn options_cut_off_by_their_block_are_skipped() {
    for order in ORDERS {
        let file = PcapngFile::new(order);
        let mut body = order.u16(1).to_vec();
        body.extend([0; 6]);
        body.extend(file.option(9, &[9]));
        body.extend(order.u16(2));
        body.extend(order.u16(60_000));
        let file = file.block(1, &body).packet(0, 5, b"a", 1);
        let contents = read_all(file.bytes.as_slice());
        assert_eq!((contents.message().as_str(), contents.frames[0].at), ("", 5));
    }
}

#[test]
fn options_have_a_limit() {
    let mut body = [0; 20].to_vec();
    body.resize(4 << 20, 0);
    for kind in [1, 5, 6] {
        let file = PcapngFile::new(Order::Little).interface(1, 0, &[]).block(kind, &body);
        let contents = read_all(file.bytes.as_slice());
        assert!(matches!(damage(&contents), Some(DamageReason::TooManyOptions { .. })), "{}", contents.message());
    }
}

#[test]
fn interfaces_have_a_limit() {
    let mut file = PcapngFile::new(Order::Little);
    for _ in 0..=MAX_INTERFACES {
        file = file.interface(1, 0, &[]);
    }
    let reason = damage(&read_all(file.bytes.as_slice()));
    assert_eq!(reason, Some(DamageReason::TooManyInterfaces { maximum: MAX_INTERFACES as u32 }));
}

/// Start of a file, and then the same bytes without an end.
struct Endless {
    start: io::Cursor<Vec<u8>>,
    cycle: Vec<u8>,
    at: usize,
    count: u64,
}

impl Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let mut count = self.start.read(out)?;
        while count < out.len() {
            let piece = &self.cycle[self.at..];
            let length = piece.len().min(out.len() - count);
            out[count..count + length].copy_from_slice(&piece[..length]);
            self.at = (self.at + length) % self.cycle.len();
            count += length;
        }
        self.count += count as u64;
        Ok(count)
    }
}

#[test]
fn endless_blocks_without_a_packet_end_the_file() {
    let start = PcapngFile::new(Order::Little).interface(1, 0, &[]).packet(0, 0, b"a", 1);
    let block = PcapngFile { order: Order::Little, bytes: Vec::new() }.block(0xbad, &[0; 64 << 10]);
    let mut endless = Endless { start: io::Cursor::new(start.bytes), cycle: block.bytes, at: 0, count: 0 };
    let contents = read_all(&mut endless);
    assert!(matches!(damage(&contents), Some(DamageReason::NoPackets { .. })), "{}", contents.message());
    assert!(contents.message().starts_with("the file is damaged at packet 2: "));
    assert!(endless.count < MAX_BYTES_WITHOUT_PACKET + (4 << 20));
}

/// Reader that fails after its bytes.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.0.read(out)? {
            0 => Err(io::Error::other("broken disk")),
            count => Ok(count),
        }
    }
}

#[test]
fn read_errors_have_the_packet_and_their_cause() {
    let file = PcapFile::new(Order::Little, MICROSECONDS, 1).packet(0, 0, b"a", 1);
    let contents = read_all(Failing(&file.bytes));
    assert_eq!((contents.frames.len(), contents.message().as_str()), (1, "cannot read packet 2: broken disk"));
}
