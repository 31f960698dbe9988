//! Cutting of super-packets, with an independent checksum and an independent parser.

use lfn_packet::{OutputFrame, Segments, VnetHeader, extract, extract_headers, inspect};
use proptest::prelude::*;

use crate::frames::{ACK, CWR, FIN, PSH, Shape, TCP, checksum, pseudo_header, shape};

/// Checks every field of a piece, and returns its payload.
fn check_piece(shape: &Shape, first: u32, count: u32, vnet: &VnetHeader, frame: &[u8]) -> Vec<u8> {
    let original = shape.frame();
    let total = shape.payload.div_ceil(usize::from(shape.size)) as u32;
    let (network, transport, header) = (shape.network_at(), shape.transport_at(), shape.header());
    let payload = &frame[header..];

    // Only the fields that must change differ.
    assert_eq!(frame[..network], original[..network]);
    assert_eq!(shape.transport_len(frame), frame.len() - transport, "network length");
    if !shape.v6 {
        assert_eq!(checksum(&frame[network..transport]), 0, "header checksum");
        let id = u16::from_be_bytes([frame[network + 4], frame[network + 5]]);
        assert_eq!(id, shape.id.wrapping_add(first as u16));
        assert_eq!(frame[network + 6..network + 10], original[network + 6..network + 10]);
        assert_eq!(frame[network + 12..transport], original[network + 12..transport]);
    } else {
        assert_eq!(frame[network + 6..transport], original[network + 6..transport]);
    }
    if shape.udp {
        let length = u16::from_be_bytes([frame[transport + 4], frame[transport + 5]]);
        assert_eq!(usize::from(length), 8 + payload.len());
    } else {
        let sequence = u32::from_be_bytes(frame[transport + 4..transport + 8].try_into().unwrap());
        assert_eq!(sequence, shape.sequence.wrapping_add(first * u32::from(shape.size)));
        let mut flags = shape.flags;
        if first > 0 {
            flags &= !CWR;
        }
        if first + count < total {
            flags &= !(FIN | PSH);
        }
        assert_eq!(frame[transport + 13], flags);
        assert_eq!(frame[transport + 8..transport + 13], original[transport + 8..transport + 13]);
        assert_eq!(frame[transport + 20..header], original[transport + 20..header]);
    }

    // The checksum is correct after a device completes it.
    assert_eq!(vnet.flags & VnetHeader::NEEDS_CSUM, VnetHeader::NEEDS_CSUM);
    let (start, field) = (usize::from(vnet.csum_start), usize::from(vnet.csum_start + vnet.csum_offset));
    assert_eq!(start, transport);
    let mut complete = frame.to_vec();
    let sum = checksum(&frame[start..]);
    complete[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    let mut covered = pseudo_header(&complete, shape);
    covered.extend(&complete[transport..]);
    assert_eq!(checksum(&covered), 0, "transport checksum");

    if count == 1 && total > 1 {
        assert_eq!((vnet.gso_type, vnet.gso_size), (VnetHeader::GSO_NONE, 0));
    } else {
        assert_eq!((vnet.gso_type, vnet.gso_size), (shape.vnet().gso_type, shape.size));
    }
    payload.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn pieces_are_correct_and_complete(shape in shape(), cuts in prop::collection::vec(1_u32..20, 1..40)) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let segments = inspect(&frame, &vnet);
        prop_assert_eq!(segments.count as usize, shape.payload.div_ceil(usize::from(shape.size)));
        prop_assert_eq!(segments.header_len as usize, shape.header());
        prop_assert_eq!(segments.payload_len as usize, shape.payload);
        let mut payload = Vec::new();
        let mut piece = Vec::new();
        let mut first = 0;
        for count in cuts.into_iter().cycle() {
            if first == segments.count {
                break;
            }
            let count = count.min(segments.count - first);
            let header = extract(&frame, &vnet, first, count, &mut piece);
            payload.extend(check_piece(&shape, first, count, &header, &piece));

            // The description of the piece matches the description of the whole.
            let inner = inspect(&piece, &header);
            prop_assert_eq!(inner.count, count);
            let is_last = first + count == segments.count;
            prop_assert_eq!(inner.last_wire_len, if is_last { segments.last_wire_len } else { segments.wire_len });
            prop_assert!(count == 1 || inner.wire_len == segments.wire_len);
            first += count;
        }
        prop_assert_eq!(payload, shape.payload());
    }

    #[test]
    fn cutting_twice_equals_cutting_once(shape in shape(), at in any::<[u32; 4]>()) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let total = inspect(&frame, &vnet).count;
        let first = at[0] % total;
        let count = 1 + at[1] % (total - first);
        let (inner, inner_count) = (at[2] % count, 1 + at[3] % (count - at[2] % count));
        let (mut piece, mut twice, mut once) = (Vec::new(), Vec::new(), Vec::new());
        let header = extract(&frame, &vnet, first, count, &mut piece);
        let by_two = extract(&piece, &header, inner, inner_count, &mut twice);
        let by_one = extract(&frame, &vnet, first + inner, inner_count, &mut once);
        prop_assert_eq!(twice, once);
        // The first cut corrects `hdr_len`, which is a hint.
        prop_assert_eq!(VnetHeader { hdr_len: 0, ..by_two }, VnetHeader { hdr_len: 0, ..by_one });
    }

    #[test]
    fn complete_range_is_unchanged(shape in shape()) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let mut out = vec![1, 2, 3];
        let count = inspect(&frame, &vnet).count;
        prop_assert_eq!(extract(&frame, &vnet, 0, count, &mut out), vnet);
        prop_assert_eq!(&out, &frame);
        prop_assert_eq!(extract(&frame, &vnet, 0, u32::MAX, &mut out), vnet);
        prop_assert_eq!(&out, &frame);
    }

    #[test]
    fn extracted_headers_equal_the_extracted_frame(shape in shape(), first in 0_u32..64, count in 1_u32..64) {
        let (frame, vnet) = (shape.frame(), shape.vnet());
        let (mut headers, mut whole) = (Vec::new(), Vec::new());
        let OutputFrame { vnet: header, payload } = extract_headers(&frame, &vnet, first, count, &mut headers);
        prop_assert_eq!(header, extract(&frame, &vnet, first, count, &mut whole));
        headers.extend(&frame[payload]);
        prop_assert_eq!(headers, whole);
    }

    /// Invalid frames are one complete packet, without access out of bounds.
    #[test]
    fn invalid_frames_are_one_opaque_packet(
        shape in shape(),
        damage in prop::collection::vec((0_usize..120, any::<u8>()), 0..6),
        keep in prop_oneof![3 => Just(usize::MAX), 1 => 0_usize..200],
        vnet in any::<(u8, u16, u16, u16)>(),
        wild in any::<bool>(),
        range in any::<(u32, u32)>(),
    ) {
        let mut frame = shape.frame();
        for (at, byte) in damage {
            if let Some(slot) = frame.get_mut(at) {
                *slot = byte;
            }
        }
        frame.truncate(keep);
        let header = if wild {
            VnetHeader { flags: vnet.0 & 1, gso_type: vnet.0 % 8, hdr_len: vnet.1, gso_size: vnet.2, ..shape.vnet() }
        } else {
            shape.vnet()
        };
        check_any(&frame, &header, range.0, range.1);
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic(
        frame in prop::collection::vec(any::<u8>(), 0..200),
        vnet in any::<[u8; 10]>(),
        range in any::<(u32, u32)>(),
    ) {
        let header = VnetHeader::parse(&vnet).unwrap();
        prop_assert_eq!(header.encode(), vnet);
        check_any(&frame, &header, range.0, range.1);
    }
}

