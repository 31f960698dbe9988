//! Files of every variant of the two formats.

use lfn_packet::LinkLayer;
use lfn_packet::capture::CaptureReader;
use lfn_packet::pcapng::{self, CapturedPacket};

use crate::files::{
    Frame, MICROSECONDS, MODIFIED, NANOSECONDS, ORDERS, Order, PcapFile, PcapngFile, Pieces, read_all, read_frames,
};

const SECOND: u64 = 1_000_000_000;

fn times(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(|frame| frame.at).collect()
}

#[test]
fn pcap_is_read_in_both_orders_and_resolutions() {
    for order in ORDERS {
        for (magic, nanos) in [(MICROSECONDS, 5_000), (NANOSECONDS, 5)] {
            let file = PcapFile::new(order, magic, 1).packet(7, 5, b"abcdef", 1514).packet(8, 0, b"", 0);
            let frames = read_frames(&file.bytes);
            assert_eq!(frames.len(), 2);
            let first = Frame {
                at: 7 * SECOND + nanos,
                interface: 0,
                link: LinkLayer::Ethernet,
                bytes: b"abcdef".to_vec(),
                original: 1514,
            };
            assert_eq!(frames[0], first);
            assert_eq!((frames[1].at, frames[1].bytes.len()), (8 * SECOND, 0));
        }
    }
}

#[test]
fn modified_pcap_has_a_longer_record_header() {
    let file = PcapFile::new(Order::Little, MODIFIED, 1).packet(1, 2, b"abc", 3).packet(3, 4, b"de", 2);
    let frames = read_frames(&file.bytes);
    assert_eq!(frames[0].bytes, b"abc");
    assert_eq!((frames[1].bytes.as_slice(), frames[1].at), (&b"de"[..], 3 * SECOND + 4_000));
}

#[test]
fn link_type_excludes_the_frame_check_sequence_bits() {
    for (number, link) in [
        (0x1400_0001, LinkLayer::Ethernet),
        (113, LinkLayer::LinuxCooked),
        (276, LinkLayer::LinuxCooked2),
        (12, LinkLayer::RawIp),
        (14, LinkLayer::RawIp),
        (101, LinkLayer::RawIp),
        (228, LinkLayer::RawIpv4),
        (229, LinkLayer::RawIpv6),
        (0, LinkLayer::Loopback),
        (108, LinkLayer::Loopback),
        (127, LinkLayer::Unknown(127)),
    ] {
        let file = PcapFile::new(Order::Little, MICROSECONDS, number).packet(0, 0, b"a", 1);
        assert_eq!(read_frames(&file.bytes)[0].link, link);
    }
}

#[test]
fn original_length_is_at_least_the_captured_length() {
    let file = PcapFile::new(Order::Little, MICROSECONDS, 1).packet(0, 0, b"abcdef", 2);
    assert_eq!(read_frames(&file.bytes)[0].original, 6);
}

#[test]
fn sections_can_differ_in_byte_order_and_interfaces() {
    let file = PcapngFile::new(Order::Little)
        .interface(1, 0, &[(2, b"near"), (9, &[9])])
        .packet(0, 1, b"a", 1)
        .section(Order::Big)
        .interface(113, 96, &[(9, &[3])])
        .interface(101, 0, &[])
        .packet(1, 2, b"bb", 200)
        .packet(0, 3, b"ccc", 3);
    let mut reader = CaptureReader::new(file.bytes.as_slice()).unwrap();
    while reader.next().unwrap().is_some() {}
    let names: Vec<_> = reader.interfaces().iter().map(|interface| interface.name.as_deref()).collect();
    assert_eq!(names, [Some("near"), None, None]);
    assert_eq!(reader.interfaces()[1].snap_length, 96);
    let frames = read_frames(&file.bytes);
    let numbers: Vec<_> = frames.iter().map(|frame| frame.interface).collect();
    assert_eq!(numbers, [0, 2, 1]);
    assert_eq!(times(&frames), [1, 2_000, 3_000_000]);
    assert_eq!((frames[1].link, frames[1].original), (LinkLayer::RawIp, 200));
    assert_eq!(frames[2].link, LinkLayer::LinuxCooked);
}

#[test]
fn interfaces_have_their_own_resolution_and_offset() {
    for order in ORDERS {
        let offset = order.u64(100);
        let before = order.u64((-2_i64).cast_unsigned());
        let file = PcapngFile::new(order)
            .interface(1, 0, &[])
            .interface(1, 0, &[(9, &[9])])
            .interface(1, 0, &[(9, &[0x8a])])
            .interface(1, 0, &[(9, &[0]), (14, &offset)])
            .interface(1, 0, &[(14, &before)])
            .packet(0, 1_000_001, b"", 0)
            .packet(1, 1_000_001, b"", 0)
            .packet(2, 1024 + 512, b"", 0)
            .packet(3, 1, b"", 0)
            .packet(4, 3_000_000, b"", 0)
            .packet(1, u64::MAX, b"", 0);
        let expected = [SECOND + 1_000, 1_000_001, SECOND + SECOND / 2, 101 * SECOND, SECOND, u64::MAX];
        assert_eq!(times(&read_frames(&file.bytes)), expected);
    }
}

