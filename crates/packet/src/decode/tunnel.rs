//! Tunnels over IP and UDP: GRE, VXLAN and Geneve.

use super::link::{Layer, LayerKind};
use super::rest::Rest;

/// Reads a GRE header with its optional fields (RFC 2784, RFC 2890). `None` if it is not GRE of version 0.
pub(super) fn gre(rest: Rest<'_>) -> Option<Layer<'_>> {
    const CHECKSUM: u16 = 0x8000;
    const ROUTING: u16 = 0x4000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    const VERSION: u16 = 0x0007;
    let flags = rest.u16(0)?;
    if flags & (VERSION | ROUTING) != 0 {
        return None;
    }
    let fields = [CHECKSUM, KEY, SEQUENCE].iter().filter(|flag| flags & **flag != 0).count();
    Some(Layer { kind: LayerKind::EtherType(rest.u16(2)?), rest: rest.skip(4 + 4 * fields)? })
}

/// Reads the tunnel header of a UDP payload by its destination port; `None` if it is not a tunnel.
#[inline]
pub(super) fn over_udp(port: u16, payload: Rest<'_>) -> Option<Layer<'_>> {
    match port {
        // Linux used 8472 before the port was assigned.
        4789 | 8472 => vxlan(payload),
        6081 => geneve(payload),
        _ => None,
    }
}

/// Reads a VXLAN header (RFC 7348 §5), whose flag I is set.
fn vxlan(rest: Rest<'_>) -> Option<Layer<'_>> {
    let header = rest.head::<8>()?;
    (header[0] & 0x08 != 0 && header[7] == 0).then_some(Layer { kind: LayerKind::Ethernet, rest: rest.skip(8)? })
}

/// Reads a Geneve header of version 0 with its options (RFC 8926 §3.4).
fn geneve(rest: Rest<'_>) -> Option<Layer<'_>> {
    let header = rest.head::<8>()?;
    let options = usize::from(header[0] & 0x3f) * 4;
    let ether_type = u16::from_be_bytes([header[2], header[3]]);
    let is_version_0 = header[0] >> 6 == 0 && header[7] == 0;
    is_version_0.then_some(Layer { kind: LayerKind::EtherType(ether_type), rest: rest.skip(8 + options)? })
}
