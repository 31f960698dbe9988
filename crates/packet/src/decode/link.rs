//! Headers between the link and IP: Ethernet with its tags, cooked captures, loopback, PPP and MPLS.

use super::rest::Rest;
use crate::LinkLayer;

/// Rest of a frame, and the header that follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer<'a> {
    pub(super) kind: LayerKind,
    pub(super) rest: Rest<'a>,
}

/// Kind of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    Ethernet,
    /// The header that an EtherType names.
    EtherType(u16),
    /// IP of the version in its first byte.
    Ip,
    Loopback,
    LinuxCooked,
    LinuxCooked2,
    Ppp,
    Unknown,
}

pub(super) const IPV4: u16 = 0x0800;
pub(super) const IPV6: u16 = 0x86dd;
/// Transparent Ethernet bridging: an Ethernet frame follows.
pub(super) const ETHERNET: u16 = 0x6558;
const VLAN: u16 = 0x8100;
const PROVIDER_VLAN: u16 = 0x88a8;
const OLD_QINQ: u16 = 0x9100;
const MPLS: u16 = 0x8847;
const MPLS_MULTICAST: u16 = 0x8848;
const PPPOE_SESSION: u16 = 0x8864;
/// Smaller numbers are the length of an IEEE 802.3 frame.
const MIN_ETHER_TYPE: u16 = 0x0600;

/// Maximum labels of an MPLS stack.
const MAX_LABELS: usize = 16;

impl LayerKind {
    /// Returns the first header of a frame.
    #[inline]
    pub(super) fn of_link(link: LinkLayer) -> LayerKind {
        match link {
            LinkLayer::Ethernet => LayerKind::Ethernet,
            LinkLayer::LinuxCooked => LayerKind::LinuxCooked,
            LinkLayer::LinuxCooked2 => LayerKind::LinuxCooked2,
            LinkLayer::RawIp | LinkLayer::RawIpv4 | LinkLayer::RawIpv6 => LayerKind::Ip,
            LinkLayer::Loopback => LayerKind::Loopback,
            LinkLayer::Ppp => LayerKind::Ppp,
            LinkLayer::Unknown(_) => LayerKind::Unknown,
        }
    }
}

impl<'a> Layer<'a> {
    /// Reads one header and returns the next; `None` if the header is cut off or broken.
    ///
    /// IP and unknown headers are returned unchanged.
    #[inline]
    pub(super) fn next(self) -> Option<Layer<'a>> {
        let Layer { kind, rest } = self;
        match kind {
            LayerKind::Ethernet => ether_type(rest, 12),
            LayerKind::EtherType(number) => named(number, rest),
            LayerKind::LinuxCooked => ether_type(rest, 14),
            LayerKind::LinuxCooked2 => Some(Layer { kind: LayerKind::EtherType(rest.u16(0)?), rest: rest.skip(20)? }),
            LayerKind::Loopback => loopback(rest),
            LayerKind::Ppp => ppp(rest),
            LayerKind::Ip | LayerKind::Unknown => Some(self),
        }
    }
}