#[test]
fn simple_packets_end_at_the_snap_length() {
    for order in ORDERS {
        let file = PcapngFile::new(order)
            .interface(1, 5, &[])
            .packet(0, 9, b"x", 1)
            .simple_packet(b"abcde", 90)
            .simple_packet(b"abc", 3);
        let frames = read_frames(&file.bytes);
        assert_eq!((frames[1].bytes.as_slice(), frames[1].original), (&b"abcde"[..], 90));
        assert_eq!((frames[2].bytes.as_slice(), frames[2].original), (&b"abc"[..], 3));
        assert_eq!(times(&frames), [9_000, 9_000, 9_000], "a simple packet repeats the last time");
    }
}

#[test]
fn obsolete_packets_have_an_interface_a_time_and_drops() {
    for order in ORDERS {
        let file = PcapngFile::new(order)
            .interface(1, 0, &[])
            .interface(101, 0, &[])
            .obsolete_packet(1, 3, 5 << 32, b"abcde")
            .obsolete_packet(0, 0xffff, 7, b"f");
        let contents = read_all(file.bytes.as_slice());
        assert_eq!(contents.message(), "");
        let [first, second] = contents.frames.as_slice() else { panic!("two frames") };
        assert_eq!(
            (first.bytes.as_slice(), first.link, first.at),
            (&b"abcde"[..], LinkLayer::RawIp, (5 << 32) * 1_000)
        );
        assert_eq!((second.bytes.as_slice(), second.interface), (&b"f"[..], 0));
        assert_eq!(contents.dropped, Some(3), "0xffff is an unknown count");
    }
}

#[test]
fn drops_are_counted_over_interfaces_and_packets() {
    for order in ORDERS {
        let file = PcapngFile::new(order).interface(1, 0, &[]).interface(1, 0, &[]).interface(1, 0, &[]);
        assert_eq!(read_all(file.bytes.as_slice()).dropped, None);
        let three = order.u64(3);
        let file = file
            .statistics(0, &[(4, 100), (5, 1), (7, 2)])
            .packet_with(1, 0, b"ab", 2, &[(4, &three), (2, &[0; 4])])
            .packet_with(1, 0, b"abc", 3, &[(4, &three)])
            .statistics(0, &[(4, 200), (5, 10), (7, 5)])
            .statistics(9, &[(5, 1_000)]);
        let contents = read_all(file.bytes.as_slice());
        assert_eq!(contents.message(), "");
        assert_eq!(contents.frames[0].bytes, b"ab");
        assert_eq!(contents.dropped, Some(15 + 6), "the last statistics of an interface count");
    }
}

#[test]
fn unknown_blocks_are_skipped() {
    let file = PcapngFile::new(Order::Big)
        .block(0x0000_0bad, b"abcdefg")
        .interface(1, 0, &[])
        .block(4, &[0xff; 40])
        .block(10, b"secret")
        .packet(0, 1, b"a", 1)
        .block(0x8000_0001, b"");
    assert_eq!(read_frames(&file.bytes).len(), 1);
}

#[test]
fn files_of_the_writer_are_read() {
    let mut bytes = Vec::new();
    pcapng::write_section("lfn", "a comment", &mut bytes);
    pcapng::write_interface("far", "server", 96, &mut bytes);
    let packet = CapturedPacket {
        interface: 0,
        time: 1_700_000_000_123_456_789,
        bytes: b"abcde",
        length: 1514,
        is_inbound: true,
        id: Some(7),
        comment: Some("lost"),
    };
    pcapng::write_packet(&packet, &mut bytes);
    pcapng::write_statistics(0, 0, 10, 4, &mut bytes);
    let contents = read_all(bytes.as_slice());
    assert_eq!(contents.message(), "");
    let expected =
        Frame { at: packet.time, interface: 0, link: LinkLayer::Ethernet, bytes: b"abcde".to_vec(), original: 1514 };
    assert_eq!((contents.frames, contents.dropped), (vec![expected], Some(4)));
}

#[test]
fn pieces_of_any_size_give_the_same_frames() {
    let mut pcap = PcapFile::new(Order::Little, NANOSECONDS, 1);
    let mut pcapng = PcapngFile::new(Order::Big).interface(1, 0, &[]);
    for index in 0..40 {
        let frame = vec![index as u8; index * 7];
        pcap = pcap.packet(index as u32, 0, &frame, 2_000);
        pcapng = pcapng.packet(0, index as u64, &frame, 2_000);
    }
    for bytes in [&pcap.bytes, &pcapng.bytes] {
        let whole = read_frames(bytes);
        assert_eq!(whole.len(), 40);
        for size in [1, 2, 3, 13, 24, 1_000] {
            let contents = read_all(Pieces { bytes, size, is_interrupted: false });
            assert_eq!(contents.frames, whole);
        }
    }
}

#[test]
fn packets_larger_than_the_first_buffer_are_read() {
    let large = vec![7; 5 << 20];
    let file = PcapFile::new(Order::Little, MICROSECONDS, 1)
        .packet(0, 0, b"a", 1)
        .packet(1, 0, &large, 6 << 20)
        .packet(2, 0, b"b", 1);
    let frames = read_frames(&file.bytes);
    assert_eq!((frames[1].bytes.len(), frames[2].bytes.as_slice()), (5 << 20, &b"b"[..]));
    let file = PcapngFile::new(Order::Little).interface(1, 0, &[]).packet(0, 0, &large, 6 << 20).packet(0, 0, b"b", 1);
    assert_eq!(read_frames(&file.bytes)[1].bytes, b"b");
}
