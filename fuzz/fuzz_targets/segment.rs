//! Any frame with any virtual-net header: described, cut, changed, and answered as too big. Checks the rules for every
//! frame.

#![no_main]

use std::ops::Range;

use lfn_link::Packet;
use lfn_packet::{
    Changes, Corruption, PacketRange, Segments, VnetHeader, extract, extract_headers, inspect, write,
    write_too_big_reply,
};
use libfuzzer_sys::fuzz_target;

/// Request from the first bytes of the input. The rest of the input is the frame.
struct Request {
    vnet: VnetHeader,
    first: u32,
    count: u32,
    mtu: u16,
    changes: Changes,
}

fuzz_target!(|data: &[u8]| {
    let Some((request, frame)) = request(data) else { return };
    let segments = inspect(frame, &request.vnet);
    assert!(segments.count >= 1);
    assert_eq!(u64::from(segments.header_len) + u64::from(segments.payload_len), frame.len() as u64);
    let packet = Packet::from_segments(&segments, 7);
    assert_eq!(
        packet.bytes(),
        u64::from(segments.count) * u64::from(segments.header_len) + u64::from(segments.payload_len)
    );
    check_cut(frame, &request, &segments);
    check_pieces(frame, &request.vnet, &segments);
    check_changes(frame, &request, &packet);
    check_answer(frame, &request);
});

fn request(data: &[u8]) -> Option<(Request, &[u8])> {
    let (head, frame) = data.split_first_chunk::<24>()?;
    let vnet = VnetHeader::parse(head)?;
    assert_eq!(&vnet.encode()[..], &head[..10]);
    let kind = head[10];
    let corruption = Corruption { random: u64::from_le_bytes(*head.last_chunk()?), is_hidden: kind & 1 == 1 };
    let changes =
        Changes { is_marked: kind & 2 == 2, corruption: (kind & 4 == 4).then_some(corruption), is_copy: kind & 8 == 8 };
    let (first, count) = (u32::from(head[11]), u32::from(head[12]));
    let mtu = u16::from_le_bytes([head[13], head[14]]);
    Some((Request { vnet, first, count, mtu, changes }, frame))
}

/// Cutting the headers and cutting the whole frame give the same bytes, at most the length of the frame.
fn check_cut(frame: &[u8], request: &Request, segments: &Segments) {
    let (mut whole, mut headers) = (Vec::new(), Vec::new());
    let vnet = extract(frame, &request.vnet, request.first, request.count, &mut whole);
    let rest = extract_headers(frame, &request.vnet, request.first, request.count, &mut headers);
    headers.extend_from_slice(&frame[rest.payload]);
    assert_eq!((&headers, rest.vnet), (&whole, vnet));
    assert!(whole.len() <= frame.len());
    if segments.count == 1 {
        assert_eq!((&whole[..], vnet), (frame, request.vnet));
    }
}

/// The pieces of a frame contain its whole payload, and the description of each piece is correct.
fn check_pieces(frame: &[u8], vnet: &VnetHeader, segments: &Segments) {
    if segments.count == 1 || segments.count > 64 {
        return;
    }
    let mut end = segments.header_len as usize;
    for index in 0..segments.count {
        let mut out = Vec::new();
        let piece_headers = extract_headers(frame, vnet, index, 1, &mut out);
        assert_eq!((piece_headers.payload.start, out.len()), (end, segments.header_len as usize));
        end = piece_headers.payload.end;
        out.extend_from_slice(&frame[piece_headers.payload]);
        let piece = inspect(&out, &piece_headers.vnet);
        let is_last = index + 1 == segments.count;
        assert_eq!(piece.wire_len, if is_last { segments.last_wire_len } else { segments.wire_len });
        assert_eq!((piece.count, piece.flow, piece.ecn), (1, segments.flow, segments.ecn));
    }
    assert_eq!(end, frame.len());
}

/// A changed packet has the length of the unchanged one, and only a limited number of bits differ.
fn check_changes(frame: &[u8], request: &Request, packet: &Packet) {
    let first = request.first % packet.count;
    let count = if request.changes.corruption.is_some() { 1 } else { request.count.clamp(1, packet.count - first) };
    let plain = Packet { first, count, ..*packet };
    let before = written(frame, &request.vnet, &plain);
    let after = written(frame, &request.vnet, &Packet { changes: request.changes, ..plain });
    assert_eq!(before.0.len(), after.0.len());
    let changed: u32 = before.0.iter().zip(&after.0).map(|(before, after)| (before ^ after).count_ones()).sum();
    match request.changes {
        Changes { is_marked: false, corruption: None, .. } => assert_eq!(before, after),
        // At most the flipped bit, two bits of a mark, and two checksums.
        _ => assert!(changed <= 1 + 2 + 2 * 16, "{changed} bits changed"),
    }
}

fn written(frame: &[u8], vnet: &VnetHeader, packet: &Packet) -> (Vec<u8>, VnetHeader) {
    let mut out = Vec::new();
    let range = PacketRange { first: packet.first, count: packet.count };
    let output = write(frame, vnet, &range, &packet.changes, &mut out);
    let Range { start, end } = output.payload;
    out.extend_from_slice(&frame[start..end]);
    (out, output.vnet)
}

/// A reply has a limited length, and never gets a reply itself.
fn check_answer(frame: &[u8], request: &Request) {
    let mut reply = vec![1, 2, 3];
    if !write_too_big_reply(frame, &request.vnet, request.first, request.mtu, &mut reply) {
        return assert!(reply.is_empty());
    }
    // Ethernet with two tags, and the maximum reply of IPv6.
    assert!(reply.len() <= 22 + 1280);
    let again = inspect(&reply, &VnetHeader::default());
    assert_eq!(again.count, 1);
    assert!(!write_too_big_reply(&reply, &VnetHeader::default(), 0, request.mtu, &mut Vec::new()));
}
