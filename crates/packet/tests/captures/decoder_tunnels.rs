//! Tags, labels and tunnels around a segment.

use lfn_packet::LinkLayer;
use lfn_packet::decode::{Decoded, MAX_LAYERS, OtherPacket, decode};

use crate::packets::{
    IPV4, IPV6, TCP, UDP, after, check, decode_ethernet, ethernet, ipv4, ipv4_with, ipv6, other, segment_of, tcp, udp,
};

const VXLAN_HEADER: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

fn vlan(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    after(&[0, 42], &after(&ether_type.to_be_bytes(), payload))
}

/// Label stack with `count` labels.
fn mpls(count: u8, payload: &[u8]) -> Vec<u8> {
    let labels: Vec<u8> = (1..=count).flat_map(|label| [0, 1, u8::from(label == count), 64]).collect();
    after(&labels, payload)
}

fn gre(flags: u16, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let fields = (flags & 0xb000).count_ones() as usize * 4;
    let header = after(&flags.to_be_bytes(), &ether_type.to_be_bytes());
    after(&after(&header, &vec![0xee; fields]), payload)
}

#[test]
fn vlan_tags_are_skipped() {
    let (v4, v6) = (ipv4(TCP, &tcp(70)), ipv6(TCP, &tcp(70)));
    let frames = [
        ethernet(0x8100, &vlan(IPV4, &v4)),
        ethernet(0x88a8, &vlan(0x8100, &vlan(IPV4, &v4))),
        ethernet(0x9100, &vlan(0x8100, &vlan(0x8100, &vlan(IPV4, &v4)))),
        ethernet(0x8100, &vlan(8, &after(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &v4))),
    ];
    for frame in frames {
        check("VLAN", segment_of(LinkLayer::Ethernet, &frame), false, 70);
    }
    check("VLAN", segment_of(LinkLayer::Ethernet, &ethernet(0x8100, &vlan(IPV6, &v6))), true, 70);
    let cooked = after(&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x81, 0], &vlan(IPV4, &v4));
    check("VLAN in SLL", segment_of(LinkLayer::LinuxCooked, &cooked), false, 70);
}

#[test]
fn mpls_labels_lead_to_ip_or_a_pseudowire() {
    let (v4, v6) = (ipv4(TCP, &tcp(70)), ipv6(TCP, &tcp(70)));
    for count in [1, 2, 16] {
        check("MPLS", segment_of(LinkLayer::Ethernet, &ethernet(0x8847, &mpls(count, &v4))), false, 70);
        check("MPLS", segment_of(LinkLayer::Ethernet, &ethernet(0x8848, &mpls(count, &v6))), true, 70);
    }
    let control_word = after(&[0, 0, 0, 9], &ethernet(IPV4, &v4));
    check("control word", segment_of(LinkLayer::Ethernet, &ethernet(0x8847, &mpls(2, &control_word))), false, 70);
    let mut inner = ethernet(IPV6, &v6);
    inner[0] = 0x48;
    check("pseudowire", segment_of(LinkLayer::Ethernet, &ethernet(0x8847, &mpls(1, &inner))), true, 70);
    assert_eq!(other(&ethernet(0x8847, &mpls(1, &[0x99; 40]))), OtherPacket::NotIp);
    assert_eq!(other(&ethernet(0x8847, &mpls(17, &v4))), OtherPacket::Malformed);
    let over_ip = ethernet(IPV4, &ipv4(137, &mpls(1, &v4)));
    check("MPLS in IP", segment_of(LinkLayer::Ethernet, &over_ip), false, 70);
}

#[test]
fn pppoe_sessions_lead_to_ip() {
    let session = [0x11, 0, 0, 1, 0, 9];
    let v4 = ethernet(0x8864, &after(&session, &after(&[0, 0x21], &ipv4(TCP, &tcp(70)))));
    check("PPPoE", segment_of(LinkLayer::Ethernet, &v4), false, 70);
    let v6 = ethernet(0x8864, &after(&session, &after(&[0, 0x57], &ipv6(TCP, &tcp(70)))));
    check("PPPoE", segment_of(LinkLayer::Ethernet, &v6), true, 70);
}

