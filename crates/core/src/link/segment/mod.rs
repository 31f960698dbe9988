//! Packets as bytes: what a kernel hands over with a virtual-net header, what the link is told of it, and what leaves.
//!
//! A super-packet (GSO) is one Ethernet frame whose payload stands for several packets of `gso_size` bytes each. The
//! link decides about those; this module describes them ([`inspect`]) and builds the frame for a range of them, as a
//! network card would ([`cut`]: lengths, sequence numbers, flags and checksums) and with what the link has done to it
//! ([`write()`]: marks and damage); and the answer of a router to what is too big for the next hop ([`too_big`]). It
//! holds no state and reads no more than it must; whatever it does not understand is one opaque packet. That is right
//! but for super-packets of a kind the header has no name for (tunnels): the emulator's interfaces get none.

mod alter;
mod checksum;
mod endpoints;
mod headers;
mod outline;
mod reply;

use std::ops::Range;

use headers::{Headers, Piece};
use outline::Outline;

use super::{Ecn, Packet};

pub use endpoints::{Endpoint, Endpoints, Protocol, endpoints};
pub use reply::too_big;

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
    /// Bytes of those in front of the IP packet: the Ethernet header, with its VLAN tags; without them of what is not IP.
    pub link_header: u8,
    /// A hash of addresses, protocol and ports; of addresses and protocol where there are no ports, fragments among
    /// them; of the Ethernet header of what is not IP. The same in every run.
    pub flow: u32,
    /// The ECN field of the IP header.
    pub ecn: Ecn,
    /// Whether there is TCP or UDP payload, the whole of it: where [`Damage`](super::Damage) can hide.
    pub has_payload: bool,
}

/// Bytes of the Ethernet header without tags.
const ETHERNET_HEADER: u8 = 14;

/// How a frame is to be written: these headers, then these bytes of the original frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Goes before the frame.
    pub vnet: VnetHeader,
    /// Where in the original frame the rest of the new one is.
    pub payload: Range<usize>,
}

/// What an Ethernet frame stands for.
pub fn inspect(frame: &[u8], vnet: &VnetHeader) -> Segments {
    let outline = Outline::read(frame);
    Segments {
        flow: outline::flow(frame, outline.as_ref()),
        ecn: outline.as_ref().map_or(Ecn::NotCapable, |outline| outline.ecn(frame)),
        link_header: outline.as_ref().map_or(ETHERNET_HEADER, |outline| outline.network_at as u8),
        has_payload: outline.is_some_and(|outline| outline.datagram(frame).is_some()),
        ..match Headers::read(frame, vnet) {
            Some(headers) => headers.segments(frame.len()),
            None => Segments::opaque(frame.len()),
        }
    }
}

/// How the virtual packets of `packet`, which are of `frame`, leave the link: cut out, marked, damaged.
///
/// Headers and whatever was changed are written to `out` (cleared first); the rest is left where it is. Congestion is
/// marked in an IP header whose ECN field says that its sender knows of it (RFC 3168 §5). Damage is one bit:
/// - one that a checksum tells of, in the IP packet (of IPv6 behind the header, which has none), once the checksum is
///   complete: the receiver must not take it for one still to be summed. Where the packet has no checksum (UDP over IPv4
///   with a field of zero, or no IP at all) nobody is told.
/// - hidden, in the payload of TCP or UDP, the checksum adjusted; nothing is done where there is no such payload.
pub fn write(frame: &[u8], vnet: &VnetHeader, packet: &Packet, out: &mut Vec<u8>) -> Cut {
    let mut cut = cut_headers(frame, vnet, packet.first, packet.count, out);
    if let Some(damage) = packet.changes.damage {
        cut = alter::damage(frame, cut, damage, out);
    }
    if packet.changes.congestion {
        cut = alter::mark(frame, cut, out);
    }
    cut
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
        let &Segments { count, wire, last_wire, link_header, flow, ecn, has_payload, .. } = self;
        Packet { link_header, flow, ecn, has_payload, ..Packet::several(id, count, wire, last_wire) }
    }

    /// One packet of so many bytes.
    fn opaque(length: usize) -> Segments {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Segments {
            count: 1,
            header: length,
            payload: 0,
            wire: length,
            last_wire: length,
            link_header: ETHERNET_HEADER,
            flow: 0,
            ecn: Ecn::NotCapable,
            has_payload: false,
        }
    }
}
