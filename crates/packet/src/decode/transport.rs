//! Content of an IP packet: a segment, another packet, or a tunnel.

use super::decoded::{Decoded, OtherPacket};
use super::ip::IpHeader;
use super::link::{Layer, LayerKind, mpls};
use super::rest::Rest;
use super::{icmp, tcp, tunnel};

/// IANA numbers of protocols.
const ICMP: u8 = 1;
const IPV4_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const ICMPV6: u8 = 58;
const MPLS_IN_IP: u8 = 137;

const UDP_HEADER: usize = 8;

/// Content of an IP packet.
pub(super) enum Content<'a> {
    Packet(Decoded),
    /// Another frame or packet.
    Tunnel(Layer<'a>),
}

/// Reads the content of an IP packet; `None` if its header is cut off or broken.
#[inline]
pub(super) fn read<'a>(ip: &IpHeader, rest: Rest<'a>) -> Option<Content<'a>> {
    if ip.protocol == TCP {
        return Some(Content::Packet(Decoded::Tcp(tcp::read(ip, rest)?)));
    }
    read_other(ip, rest)
}

fn read_other<'a>(ip: &IpHeader, rest: Rest<'a>) -> Option<Content<'a>> {
    let other = match ip.protocol {
        UDP => return read_udp(rest),
        ICMP => OtherPacket::Icmp { too_big: icmp::fragmentation_needed(ip, rest) },
        ICMPV6 => OtherPacket::Icmp { too_big: icmp::packet_too_big(ip, rest) },
        IPV4_IN_IP | IPV6_IN_IP => return Some(Content::Tunnel(Layer { kind: LayerKind::Ip, rest })),
        MPLS_IN_IP => return mpls(rest).map(Content::Tunnel),
        GRE => match tunnel::gre(rest) {
            Some(inner) => return Some(Content::Tunnel(inner)),
            None => OtherPacket::OtherIp { protocol: GRE },
        },
        protocol => OtherPacket::OtherIp { protocol },
    };
    Some(Content::Packet(Decoded::Other(other)))
}

fn read_udp(rest: Rest<'_>) -> Option<Content<'_>> {
    const HTTPS: u16 = 443;
    let source = rest.u16(0)?;
    let destination = rest.u16(2)?;
    let payload = rest.skip(UDP_HEADER)?;
    if let Some(inner) = tunnel::over_udp(destination, payload) {
        return Some(Content::Tunnel(inner));
    }
    let is_quic = if source == HTTPS || destination == HTTPS { is_quic(payload) } else { has_quic_version(payload) };
    let other = if is_quic { OtherPacket::Quic } else { OtherPacket::Udp };
    Some(Content::Packet(Decoded::Other(other)))
}

/// Returns true for a long header of QUIC version 1 or 2 (RFC 9000 §17.2, RFC 9369 §3), which any port may have.
fn has_quic_version(payload: Rest<'_>) -> bool {
    const LONG_AND_FIXED: u8 = 0xc0;
    const VERSIONS: [u32; 2] = [1, 0x6b33_43cf];
    payload.u8(0).is_some_and(|first| first & LONG_AND_FIXED == LONG_AND_FIXED)
        && payload.u32(1).is_some_and(|version| VERSIONS.contains(&version))
}

/// Returns true for a QUIC header (RFC 9000 §17): the fixed bit is set, or the packet negotiates the version.
fn is_quic(payload: Rest<'_>) -> bool {
    const LONG: u8 = 0x80;
    const FIXED: u8 = 0x40;
    match payload.u8(0) {
        Some(first) if first & FIXED != 0 => first & LONG == 0 || payload.u32(1) != Some(0),
        Some(first) if first & LONG != 0 => payload.u32(1) == Some(0),
        _ => false,
    }
}
