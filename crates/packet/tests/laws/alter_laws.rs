//! Changes of the link to the bytes of packets: marks, corruption, replies to packets that are too big, and flow
//! hashes. An independent checksum and an independent header parser check the results.

use std::collections::BTreeSet;

use lfn_packet::{
    Changes, Corruption, Ecn, OutputFrame, PacketRange, VnetHeader, extract, inspect, write, write_too_big_reply,
};
use proptest::prelude::*;

use crate::frames::{Shape, TCP, checksum, pseudo_header, shape};

/// Virtual packets of a frame, and their changes.
#[derive(Clone, Copy)]
struct Packet {
    first: u32,
    count: u32,
    changes: Changes,
}

/// Returns all virtual packets of a frame.
fn whole(frame: &[u8], vnet: &VnetHeader) -> Packet {
    Packet { first: 0, count: inspect(frame, vnet).count, changes: Changes::default() }
}

/// Returns one virtual packet of a frame with these changes.
fn one(frame: &[u8], vnet: &VnetHeader, index: u32, changes: Changes) -> Packet {
    let packet = whole(frame, vnet);
    Packet { first: index % packet.count, count: 1, changes }
}

fn written(frame: &[u8], vnet: &VnetHeader, packet: &Packet) -> (Vec<u8>, VnetHeader) {
    let mut out = vec![1, 2, 3];
    let OutputFrame { vnet, payload } =
        write(frame, vnet, &PacketRange { first: packet.first, count: packet.count }, &packet.changes, &mut out);
    out.extend_from_slice(&frame[payload]);
    (out, vnet)
}

/// Returns the frame with an ECN field as set by its sender.
fn with_ecn(shape: &Shape, bits: u8) -> Vec<u8> {
    let mut frame = shape.frame();
    let at = shape.network_at();
    if shape.v6 {
        frame[at + 1] = frame[at + 1] & 0xcf | bits << 4;
    } else {
        frame[at + 1] = bits;
        update_header_checksum(&mut frame, shape);
    }
    frame
}

