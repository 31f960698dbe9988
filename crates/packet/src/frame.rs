//! Virtual-net header of a frame, and the virtual packets that the frame represents.

use std::ops::Range;

use crate::Ecn;

/// `struct virtio_net_hdr`, which `PACKET_VNET_HDR` puts in front of a frame (linux/virtio_net.h), in the byte order of
/// the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CSUM`](Self::NEEDS_CSUM) and other flags.
    pub flags: u8,
    /// Segmentation of the payload; [`GSO_NONE`](Self::GSO_NONE) if it is one packet.
    pub gso_type: u8,
    /// Bytes of all headers. This field is a hint and is never used.
    pub hdr_len: u16,
    /// Payload bytes of each packet except the last.
    pub gso_size: u16,
    /// Start of the checksummed bytes, from the start of the frame.
    pub csum_start: u16,
    /// Position of the checksum field, from `csum_start`.
    pub csum_offset: u16,
}

/// Virtual packets that a frame represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Number of virtual packets; at least 1.
    pub count: u32,
    /// Bytes of the headers that every virtual packet repeats, including Ethernet; all bytes of an opaque packet.
    pub header_len: u32,
    /// Payload bytes of all virtual packets: the frame without `header_len`.
    pub payload_len: u32,
    /// Bytes on the wire of each virtual packet except the last: with the Ethernet header, without checksum, preamble
    /// and gap, as in `skb->len` and `tc`.
    pub wire_len: u32,
    /// Bytes on the wire of the last virtual packet.
    pub last_wire_len: u32,
    /// Bytes in front of the IP packet: the Ethernet header with its VLAN tags. Other protocols count without tags.
    pub link_header: u8,
    /// Hash of addresses, protocol and ports. Packets without ports, including fragments, use addresses and protocol.
    /// Other protocols use the Ethernet header. The hash is the same in every run.
    pub flow: u32,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// Whether the packet has a complete TCP or UDP payload, in which a hidden [`Corruption`](crate::Corruption) is
    /// possible.
    pub has_payload: bool,
}

pub(super) const ETHERNET_HEADER: u8 = 14;

/// Frame to write: new headers, then a range of the original frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFrame {
    /// Header in front of the frame.
    pub vnet: VnetHeader,
    /// Range of the original frame that follows the new headers.
    pub payload: Range<usize>,
}

impl VnetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 10;
    /// The checksum field holds only the sum of the pseudo-header.
    pub const NEEDS_CSUM: u8 = 1;
    pub const GSO_NONE: u8 = 0;
    pub const GSO_TCPV4: u8 = 1;
    pub const GSO_TCPV6: u8 = 4;
    /// UDP datagrams of equal size (`UDP_SEGMENT`) over IPv4 or IPv6.
    pub const GSO_UDP_L4: u8 = 5;
    /// Added to a TCP type if the first packet has CWR (RFC 3168).
    pub const GSO_ECN: u8 = 0x80;

    /// Reads the header from the start of `bytes`; `None` if they are too short.
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

    /// Encodes the header for the kernel.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }
}

impl Segments {
    /// Describes one opaque packet of `length` bytes.
    pub(super) fn opaque(length: usize) -> Segments {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Segments {
            count: 1,
            header_len: length,
            payload_len: 0,
            wire_len: length,
            last_wire_len: length,
            link_header: ETHERNET_HEADER,
            flow: 0,
            ecn: Ecn::NotCapable,
            has_payload: false,
        }
    }
}
