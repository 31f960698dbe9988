//! The headers of a super-packet: read, and written anew for a part of it.
//!
//! Only what can be cut as a network card would cut it is read here: TCP or UDP, whole, without fragments or IPv6
//! extension headers. Everything else is one packet.

use super::checksum::{fold, put, sum, word};
use super::{Segments, VnetHeader};

/// The headers of a super-packet that can be cut.
pub(super) struct Headers {
    network: Network,
    transport: Transport,
    /// Where the network header begins: after Ethernet and VLAN tags.
    network_at: usize,
    transport_at: usize,
    /// Bytes of all headers.
    pub(super) len: usize,
    /// Payload bytes a virtual packet; not zero.
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
}

/// The part of a super-packet that is being cut out.
pub(super) struct Piece {
    pub(super) first: u32,
    pub(super) is_last: bool,
    /// Bytes.
    pub(super) payload: usize,
}

const FLAG_FIN: u8 = 0x01;
const FLAG_PSH: u8 = 0x08;
const FLAG_CWR: u8 = 0x80;

impl Headers {
    /// Reads the headers of a super-packet; `None` for a plain packet and for whatever is not as it should be.
    pub(super) fn read(frame: &[u8], vnet: &VnetHeader) -> Option<Headers> {
        let (wanted, transport) = match vnet.gso_type & !VnetHeader::GSO_ECN {
            VnetHeader::GSO_TCPV4 => (Some(Network::V4), Transport::Tcp),
            VnetHeader::GSO_TCPV6 => (Some(Network::V6), Transport::Tcp),
            VnetHeader::GSO_UDP_L4 => (None, Transport::Udp),
            _ => return None,
        };
        let (network, network_at) = ethernet(frame)?;
        if wanted.is_some_and(|wanted| wanted != network) {
            return None;
        }
        let transport_at = network_at + network.header_len(frame.get(network_at..)?, transport)?;
        let len = transport_at + transport.header_len(frame.get(transport_at..)?)?;
        let size = usize::from(vnet.gso_size);
        let headers = Headers { network, transport, network_at, transport_at, len, size };
        (size > 0 && frame.len() > len && headers.checksum_agrees(vnet)).then_some(headers)
    }

    /// A checksum somewhere else than in this header (a tunnel) is not ours to cut.
    fn checksum_agrees(&self, vnet: &VnetHeader) -> bool {
        vnet.flags & VnetHeader::NEEDS_CSUM == 0
            || (usize::from(vnet.csum_start) == self.transport_at
                && usize::from(vnet.csum_offset) == self.transport.checksum_at())
    }

    /// The virtual packets of a frame of so many bytes.
    pub(super) fn segments(&self, frame: usize) -> Segments {
        let payload = frame - self.len;
        let count = payload.div_ceil(self.size);
        let last = payload - (count - 1) * self.size;
        let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Segments {
            count: narrow(count),
            header: narrow(self.len),
            payload: narrow(payload),
            // A lone packet may be shorter than `gso_size`.
            wire: narrow(self.len + self.size.min(payload)),
            last_wire: narrow(self.len + last),
            ..Segments::opaque(frame)
        }
    }

    /// Makes a copy of the headers those of `piece`.
    pub(super) fn rewrite(&self, headers: &mut [u8], piece: &Piece, size: u16) {
        let transport_len = self.len - self.transport_at + piece.payload;
        self.network.rewrite(&mut headers[self.network_at..self.transport_at], transport_len, piece.first);
        self.transport.rewrite(&mut headers[self.transport_at..], transport_len, piece, size);
        let network = &headers[self.network_at..self.transport_at];
        let sum = fold(self.network.pseudo_header(network, self.transport, transport_len));
        let at = self.transport_at + self.transport.checksum_at();
        put(headers, at, sum);
    }

    pub(super) fn vnet(&self, whole: &VnetHeader, count: u32) -> VnetHeader {
        let (gso_type, gso_size) = if count > 1 { (whole.gso_type, whole.gso_size) } else { (VnetHeader::GSO_NONE, 0) };
        let narrow = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
        VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type,
            gso_size,
            hdr_len: narrow(self.len),
            csum_start: narrow(self.transport_at),
            csum_offset: narrow(self.transport.checksum_at()),
        }
    }
}

