//! Decoder of captured frames: from the link layer through VLANs and tunnels to the TCP segment.
//!
//! The decoder needs the headers only, so a capture with a short snap length is enough. Lengths come from the headers:
//! the length of the IP packet has precedence over the length of the frame, which some files give as the snap length. A
//! super-packet of more than 64 KiB has no length in its IP header, and gets the length of the frame. A frame has up to
//! [`MAX_LAYERS`] headers before the header of its protocol.

mod decoded;
mod icmp;
mod ip;
mod link;
mod rest;
mod tcp;
mod transport;
mod tunnel;

use ip::FragmentKind;
use link::{Layer, LayerKind};
use rest::Rest;
use transport::Content;

pub use decoded::{Decoded, DecodedFrame, EmbeddedSegment, OtherPacket, PacketTooBig};

use crate::LinkLayer;

/// Maximum headers of a frame: link headers, tags, IP packets and tunnels.
pub const MAX_LAYERS: usize = 16;

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