/// Updates the checksum of the IPv4 header.
fn update_header_checksum(frame: &mut [u8], shape: &Shape) {
    let at = shape.network_at();
    frame[at + 10..at + 12].fill(0);
    let sum = checksum(&frame[at..shape.transport_at()]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
}

fn ecn_bits(frame: &[u8], shape: &Shape) -> u8 {
    let byte = frame[shape.network_at() + 1];
    if shape.v6 { byte >> 4 & 3 } else { byte & 3 }
}

/// Completes the checksum like a device.
fn complete(frame: &[u8], vnet: &VnetHeader) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if vnet.flags & VnetHeader::NEEDS_CSUM != 0 {
        let (start, field) = (usize::from(vnet.csum_start), usize::from(vnet.csum_start + vnet.csum_offset));
        let sum = match checksum(&frame[start..]) {
            0 => 0xffff,
            sum => sum,
        };
        frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// Reports whether a receiver accepts a complete packet: IPv4 header, then TCP or UDP.
fn is_accepted(frame: &[u8], shape: &Shape) -> bool {
    let (network, transport) = (shape.network_at(), shape.transport_at());
    if !shape.v6 && checksum(&frame[network..transport]) != 0 {
        return false;
    }
    let mut covered = pseudo_header(frame, shape);
    covered.extend(&frame[transport..]);
    checksum(&covered) == 0
}

fn flipped_bits(a: &[u8], b: &[u8]) -> Vec<usize> {
    assert_eq!(a.len(), b.len());
    let bits = |(at, (a, b)): (usize, (&u8, &u8))| {
        let difference = a ^ b;
        (0..8).filter(move |bit| difference >> bit & 1 == 1).map(move |bit| at * 8 + bit)
    };
    a.iter().zip(b).enumerate().flat_map(bits).collect()
}

fn corruption(random: u64, is_hidden: bool) -> Changes {
    Changes { corruption: Some(Corruption { random, is_hidden }), ..Changes::default() }
}

const CONGESTED: Changes = Changes { is_marked: true, corruption: None, is_copy: false };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn unchanged_packets_are_only_cut(shape in shape(), first in 0_u32..64, count in 1_u32..64) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let packet = Packet { first, count, ..whole(&frame, &vnet) };
        let mut expected = Vec::new();
        let header = extract(&frame, &vnet, first, count, &mut expected);
        prop_assert_eq!(written(&frame, &vnet, &packet), (expected, header));
    }

    #[test]
    fn only_ecn_capable_packets_are_marked(
        shape in shape(), bits in 0_u8..4, first in 0_u32..64, count in 1_u32..64,
    ) {
        let (frame, vnet) = (with_ecn(&shape, bits), shape.vnet());
        let segments = inspect(&frame, &vnet);
        let expected = [Ecn::NotCapable, Ecn::Capable, Ecn::Capable, Ecn::Congested][usize::from(bits)];
        prop_assert_eq!(segments.ecn, expected);
        let packet = Packet { first, count, ..whole(&frame, &vnet) };
        let (plain, plain_vnet) = written(&frame, &vnet, &packet);
        let (marked, marked_vnet) = written(&frame, &vnet, &Packet { changes: CONGESTED, ..packet });
        prop_assert_eq!(plain_vnet, marked_vnet);
        prop_assert_eq!(ecn_bits(&marked, &shape), if bits == 0 { 0 } else { 3 });
        // Only the ECN field and the checksum of the IPv4 header differ, and the checksum is correct.
        let mut expected = plain;
        expected[shape.network_at() + 1] = marked[shape.network_at() + 1];
        if !shape.v6 {
            prop_assert_eq!(checksum(&marked[shape.network_at()..shape.transport_at()]), 0);
            update_header_checksum(&mut expected, &shape);
        }
        prop_assert_eq!(marked, expected);
    }

    #[test]
    fn corruption_flips_one_bit_that_checksums_detect(shape in shape(), index in 0_u32..64, draw in any::<u64>()) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let packet = one(&frame, &vnet, index, Changes::default());
        let (plain, plain_vnet) = written(&frame, &vnet, &packet);
        let whole = complete(&plain, &plain_vnet);
        prop_assert!(is_accepted(&whole, &shape));
        let (corrupted, header) = written(&frame, &vnet, &Packet { changes: corruption(draw, false), ..packet });
        // The checksum must not be completed again, and the packet must not be cut.
        prop_assert_eq!((header.flags, header.gso_type, header.gso_size), (0, 0, 0));
        let bits = flipped_bits(&whole, &corrupted);
        prop_assert_eq!(bits.len(), 1);
        let least = if shape.v6 { shape.transport_at() } else { shape.network_at() };
        prop_assert!(bits[0] / 8 >= least);
        // With a wrong length the receiver may stop before it checks the checksum.
        let lengths = [shape.network_at(), shape.network_at() + 2, shape.network_at() + 3];
        prop_assert!(!shape.v6 && lengths.contains(&(bits[0] / 8)) || !is_accepted(&corrupted, &shape));
    }

    #[test]
    fn hidden_corruption_flips_one_payload_bit_undetected(
        shape in shape(), index in 0_u32..64, draw in any::<u64>(), complete_before in any::<bool>(),
    ) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let packet = one(&frame, &vnet, index, Changes::default());
        prop_assert!(inspect(&frame, &vnet).has_payload);
        let (mut plain, mut plain_vnet) = written(&frame, &vnet, &packet);
        if plain_vnet.gso_type != VnetHeader::GSO_NONE {
            (plain_vnet.gso_type, plain_vnet.gso_size) = (VnetHeader::GSO_NONE, 0);
        }
        if complete_before {
            plain = complete(&plain, &plain_vnet);
            plain_vnet = VnetHeader::default();
        }
        let alone = Packet { first: 0, changes: corruption(draw, true), ..packet };
        let (corrupted, header) = written(&plain, &plain_vnet, &alone);
        prop_assert_eq!(header, plain_vnet);
        let end = complete(&corrupted, &header);
        prop_assert!(is_accepted(&end, &shape));
        prop_assert_eq!(flipped_bits(&plain[shape.header()..], &corrupted[shape.header()..]).len(), 1);
        // Before the payload only the checksum changed.
        let field = shape.transport_at() + if shape.udp { 6 } else { 16 };
        end[..shape.header()].iter().zip(&complete(&plain, &plain_vnet)).enumerate().for_each(|(at, (after, before))| {
            assert!(after == before || (field..field + 2).contains(&at), "byte {at}");
        });
        if shape.udp {
            prop_assert_ne!(&end[field..field + 2], &[0, 0]);
        }
    }

    #[test]
    fn packet_can_be_corrupted_and_marked(shape in shape(), draw in any::<u64>(), hidden in any::<bool>()) {
        let (frame, vnet) = (with_ecn(&shape, 2), shape.vnet());
        let changes = Changes { is_marked: true, ..corruption(draw, hidden) };
        let (out, header) = written(&frame, &vnet, &one(&frame, &vnet, 0, changes));
        let accepted = is_accepted(&complete(&out, &header), &shape);
        let (apart, _) = written(&frame, &vnet, &one(&frame, &vnet, 0, corruption(draw, hidden)));
        let lengths = [shape.network_at(), shape.network_at() + 2, shape.network_at() + 3];
        let first = flipped_bits(&complete(&written(&frame, &vnet, &one(&frame, &vnet, 0, Changes::default())).0, &vnet), &apart);
        prop_assert!(accepted == hidden || lengths.iter().any(|at| first.iter().any(|bit| bit / 8 == *at)));
        prop_assert_eq!(out.len(), apart.len());
    }

    #[test]
    fn too_big_reply_quotes_the_packet(shape in shape(), index in 0_u32..64, mtu in 68_u16..9000) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let packet = one(&frame, &vnet, index, Changes::default());
        let mut reply = vec![1, 2, 3];
        prop_assert!(write_too_big_reply(&frame, &vnet, packet.first, mtu, &mut reply));
        check_reply(&shape, &reply, mtu, &complete(&written(&frame, &vnet, &packet).0, &shape.vnet()));
        // A reply gets no reply.
        let mut out = Vec::new();
        prop_assert!(!write_too_big_reply(&reply, &VnetHeader::default(), 0, mtu, &mut out) && out.is_empty());
    }

    #[test]
    fn packets_of_a_flow_have_the_same_hash(shape in shape(), index in any::<u32>(), byte in any::<u8>()) {
        let (mut frame, vnet) = (shape.frame(), shape.vnet());
        let whole = inspect(&frame, &vnet);
        let (piece, header) = written(&frame, &vnet, &one(&frame, &vnet, index, Changes::default()));
        prop_assert_eq!(inspect(&piece, &header).flow, whole.flow);
        prop_assert!(inspect(&piece, &header).has_payload);
        // Another port gives another flow hash, except by chance.
        let at = shape.transport_at() + usize::from(byte % 4);
        frame[at] = frame[at].wrapping_add(1 + byte / 4);
        prop_assert_ne!(inspect(&frame, &vnet).flow, whole.flow);
    }

    /// Invalid frames: no access out of bounds, and no output longer than the input.
    #[test]
    fn invalid_frames_cause_no_panic(
        shape in shape(),
        wrong in prop::collection::vec((0_usize..120, any::<u8>()), 0..6),
        keep in prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..200],
        vnet in any::<(u8, u16, u16, u16)>(),
        wild in any::<bool>(),
        (first, draw, hidden, is_marked) in any::<(u32, u64, bool, bool)>(),
    ) {
        let mut frame = shape.frame();
        for (at, byte) in wrong {
            if let Some(slot) = frame.get_mut(at) {
                *slot = byte;
            }
        }
        frame.truncate(keep);
        let header = if wild {
            VnetHeader { flags: vnet.0, gso_type: vnet.0 % 8, gso_size: vnet.1, csum_start: vnet.2, csum_offset: vnet.3, hdr_len: 0 }
        } else {
            shape.vnet()
        };
        let changes = Changes { is_marked, ..corruption(draw, hidden) };
        let (out, _) = written(&frame, &header, &one(&frame, &header, first, changes));
        prop_assert!(out.len() <= frame.len());
        let mut reply = Vec::new();
        if write_too_big_reply(&frame, &header, first, 1400, &mut reply) {
            prop_assert!(reply.len() <= 22 + 1280);
        }
    }
}

