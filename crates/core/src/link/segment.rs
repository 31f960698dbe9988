//! Super-packets as bytes: what a kernel hands over with a virtual-net header, and smaller ones cut out of it.
//!
//! A super-packet (GSO) is one Ethernet frame whose payload stands for several packets of `gso_size` bytes each. The
//! link decides about those; this module counts them ([`inspect`]) and builds the frame for a range of them ([`cut`]),
//! as a network card would: lengths, sequence numbers, flags and checksums. It holds no state and reads no more than
//! it must; whatever it does not understand is one opaque packet, which is always right, only less exact.

use std::ops::Range;

use super::Packet;

/// `struct virtio_net_hdr` as `PACKET_VNET_HDR` puts it before a frame (linux/virtio_net.h), in the byte order of the
/// machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`](Self::NEEDS_CSUM) and others.
    pub flags: u8,
    /// How the payload is to be cut; [`GSO_NONE`](Self::GSO_NONE) if it is one packet.
    pub gso_type: u8,
    /// Bytes of all headers. A hint: it is never believed.
    pub hdr_len: u16,
    /// Payload bytes of each packet but the last.
    pub gso_size: u16,
    /// Where the checksum starts, from the start of the frame.
    pub csum_start: u16,
    /// Where its field is, from `csum_start`.
    pub csum_offset: u16,
}

/// What a frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Virtual packets; at least one.
    pub count: u32,
    /// Bytes of the headers that every virtual packet repeats, Ethernet included; all of an opaque packet.
    pub header: u32,
    /// Bytes the virtual packets share out: the frame without `header`.
    pub payload: u32,
    /// Bytes on the wire of each virtual packet but the last: with the Ethernet header, without checksum, preamble and
    /// gap, as `skb->len` and so `tc` count.
    pub wire: u32,
    /// Bytes on the wire of the last.
    pub last_wire: u32,
}

/// How a frame is to be written: these headers, then these bytes of the original frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Goes before the frame.
    pub vnet: VnetHeader,
    /// Where in the original frame the rest of the new one is.
    pub payload: Range<usize>,
}

/// Counts the virtual packets of an Ethernet frame.
pub fn inspect(frame: &[u8], vnet: &VnetHeader) -> Segments {
    match Headers::read(frame, vnet) {
        Some(headers) => headers.segments(frame.len()),
        None => {
            let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            Segments { count: 1, header: len, payload: 0, wire: len, last_wire: len }
        }
    }
}

/// Builds the frame for `count` virtual packets from `first` on into `out` (cleared first), and its virtual-net header.
///
/// The whole range is a copy. A range that reaches past the end is shortened; one virtual packet is a plain packet.
pub fn cut(frame: &[u8], vnet: &VnetHeader, first: u32, count: u32, out: &mut Vec<u8>) -> VnetHeader {
    let Cut { vnet, payload } = cut_headers(frame, vnet, first, count, out);
    out.extend_from_slice(frame.get(payload).unwrap_or_default());
    vnet
}

/// As [`cut`], but writes only the headers to `out` and leaves the payload where it is, to be sent from there.
pub fn cut_headers(frame: &[u8], vnet: &VnetHeader, first: u32, count: u32, out: &mut Vec<u8>) -> Cut {
    out.clear();
    let whole = Cut { vnet: *vnet, payload: 0..frame.len() };
    let Some(headers) = Headers::read(frame, vnet) else { return whole };
    let total = headers.segments(frame.len()).count;
    let first = first.min(total - 1);
    let count = count.clamp(1, total - first);
    if count == total {
        return whole;
    }
    let size = usize::from(vnet.gso_size);
    let start = headers.len + first as usize * size;
    let payload = start..frame.len().min(start + count as usize * size);
    out.extend_from_slice(&frame[..headers.len]);
    let range = Piece { first, is_last: first + count == total, payload: payload.len() };
    headers.rewrite(out, &range, vnet.gso_size);
    Cut { vnet: headers.vnet(vnet, count), payload }
}

/// The headers of a super-packet that can be cut.
struct Headers {
    network: Network,
    transport: Transport,
    /// Where the network header begins: after Ethernet and VLAN tags.
    network_at: usize,
    transport_at: usize,
    /// Bytes of all headers.
    len: usize,
    /// Payload bytes a virtual packet; not zero.
    size: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    V4,
    V6,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// The part of a super-packet that is being cut out.
struct Piece {
    first: u32,
    is_last: bool,
    /// Bytes.
    payload: usize,
}

const FLAG_FIN: u8 = 0x01;
const FLAG_PSH: u8 = 0x08;
const FLAG_CWR: u8 = 0x80;

impl VnetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 10;
    /// The checksum field holds only the sum of the pseudo-header; the rest is still to be summed.
    pub const NEEDS_CSUM: u8 = 1;
    /// One packet.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// UDP datagrams of equal size (`UDP_SEGMENT`), over either.
    pub const GSO_UDP_L4: u8 = 5;
    /// Added to a TCP type: the first packet carries CWR (RFC 3168).
    pub const GSO_ECN: u8 = 0x80;

    /// Reads the header from the start of `bytes`; `None` if there are too few.
    pub fn parse(bytes: &[u8]) -> Option<VnetHeader> {
        let &[flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = bytes.first_chunk::<{ Self::LEN }>()?;
        Some(VnetHeader {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        })
    }

    /// The header as the kernel reads it.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}

impl Segments {
    /// All of them, as the link takes them.
    pub fn packet(&self, id: u64) -> Packet {
        Packet::several(id, self.count, self.wire, self.last_wire)
    }
}

impl Headers {
    /// Reads the headers of a super-packet; `None` for a plain packet and for whatever is not as it should be.
    fn read(frame: &[u8], vnet: &VnetHeader) -> Option<Headers> {
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

    fn segments(&self, frame: usize) -> Segments {
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
        }
    }

    /// Makes a copy of the headers those of `piece`.
    fn rewrite(&self, headers: &mut [u8], piece: &Piece, size: u16) {
        let transport_len = self.len - self.transport_at + piece.payload;
        self.network.rewrite(&mut headers[self.network_at..self.transport_at], transport_len, piece.first);
        self.transport.rewrite(&mut headers[self.transport_at..], transport_len, piece, size);
        let network = &headers[self.network_at..self.transport_at];
        let sum = fold(self.network.pseudo_header(network, self.transport, transport_len));
        let at = self.transport_at + self.transport.checksum_at();
        put(headers, at, sum);
    }

    fn vnet(&self, whole: &VnetHeader, count: u32) -> VnetHeader {
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
fn ethernet(frame: &[u8]) -> Option<(Network, usize)> {
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
    fn protocol(self) -> u8 {
        match self {
            Transport::Tcp => 6,
            Transport::Udp => 17,
        }
    }

    fn checksum_at(self) -> usize {
        match self {
            Transport::Tcp => 16,
            Transport::Udp => 6,
        }
    }

    fn header_len(self, bytes: &[u8]) -> Option<usize> {
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

/// The 16 bits at `at`, in network order.
fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_be_bytes(*bytes))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The 16-bit words of `bytes`, added up (RFC 1071). Headers only, so an even number of bytes.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

/// Adds the carries back in until none is left.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
