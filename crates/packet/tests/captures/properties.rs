//! Laws of the reader and the decoder for random and for changed input.

use lfn_packet::LinkLayer;
use lfn_packet::decode::{Decoded, OtherPacket, decode};
use proptest::prelude::*;

use crate::files::{
    Contents, MICROSECONDS, MODIFIED, NANOSECONDS, Order, PcapFile, PcapngFile, Pieces, read_all, read_frames,
};
use crate::packets::{IPV4, IPV6, SEQUENCE, TCP, after, ethernet, extension, ipv4, ipv6, tcp_with};

const LINKS: [LinkLayer; 9] = [
    LinkLayer::Ethernet,
    LinkLayer::LinuxCooked,
    LinkLayer::LinuxCooked2,
    LinkLayer::RawIp,
    LinkLayer::RawIpv4,
    LinkLayer::RawIpv6,
    LinkLayer::Loopback,
    LinkLayer::Ppp,
    LinkLayer::Unknown(7),
];

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Little), Just(Order::Big)]
}

/// Frames with their times and the bytes that the capture does not have.
fn frames() -> impl Strategy<Value = Vec<(u32, Vec<u8>, u32)>> {
    prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 0..90), 0_u32..3_000), 0..12)
}

fn pcap(order: Order, magic: u32, frames: &[(u32, Vec<u8>, u32)]) -> Vec<u8> {
    let file = PcapFile::new(order, magic, 1);
    frames.iter().fold(file, |file, (at, bytes, more)| file.packet(*at, 7, bytes, bytes.len() as u32 + more)).bytes
}

fn pcapng(order: Order, frames: &[(u32, Vec<u8>, u32)]) -> Vec<u8> {
    let file = PcapngFile::new(order).interface(1, 0, &[(2, b"eth0"), (9, &[9])]);
    let add = |file: PcapngFile, (at, bytes, more): &(u32, Vec<u8>, u32)| {
        file.packet_with(0, (*at).into(), bytes, bytes.len() as u32 + more, &[(2, &[1, 0, 0, 0])])
    };
    frames.iter().fold(file, add).statistics(0, &[(5, 3)]).bytes
}

/// File of one of the formats.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let magic = prop_oneof![Just(MICROSECONDS), Just(NANOSECONDS), Just(MODIFIED)];
    (order(), magic, any::<bool>(), frames()).prop_map(|(order, magic, is_pcapng, frames)| match is_pcapng {
        true => pcapng(order, &frames),
        // The crate that parses records knows the modified format in one byte order.
        false => pcap(if magic == MODIFIED { Order::Little } else { order }, magic, &frames),
    })
}

/// TCP frame in a random stack of up to four tunnels and tags.
fn tcp_frame() -> impl Strategy<Value = (Vec<u8>, u32)> {
    let options = (0_usize..=10).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4));
    let wrappers = prop::collection::vec(0_u8..7, 0..5);
    (options, 0_u32..1_400, any::<bool>(), wrappers).prop_map(|(options, payload, is_v6, wrappers)| {
        let segment = tcp_with(&options, 0x18, payload as usize);
        let ip = |is_v6: bool, protocol, inner: &[u8]| match is_v6 {
            true => (IPV6, ipv6(0, &extension(protocol, 1, inner))),
            false => (IPV4, ipv4(protocol, inner)),
        };
        let mut inner = ip(is_v6, TCP, &segment);
        for wrapper in wrappers {
            let (ether_type, packet) = &inner;
            let number = ether_type.to_be_bytes();
            let protocol = if *ether_type == IPV6 { 41 } else { 4 };
            inner = match wrapper {
                0 if matches!(*ether_type, IPV4 | IPV6) => ip(false, protocol, packet),
                1 if matches!(*ether_type, IPV4 | IPV6) => ip(true, protocol, packet),
                2 => ip(false, 47, &after(&after(&[0x20, 0], &number), &after(&[0; 4], packet))),
                3 => ip(true, 47, &after(&[0, 0, 0x65, 0x58], &ethernet(*ether_type, packet))),
                4 if matches!(*ether_type, IPV4 | IPV6) => (0x8847, after(&[0, 0, 1, 1], packet)),
                5 => (0x88a8, after(&[0, 1], &after(&number, packet))),
                _ => (0x8100, after(&[0, 1], &after(&number, packet))),
            };
        }
        (ethernet(inner.0, &inner.1), payload)
    })
}