/// Checks every field of a reply to `original`, which is complete.
fn check_reply(shape: &Shape, reply: &[u8], mtu: u16, original: &[u8]) {
    let at = shape.network_at();
    assert_eq!((&reply[..6], &reply[6..12]), (&original[6..12], &original[..6]));
    assert_eq!(reply[12..at], original[12..at], "tags and type");
    let (header, most) = if shape.v6 { (40, 1280) } else { (20, 576) };
    let (packet, message) = (&reply[at..], &reply[at + header..]);
    let quote = &message[8..];
    let expected = &original[at..];
    assert_eq!(quote, &expected[..expected.len().min(most - header - 8)]);
    if shape.v6 {
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), message.len());
        assert_eq!((packet[0], packet[6], packet[7]), (0x60, 58, 64));
        assert_eq!((&packet[8..24], &packet[24..40]), (&expected[24..40], &expected[8..24]));
        let mut covered = packet[8..40].to_vec();
        covered.extend((message.len() as u32).to_be_bytes());
        covered.extend([0, 0, 0, 58]);
        covered.extend(message);
        assert_eq!(checksum(&covered), 0);
        assert_eq!((message[0], message[1]), (2, 0));
        assert_eq!(u32::from_be_bytes(message[4..8].try_into().unwrap()), u32::from(mtu));
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
        assert_eq!((packet[0], packet[8], packet[9]), (0x45, 64, 1));
        assert_eq!((&packet[12..16], &packet[16..20]), (&expected[16..20], &expected[12..16]));
        assert_eq!((checksum(&packet[..20]), checksum(message)), (0, 0));
        assert_eq!(message[..6], [3, 4, message[2], message[3], 0, 0]);
        assert_eq!(u16::from_be_bytes([message[6], message[7]]), mtu);
    }
}

