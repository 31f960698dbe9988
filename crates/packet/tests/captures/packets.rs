//! Packets, layer by layer: each function puts a header before a payload.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use lfn_packet::decode::{Decoded, DecodedFrame, OtherPacket, decode};
use lfn_packet::{LinkLayer, TcpSegment};

pub const V4_SOURCE: [u8; 4] = [10, 73, 23, 1];
pub const V4_DESTINATION: [u8; 4] = [10, 73, 23, 2];
pub const V6_SOURCE: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const V6_DESTINATION: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
pub const PORTS: [u16; 2] = [5201, 40_000];
pub const SEQUENCE: u32 = 0x1122_3344;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;

/// TCP segment with options and `payload` bytes.
pub fn tcp_with(options: &[u8], flags: u16, payload: usize) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(PORTS[0].to_be_bytes());
    segment.extend(PORTS[1].to_be_bytes());
    segment.extend(SEQUENCE.to_be_bytes());
    segment.extend(0x5566_7788_u32.to_be_bytes());
    segment.extend((((20 + options.len() as u16) / 4) << 12 | flags).to_be_bytes());
    segment.extend(501_u16.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(options);
    segment.extend(vec![b'x'; payload]);
    segment
}

pub fn tcp(payload: usize) -> Vec<u8> {
    tcp_with(&[], 0x10, payload)
}

pub fn udp(destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = 50_000_u16.to_be_bytes().to_vec();
    datagram.extend(destination.to_be_bytes());
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0; 2]);
    datagram.extend(payload);
    datagram
}

/// IPv4 packet with identification 7, TTL 61 and congestion mark.
pub fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with(protocol, &[], 0x4000, payload)
}

pub fn ipv4_with(protocol: u8, options: &[u8], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut packet = vec![0x40 | (header / 4) as u8, 3];
    packet.extend(((header + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([61, protocol, 0, 0]);
    packet.extend(V4_SOURCE);
    packet.extend(V4_DESTINATION);
    packet.extend(options);
    packet.extend(payload);
    packet
}

/// IPv6 packet with hop limit 62 and ECT(1).
pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0x10, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 62]);
    packet.extend(V6_SOURCE);
    packet.extend(V6_DESTINATION);
    packet.extend(payload);
    packet
}

/// Extension header of IPv6 with `words` more units of eight bytes.
pub fn extension(next: u8, words: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![next, words];
    header.resize(8 + 8 * usize::from(words), 1);
    header.extend(payload);
    header
}

pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Puts bytes before a payload.
pub fn after(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [header, payload].concat()
}

/// Decodes a whole frame of Ethernet.
pub fn decode_ethernet(frame: &[u8]) -> DecodedFrame {
    decode(LinkLayer::Ethernet, frame, frame.len() as u32)
}

/// Decodes the packet of a frame of any link layer to a TCP segment.
pub fn segment_of(link: LinkLayer, frame: &[u8]) -> Option<TcpSegment> {
    match decode(link, frame, frame.len() as u32).packet {
        Decoded::Tcp(segment) => Some(segment),
        Decoded::Other(_) => None,
    }
}

/// Decodes a frame of Ethernet that has no TCP segment.
pub fn other(frame: &[u8]) -> OtherPacket {
    match decode_ethernet(frame).packet {
        Decoded::Other(other) => other,
        Decoded::Tcp(segment) => panic!("{segment:?}"),
    }
}

/// Checks the addresses, ports, sequence number and payload of a segment from the functions above.
pub fn check(name: &str, segment: Option<TcpSegment>, is_v6: bool, payload: u32) {
    let Some(segment) = segment else { panic!("{name}: no segment") };
    let (source, destination) = if is_v6 {
        (IpAddr::V6(Ipv6Addr::from(V6_SOURCE)), IpAddr::V6(Ipv6Addr::from(V6_DESTINATION)))
    } else {
        (IpAddr::V4(Ipv4Addr::from(V4_SOURCE)), IpAddr::V4(Ipv4Addr::from(V4_DESTINATION)))
    };
    assert_eq!((segment.source.address, segment.destination.address), (source, destination), "{name}");
    assert_eq!([segment.source.port, segment.destination.port], PORTS, "{name}");
    assert_eq!((segment.sequence, segment.payload), (SEQUENCE, payload), "{name}");
}