/// Checks the properties that hold for any bytes.
fn check_any(frame: &[u8], vnet: &VnetHeader, first: u32, count: u32) {
    let segments = inspect(frame, vnet);
    assert!(segments.count >= 1);
    assert_eq!((segments.header_len + segments.payload_len) as usize, frame.len());
    let bytes = u64::from(segments.count - 1) * u64::from(segments.wire_len) + u64::from(segments.last_wire_len);
    let headers = u64::from(segments.count) * u64::from(segments.header_len);
    assert_eq!(bytes, headers + u64::from(segments.payload_len));
    let mut out = Vec::new();
    let header = extract(frame, vnet, first % segments.count, count, &mut out);
    assert!(out.len() <= frame.len());
    if segments.count == 1 {
        assert_eq!((&out[..], header), (frame, *vnet));
    }
    extract(frame, vnet, first, count, &mut out);
}

#[test]
fn inconsistent_headers_are_not_cut() {
    let (frame, vnet) = (TCP.frame(), TCP.vnet());
    let size = frame.len() as u32;
    let whole = inspect(&frame, &vnet);
    assert_eq!((whole.count, whole.has_payload), (5, true));
    // The flow may still be known from the headers.
    let Segments { flow, ecn, has_payload, .. } = whole;
    let link_header = inspect(&frame, &vnet).link_header;
    let opaque = Segments {
        count: 1,
        header_len: size,
        payload_len: 0,
        wire_len: size,
        last_wire_len: size,
        flow,
        ecn,
        has_payload,
        link_header,
    };
    let like = |other: Segments| Segments { flow, ecn, has_payload, ..other };
    for (what, wrong) in [
        ("no offload", VnetHeader { gso_type: VnetHeader::GSO_NONE, ..vnet }),
        ("the other family", VnetHeader { gso_type: VnetHeader::GSO_TCPV6, ..vnet }),
        ("the other protocol", VnetHeader { gso_type: VnetHeader::GSO_UDP_L4, ..vnet }),
        ("fragmented UDP, which is no series of datagrams", VnetHeader { gso_type: 3, ..vnet }),
        ("a tunnel", VnetHeader { gso_type: VnetHeader::GSO_TCPV4 | 0x20, ..vnet }),
        ("a size of zero", VnetHeader { gso_size: 0, ..vnet }),
        ("a checksum in another header", VnetHeader { csum_start: 84, ..vnet }),
    ] {
        assert_eq!(like(inspect(&frame, &wrong)), opaque, "{what}");
    }
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        // Without a checksum offset, only the headers decide.
        [vnet, VnetHeader { flags: 0, ..vnet }].map(|vnet| like(inspect(&frame, &vnet)))
    };
    for (what, at, byte) in [
        ("ARP", 13, 0x06),
        ("IP version", 14, 0x65),
        ("IP header of 16 bytes", 14, 0x44),
        ("length other than the frame's", 17, 0),
        ("more fragments", 20, 0x20),
        ("fragment offset", 21, 1),
        ("protocol", 23, 17),
        ("TCP header of 16 bytes", 14 + 32 + 12, 0x40),
    ] {
        assert_eq!(changed(at, byte), [opaque; 2], "{what}");
    }
    // An IP header of length zero, and a TCP header at the same place that looks valid.
    let mut overlaid = frame.clone();
    (overlaid[14], overlaid[14 + 12]) = (0x40, 0x50);
    assert_eq!(like(inspect(&overlaid, &VnetHeader { flags: 0, ..vnet })), opaque);
}

#[test]
fn sequence_and_id_wrap_and_flags_are_placed() {
    let (frame, vnet) = (TCP.frame(), TCP.vnet());
    let mut piece = Vec::new();
    let mut seen = Vec::new();
    for index in 0..5 {
        let header = extract(&frame, &vnet, index, 1, &mut piece);
        check_piece(&TCP, index, 1, &header, &piece);
        seen.push((piece.len(), piece[14 + 32 + 13]));
    }
    let header = TCP.header();
    assert_eq!(seen[0], (header + 1448, ACK | CWR));
    assert_eq!(seen[2], (header + 1448, ACK));
    assert_eq!(seen[4], (header + 100, ACK | PSH | FIN));
}

#[test]
fn pieces_request_checksum_offload() {
    let vnet = VnetHeader { flags: 0, csum_start: 0, csum_offset: 0, ..TCP.vnet() };
    let mut piece = Vec::new();
    let header = extract(&TCP.frame(), &vnet, 1, 2, &mut piece);
    check_piece(&TCP, 1, 2, &header, &piece);
}