/// Builds an IPv4 frame of any protocol with a correct header checksum.
fn ipv4(protocol: u8, fragment: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + body.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(body);
    frame
}

fn ipv6(next: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend((body.len() as u16).to_be_bytes());
    frame.extend([next, 64]);
    frame.extend([0xfd; 15].into_iter().chain([1]).chain([0xfd; 15]).chain([2]));
    frame.extend(body);
    frame
}

const PLAIN: VnetHeader = VnetHeader { flags: 0, gso_type: 0, hdr_len: 0, gso_size: 0, csum_start: 0, csum_offset: 0 };

#[test]
fn fragments_hash_by_their_addresses() {
    let flow = |frame: &[u8]| inspect(frame, &PLAIN).flow;
    let datagram = [[0x1c, 0x9b, 0xc0, 0x01, 0, 100, 0, 0], [9; 8]].concat();
    let first = flow(&ipv4(17, 0x2000, &datagram));
    assert_eq!(first, flow(&ipv4(17, 2, &[5; 16])));
    assert_ne!(first, flow(&ipv4(17, 0, &datagram)));
    // In IPv6 the flow is read after the fragment header, also after another extension header.
    let with = |offset: u8, more: u8, body: &[u8]| [&[17, 0, 0, offset | more, 0, 0, 0, 1], body].concat();
    let first = flow(&ipv6(44, &with(0, 1, &datagram)));
    assert_eq!(first, flow(&ipv6(44, &with(16, 0, &[5; 16]))));
    let options = [&[44, 0, 1, 4, 0, 0, 0, 0], &with(16, 0, &[5; 16])[..]].concat();
    assert_eq!(first, flow(&ipv6(0, &options)));
    let whole = flow(&ipv6(17, &datagram));
    assert_ne!(first, whole);
    // An atomic fragment is a complete packet, also after options.
    assert_eq!(whole, flow(&ipv6(44, &with(0, 0, &datagram))));
    assert_eq!(whole, flow(&ipv6(60, &[&[17, 0, 1, 4, 0, 0, 0, 0], &datagram[..]].concat())));
}

#[test]
fn flow_hashes_are_spread_evenly() {
    const BUCKETS: usize = 1024;
    for (what, change) in [
        (
            "source ports",
            (|frame: &mut [u8], index: u16| frame[34..36].copy_from_slice(&index.to_be_bytes())) as fn(&mut [u8], u16),
        ),
        ("addresses", |frame, index| frame[28..30].copy_from_slice(&index.to_be_bytes())),
        ("ethernet addresses of what is not IP", |frame, index| {
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame[10..12].copy_from_slice(&index.to_be_bytes());
        }),
    ] {
        let mut buckets = [0_u32; BUCKETS];
        let mut flows = BTreeSet::new();
        for index in 0..20_480 {
            let mut frame = ipv4(6, 0, &[7; 40]);
            change(&mut frame, index);
            let flow = inspect(&frame, &PLAIN).flow;
            buckets[flow as usize % BUCKETS] += 1;
            flows.insert(flow);
        }
        // Of 2·10⁸ pairs almost none has equal values of 2³².
        assert!(flows.len() > 20_475, "{what}: {} flows", flows.len());
        let chi: f64 = buckets.iter().map(|count| (f64::from(*count) - 20.0).powi(2) / 20.0).sum();
        // Limits: 99.9 % of chi-square with 1,023 degrees of freedom, and a lower limit because a hash is not perfectly
        // even.
        assert!((800.0..1168.0).contains(&chi), "{what}: chi-square {chi}");
    }
}

