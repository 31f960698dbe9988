//! Reply of a router to a packet that is too big for the next hop: ICMP type 3 code 4, ICMPv6 type 2.

use super::alter::complete;
use super::checksum::{fold_carries, put_u16, sum_words};
use super::extract;
use super::frame::VnetHeader;
use super::headers::IpFamily;
use super::layout::{Fragment, PacketLayout};

/// Writes the reply to the sender of the virtual packet `first` of `frame` to `out` (cleared first): the next hop
/// carries at most `mtu` bytes of IP. Returns false if no reply may be sent. The reply goes back to the origin of the
/// frame, with a virtual-net header of zeros.
///
/// RFC 1191 §4 and RFC 4443 §3.2: the reply contains the MTU and the start of the packet, up to a total of 576 bytes of
/// IPv4 or 1,280 of IPv6. IPv4 packets without DF get a reply too, because the emulator never fragments. The emulated
/// router has no address, so the source of the reply is the destination of the packet, which every sender considers
/// reachable. No reply goes to ICMP errors, later fragments, multicast, broadcast, or a sender that is not a single
/// host (RFC 1122 §3.2.2, RFC 4443 §2.4).
pub fn write_too_big_reply(frame: &[u8], vnet: &VnetHeader, first: u32, mtu: u16, out: &mut Vec<u8>) -> bool {
    out.clear();
    let mut original = Vec::new();
    let mut vnet = extract(frame, vnet, first, 1, &mut original);
    complete(&mut original, &mut vnet);
    let Some(layout) = PacketLayout::read(&original).filter(|layout| may_answer(&original, layout)) else {
        return false;
    };
    write_ethernet(&original, &layout, out);
    match layout.network {
        IpFamily::V4 => write_v4(&original, &layout, mtu, out),
        IpFamily::V6 => write_v6(&original, &layout, mtu, out),
    }
    true
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Hop limit of the reply.
const HOPS: u8 = 64;

/// Writes the Ethernet header back to the sender, with the same VLAN tags.
fn write_ethernet(original: &[u8], layout: &PacketLayout, out: &mut Vec<u8>) {
    out.extend_from_slice(&original[6..12]);
    out.extend_from_slice(&original[..6]);
    out.extend_from_slice(&original[12..layout.network_at]);
}

fn write_v4(original: &[u8], layout: &PacketLayout, mtu: u16, out: &mut Vec<u8>) {
    const MAX_QUOTE: usize = 576 - 20 - 8;
    let quote = &original[layout.network_at..layout.end.min(layout.network_at + MAX_QUOTE)];
    let start = out.len();
    let length = 20 + 8 + quote.len() as u16;
    out.extend([0x45, 0]);
    out.extend(length.to_be_bytes());
    out.extend([0, 0, 0x40, 0, HOPS, ICMP, 0, 0]);
    write_swapped_addresses(original, layout, out);
    let header = !fold_carries(sum_words(&out[start..]));
    put_u16(out, start + 10, header);
    let message = out.len();
    out.extend([3, 4, 0, 0, 0, 0]);
    out.extend(mtu.to_be_bytes());
    out.extend_from_slice(quote);
    let checksum = !fold_carries(sum_words(&out[message..]));
    put_u16(out, message + 2, checksum);
}

fn write_v6(original: &[u8], layout: &PacketLayout, mtu: u16, out: &mut Vec<u8>) {
    const MAX_QUOTE: usize = 1280 - 40 - 8;
    let quote = &original[layout.network_at..layout.end.min(layout.network_at + MAX_QUOTE)];
    let length = 8 + quote.len() as u16;
    out.extend([0x60, 0, 0, 0]);
    out.extend(length.to_be_bytes());
    out.extend([ICMPV6, HOPS]);
    let addresses = out.len();
    write_swapped_addresses(original, layout, out);
    let message = out.len();
    out.extend([2, 0, 0, 0]);
    out.extend(u32::from(mtu).to_be_bytes());
    out.extend_from_slice(quote);
    // Addresses, length and protocol are part of the sum (RFC 4443 §2.3).
    let checksum = !fold_carries(sum_words(&out[addresses..]) + u64::from(length) + u64::from(ICMPV6));
    put_u16(out, message + 2, checksum);
}

/// Writes the addresses with source and destination swapped.
fn write_swapped_addresses(original: &[u8], layout: &PacketLayout, out: &mut Vec<u8>) {
    let addresses = &original[layout.addresses()];
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    out.extend_from_slice(destination);
    out.extend_from_slice(source);
}

fn may_answer(original: &[u8], layout: &PacketLayout) -> bool {
    let is_group_frame = original[0] & 1 == 1;
    let addresses = &original[layout.addresses()];
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let is_single_host = match layout.network {
        IpFamily::V4 => is_single_v4,
        IpFamily::V6 => is_single_v6,
    };
    let is_answerable = layout.fragment != Fragment::Later && !is_icmp_error(original, layout);
    !is_group_frame && is_single_host(source) && is_single_host(destination) && is_answerable
}

/// Excludes this network, loopback, multicast, reserved and broadcast addresses (RFC 1122 §3.2.1.3). The broadcast
/// address of a subnet looks like a host address, so the Ethernet address is checked too.
fn is_single_v4(address: &[u8]) -> bool {
    matches!(address.first(), Some(1..=126 | 128..=223))
}

/// Excludes multicast, unspecified and loopback addresses (RFC 4291 §2.5, §2.7).
fn is_single_v6(address: &[u8]) -> bool {
    match address {
        [0xff, ..] | [] => false,
        [start @ .., last] => start.iter().any(|byte| *byte != 0) || *last > 1,
    }
}

/// Reports whether the packet is an ICMP error. A message without a type counts as an error.
fn is_icmp_error(original: &[u8], layout: &PacketLayout) -> bool {
    let kind = original[..layout.end].get(layout.transport_at).copied();
    match layout.protocol {
        // Unreachable, source quench, redirect, time exceeded, parameter problem (RFC 1122 §3.2.2).
        ICMP => matches!(kind, None | Some(3 | 4 | 5 | 11 | 12)),
        // Types below 128 are errors. A redirect gets no reply either (RFC 4443 §2.4).
        ICMPV6 => matches!(kind, None | Some(..128 | 137)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_single_host_addresses_get_replies() {
        for (first, is_single_host) in
            [(0, false), (10, true), (127, false), (192, true), (224, false), (240, false), (255, false)]
        {
            assert_eq!(is_single_v4(&[first, 0, 0, 1]), is_single_host, "{first}");
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
        assert!(!write_too_big_reply(&[0; 60], &VnetHeader::default(), 0, 1400, &mut out));
        assert!(out.is_empty());
    }
}
