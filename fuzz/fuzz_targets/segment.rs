//! Any frame under any virtual-net header: described, cut, altered, answered. What must hold of every one of them.

#![no_main]

use std::ops::Range;

use lfn_core::link::segment::{Segments, VnetHeader, cut, cut_headers, inspect, too_big, write};
use lfn_core::link::{Changes, Damage, Packet};
use libfuzzer_sys::fuzz_target;

/// What the first bytes of the input say; the rest is the frame.
struct Wish {
    vnet: VnetHeader,
    first: u32,
    count: u32,
    mtu: u16,
    changes: Changes,
}

fuzz_target!(|data: &[u8]| {
    let Some((wish, frame)) = wish(data) else { return };
    let segments = inspect(frame, &wish.vnet);
    assert!(segments.count >= 1);
    assert_eq!(u64::from(segments.header) + u64::from(segments.payload), frame.len() as u64);
    let packet = segments.packet(7);
    assert_eq!(packet.bytes(), u64::from(segments.count) * u64::from(segments.header) + u64::from(segments.payload));
    check_cut(frame, &wish, &segments);
    check_pieces(frame, &wish.vnet, &segments);
    check_changes(frame, &wish, &packet);
    check_answer(frame, &wish, &packet);
});

fn wish(data: &[u8]) -> Option<(Wish, &[u8])> {
    let (head, frame) = data.split_first_chunk::<24>()?;
    let vnet = VnetHeader::parse(head)?;
    assert_eq!(&vnet.encode()[..], &head[..10]);
    let kind = head[10];
    let damage = Damage { draw: u64::from_le_bytes(*head.last_chunk()?), hidden: kind & 1 == 1 };
    let changes =
        Changes { congestion: kind & 2 == 2, damage: (kind & 4 == 4).then_some(damage), is_copy: kind & 8 == 8 };
    let (first, count) = (u32::from(head[11]), u32::from(head[12]));
    let mtu = u16::from_le_bytes([head[13], head[14]]);
    Some((Wish { vnet, first, count, mtu, changes }, frame))
}

/// Headers alone and the whole are the same, and no longer than what came.
fn check_cut(frame: &[u8], wish: &Wish, segments: &Segments) {
    let (mut whole, mut headers) = (Vec::new(), Vec::new());
    let vnet = cut(frame, &wish.vnet, wish.first, wish.count, &mut whole);
    let rest = cut_headers(frame, &wish.vnet, wish.first, wish.count, &mut headers);
    headers.extend_from_slice(&frame[rest.payload]);
    assert_eq!((&headers, rest.vnet), (&whole, vnet));
    assert!(whole.len() <= frame.len());
    if segments.count == 1 {
        assert_eq!((&whole[..], vnet), (frame, wish.vnet));
    }
}

/// Cut apart and put together again the payload is what it was, and each piece says of itself what it is.
fn check_pieces(frame: &[u8], vnet: &VnetHeader, segments: &Segments) {
    if segments.count == 1 || segments.count > 64 {
        return;
    }
    let mut end = segments.header as usize;
    for index in 0..segments.count {
        let mut out = Vec::new();
        let cut = cut_headers(frame, vnet, index, 1, &mut out);
        assert_eq!((cut.payload.start, out.len()), (end, segments.header as usize));
        end = cut.payload.end;
        out.extend_from_slice(&frame[cut.payload]);
        let piece = inspect(&out, &cut.vnet);
        let is_last = index + 1 == segments.count;
        assert_eq!(piece.wire, if is_last { segments.last_wire } else { segments.wire });
        assert_eq!((piece.count, piece.flow, piece.ecn), (1, segments.flow, segments.ecn));
    }
    assert_eq!(end, frame.len());
}

/// What is changed has the length of what is not, and damage that a checksum completed tells is one bit.
fn check_changes(frame: &[u8], wish: &Wish, packet: &Packet) {
    let first = wish.first % packet.count;
    let count = if wish.changes.damage.is_some() { 1 } else { wish.count.clamp(1, packet.count - first) };
    let plain = Packet { first, count, ..*packet };
    let before = written(frame, &wish.vnet, &plain);
    let after = written(frame, &wish.vnet, &Packet { changes: wish.changes, ..plain });
    assert_eq!(before.0.len(), after.0.len());
    let changed: u32 = before.0.iter().zip(&after.0).map(|(before, after)| (before ^ after).count_ones()).sum();
    match wish.changes {
        Changes { congestion: false, damage: None, .. } => assert_eq!(before, after),
        // At most: the bit, two of a mark, and two checksums.
        _ => assert!(changed <= 1 + 2 + 2 * 16, "{changed} bits changed"),
    }
}

fn written(frame: &[u8], vnet: &VnetHeader, packet: &Packet) -> (Vec<u8>, VnetHeader) {
    let mut out = Vec::new();
    let cut = write(frame, vnet, packet, &mut out);
    let Range { start, end } = cut.payload;
    out.extend_from_slice(&frame[start..end]);
    (out, cut.vnet)
}

/// An answer is never longer than allowed, and is never answered.
fn check_answer(frame: &[u8], wish: &Wish, packet: &Packet) {
    let mut reply = vec![1, 2, 3];
    let packet = Packet { first: wish.first, ..*packet };
    if !too_big(frame, &wish.vnet, &packet, wish.mtu, &mut reply) {
        return assert!(reply.is_empty());
    }
    // Ethernet with two tags, and the most of IPv6.
    assert!(reply.len() <= 22 + 1280);
    let again = inspect(&reply, &VnetHeader::default());
    assert_eq!(again.count, 1);
    assert!(!too_big(&reply, &VnetHeader::default(), &again.packet(8), wish.mtu, &mut Vec::new()));
}
