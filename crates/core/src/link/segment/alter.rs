//! What the link does to packets that leave all the same: a mark of congestion, a flipped bit.
//!
//! The original is never written to: a duplicate of it may still be in the link.

use std::ops::Range;

use super::checksum::{fold, put, replaced, sum, word};
use super::headers::{Headers, Network, Transport};
use super::outline::{Datagram, Outline};
use super::{Cut, VnetHeader};
use crate::link::{Damage, Ecn};

/// Marks congestion in the IP header of what is to be written; `out` may hold the headers already, or nothing.
pub(super) fn mark(frame: &[u8], cut: Cut, out: &mut Vec<u8>) -> Cut {
    // What lies in `out` alone has lengths that no longer agree with its own: only the network header is read.
    let Some(outline) = Outline::read(frame).filter(|outline| outline.ecn(frame) == Ecn::Capable) else { return cut };
    let cut = if out.is_empty() { copied(frame, cut, outline.transport_at, out) } else { cut };
    let at = outline.network_at;
    match outline.network {
        Network::V4 => {
            let (Some(before), Some(checksum)) = (word(out, at), word(out, at + 10)) else { return cut };
            put(out, at, before | 0b11);
            put(out, at + 10, replaced(checksum, before, before | 0b11));
        }
        Network::V6 => out[at + 1] |= 0b11 << 4,
    }
    cut
}

/// Flips a bit of one virtual packet.
pub(super) fn damage(frame: &[u8], cut: Cut, damage: Damage, out: &mut Vec<u8>) -> Cut {
    let mut cut = copied(frame, cut, usize::MAX, out);
    if cut.vnet.gso_type != VnetHeader::GSO_NONE {
        // A super-packet of one packet is that packet; one that could not be read is left alone.
        if Headers::read(out, &cut.vnet).is_none_or(|headers| headers.segments(out.len()).count > 1) {
            return cut;
        }
        (cut.vnet.gso_type, cut.vnet.gso_size) = (VnetHeader::GSO_NONE, 0);
    }
    if damage.hidden {
        flip_hidden(out, &cut.vnet, damage.draw);
    } else {
        complete(out, &mut cut.vnet);
        flip(out, damage.draw);
    }
    cut
}

/// Fills in a checksum that was left to the device, as a device does; says so in the header.
pub(super) fn complete(frame: &mut [u8], vnet: &mut VnetHeader) {
    if vnet.flags & VnetHeader::NEEDS_CSUM == 0 {
        return;
    }
    let (start, field) = (usize::from(vnet.csum_start), usize::from(vnet.csum_start) + usize::from(vnet.csum_offset));
    if field + 2 > frame.len() {
        return;
    }
    let sum = !fold(sum(&frame[start..]));
    // For UDP a sum of zero would mean that there is none (RFC 768); for others both mean the same.
    put(frame, field, if sum == 0 { 0xffff } else { sum });
    *vnet = VnetHeader { flags: 0, csum_start: 0, csum_offset: 0, ..*vnet };
}

/// Moves the bytes before `end` from the frame to `out`.
fn copied(frame: &[u8], cut: Cut, end: usize, out: &mut Vec<u8>) -> Cut {
    let end = end.clamp(cut.payload.start, cut.payload.end);
    out.extend_from_slice(frame.get(cut.payload.start..end).unwrap_or_default());
    Cut { payload: end..cut.payload.end, ..cut }
}

/// Where a checksum, or the Ethernet check sequence on a real line, would tell.
fn flip(frame: &mut [u8], draw: u64) {
    const ETHERNET: usize = 14;
    let place = match Outline::read(frame) {
        Some(outline) if outline.network == Network::V4 => outline.network_at..outline.end,
        Some(outline) => outline.transport_at..outline.end,
        None => ETHERNET.min(frame.len())..frame.len(),
    };
    if let Some((byte, bit)) = pick(&place, draw) {
        frame[byte] ^= bit;
    }
}

/// In the payload, and the difference taken out of the checksum if that is complete.
fn flip_hidden(frame: &mut [u8], vnet: &VnetHeader, draw: u64) {
    let Some(outline) = Outline::read(frame) else { return };
    let Some(Datagram { transport, payload }) = outline.datagram(frame) else { return };
    let Some((byte, bit)) = pick(&payload, draw) else { return };
    frame[byte] ^= bit;
    let field = outline.transport_at + transport.checksum_at();
    let Some(checksum) = word(frame, field) else { return };
    let has_none = transport == Transport::Udp && checksum == 0;
    if vnet.flags & VnetHeader::NEEDS_CSUM != 0 || has_none {
        return;
    }
    // The words that are summed begin at the transport header.
    let odd = (byte - outline.transport_at) % 2 == 1;
    let lane = |byte: u8| if odd { u16::from(byte) } else { u16::from(byte) << 8 };
    let after = replaced(checksum, lane(frame[byte] ^ bit), lane(frame[byte]));
    let is_udp_zero = transport == Transport::Udp && after == 0;
    put(frame, field, if is_udp_zero { 0xffff } else { after });
}

/// One bit of the bytes in `place`: which byte, and the bit in it.
fn pick(place: &Range<usize>, draw: u64) -> Option<(usize, u8)> {
    let bits = u64::try_from(place.len()).ok()?.checked_mul(8)?;
    let bit = draw.checked_rem(bits)?;
    Some((place.start + usize::try_from(bit / 8).ok()?, 1 << (bit % 8)))
}
