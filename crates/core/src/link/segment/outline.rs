//! What any frame says of itself: where its headers are, which flow it belongs to, whether it may be marked.
//!
//! Wider than what can be cut: fragments, extension headers and protocols without ports are read as far as that goes.
//! Whatever does not parse is no IP packet and is told apart by its Ethernet header alone.

use std::ops::Range;

use super::checksum::word;
use super::headers::{Network, Transport, ethernet};
use crate::link::Ecn;

/// Where the parts of an IP packet are in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) network: Network,
    pub(super) network_at: usize,
    /// Behind the IP header and any extension headers.
    pub(super) transport_at: usize,
    /// Where the packet ends: a frame may be padded.
    pub(super) end: usize,
    /// What is at `transport_at`, if this is no later fragment.
    pub(super) protocol: u8,
    pub(super) fragment: Fragment,
}

/// Whether a packet is a part of a fragmented one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    /// It is whole.
    None,
    /// It begins with the transport header.
    First,
    /// It has none.
    Later,
}

/// A TCP segment or UDP datagram in its frame, with payload.
pub(super) struct Datagram {
    pub(super) transport: Transport,
    pub(super) payload: Range<usize>,
}

/// TCP, UDP, DCCP, SCTP and UDP-Lite: the ports are the first four bytes.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];
/// More extension headers than this are nothing that a stack would accept gladly, either.
const MOST_EXTENSIONS: usize = 8;

impl Outline {
    /// `None` if it is no IP packet, or none that makes sense.
    pub(super) fn read(frame: &[u8]) -> Option<Outline> {
        let (network, network_at) = ethernet(frame)?;
        match network {
            Network::V4 => Outline::v4(frame, network_at),
            Network::V6 => Outline::v6(frame, network_at),
        }
    }

    /// RFC 3168 §5: the last two bits of what was the type of service, or the traffic class.
    pub(super) fn ecn(&self, frame: &[u8]) -> Ecn {
        let field = match self.network {
            Network::V4 => frame.get(self.network_at + 1).map(|tos| tos & 0b11),
            Network::V6 => frame.get(self.network_at + 1).map(|class_and_flow| class_and_flow >> 4 & 0b11),
        };
        match field {
            Some(0b11) => Ecn::Congested,
            Some(0b01 | 0b10) => Ecn::Capable,
            _ => Ecn::NotCapable,
        }
    }

    /// The TCP or UDP payload, if there is any and it is all there.
    pub(super) fn datagram(&self, frame: &[u8]) -> Option<Datagram> {
        if self.fragment != Fragment::None {
            return None;
        }
        let transport = Transport::of(self.protocol)?;
        let bytes = frame.get(self.transport_at..self.end)?;
        let header = transport.header_len(bytes)?;
        let length = match transport {
            Transport::Tcp => bytes.len(),
            Transport::Udp => usize::from(word(bytes, 4)?),
        };
        let payload = self.transport_at + header..self.transport_at + length;
        (length > header && length <= bytes.len()).then_some(Datagram { transport, payload })
    }

    /// Addresses, in network order.
    pub(super) fn addresses(&self) -> Range<usize> {
        match self.network {
            Network::V4 => self.network_at + 12..self.network_at + 20,
            Network::V6 => self.network_at + 8..self.network_at + 40,
        }
    }

    /// The same for all packets between two ports; for a fragment, and where there are no ports, between two hosts.
    fn flow(&self, frame: &[u8]) -> u32 {
        let hash = absorb(u64::from(self.protocol), frame.get(self.addresses()).unwrap_or_default());
        let ports = self.ports().and_then(|at| frame.get(at..at + 4));
        finish(ports.map_or(hash, |ports| absorb(hash, ports)))
    }

    /// Where the two ports are, if there are any.
    pub(super) fn ports(&self) -> Option<usize> {
        let has_ports = self.fragment == Fragment::None && WITH_PORTS.contains(&self.protocol);
        (has_ports && self.transport_at + 4 <= self.end).then_some(self.transport_at)
    }

    fn v4(frame: &[u8], at: usize) -> Option<Outline> {
        let header = frame.get(at..)?;
        let length = usize::from(header.first()? & 0x0f) * 4;
        let total = usize::from(word(header, 2)?);
        if header.first()? >> 4 != 4 || length < 20 || length > total || total > header.len() {
            return None;
        }
        let fragment = match word(header, 6)? {
            bits if bits & 0x1fff != 0 => Fragment::Later,
            bits if bits & 0x2000 != 0 => Fragment::First,
            _ => Fragment::None,
        };
        let protocol = *header.get(9)?;
        let (transport_at, end) = (at + length, at + total);
        Some(Outline { network: Network::V4, network_at: at, transport_at, end, protocol, fragment })
    }

    /// Steps over extension headers (RFC 8200 §4).
    fn v6(frame: &[u8], at: usize) -> Option<Outline> {
        let header = frame.get(at..)?;
        let end = at + 40 + usize::from(word(header, 4)?);
        if header.first()? >> 4 != 6 || end > frame.len() {
            return None;
        }
        let mut outline = Outline {
            network: Network::V6,
            network_at: at,
            transport_at: at + 40,
            end,
            protocol: *header.get(6)?,
            fragment: Fragment::None,
        };
        for _ in 0..MOST_EXTENSIONS {
            let Some(extension) = frame.get(outline.transport_at..end) else { break };
            let Some(length) = outline.extension(extension) else { break };
            outline.protocol = extension[0];
            outline.transport_at += length;
        }
        Some(outline)
    }

    /// The length of the extension header that `bytes` begin with; `None` if it is none, or a later fragment's data.
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
            self.fragment = match word(bytes, 2)? {
                bits if bits & 0xfff8 != 0 => Fragment::Later,
                bits if bits & 1 != 0 => Fragment::First,
                // "Atomic": a whole packet all the same (RFC 6946).
                _ => self.fragment,
            };
        }
        Some(length)
    }
}

/// The flow of a frame, whatever it carries.
pub(super) fn flow(frame: &[u8], outline: Option<&Outline>) -> u32 {
    match outline {
        Some(outline) => outline.flow(frame),
        // Addresses and type.
        None => finish(absorb(0, &frame[..frame.len().min(14)])),
    }
}

/// Any mixing will do that sends neighbouring ports and addresses to unlike places, and is the same in every run.
fn absorb(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(hash, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}

fn finish(hash: u64) -> u32 {
    (hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}