#[test]
fn errors_groups_and_fragments_get_no_reply() {
    let answered = |frame: &[u8]| write_too_big_reply(frame, &PLAIN, 0, 1400, &mut Vec::new());
    let icmp = |kind: u8| [kind, 0, 0, 0, 0, 1, 0, 1];
    assert!(answered(&ipv4(6, 0, &[0; 40])) && answered(&ipv4(6, 0x2000, &[0; 40])));
    assert!(answered(&ipv4(1, 0, &icmp(8))) && answered(&ipv6(58, &icmp(128))));
    for kind in [3, 4, 5, 11, 12] {
        assert!(!answered(&ipv4(1, 0, &icmp(kind))), "ICMP {kind}");
    }
    for kind in [1, 2, 3, 4, 127, 137] {
        assert!(!answered(&ipv6(58, &icmp(kind))), "ICMPv6 {kind}");
    }
    assert!(!answered(&ipv4(1, 0, &[])), "a message without a type");
    assert!(!answered(&ipv4(6, 1, &[0; 40])), "a later fragment");
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = if at < 34 { ipv4(6, 0, &[0; 40]) } else { ipv6(6, &[0; 40]) };
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        answered(&frame)
    };
    assert!(!changed(0, &[0xff; 6]), "an Ethernet broadcast");
    assert!(!changed(0, &[0x01, 0, 0x5e]), "an Ethernet multicast");
    for (what, address) in
        [("multicast", [224, 0, 0, 1]), ("broadcast", [255; 4]), ("none", [0; 4]), ("loopback", [127, 0, 0, 1])]
    {
        assert!(!changed(26, &address) && !changed(30, &address), "{what}");
    }
    assert!(!changed(38, &[0xff, 2]), "IPv6 multicast");
    assert!(!changed(12, &[0x08, 0x06]), "ARP");
}

#[test]
fn packets_without_payload_are_not_corrupted() {
    let hidden = |frame: &[u8]| {
        let segments = inspect(frame, &PLAIN);
        let packet = Packet { changes: corruption(77, true), ..whole(frame, &PLAIN) };
        (segments.has_payload, written(frame, &PLAIN, &packet).0)
    };
    let acknowledgement = ipv4(6, 0, &[&[0; 12][..], &[0x50, 0x10], &[0; 6]].concat());
    let echo = ipv4(1, 0, &[8, 0, 0, 0, 0, 1, 0, 1]);
    let fragment = ipv4(17, 0x2000, &[0x1c, 0x9b, 0xc0, 1, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let longer_than_the_packet = ipv4(17, 0, &[0x1c, 0x9b, 0xc0, 1, 0, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    for frame in [acknowledgement, echo, fragment, longer_than_the_packet, vec![0xff; 60], vec![]] {
        assert_eq!(hidden(&frame), (false, frame));
    }
    // Padding is not payload. A datagram without a checksum stays without one.
    let mut padded = ipv4(17, 0, &[0x1c, 0x9b, 0xc0, 1, 0, 12, 0, 0, 1, 2, 3, 4]);
    padded.extend([0; 14]);
    for draw in 0..64 {
        let packet = Packet { changes: corruption(draw, true), ..whole(&padded, &PLAIN) };
        let (out, _) = written(&padded, &PLAIN, &packet);
        let bits = flipped_bits(&padded, &out);
        assert!(bits.len() == 1 && (42..46).contains(&(bits[0] / 8)), "{bits:?}");
    }
}

#[test]
fn every_bit_can_be_flipped() {
    let (frame, vnet) = (TCP.frame(), TCP.vnet());
    let packet = one(&frame, &vnet, 4, Changes::default());
    let (plain, header) = written(&frame, &vnet, &packet);
    let whole = complete(&plain, &header);
    for (hidden, from) in [(false, 14), (true, TCP.header())] {
        let bits = (whole.len() - from) * 8;
        let mut hit = BTreeSet::new();
        for draw in 0..bits as u64 {
            let (out, header) = written(&frame, &vnet, &Packet { changes: corruption(draw, hidden), ..packet });
            let out = complete(&out, &header);
            hit.extend(flipped_bits(&whole[from..], &out[from..]).into_iter().filter(|bit| !hidden || *bit < bits));
        }
        assert_eq!(hit.len(), bits);
    }
}