fn check_ends(contents: &Contents, length: usize) {
    assert!(contents.frames.len() * 16 <= length, "each frame takes bytes of the file");
}

proptest! {
    #[test]
    fn random_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in 0_usize..5) {
        let magic = [&[][..], &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0], &[0xa1, 0xb2, 0x3c, 0x4d],
            &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a], &[0x0a, 0x0d, 0x0d, 0x0a]][magic];
        let bytes = [magic, &bytes].concat();
        check_ends(&read_all(bytes.as_slice()), bytes.len());
    }

    #[test]
    fn written_frames_are_read(order in order(), frames in frames()) {
        for bytes in [pcap(order, NANOSECONDS, &frames), pcapng(order, &frames)] {
            let read = read_frames(&bytes);
            prop_assert_eq!(read.len(), frames.len());
            for (read, (_, bytes, more)) in read.iter().zip(&frames) {
                prop_assert_eq!(&read.bytes, bytes);
                prop_assert_eq!(read.original, bytes.len() as u32 + more);
            }
        }
    }

    #[test]
    fn changed_files_keep_the_frames_before_the_change(
        mut bytes in file(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        size in 1_usize..200,
    ) {
        let original = read_frames(&bytes);
        let mut first = bytes.len();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
            first = first.min(at);
        }
        let before = read_all(&bytes[..first]).frames;
        let changed = read_all(bytes.as_slice());
        check_ends(&changed, bytes.len());
        prop_assert_eq!(&changed.frames[..before.len()], &before[..]);
        prop_assert_eq!(&original[..before.len()], &before[..]);
        for frame in &changed.frames {
            decode(frame.link, &frame.bytes, frame.original);
        }
        let pieces = read_all(Pieces { bytes: &bytes, size, is_interrupted: false });
        prop_assert_eq!(pieces.frames, changed.frames);
        prop_assert_eq!(pieces.error.map(|error| error.to_string()), changed.error.map(|error| error.to_string()));
    }

    #[test]
    fn random_frames_decode_to_something(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        link in prop::sample::select(&LINKS[..]),
        original in any::<u32>(),
    ) {
        let decoded = decode(link, &bytes, original);
        if let Decoded::Tcp(segment) = decoded.packet {
            prop_assert!(segment.options.sack().len() <= 4);
        }
    }

    #[test]
    fn any_stack_of_headers_leads_to_the_segment((frame, payload) in tcp_frame(), cut in any::<prop::sample::Index>()) {
        let Decoded::Tcp(whole) = decode(LinkLayer::Ethernet, &frame, frame.len() as u32).packet else {
            panic!("no segment")
        };
        prop_assert_eq!((whole.sequence, whole.payload), (SEQUENCE, payload));
        prop_assert!(!whole.options.is_truncated);
        let captured = cut.index(frame.len());
        match decode(LinkLayer::Ethernet, &frame[..captured], frame.len() as u32).packet {
            Decoded::Tcp(segment) => prop_assert_eq!((segment.sequence, segment.payload), (SEQUENCE, payload)),
            // Nothing names the header after MPLS labels, and GRE is not recognized by a part of its header.
            Decoded::Other(other) => {
                let is_cut = matches!(other, OtherPacket::Malformed | OtherPacket::NotIp);
                prop_assert!(is_cut || other == (OtherPacket::OtherIp { protocol: 47 }), "{other:?}");
            }
        }
    }

    #[test]
    fn changed_frames_decode_to_something(
        (mut frame, _) in tcp_frame(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        for (at, value) in changes {
            let at = at.index(frame.len().min(200));
            frame[at] = value;
        }
        for link in LINKS {
            decode(link, &frame, frame.len() as u32);
        }
    }
}
