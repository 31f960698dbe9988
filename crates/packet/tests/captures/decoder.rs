//! Link layers, IP headers, fragments, lengths and the other protocols.

use lfn_packet::LinkLayer;
use lfn_packet::decode::{Decoded, OtherPacket, PacketTooBig, decode};

use crate::packets::{
    IPV4, IPV6, TCP, UDP, after, check, decode_ethernet, ethernet, extension, ipv4, ipv4_with, ipv6, other, segment_of,
    tcp, tcp_with, udp,
};

#[test]
fn every_link_layer_leads_to_the_segment() {
    let (v4, v6) = (ipv4(TCP, &tcp(100)), ipv6(TCP, &tcp(100)));
    let mut cases = vec![
        ("raw", LinkLayer::RawIp, v4.clone(), false),
        ("raw", LinkLayer::RawIp, v6.clone(), true),
        ("raw IPv4", LinkLayer::RawIpv4, v4.clone(), false),
        ("raw IPv6", LinkLayer::RawIpv6, v6.clone(), true),
        ("PPP", LinkLayer::Ppp, after(&[0xff, 3, 0, 0x21], &v4), false),
        ("PPP without address", LinkLayer::Ppp, after(&[0, 0x57], &v6), true),
        ("PPP with a short protocol", LinkLayer::Ppp, after(&[0x21], &v4), false),
    ];
    for (ether_type, packet, is_v6) in [(IPV4, &v4, false), (IPV6, &v6, true)] {
        let number = ether_type.to_be_bytes();
        cases.push(("Ethernet", LinkLayer::Ethernet, ethernet(ether_type, packet), is_v6));
        let cooked = after(&[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &number);
        cases.push(("SLL", LinkLayer::LinuxCooked, after(&cooked, packet), is_v6));
        let cooked = after(&number, &[0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
        cases.push(("SLL2", LinkLayer::LinuxCooked2, after(&cooked, packet), is_v6));
    }
    cases.push(("loopback", LinkLayer::Loopback, after(&2_u32.to_le_bytes(), &v4), false));
    cases.push(("loopback", LinkLayer::Loopback, after(&2_u32.to_be_bytes(), &v4), false));
    for family in [10_u32, 23, 24, 28, 30] {
        cases.push(("loopback", LinkLayer::Loopback, after(&family.to_le_bytes(), &v6), true));
        cases.push(("loopback", LinkLayer::Loopback, after(&family.to_be_bytes(), &v6), true));
    }
    for (name, link, frame, is_v6) in cases {
        check(name, segment_of(link, &frame), is_v6, 100);
    }
}

#[test]
fn frames_without_ip_are_counted_as_such() {
    for frame in [
        ethernet(0x0806, &[0; 28]),
        ethernet(0x88cc, &[]),
        ethernet(38, &[0x42; 38]),
        ethernet(20, &[0xaa, 0xaa, 3, 0, 0, 12, 1, 0]),
    ] {
        assert_eq!(other(&frame), OtherPacket::NotIp);
    }
    for (link, frame) in [
        (LinkLayer::Unknown(127), &[0x45; 60][..]),
        (LinkLayer::Loopback, &[7, 0, 0, 0, 0x45, 0]),
        (LinkLayer::Ppp, &[0xff, 3, 0xc0, 0x21, 1, 2]),
    ] {
        assert_eq!(decode(link, frame, 60).packet, Decoded::Other(OtherPacket::NotIp));
    }
}

#[test]
fn headers_give_every_field_of_the_segment() {
    let v4 = segment_of(LinkLayer::Ethernet, &ethernet(IPV4, &ipv4(TCP, &tcp_with(&[], 0x1d8, 9)))).unwrap();
    assert_eq!((v4.ip_id, v4.ttl, v4.ecn), (Some(7), 61, 3));
    assert_eq!((v4.acknowledgement, v4.window, v4.flags.0), (0x5566_7788, 501, 0x1d8));
    let v6 = segment_of(LinkLayer::Ethernet, &ethernet(IPV6, &ipv6(TCP, &tcp(9)))).unwrap();
    assert_eq!((v6.ip_id, v6.ttl, v6.ecn), (None, 62, 1));
}

#[test]
fn ip_options_and_padding_are_no_payload() {
    let frame = ethernet(IPV4, &ipv4_with(TCP, &[1; 40], 0, &tcp(3)));
    check("options", segment_of(LinkLayer::Ethernet, &frame), false, 3);
    let padded = after(&ethernet(IPV4, &ipv4(TCP, &tcp(0))), &[0; 6]);
    check("padding", segment_of(LinkLayer::Ethernet, &padded), false, 0);
    let padded = after(&ethernet(IPV6, &ipv6(TCP, &tcp(1))), &[0; 6]);
    check("padding", segment_of(LinkLayer::Ethernet, &padded), true, 1);
}

#[test]
fn extension_headers_are_followed() {
    let segment = tcp(50);
    let authentication = |next, payload: &[u8]| after(&[next, 4, 0, 0], &after(&[9; 20], payload));
    let chain = extension(60, 2, &extension(43, 1, &extension(51, 0, &authentication(TCP, &segment))));
    for (next, payload) in [
        (0, extension(TCP, 0, &segment)),
        (0, chain),
        (43, extension(TCP, 2, &segment)),
        (60, extension(TCP, 31, &segment)),
        (44, extension(TCP, 0, &segment)),
        (51, authentication(TCP, &segment)),
        (135, extension(139, 0, &extension(140, 0, &extension(TCP, 1, &segment)))),
    ] {
        let mut frame = ethernet(IPV6, &ipv6(next, &payload));
        if next == 44 {
            frame[14 + 40 + 2..14 + 40 + 4].fill(0);
        }
        check("extension", segment_of(LinkLayer::Ethernet, &frame), true, 50);
    }
    let mut endless = segment;
    for _ in 0..9 {
        endless = extension(0, 0, &endless);
    }
    assert_eq!(other(&ethernet(IPV6, &ipv6(0, &endless))), OtherPacket::Malformed);
}

#[test]
fn fragments_are_marked_and_the_first_has_the_segment() {
    let first = decode_ethernet(&ethernet(IPV4, &ipv4_with(TCP, &[], 0x2000, &tcp(80))));
    assert!(first.is_fragment && matches!(first.packet, Decoded::Tcp(segment) if segment.payload == 80));
    for fragment in [0x2001, 0x0001, 0x1fff] {
        let later = decode_ethernet(&ethernet(IPV4, &ipv4_with(TCP, &[], fragment, &[1; 40])));
        assert!(later.is_fragment && later.packet == Decoded::Other(OtherPacket::Fragment));
    }
    let v6 = |field: u16| {
        let header = after(&[TCP, 0], &after(&field.to_be_bytes(), &[0, 0, 0, 9]));
        decode_ethernet(&ethernet(IPV6, &ipv6(44, &after(&header, &tcp(80)))))
    };
    assert!(v6(1).is_fragment && matches!(v6(1).packet, Decoded::Tcp(segment) if segment.payload == 80));
    assert!(v6(8).is_fragment && v6(8).packet == Decoded::Other(OtherPacket::Fragment));
    assert!(!v6(0).is_fragment && matches!(v6(0).packet, Decoded::Tcp(_)), "an atomic fragment is whole");
    assert!(!decode_ethernet(&ethernet(IPV4, &ipv4(TCP, &tcp(0)))).is_fragment);
}

#[test]
fn big_tcp_takes_its_length_from_the_frame() {
    let mut v4 = ethernet(IPV4, &ipv4(TCP, &tcp(100)));
    v4[16..18].fill(0);
    let mut v6 = ethernet(IPV6, &ipv6(TCP, &tcp(100)));
    v6[18..20].fill(0);
    for (frame, is_v6, header) in [(&v4, false, 54), (&v6, true, 74)] {
        let Decoded::Tcp(segment) = decode(LinkLayer::Ethernet, frame, header + 180_000).packet else { panic!() };
        check("BIG TCP", Some(segment), is_v6, 180_000);
    }
}

#[test]
fn jumbo_payload_option_has_the_length() {
    for options in [&[0xc2, 4, 0, 3, 0, 0][..], &[1, 0, 0, 5, 2, 0, 0, 0, 0xc2, 4, 0, 3, 0, 0]] {
        let hop_by_hop = after(&[TCP, (options.len() / 8) as u8], options);
        let mut frame = ethernet(IPV6, &ipv6(0, &after(&hop_by_hop, &tcp(100))));
        frame[18..20].fill(0);
        let Decoded::Tcp(segment) = decode(LinkLayer::Ethernet, &frame, 150).packet else { panic!() };
        assert_eq!(segment.payload as usize, 0x30000 - hop_by_hop.len() - 20, "the option wins over the frame");
    }
}

#[test]
fn length_of_the_ip_header_wins_over_the_frame() {
    let frame = ethernet(IPV4, &ipv4(TCP, &tcp(1_400)));
    let Decoded::Tcp(segment) = decode(LinkLayer::Ethernet, &frame[..68], 68).packet else { panic!() };
    check("the original length is the snap length", Some(segment), false, 1_400);
}

#[test]
fn other_protocols_are_counted() {
    let v4 = |protocol, payload: &[u8]| other(&ethernet(IPV4, &ipv4(protocol, payload)));
    assert_eq!(v4(UDP, &udp(53, b"query")), OtherPacket::Udp);
    assert_eq!(v4(UDP, &udp(443, &[0xc3, 0, 0, 0, 1, 8])), OtherPacket::Quic);
    assert_eq!(v4(UDP, &udp(443, &[0x80, 0, 0, 0, 0, 8])), OtherPacket::Quic, "version negotiation");
    assert_eq!(v4(UDP, &udp(443, &[0x41, 1, 2, 3])), OtherPacket::Quic);
    assert_eq!(v4(UDP, &udp(443, &[0x16, 0xfe, 0xfd])), OtherPacket::Udp, "DTLS");
    assert_eq!(v4(UDP, &udp(8443, &[0xc3, 0, 0, 0, 1, 8])), OtherPacket::Quic, "version 1");
    assert_eq!(v4(UDP, &udp(8443, &[0xd3, 0x6b, 0x33, 0x43, 0xcf, 8])), OtherPacket::Quic, "version 2");
    assert_eq!(v4(UDP, &udp(8443, &[0xc3, 0, 0, 0, 9, 8])), OtherPacket::Udp, "unknown version");
    assert_eq!(v4(UDP, &udp(8443, &[0x41, 1, 2, 3])), OtherPacket::Udp, "short header");
    assert_eq!(v4(UDP, &udp(443, &[])), OtherPacket::Udp);
    assert_eq!(v4(132, &[0; 12]), OtherPacket::OtherIp { protocol: 132 });
    assert_eq!(v4(50, &[0; 40]), OtherPacket::OtherIp { protocol: 50 });
    assert_eq!(v4(1, &[8, 0, 0, 0, 0, 1, 0, 1]), OtherPacket::Icmp { too_big: None });
    assert_eq!(other(&ethernet(IPV6, &ipv6(59, &[]))), OtherPacket::OtherIp { protocol: 59 });
    assert_eq!(other(&ethernet(IPV6, &ipv6(58, &[135, 0, 0, 0]))), OtherPacket::Icmp { too_big: None });
}

fn too_big(frame: &[u8]) -> PacketTooBig {
    let OtherPacket::Icmp { too_big: Some(too_big) } = other(frame) else { panic!() };
    too_big
}

#[test]
fn packet_too_big_has_the_mtu_and_the_connection() {
    let quoted = ipv4(TCP, &tcp(1_460));
    let message = after(&[3, 4, 0, 0, 0, 0, 0x05, 0x14], &quoted[..28]);
    let v4 = too_big(&ethernet(IPV4, &ipv4(1, &message)));
    assert_eq!((v4.mtu, v4.router.to_string().as_str()), (1_300, "10.73.23.1"));
    let segment = v4.segment.unwrap();
    assert_eq!((segment.source.port, segment.destination.port), (5201, 40_000));
    assert_eq!((segment.source.address.to_string().as_str(), segment.sequence), ("10.73.23.1", 0x1122_3344));

    let quoted = ipv6(60, &extension(TCP, 0, &tcp(1_400)));
    let message = after(&[2, 0, 0, 0, 0, 0, 0x05, 0x00], &quoted[..60]);
    let v6 = too_big(&ethernet(IPV6, &ipv6(58, &message)));
    assert_eq!((v6.mtu, v6.segment.unwrap().destination.port), (1_280, 40_000));

    for quoted in [&ipv4(UDP, &udp(53, b"a"))[..], &ipv4_with(TCP, &[], 5, &[0; 8]), &quoted[..47], &[]] {
        let message = after(&[3, 4, 0, 0, 0, 0, 0, 0], quoted);
        assert_eq!(too_big(&ethernet(IPV4, &ipv4(1, &message))).segment, None);
    }
    let unreachable = after(&[3, 3, 0, 0, 0, 0, 0, 0], &ipv4(TCP, &tcp(0)));
    assert_eq!(other(&ethernet(IPV4, &ipv4(1, &unreachable))), OtherPacket::Icmp { too_big: None });
}

#[test]
fn headers_that_contradict_are_malformed() {
    let good = ethernet(IPV4, &ipv4(TCP, &tcp(10)));
    let changes: [(usize, u8); 6] = [(14, 0x55), (14, 0x44), (14, 0x4f), (17, 19), (17, 39), (46, 0x40)];
    for (at, value) in changes {
        let mut frame = good.clone();
        frame[at] = value;
        if at == 17 {
            frame[16] = 0;
        }
        assert_eq!(other(&frame), OtherPacket::Malformed, "{at} {value:#x}");
    }
    let mut long_offset = good;
    long_offset[46] = 0xf0;
    assert_eq!(other(&long_offset), OtherPacket::Malformed, "the TCP header is longer than the IP packet");
}

#[test]
fn every_snap_length_gives_the_segment_or_malformed() {
    let frames = [
        (54, false, ethernet(IPV4, &ipv4(TCP, &tcp_with(&[1; 20], 0x10, 700)))),
        (74 + 8, true, ethernet(IPV6, &ipv6(60, &extension(TCP, 0, &tcp_with(&[1; 20], 0x10, 700))))),
    ];
    for (needed, is_v6, frame) in frames {
        for length in 0..frame.len() {
            match decode(LinkLayer::Ethernet, &frame[..length], frame.len() as u32).packet {
                Decoded::Tcp(segment) => {
                    assert!(length >= needed);
                    assert_eq!(segment.options.is_truncated, length < needed + 20);
                    check("snap length", Some(segment), is_v6, 700);
                }
                Decoded::Other(other) => {
                    assert_eq!((other, length < needed), (OtherPacket::Malformed, true), "{length}");
                }
            }
        }
    }
}
