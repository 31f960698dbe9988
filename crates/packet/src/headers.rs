//! Headers of a super-packet: reads them, and rewrites them for a part of the super-packet.
//!
//! Only packets that a network card could cut are read: complete TCP or UDP, without fragments or IPv6 extension
//! headers. Every other frame is one packet.

use super::checksum::{fold_carries, put_u16, read_u16, sum_words};
use super::frame::{Segments, VnetHeader};

/// Headers of a super-packet that can be cut.
pub(super) struct Headers {
    network: IpFamily,
    transport: TransportProtocol,
    /// Offset of the network header, after Ethernet and VLAN tags.
    network_at: usize,
    transport_at: usize,
    /// Bytes of all headers.
    pub(super) len: usize,
    /// Payload bytes of a virtual packet; not zero.
    size: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpFamily {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransportProtocol {
    Tcp,
    Udp,
}

/// Part of a super-packet that is cut out.
pub(super) struct SegmentRange {
    pub(super) first: u32,
    pub(super) is_last: bool,
    pub(super) payload: usize,
}

const FLAG_FIN: u8 = 0x01;
const FLAG_PSH: u8 = 0x08;
const FLAG_CWR: u8 = 0x80;

impl Headers {
    /// Reads the headers of a super-packet; `None` for a plain packet or an invalid one.
    pub(super) fn read(frame: &[u8], vnet: &VnetHeader) -> Option<Headers> {
        let (expected, transport) = match vnet.gso_type & !VnetHeader::GSO_ECN {
            VnetHeader::GSO_TCPV4 => (Some(IpFamily::V4), TransportProtocol::Tcp),
            VnetHeader::GSO_TCPV6 => (Some(IpFamily::V6), TransportProtocol::Tcp),
            VnetHeader::GSO_UDP_L4 => (None, TransportProtocol::Udp),
            _ => return None,
        };
        let (network, network_at) = find_ip_header(frame)?;
        if expected.is_some_and(|expected| expected != network) {
            return None;
        }
        let transport_at = network_at + network.header_len(frame.get(network_at..)?, transport)?;
        let len = transport_at + transport.header_len(frame.get(transport_at..)?)?;
        let size = usize::from(vnet.gso_size);
        let headers = Headers { network, transport, network_at, transport_at, len, size };
        (size > 0 && frame.len() > len && headers.checksum_agrees(vnet)).then_some(headers)
    }

    /// A checksum outside this header (a tunnel) cannot be cut.
    fn checksum_agrees(&self, vnet: &VnetHeader) -> bool {
        vnet.flags & VnetHeader::NEEDS_CSUM == 0
            || (usize::from(vnet.csum_start) == self.transport_at
                && usize::from(vnet.csum_offset) == self.transport.checksum_at())
    }

    /// Describes the virtual packets of a frame of `frame` bytes.
    pub(super) fn segments(&self, frame: usize) -> Segments {
        let payload = frame - self.len;
        let count = payload.div_ceil(self.size);
        let last = payload - (count - 1) * self.size;
        let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        Segments {
            count: narrow(count),
            header_len: narrow(self.len),
            payload_len: narrow(payload),
            // A single packet may be shorter than `gso_size`.
            wire_len: narrow(self.len + self.size.min(payload)),
            last_wire_len: narrow(self.len + last),
            ..Segments::opaque(frame)
        }
    }

    /// Changes a copy of the headers to the headers of `range`.
    pub(super) fn rewrite(&self, headers: &mut [u8], range: &SegmentRange, size: u16) {
        let transport_len = self.len - self.transport_at + range.payload;
        self.network.rewrite(&mut headers[self.network_at..self.transport_at], transport_len, range.first);
        self.transport.rewrite(&mut headers[self.transport_at..], transport_len, range, size);
        let network = &headers[self.network_at..self.transport_at];
        let sum = fold_carries(self.network.pseudo_header(network, self.transport, transport_len));
        let at = self.transport_at + self.transport.checksum_at();
        put_u16(headers, at, sum);
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

/// Returns the IP version of the frame and the offset of the IP header. Up to two VLAN tags are skipped.
pub(super) fn find_ip_header(frame: &[u8]) -> Option<(IpFamily, usize)> {
    let mut at = 12;
    for _ in 0..3 {
        let kind = read_u16(frame, at)?;
        at += 2;
        match kind {
            0x0800 => return Some((IpFamily::V4, at)),
            0x86dd => return Some((IpFamily::V6, at)),
            0x8100 | 0x88a8 => at += 2,
            _ => return None,
        }
    }
    None
}

impl IpFamily {
    /// Returns the length of the header at the start of `bytes`, if it carries a complete `transport` packet up to
    /// their end.
    fn header_len(self, bytes: &[u8], transport: TransportProtocol) -> Option<usize> {
        match self {
            IpFamily::V4 => {
                let len = usize::from(bytes.first()? & 0x0f) * 4;
                let is_v4 = bytes.first()? >> 4 == 4 && len >= 20 && len <= bytes.len();
                // A fragment has the more-fragments flag or an offset.
                let is_fragment = read_u16(bytes, 6)? & 0x3fff != 0;
                let is_whole = usize::from(read_u16(bytes, 2)?) == bytes.len();
                (is_v4 && !is_fragment && is_whole && *bytes.get(9)? == transport.protocol()).then_some(len)
            }
            IpFamily::V6 => {
                let is_v6 = bytes.first()? >> 4 == 6;
                let is_whole = usize::from(read_u16(bytes, 4)?) + 40 == bytes.len();
                (is_v6 && is_whole && *bytes.get(6)? == transport.protocol()).then_some(40)
            }
        }
    }

    fn rewrite(self, header: &mut [u8], transport_len: usize, first: u32) {
        match self {
            IpFamily::V4 => {
                put_u16(header, 2, (header.len() + transport_len) as u16);
                let id = read_u16(header, 4).unwrap_or(0);
                // The kernel also counts the id up by one per packet, even for packets that must not be fragmented.
                put_u16(header, 4, id.wrapping_add(first as u16));
                put_u16(header, 10, 0);
                let sum = !fold_carries(sum_words(header));
                put_u16(header, 10, sum);
            }
            IpFamily::V6 => put_u16(header, 4, transport_len as u16),
        }
    }

    /// Returns the sum over addresses, protocol and length (RFC 9293 §3.1, RFC 8200 §8.1).
    fn pseudo_header(self, header: &[u8], transport: TransportProtocol, transport_len: usize) -> u64 {
        let addresses = match self {
            IpFamily::V4 => header.get(12..20),
            IpFamily::V6 => header.get(8..40),
        };
        sum_words(addresses.unwrap_or_default()) + u64::from(transport.protocol()) + transport_len as u64
    }
}

impl TransportProtocol {
    pub(super) fn of(protocol: u8) -> Option<TransportProtocol> {
        [TransportProtocol::Tcp, TransportProtocol::Udp].into_iter().find(|transport| transport.protocol() == protocol)
    }

    pub(super) fn protocol(self) -> u8 {
        match self {
            TransportProtocol::Tcp => 6,
            TransportProtocol::Udp => 17,
        }
    }

    /// Returns the offset of the checksum in the header.
    pub(super) fn checksum_at(self) -> usize {
        match self {
            TransportProtocol::Tcp => 16,
            TransportProtocol::Udp => 6,
        }
    }

    /// Returns the length of the header at the start of `bytes`, if it is complete.
    pub(super) fn header_len(self, bytes: &[u8]) -> Option<usize> {
        let len = match self {
            TransportProtocol::Tcp => usize::from(bytes.get(12)? >> 4) * 4,
            TransportProtocol::Udp => 8,
        };
        let min_len = if self == TransportProtocol::Tcp { 20 } else { 8 };
        (len >= min_len && len <= bytes.len()).then_some(len)
    }

    fn rewrite(self, header: &mut [u8], transport_len: usize, range: &SegmentRange, size: u16) {
        match self {
            TransportProtocol::Tcp => {
                let sequence = header.get(4..8).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default();
                let skipped = range.first.wrapping_mul(u32::from(size));
                let sequence = u32::from_be_bytes(sequence).wrapping_add(skipped);
                header[4..8].copy_from_slice(&sequence.to_be_bytes());
                if !range.is_last {
                    header[13] &= !(FLAG_FIN | FLAG_PSH);
                }
                if range.first > 0 {
                    header[13] &= !FLAG_CWR;
                }
            }
            TransportProtocol::Udp => put_u16(header, 4, transport_len as u16),
        }
    }
}