/// Reads the EtherType at a position.
#[inline]
fn ether_type(rest: Rest<'_>, at: usize) -> Option<Layer<'_>> {
    let number = rest.u16(at)?;
    let rest = rest.skip(at + 2)?;
    let kind = if number == IPV4 || number == IPV6 { LayerKind::Ip } else { LayerKind::EtherType(number) };
    Some(Layer { kind, rest })
}

/// Reads the header that an EtherType names.
fn named(number: u16, rest: Rest<'_>) -> Option<Layer<'_>> {
    match number {
        IPV4 | IPV6 => Some(Layer { kind: LayerKind::Ip, rest }),
        VLAN | PROVIDER_VLAN | OLD_QINQ => ether_type(rest, 2),
        ETHERNET => Some(Layer { kind: LayerKind::Ethernet, rest }),
        MPLS | MPLS_MULTICAST => mpls(rest),
        PPPOE_SESSION => ppp(rest.skip(6)?),
        _ if number < MIN_ETHER_TYPE => Some(snap(rest)),
        _ => Some(Layer { kind: LayerKind::Unknown, rest }),
    }
}

/// Reads the SNAP header of an IEEE 802.3 frame, which can name an EtherType (RFC 1042).
fn snap(rest: Rest<'_>) -> Layer<'_> {
    let unknown = Layer { kind: LayerKind::Unknown, rest };
    match rest.head() {
        Some([0xaa, 0xaa, 0x03, 0, 0, 0]) => ether_type(rest, 6).unwrap_or(unknown),
        _ => unknown,
    }
}

/// Reads the address family of a BSD loopback, in either byte order.
fn loopback(rest: Rest<'_>) -> Option<Layer<'_>> {
    let family = rest.u32(0)?;
    let family = if family > 0xffff { family.swap_bytes() } else { family };
    // AF_INET; AF_INET6 of Linux, Windows, NetBSD and OpenBSD, FreeBSD, and macOS.
    let kind = if matches!(family, 2 | 10 | 23 | 24 | 28 | 30) { LayerKind::Ip } else { LayerKind::Unknown };
    Some(Layer { kind, rest: rest.skip(4)? })
}

/// Reads the protocol of a PPP frame (RFC 1661, RFC 1662).
fn ppp(rest: Rest<'_>) -> Option<Layer<'_>> {
    let rest = if rest.head() == Some(&[0xff, 0x03]) { rest.skip(2)? } else { rest };
    let first = rest.u8(0)?;
    let (protocol, rest) =
        if first & 1 != 0 { (u16::from(first), rest.skip(1)?) } else { (rest.u16(0)?, rest.skip(2)?) };
    match protocol {
        0x21 | 0x57 => Some(Layer { kind: LayerKind::Ip, rest }),
        0x281 => mpls(rest),
        _ => Some(Layer { kind: LayerKind::Unknown, rest }),
    }
}

/// Reads an MPLS label stack (RFC 3032). Nothing names the header after it: IP, or Ethernet of a pseudowire.
pub(super) fn mpls(mut rest: Rest<'_>) -> Option<Layer<'_>> {
    for _ in 0..MAX_LABELS {
        let is_bottom = rest.u8(2)? & 1 != 0;
        rest = rest.skip(4)?;
        if is_bottom {
            let control_word = rest.skip(4).filter(|_| rest.u8(0).is_some_and(|byte| byte >> 4 == 0));
            return Some(if is_ip(rest) {
                Layer { kind: LayerKind::Ip, rest }
            } else if let Some(rest) = control_word.filter(|rest| is_ethernet(*rest)) {
                Layer { kind: LayerKind::Ethernet, rest }
            } else if is_ethernet(rest) {
                Layer { kind: LayerKind::Ethernet, rest }
            } else {
                Layer { kind: LayerKind::Unknown, rest }
            });
        }
    }
    None
}

/// Returns true if the rest looks like an IP packet, with a length that fits the frame.
fn is_ip(rest: Rest<'_>) -> bool {
    let fits = |header: usize, length: usize| match length {
        // A super-packet of more than 64 KiB has no length.
        0 => !is_ethernet(rest),
        length => (header..=rest.wire).contains(&length),
    };
    match rest.head::<6>() {
        Some([first @ 0x45..=0x4f, _, high, low, ..]) => {
            fits(usize::from(first & 0x0f) * 4, usize::from(u16::from_be_bytes([*high, *low])))
        }
        Some([0x60..=0x6f, _, _, _, high, low]) => fits(0, usize::from(u16::from_be_bytes([*high, *low]))),
        _ => false,
    }
}

/// Returns true if the rest looks like an Ethernet frame with a known EtherType.
fn is_ethernet(rest: Rest<'_>) -> bool {
    rest.u16(12).is_some_and(|number| matches!(number, IPV4 | IPV6 | VLAN | PROVIDER_VLAN | MPLS))
}