#[test]
fn gre_is_read_with_every_optional_field() {
    let (v4, v6) = (ipv4(TCP, &tcp(70)), ipv6(TCP, &tcp(70)));
    for flags in [0, 0x8000, 0x2000, 0x1000, 0xa000, 0x3000, 0xb000] {
        let bridged = gre(flags, 0x6558, &ethernet(0x8100, &vlan(IPV4, &v4)));
        for (inner, is_v6) in [(gre(flags, IPV4, &v4), false), (gre(flags, IPV6, &v6), true), (bridged, false)] {
            let outer = ethernet(IPV4, &ipv4(47, &inner));
            check("GRE", segment_of(LinkLayer::Ethernet, &outer), is_v6, 70);
            let outer = ethernet(IPV6, &ipv6(47, &inner));
            check("GRE over IPv6", segment_of(LinkLayer::Ethernet, &outer), is_v6, 70);
        }
    }
    let mpls = ethernet(IPV4, &ipv4(47, &gre(0, 0x8847, &mpls(2, &v4))));
    check("MPLS in GRE", segment_of(LinkLayer::Ethernet, &mpls), false, 70);
    let pptp = ethernet(IPV4, &ipv4(47, &gre(0x3001, 0x880b, &v4)));
    assert_eq!(other(&pptp), OtherPacket::OtherIp { protocol: 47 });
}

#[test]
fn vxlan_and_geneve_are_read() {
    let inner = ethernet(IPV4, &ipv4(TCP, &tcp(70)));
    for port in [4789, 8472] {
        let vxlan = udp(port, &after(&VXLAN_HEADER, &inner));
        check("VXLAN", segment_of(LinkLayer::Ethernet, &ethernet(IPV4, &ipv4(UDP, &vxlan))), false, 70);
        check("VXLAN", segment_of(LinkLayer::Ethernet, &ethernet(IPV6, &ipv6(UDP, &vxlan))), false, 70);
    }
    let geneve = udp(6081, &after(&[0x02, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 4, 5, 6, 7, 8], &inner));
    check("Geneve", segment_of(LinkLayer::Ethernet, &ethernet(IPV4, &ipv4(UDP, &geneve))), false, 70);
    let no_flag = udp(4789, &after(&[0; 8], &inner));
    assert_eq!(other(&ethernet(IPV4, &ipv4(UDP, &no_flag))), OtherPacket::Udp);
    let reply = udp(4790, &after(&VXLAN_HEADER, &inner));
    assert_eq!(other(&ethernet(IPV4, &ipv4(UDP, &reply))), OtherPacket::Udp);
}

#[test]
fn big_tcp_in_vxlan_takes_its_length_from_the_frame() {
    let inner = ethernet(IPV6, &ipv6(TCP, &tcp(30)));
    let mut frame = ethernet(IPV6, &ipv6(UDP, &udp(4789, &after(&VXLAN_HEADER, &inner))));
    frame[18..20].fill(0);
    frame[14 + 40 + 8 + 8 + 14 + 4..][..2].fill(0);
    let headers = 14 + 40 + 8 + 8 + 14 + 40 + 20;
    let Decoded::Tcp(segment) = decode(LinkLayer::Ethernet, &frame, headers + 80_000).packet else { panic!() };
    check("BIG TCP in VXLAN", Some(segment), true, 80_000);
}

#[test]
fn ip_in_ip_is_read() {
    let (v4, v6) = (ipv4(TCP, &tcp(70)), ipv6(TCP, &tcp(70)));
    for (outer, is_v6) in [
        (ethernet(IPV4, &ipv4(4, &v4)), false),
        (ethernet(IPV4, &ipv4(41, &v6)), true),
        (ethernet(IPV6, &ipv6(4, &v4)), false),
        (ethernet(IPV6, &ipv6(41, &v6)), true),
    ] {
        check("IP in IP", segment_of(LinkLayer::Ethernet, &outer), is_v6, 70);
    }
}

#[test]
fn fragment_of_a_tunnel_is_a_fragment() {
    let first = ethernet(IPV4, &ipv4_with(4, &[], 0x2000, &ipv4(TCP, &tcp(70))));
    let decoded = decode_ethernet(&first);
    assert!(decoded.is_fragment && matches!(decoded.packet, Decoded::Tcp(_)));
    let later = decode_ethernet(&ethernet(IPV4, &ipv4_with(4, &[], 0x0010, &ipv4(TCP, &tcp(70)))));
    assert_eq!((later.is_fragment, later.packet), (true, Decoded::Other(OtherPacket::Fragment)));
}

#[test]
fn layers_have_a_limit() {
    let mut packet = ipv4(TCP, &tcp(0));
    for _ in 0..MAX_LAYERS - 2 {
        packet = ipv4(4, &packet);
    }
    assert!(segment_of(LinkLayer::Ethernet, &ethernet(IPV4, &packet)).is_some());
    packet = ipv4(4, &packet);
    assert_eq!(other(&ethernet(IPV4, &packet)), OtherPacket::Malformed);
    let tags = [0x81, 0].repeat(20_000);
    assert_eq!(other(&ethernet(0x8100, &tags)), OtherPacket::Malformed);
}
