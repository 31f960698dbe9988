//! Changes of the link to packets that it forwards: a congestion mark, a flipped bit.
//!
//! The original frame is never changed, because a duplicate of it may still be in the link.

use std::ops::Range;

use super::checksum::{fold_carries, put_u16, read_u16, sum_words, update_checksum};
use super::frame::{OutputFrame, VnetHeader};
use super::headers::{Headers, IpFamily, TransportProtocol};
use super::layout::{Datagram, PacketLayout};
use crate::{Corruption, Ecn};

/// Sets the congestion mark in the IP header. `out` holds the headers already, or nothing.
pub(super) fn mark(frame: &[u8], output: OutputFrame, out: &mut Vec<u8>) -> OutputFrame {
    // The lengths in `out` may not match its own length, so only the network header is used.
    let Some(layout) = PacketLayout::read(frame).filter(|layout| layout.ecn(frame) == Ecn::Capable) else {
        return output;
    };
    let output = if out.is_empty() { copy_until(frame, output, layout.transport_at, out) } else { output };
    let at = layout.network_at;
    match layout.network {
        IpFamily::V4 => {
            let (Some(before), Some(checksum)) = (read_u16(out, at), read_u16(out, at + 10)) else { return output };
            put_u16(out, at, before | 0b11);
            put_u16(out, at + 10, update_checksum(checksum, before, before | 0b11));
        }
        IpFamily::V6 => out[at + 1] |= 0b11 << 4,
    }
    output
}

/// Flips a bit of one virtual packet.
pub(super) fn corrupt(frame: &[u8], output: OutputFrame, corruption: Corruption, out: &mut Vec<u8>) -> OutputFrame {
    let mut output = copy_until(frame, output, usize::MAX, out);
    if output.vnet.gso_type != VnetHeader::GSO_NONE {
        // A super-packet of one packet becomes a plain packet. An unreadable super-packet stays unchanged.
        if Headers::read(out, &output.vnet).is_none_or(|headers| headers.segments(out.len()).count > 1) {
            return output;
        }
        (output.vnet.gso_type, output.vnet.gso_size) = (VnetHeader::GSO_NONE, 0);
    }
    if corruption.is_hidden {
        flip_hidden(out, &output.vnet, corruption.random);
    } else {
        complete(out, &mut output.vnet);
        flip(out, corruption.random);
    }
    output
}

/// Completes a checksum that was left to the device, like a device, and updates the header.
pub(super) fn complete(frame: &mut [u8], vnet: &mut VnetHeader) {
    if vnet.flags & VnetHeader::NEEDS_CSUM == 0 {
        return;
    }
    let (start, field) = (usize::from(vnet.csum_start), usize::from(vnet.csum_start) + usize::from(vnet.csum_offset));
    if field + 2 > frame.len() {
        return;
    }
    let sum = !fold_carries(sum_words(&frame[start..]));
    // A UDP checksum of zero would mean no checksum (RFC 768). For other protocols both values are equal.
    put_u16(frame, field, if sum == 0 { 0xffff } else { sum });
    *vnet = VnetHeader { flags: 0, csum_start: 0, csum_offset: 0, ..*vnet };
}

/// Copies the bytes before `end` from the frame to `out`.
fn copy_until(frame: &[u8], output: OutputFrame, end: usize, out: &mut Vec<u8>) -> OutputFrame {
    let end = end.clamp(output.payload.start, output.payload.end);
    out.extend_from_slice(frame.get(output.payload.start..end).unwrap_or_default());
    OutputFrame { payload: end..output.payload.end, ..output }
}

/// Flips a bit that a checksum or the Ethernet check sequence detects.
fn flip(frame: &mut [u8], random: u64) {
    const ETHERNET: usize = 14;
    let bytes = match PacketLayout::read(frame) {
        Some(layout) if layout.network == IpFamily::V4 => layout.network_at..layout.end,
        Some(layout) => layout.transport_at..layout.end,
        None => ETHERNET.min(frame.len())..frame.len(),
    };
    if let Some((byte, bit)) = select_bit(&bytes, random) {
        frame[byte] ^= bit;
    }
}

/// Flips a bit of the payload and corrects the checksum if it is complete.
fn flip_hidden(frame: &mut [u8], vnet: &VnetHeader, random: u64) {
    let Some(layout) = PacketLayout::read(frame) else { return };
    let Some(Datagram { transport, payload }) = layout.datagram(frame) else { return };
    let Some((byte, bit)) = select_bit(&payload, random) else { return };
    frame[byte] ^= bit;
    let field = layout.transport_at + transport.checksum_at();
    let Some(checksum) = read_u16(frame, field) else { return };
    let has_none = transport == TransportProtocol::Udp && checksum == 0;
    if vnet.flags & VnetHeader::NEEDS_CSUM != 0 || has_none {
        return;
    }
    // The summed words begin at the transport header.
    let odd = (byte - layout.transport_at) % 2 == 1;
    let lane = |byte: u8| if odd { u16::from(byte) } else { u16::from(byte) << 8 };
    let after = update_checksum(checksum, lane(frame[byte] ^ bit), lane(frame[byte]));
    let is_udp_zero = transport == TransportProtocol::Udp && after == 0;
    put_u16(frame, field, if is_udp_zero { 0xffff } else { after });
}

/// Selects one bit of the bytes in `bytes`. Returns the index of the byte and the mask of the bit.
fn select_bit(bytes: &Range<usize>, random: u64) -> Option<(usize, u8)> {
    let bits = u64::try_from(bytes.len()).ok()?.checked_mul(8)?;
    let bit = random.checked_rem(bits)?;
    Some((bytes.start + usize::try_from(bit / 8).ok()?, 1 << (bit % 8)))
}