/// What the frame carries, and where it begins; up to two VLAN tags are stepped over.
pub(super) fn ethernet(frame: &[u8]) -> Option<(Network, usize)> {
    let mut at = 12;
    for _ in 0..3 {
        let kind = word(frame, at)?;
        at += 2;
        match kind {
            0x0800 => return Some((Network::V4, at)),
            0x86dd => return Some((Network::V6, at)),
            0x8100 | 0x88a8 => at += 2,
            _ => return None,
        }
    }
    None
}

impl Network {
    /// Bytes of the header at the start of `bytes`, if it carries `transport` whole and to the end of them.
    fn header_len(self, bytes: &[u8], transport: Transport) -> Option<usize> {
        match self {
            Network::V4 => {
                let len = usize::from(bytes.first()? & 0x0f) * 4;
                let is_v4 = bytes.first()? >> 4 == 4 && len >= 20 && len <= bytes.len();
                // Neither more fragments nor an offset.
                let is_fragment = word(bytes, 6)? & 0x3fff != 0;
                let is_whole = usize::from(word(bytes, 2)?) == bytes.len();
                (is_v4 && !is_fragment && is_whole && *bytes.get(9)? == transport.protocol()).then_some(len)
            }
            Network::V6 => {
                let is_v6 = bytes.first()? >> 4 == 6;
                let is_whole = usize::from(word(bytes, 4)?) + 40 == bytes.len();
                (is_v6 && is_whole && *bytes.get(6)? == transport.protocol()).then_some(40)
            }
        }
    }

    fn rewrite(self, header: &mut [u8], transport_len: usize, first: u32) {
        match self {
            Network::V4 => {
                put(header, 2, (header.len() + transport_len) as u16);
                let id = word(header, 4).unwrap_or(0);
                // As the kernel counts: one up a packet, whether or not it may be fragmented.
                put(header, 4, id.wrapping_add(first as u16));
                put(header, 10, 0);
                let sum = !fold(sum(header));
                put(header, 10, sum);
            }
            Network::V6 => put(header, 4, transport_len as u16),
        }
    }

    /// The sum over addresses, protocol and length (RFC 9293 §3.1, RFC 8200 §8.1).
    fn pseudo_header(self, header: &[u8], transport: Transport, transport_len: usize) -> u64 {
        let addresses = match self {
            Network::V4 => header.get(12..20),
            Network::V6 => header.get(8..40),
        };
        sum(addresses.unwrap_or_default()) + u64::from(transport.protocol()) + transport_len as u64
    }
}

impl Transport {
    pub(super) fn of(protocol: u8) -> Option<Transport> {
        [Transport::Tcp, Transport::Udp].into_iter().find(|transport| transport.protocol() == protocol)
    }

    pub(super) fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }

    /// Where the checksum is in the header.
    pub(super) fn checksum_at(self) -> usize {
        match self {
            Transport::Tcp => 16,
            Transport::Udp => 6,
        }
    }

    /// Bytes of the header at the start of `bytes`, if it is all there.
    pub(super) fn header_len(self, bytes: &[u8]) -> Option<usize> {
        let len = match self {
            Transport::Tcp => usize::from(bytes.get(12)? >> 4) * 4,
            Transport::Udp => 8,
        };
        let least = if self == Transport::Tcp { 20 } else { 8 };
        (len >= least && len <= bytes.len()).then_some(len)
    }

    fn rewrite(self, header: &mut [u8], transport_len: usize, piece: &Piece, size: u16) {
        match self {
            Transport::Tcp => {
                let sequence = header.get(4..8).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
                let skipped = piece.first.wrapping_mul(u32::from(size));
                let sequence = u32::from_be_bytes(sequence).wrapping_add(skipped);
                header[4..8].copy_from_slice(&sequence.to_be_bytes());
                if !piece.is_last {
                    header[13] &= !(FLAG_FIN | FLAG_PSH);
                }
                if piece.first > 0 {
                    header[13] &= !FLAG_CWR;
                }
            }
            Transport::Udp => put(header, 4, transport_len as u16),
        }
    }
}
