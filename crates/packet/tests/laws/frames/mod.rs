//! Frames as a kernel provides them, with an independent checksum and lengths.

use lfn_packet::VnetHeader;
use proptest::prelude::*;

pub const FIN: u8 = 0x01;
pub const PSH: u8 = 0x08;
pub const ACK: u8 = 0x10;
pub const CWR: u8 = 0x80;

/// Description of a test super-packet.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub v6: bool,
    pub udp: bool,
    pub vlan_tags: usize,
    /// Bytes of the options of IPv4 and of TCP, multiples of 4.
    pub options: usize,
    pub size: u16,
    pub payload: usize,
    pub sequence: u32,
    pub id: u16,
    pub flags: u8,
}

impl Shape {
    pub fn network_at(&self) -> usize {
        14 + 4 * self.vlan_tags
    }

    pub fn transport_at(&self) -> usize {
        self.network_at() + if self.v6 { 40 } else { 20 + self.options }
    }

    pub fn header(&self) -> usize {
        self.transport_at() + if self.udp { 8 } else { 20 + self.options }
    }

    pub fn payload(&self) -> Vec<u8> {
        (0..self.payload).map(|index| (index * 7 + index / 251) as u8).collect()
    }

    pub fn vnet(&self) -> VnetHeader {
        let gso_type = match (self.udp, self.v6) {
            (true, _) => VnetHeader::GSO_UDP_L4,
            (false, true) => VnetHeader::GSO_TCPV6,
            (false, false) => VnetHeader::GSO_TCPV4,
        };
        let ecn = if self.flags & CWR != 0 && !self.udp { VnetHeader::GSO_ECN } else { 0 };
        VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            gso_type: gso_type | ecn,
            // This field is a hint and deliberately wrong.
            hdr_len: 7,
            gso_size: self.size,
            csum_start: self.transport_at() as u16,
            csum_offset: if self.udp { 6 } else { 16 },
        }
    }

    /// Builds the frame as a kernel provides it: total lengths, and the checksum of the pseudo-header only.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
        for tag in 0..self.vlan_tags {
            frame.extend([if tag == 0 && self.vlan_tags == 2 { 0x88 } else { 0x81 }, 0, 0, 42]);
            let at = frame.len() - 3;
            frame[at] = if frame[at - 1] == 0x88 { 0xa8 } else { 0 };
        }
        frame.extend(if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        let transport_len = self.header() - self.transport_at() + self.payload;
        let protocol = if self.udp { 17 } else { 6 };
        if self.v6 {
            frame.extend([0x60, 0, 0, 0]);
            frame.extend((transport_len as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend((0..32).map(|byte| byte * 5 + 0x20));
        } else {
            let total = (20 + self.options + transport_len) as u16;
            frame.extend([0x45 + (self.options / 4) as u8, 0]);
            frame.extend(total.to_be_bytes());
            frame.extend(self.id.to_be_bytes());
            frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
            frame.extend(std::iter::repeat_n(1, self.options));
            let sum = checksum(&frame[self.network_at()..]);
            let at = self.network_at() + 10;
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        frame.extend([0x1c, 0x9b, 0xc0, 0x01]);
        if self.udp {
            frame.extend((transport_len as u16).to_be_bytes());
            frame.extend([0, 0]);
        } else {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([0x11, 0x22, 0x33, 0x44, 0x50 + ((self.options / 4) << 4) as u8, self.flags]);
            frame.extend([0x7f, 0xff, 0, 0, 0, 0]);
            frame.extend(std::iter::repeat_n(1, self.options));
        }
        let partial = !checksum(&pseudo_header(&frame, self));
        let at = self.transport_at() + usize::from(self.vnet().csum_offset);
        frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
        frame.extend(self.payload());
        frame
    }
}

pub fn shape() -> impl Strategy<Value = Shape> {
    let place = (any::<bool>(), any::<bool>(), 0_usize..3, (0_usize..=10).prop_map(|words| words * 4));
    let load = prop_oneof![1 => (1_u16..2_000, 1_usize..4_000), 2 => (500_u16..9_000, 1_usize..64_000)];
    // The minimum size limits the number of packets.
    let load = load.prop_map(|(size, payload)| (size.max((payload / 64) as u16 + 1), payload));
    (place, load, any::<u32>(), any::<u16>(), any::<u8>()).prop_map(
        |((v6, udp, vlan_tags, options), (size, payload), sequence, id, flags)| Shape {
            v6,
            udp,
            vlan_tags,
            options,
            size,
            payload,
            sequence,
            id,
            flags,
        },
    )
}

/// Computes the Internet checksum (RFC 1071) byte by byte.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for (index, byte) in bytes.iter().enumerate() {
        sum += if index % 2 == 0 { u32::from(*byte) << 8 } else { u32::from(*byte) };
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    !(sum as u16)
}

/// Returns addresses, length and protocol of a frame. The length comes from its length field.
pub fn pseudo_header(frame: &[u8], shape: &Shape) -> Vec<u8> {
    let at = shape.network_at();
    let length = shape.transport_len(frame) as u32;
    let mut header = if shape.v6 { frame[at + 8..at + 40].to_vec() } else { frame[at + 12..at + 20].to_vec() };
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0, if shape.udp { 17 } else { 6 }]);
    header
}

impl Shape {
    /// Returns the length from the network header.
    pub fn transport_len(&self, frame: &[u8]) -> usize {
        let at = self.network_at();
        let field = if self.v6 { at + 4 } else { at + 2 };
        let length = usize::from(u16::from_be_bytes([frame[field], frame[field + 1]]));
        if self.v6 { length } else { length - 20 - self.options }
    }
}

/// TCP super-packet over IPv4. Its sequence number and its id are about to wrap.
pub const TCP: Shape = Shape {
    v6: false,
    udp: false,
    vlan_tags: 0,
    options: 12,
    size: 1448,
    payload: 4 * 1448 + 100,
    sequence: 0xffff_fff0,
    id: 0xfffe,
    flags: ACK | PSH | FIN | CWR,
};
