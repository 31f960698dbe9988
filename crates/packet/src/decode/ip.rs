//! Headers of IPv4 and IPv6 with its extension headers.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rest::Rest;

/// Maximum extension headers of a packet.
const MAX_EXTENSIONS: usize = 8;

/// IANA numbers of extension headers (RFC 8200 §4).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// Header of an IP packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpHeader {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) id: Option<u16>,
    pub(super) ttl: u8,
    pub(super) ecn: u8,
    /// IANA number after all extension headers.
    pub(super) protocol: u8,
    pub(super) fragment: FragmentKind,
}

/// Place of a packet in the packet before its fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FragmentKind {
    Whole,
    First,
    Later,
}

impl FragmentKind {
    /// Reads the fragment offset and the flag of more fragments, in any unit.
    fn new(offset: u16, has_more: bool) -> Self {
        match (offset, has_more) {
            (0, false) => FragmentKind::Whole,
            (0, true) => FragmentKind::First,
            _ => FragmentKind::Later,
        }
    }
}

/// Reads the header of an IP packet and returns its payload; `None` if the header is cut off or broken.
#[inline]
pub(super) fn read(rest: Rest<'_>) -> Option<(IpHeader, Rest<'_>)> {
    match rest.u8(0)? >> 4 {
        4 => read_v4(rest),
        6 => read_v6(rest),
        _ => None,
    }
}

#[inline]
fn read_v4(rest: Rest<'_>) -> Option<(IpHeader, Rest<'_>)> {
    let header = rest.head::<20>()?;
    let length = usize::from(header[0] & 0x0f) * 4;
    // A super-packet of more than 64 KiB has a total length of zero.
    let total = match usize::from(u16::from_be_bytes([header[2], header[3]])) {
        0 => rest.wire,
        total => total,
    };
    if length < 20 || total < length {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    let ip = IpHeader {
        source: IpAddr::V4(Ipv4Addr::new(header[12], header[13], header[14], header[15])),
        destination: IpAddr::V4(Ipv4Addr::new(header[16], header[17], header[18], header[19])),
        id: Some(u16::from_be_bytes([header[4], header[5]])),
        ttl: header[8],
        ecn: header[1] & 3,
        protocol: header[9],
        fragment: FragmentKind::new(fragment & 0x1fff, fragment & 0x2000 != 0),
    };
    Some((ip, rest.limit(total).skip(length)?))
}

#[inline]
fn read_v6(rest: Rest<'_>) -> Option<(IpHeader, Rest<'_>)> {
    let header = rest.head::<40>()?;
    let stated = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let length = match stated {
        0 => rest.wire.checked_sub(40)?,
        length => length,
    };
    let mut ip = IpHeader {
        source: address(header, 8)?,
        destination: address(header, 24)?,
        id: None,
        ttl: header[7],
        ecn: (header[1] >> 4) & 3,
        protocol: header[6],
        fragment: FragmentKind::Whole,
    };
    let mut rest = rest.limit(40 + length).skip(40)?;
    for _ in 0..MAX_EXTENSIONS {
        let length = match ip.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY | HOST_IDENTITY | SHIM6 => usize::from(rest.u8(1)?) * 8 + 8,
            FRAGMENT => 8,
            AUTHENTICATION => usize::from(rest.u8(1)?) * 4 + 8,
            _ => return Some((ip, rest)),
        };
        if ip.protocol == HOP_BY_HOP
            && stated == 0
            && let Some(jumbo) = jumbo_length(rest.bytes.get(2..length)?)
        {
            rest = rest.limit(jumbo);
        }
        if ip.protocol == FRAGMENT {
            let field = rest.u16(2)?;
            ip.fragment = FragmentKind::new(field >> 3, field & 1 != 0);
        }
        ip.protocol = rest.u8(0)?;
        rest = rest.skip(length)?;
        if ip.fragment == FragmentKind::Later {
            return Some((ip, rest));
        }
    }
    None
}

#[inline]
fn address(header: &[u8; 40], at: usize) -> Option<IpAddr> {
    Some(IpAddr::V6(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?)))
}

/// Returns the length of the jumbo payload option (RFC 2675), which counts from the end of the IPv6 header.
fn jumbo_length(mut options: &[u8]) -> Option<usize> {
    const PAD1: u8 = 0;
    const JUMBO: u8 = 0xc2;
    while let [kind, rest @ ..] = options {
        if *kind == PAD1 {
            options = rest;
            continue;
        }
        let (length, value) = rest.split_first()?;
        if *kind == JUMBO && *length == 4 {
            return usize::try_from(u32::from_be_bytes(*value.first_chunk()?)).ok();
        }
        options = value.get(usize::from(*length)..)?;
    }
    None
}
