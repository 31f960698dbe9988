//! ICMP messages about packets that are too big for a link.

use super::decoded::{EmbeddedSegment, PacketTooBig};
use super::ip::{self, FragmentKind, IpHeader};
use super::rest::Rest;
use crate::TcpEndpoint;

/// Bytes of an ICMP header before the quoted packet.
const HEADER: usize = 8;
const TCP: u8 = 6;

/// Reads "fragmentation needed" of ICMP (RFC 1191 §4).
pub(super) fn fragmentation_needed(ip: &IpHeader, rest: Rest<'_>) -> Option<PacketTooBig> {
    match rest.head::<HEADER>()? {
        [3, 4, _, _, _, _, high, low] => Some(too_big(ip, u32::from(u16::from_be_bytes([*high, *low])), rest)),
        _ => None,
    }
}

/// Reads "packet too big" of ICMPv6 (RFC 4443 §3.2).
pub(super) fn packet_too_big(ip: &IpHeader, rest: Rest<'_>) -> Option<PacketTooBig> {
    match rest.head::<HEADER>()? {
        [2, 0, _, _, mtu @ ..] => Some(too_big(ip, u32::from_be_bytes(*mtu), rest)),
        _ => None,
    }
}

fn too_big(ip: &IpHeader, mtu: u32, rest: Rest<'_>) -> PacketTooBig {
    PacketTooBig { router: ip.source, mtu, segment: rest.skip(HEADER).and_then(embedded) }
}

/// Reads the addresses, ports and sequence number of a quoted TCP segment, of which 8 bytes can be all (RFC 792).
fn embedded(rest: Rest<'_>) -> Option<EmbeddedSegment> {
    let (ip, payload) = ip::read(rest)?;
    if ip.protocol != TCP || ip.fragment == FragmentKind::Later {
        return None;
    }
    Some(EmbeddedSegment {
        source: TcpEndpoint { address: ip.source, port: payload.u16(0)? },
        destination: TcpEndpoint { address: ip.destination, port: payload.u16(2)? },
        sequence: payload.u32(4)?,
    })
}
