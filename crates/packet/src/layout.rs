//! Layout of any frame: offsets of its headers, its flow and its ECN field.
//!
//! Fragments, extension headers and protocols without ports are read as far as possible, although they cannot be cut. A
//! frame that cannot be parsed counts as a non-IP frame, and only its Ethernet header distinguishes it.

use std::ops::Range;

use super::checksum::read_u16;
use super::headers::{IpFamily, TransportProtocol, find_ip_header};
use crate::Ecn;

/// Offsets of the parts of an IP packet in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketLayout {
    pub(super) network: IpFamily,
    pub(super) network_at: usize,
    /// After the IP header and all extension headers.
    pub(super) transport_at: usize,
    /// End of the packet. The frame may be padded.
    pub(super) end: usize,
    /// Protocol at `transport_at`, unless the packet is a later fragment.
    pub(super) protocol: u8,
    pub(super) fragment: Fragment,
}

/// Position of a packet in a fragmented packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    None,
    /// The first fragment, with the transport header.
    First,
    /// A later fragment, without the transport header.
    Later,
}

/// TCP segment or UDP datagram with payload, in its frame.
pub(super) struct Datagram {
    pub(super) transport: TransportProtocol,
    pub(super) payload: Range<usize>,
}

/// TCP, UDP, DCCP, SCTP and UDP-Lite: the ports are the first four bytes.
const PORT_PROTOCOLS: [u8; 5] = [6, 17, 33, 132, 136];
/// A stack would hardly accept more extension headers.
const MAX_EXTENSION_HEADERS: usize = 8;

impl PacketLayout {
    /// Reads the layout; `None` if the frame has no valid IP packet.
    pub(super) fn read(frame: &[u8]) -> Option<PacketLayout> {
        let (network, network_at) = find_ip_header(frame)?;
        match network {
            IpFamily::V4 => PacketLayout::read_v4(frame, network_at),
            IpFamily::V6 => PacketLayout::read_v6(frame, network_at),
        }
    }

    /// Returns the ECN field: the last two bits of the former type of service or traffic class (RFC 3168 §5).
    pub(super) fn ecn(&self, frame: &[u8]) -> Ecn {
        let field = match self.network {
            IpFamily::V4 => frame.get(self.network_at + 1).map(|tos| tos & 0b11),
            IpFamily::V6 => frame.get(self.network_at + 1).map(|class_and_flow| class_and_flow >> 4 & 0b11),
        };
        match field {
            Some(0b11) => Ecn::Congested,
            Some(0b01 | 0b10) => Ecn::Capable,
            _ => Ecn::NotCapable,
        }
    }

    /// Returns the TCP or UDP payload if it exists and is complete.
    pub(super) fn datagram(&self, frame: &[u8]) -> Option<Datagram> {
        if self.fragment != Fragment::None {
            return None;
        }
        let transport = TransportProtocol::of(self.protocol)?;
        let bytes = frame.get(self.transport_at..self.end)?;
        let header = transport.header_len(bytes)?;
        let length = match transport {
            TransportProtocol::Tcp => bytes.len(),
            TransportProtocol::Udp => usize::from(read_u16(bytes, 4)?),
        };
        let payload = self.transport_at + header..self.transport_at + length;
        (length > header && length <= bytes.len()).then_some(Datagram { transport, payload })
    }

    /// Returns the range of both addresses, in network order.
    pub(super) fn addresses(&self) -> Range<usize> {
        match self.network {
            IpFamily::V4 => self.network_at + 12..self.network_at + 20,
            IpFamily::V6 => self.network_at + 8..self.network_at + 40,
        }
    }

    /// Returns the hash of a flow: equal for all packets between two ports, or between two hosts for fragments and
    /// protocols without ports.
    fn flow_hash(&self, frame: &[u8]) -> u32 {
        let hash = mix_bytes(u64::from(self.protocol), frame.get(self.addresses()).unwrap_or_default());
        let ports = self.ports().and_then(|at| frame.get(at..at + 4));
        finish_hash(ports.map_or(hash, |ports| mix_bytes(hash, ports)))
    }

    /// Returns the offset of the two ports, if the packet has ports.
    pub(super) fn ports(&self) -> Option<usize> {
        let has_ports = self.fragment == Fragment::None && PORT_PROTOCOLS.contains(&self.protocol);
        (has_ports && self.transport_at + 4 <= self.end).then_some(self.transport_at)
    }

    fn read_v4(frame: &[u8], at: usize) -> Option<PacketLayout> {
        let header = frame.get(at..)?;
        let length = usize::from(header.first()? & 0x0f) * 4;
        let total = usize::from(read_u16(header, 2)?);
        if header.first()? >> 4 != 4 || length < 20 || length > total || total > header.len() {
            return None;
        }
        let fragment = match read_u16(header, 6)? {
            bits if bits & 0x1fff != 0 => Fragment::Later,
            bits if bits & 0x2000 != 0 => Fragment::First,
            _ => Fragment::None,
        };
        let protocol = *header.get(9)?;
        let (transport_at, end) = (at + length, at + total);
        Some(PacketLayout { network: IpFamily::V4, network_at: at, transport_at, end, protocol, fragment })
    }

    /// Skips extension headers (RFC 8200 §4).
    fn read_v6(frame: &[u8], at: usize) -> Option<PacketLayout> {
        let header = frame.get(at..)?;
        let end = at + 40 + usize::from(read_u16(header, 4)?);
        if header.first()? >> 4 != 6 || end > frame.len() {
            return None;
        }
        let mut layout = PacketLayout {
            network: IpFamily::V6,
            network_at: at,
            transport_at: at + 40,
            end,
            protocol: *header.get(6)?,
            fragment: Fragment::None,
        };
        for _ in 0..MAX_EXTENSION_HEADERS {
            let Some(extension) = frame.get(layout.transport_at..end) else { break };
            let Some(length) = layout.extension(extension) else { break };
            layout.protocol = extension[0];
            layout.transport_at += length;
        }
        Some(layout)
    }

    /// Returns the length of the extension header at the start of `bytes`; `None` for another header or the data of a
    /// later fragment.
    fn extension(&mut self, bytes: &[u8]) -> Option<usize> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const AUTHENTICATION: u8 = 51;
        const DESTINATION: u8 = 60;
        if self.fragment == Fragment::Later {
            return None;
        }
        let units = usize::from(*bytes.get(1)?);
        let length = match self.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => 8 + units * 8,
            AUTHENTICATION => 8 + units * 4,
            FRAGMENT => 8,
            _ => return None,
        };
        if length > bytes.len() {
            return None;
        }
        if self.protocol == FRAGMENT {
            self.fragment = match read_u16(bytes, 2)? {
                bits if bits & 0xfff8 != 0 => Fragment::Later,
                bits if bits & 1 != 0 => Fragment::First,
                // An atomic fragment is a complete packet (RFC 6946).
                _ => self.fragment,
            };
        }
        Some(length)
    }
}

/// Returns the flow hash of any frame.
pub(super) fn flow_hash(frame: &[u8], layout: Option<&PacketLayout>) -> u32 {
    match layout {
        Some(layout) => layout.flow_hash(frame),
        // Both addresses and the type.
        None => finish_hash(mix_bytes(0, &frame[..frame.len().min(14)])),
    }
}

/// Mixes bytes into a hash that separates neighbouring ports and addresses and is the same in every run.
fn mix_bytes(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

fn finish_hash(hash: u64) -> u32 {
    (hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}
