//! Decoder of captured frames: from the link layer through VLANs and tunnels to the TCP segment.
//!
//! The decoder needs the headers only, so a capture with a short snap length is enough. Lengths come from the headers:
//! the length of the IP packet has precedence over the length of the frame, which some files give as the snap length. A
//! super-packet of more than 64 KiB has no length in its IP header, and gets the length of the frame. A frame has up to
//! [`MAX_LAYERS`] headers before the header of its protocol.

mod icmp;
mod ip;
mod link;
mod rest;
mod tcp;
mod transport;
mod tunnel;

use core::net::IpAddr;

use ip::FragmentKind;
use link::{Layer, LayerKind};
use rest::Rest;
use transport::Content;

use crate::{LinkLayer, TcpEndpoint, TcpSegment};

/// Maximum headers of a frame: link headers, tags, IP packets and tunnels.
pub const MAX_LAYERS: usize = 16;

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
    /// UDP of port 443 with a long or short header of QUIC (RFC 9000 §17).
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

/// Decodes the first bytes of a frame. `original_length` is the length of the whole frame.
pub fn decode(link: LinkLayer, bytes: &[u8], original_length: u32) -> DecodedFrame {
    let wire = (original_length as usize).max(bytes.len());
    let mut layer = Layer { kind: LayerKind::of_link(link), rest: Rest { bytes, wire } };
    let mut is_fragment = false;
    let malformed = Decoded::Other(OtherPacket::Malformed);
    for _ in 0..MAX_LAYERS {
        let packet = match layer.kind {
            LayerKind::Ip => match ip::read(layer.rest) {
                Some((ip, _)) if ip.fragment == FragmentKind::Later => {
                    is_fragment = true;
                    Decoded::Other(OtherPacket::Fragment)
                }
                Some((ip, payload)) => {
                    is_fragment |= ip.fragment == FragmentKind::First;
                    match transport::read(&ip, payload) {
                        Some(Content::Tunnel(inner)) => {
                            layer = inner;
                            continue;
                        }
                        Some(Content::Packet(packet)) => packet,
                        None => malformed,
                    }
                }
                None => malformed,
            },
            LayerKind::Unknown => Decoded::Other(OtherPacket::NotIp),
            _ => match layer.next() {
                Some(next) => {
                    layer = next;
                    continue;
                }
                None => malformed,
            },
        };
        return DecodedFrame { packet, is_fragment };
    }
    DecodedFrame { packet: malformed, is_fragment }
}
