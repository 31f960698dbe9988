//! What a router answers when a packet is too big for the next hop: ICMP type 3 code 4, ICMPv6 type 2.

use super::alter::complete;
use super::checksum::{fold, put, sum};
use super::headers::Network;
use super::outline::{Fragment, Outline};
use super::{VnetHeader, cut};
use crate::link::Packet;

/// Writes into `out` (cleared first) the frame that tells the sender of `packet`, which is of `frame`, that no more than
/// `mtu` bytes of IP fit the next hop; false if none may be sent. It goes back where the frame came from, with a
/// virtual-net header of zeros.
///
/// RFC 1191 §4 and RFC 4443 §3.2: the answer names the MTU and quotes the packet, no more than makes 576 bytes of IPv4 or
/// 1,280 of IPv6. IPv4 packets that may be fragmented are answered like others: nothing here fragments. The emulated
/// router has no address, so the answer comes from the one that the packet went to, which every sender will take for
/// reachable. No answer to ICMP errors, to later fragments, to multicast or broadcast, or to a sender that is no single
/// host (RFC 1122 §3.2.2, RFC 4443 §2.4).
pub fn too_big(frame: &[u8], vnet: &VnetHeader, packet: &Packet, mtu: u16, out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut original = Vec::new();
    let mut vnet = cut(frame, vnet, packet.first, 1, &mut original);
    complete(&mut original, &mut vnet);
    let Some(outline) = Outline::read(&original).filter(|outline| may_answer(&original, outline)) else { return false };
    ethernet(&original, &outline, out);
    match outline.network {
        Network::V4 => v4(&original, &outline, mtu, out),
        Network::V6 => v6(&original, &outline, mtu, out),
    }
    true
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Of what answers.
const HOPS: u8 = 64;

/// Back to where it came from, under the same VLAN tags.
fn ethernet(original: &[u8], outline: &Outline, out: &mut Vec<u8>) {
    out.extend_from_slice(&original[6..12]);
    out.extend_from_slice(&original[..6]);
    out.extend_from_slice(&original[12..outline.network_at]);
}

fn v4(original: &[u8], outline: &Outline, mtu: u16, out: &mut Vec<u8>) {
    const MOST: usize = 576 - 20 - 8;
    let quote = &original[outline.network_at..outline.end.min(outline.network_at + MOST)];
    let start = out.len();
    let length = 20 + 8 + quote.len() as u16;
    out.extend([0x45, 0]);
    out.extend(length.to_be_bytes());
    out.extend([0, 0, 0x40, 0, HOPS, ICMP, 0, 0]);
    turn(original, outline, out);
    let header = !fold(sum(&out[start..]));
    put(out, start + 10, header);
    let message = out.len();
    out.extend([3, 4, 0, 0, 0, 0]);
    out.extend(mtu.to_be_bytes());
    out.extend_from_slice(quote);
    let checksum = !fold(sum(&out[message..]));
    put(out, message + 2, checksum);
}

fn v6(original: &[u8], outline: &Outline, mtu: u16, out: &mut Vec<u8>) {
    const MOST: usize = 1280 - 40 - 8;
    let quote = &original[outline.network_at..outline.end.min(outline.network_at + MOST)];
    let length = 8 + quote.len() as u16;
    out.extend([0x60, 0, 0, 0]);
    out.extend(length.to_be_bytes());
    out.extend([ICMPV6, HOPS]);
    let addresses = out.len();
    turn(original, outline, out);
    let message = out.len();
    out.extend([2, 0, 0, 0]);
    out.extend(u32::from(mtu).to_be_bytes());
    out.extend_from_slice(quote);
    // Addresses, length and protocol are summed as well (RFC 4443 §2.3).
    let checksum = !fold(sum(&out[addresses..]) + u64::from(length) + u64::from(ICMPV6));
    put(out, message + 2, checksum);
}

/// Source and destination change places.
fn turn(original: &[u8], outline: &Outline, out: &mut Vec<u8>) {
    let addresses = &original[outline.addresses()];
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    out.extend_from_slice(destination);
    out.extend_from_slice(source);
}

fn may_answer(original: &[u8], outline: &Outline) -> bool {
    let is_group_frame = original[0] & 1 == 1;
    let addresses = &original[outline.addresses()];
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let single = match outline.network {
        Network::V4 => is_single_v4,
        Network::V6 => is_single_v6,
    };
    let is_answerable = outline.fragment != Fragment::Later && !is_icmp_error(original, outline);
    !is_group_frame && single(source) && single(destination) && is_answerable
}

/// Neither this network, nor loopback, multicast, reserved or broadcast (RFC 1122 §3.2.1.3). That of a subnet looks like a
/// host's; the Ethernet address tells.
fn is_single_v4(address: &[u8]) -> bool {
    matches!(address.first(), Some(1..=126 | 128..=223))
}

/// Neither multicast, nor unspecified, nor loopback (RFC 4291 §2.5, §2.7).
fn is_single_v6(address: &[u8]) -> bool {
    match address {
        [0xff, ..] | [] => false,
        [start @ .., last] => start.iter().any(|byte| *byte != 0) || *last > 1,
    }
}

/// True also of a message too short to tell.
fn is_icmp_error(original: &[u8], outline: &Outline) -> bool {
    let kind = original[..outline.end].get(outline.transport_at).copied();
    match outline.protocol {
        // Unreachable, source quench, redirect, time exceeded, parameter problem (RFC 1122 §3.2.2).
        ICMP => matches!(kind, None | Some(3 | 4 | 5 | 11 | 12)),
        // Below 128 are errors, and a redirect is as bad (RFC 4443 §2.4).
        ICMPV6 => matches!(kind, None | Some(..128 | 137)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_single_hosts_are_told_from_others() {
        for (first, single) in
            [(0, false), (10, true), (127, false), (192, true), (224, false), (240, false), (255, false)]
        {
            assert_eq!(is_single_v4(&[first, 0, 0, 1]), single, "{first}");
        }
        let v6 = |first: u8, last: u8| {
            let mut address = [0; 16];
            (address[0], address[15]) = (first, last);
            is_single_v6(&address)
        };
        assert!(v6(0xfd, 1) && v6(0xfe, 0) && v6(0, 2));
        assert!(!v6(0xff, 1) && !v6(0, 0) && !v6(0, 1));
    }

    #[test]
    fn frames_without_ip_are_not_answered() {
        let mut out = vec![1];
        assert!(!too_big(&[0; 60], &VnetHeader::default(), &Packet::single(0, 60), 1400, &mut out));
        assert!(out.is_empty());
    }
}
