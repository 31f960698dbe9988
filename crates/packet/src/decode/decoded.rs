//! Results of the decoder.

use core::net::IpAddr;

use crate::{TcpEndpoint, TcpSegment};

/// Content of a captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedFrame {
    pub packet: Decoded,
    /// True if the IP packet is a fragment. The first fragment of a TCP segment is a segment all the same.
    pub is_fragment: bool,
}

/// Packet of a captured frame, inside of all tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    Tcp(TcpSegment),
    Other(OtherPacket),
}

/// Packet that has no TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPacket {
    Udp,
    /// UDP of port 443 with a long or short header of QUIC (RFC 9000 §17), or of another port with a long header of
    /// version 1 or 2. Short headers of other ports look like any other UDP, and are [`OtherPacket::Udp`].
    Quic,
    /// ICMP, with the details of a packet that was too big for a link.
    Icmp {
        too_big: Option<PacketTooBig>,
    },
    /// IP with any other protocol, by its IANA number.
    OtherIp {
        protocol: u8,
    },
    /// Fragment that is not the first, which has no header of its protocol.
    Fragment,
    /// Frame without IP, such as ARP, or of an unknown link layer.
    NotIp,
    /// Frame whose headers are cut off or contradict each other.
    Malformed,
}

/// ICMP "fragmentation needed" (RFC 1191) or ICMPv6 "packet too big" (RFC 4443 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTooBig {
    /// Address of the router that sent the message.
    pub router: IpAddr,
    /// MTU of the next hop, bytes. Old routers report 0.
    pub mtu: u32,
    /// Segment that was too big, if it was TCP.
    pub segment: Option<EmbeddedSegment>,
}

/// TCP segment that an ICMP message quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedSegment {
    pub source: TcpEndpoint,
    pub destination: TcpEndpoint,
    pub sequence: u32,
}
