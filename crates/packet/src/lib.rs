//! Packets as bytes: headers, checksums and capture files.
//!
//! This crate is pure, and reads only the necessary fields. It reads the frame of a kernel with its
//! virtual-net header for the link, and writes the frames that leave the link.
//!
//! A super-packet (GSO) is one Ethernet frame whose payload represents several packets of `gso_size` bytes each. The
//! link handles these packets. This crate describes them ([`inspect`]) and builds the frame for a range of them like a
//! network card ([`extract()`]: lengths, sequence numbers, flags and checksums), with the changes of the link
//! ([`write()`]: marks and corruption). The crate also writes the reply of a router to a packet that is too big for the
//! next hop ([`write_too_big_reply`]). A frame that the crate cannot interpret is one opaque packet. This is correct
//! except for super-packets that the virtual-net header cannot name (tunnels), which the interfaces of the emulator
//! never receive.
//!
//! [`pcapng`] writes capture files. [`capture`] reads capture files of any program, and [`decode`](mod@decode) finds
//! the TCP segment of a captured frame.

#![forbid(unsafe_code)]

mod alter;
pub mod capture;
mod changes;
mod checksum;
pub mod decode;
mod endpoints;
mod frame;
mod headers;
mod layout;
mod link_layer;
pub mod pcapng;
mod reply;
mod tcp_segment;

use frame::ETHERNET_HEADER;
use headers::{Headers, SegmentRange};
use layout::PacketLayout;

pub use changes::{Changes, Corruption, Ecn};
pub use endpoints::{Endpoints, FlowEndpoint, IpProtocol, endpoints};
pub use frame::{OutputFrame, Segments, VnetHeader};
pub use link_layer::LinkLayer;
pub use reply::write_too_big_reply;
pub use tcp_segment::{
    MAX_SACK_RANGES, MptcpOption, SackRange, TcpEndpoint, TcpFlags, TcpOptions, TcpSegment, Timestamps,
};

/// Consecutive virtual packets of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRange {
    /// Index of the first virtual packet within the frame.
    pub first: u32,
    /// Number of virtual packets; at least 1.
    pub count: u32,
}

/// Describes the virtual packets of an Ethernet frame.
pub fn inspect(frame: &[u8], vnet: &VnetHeader) -> Segments {
    let layout = PacketLayout::read(frame);
    Segments {
        flow: layout::flow_hash(frame, layout.as_ref()),
        ecn: layout.as_ref().map_or(Ecn::NotCapable, |layout| layout.ecn(frame)),
        link_header: layout.as_ref().map_or(ETHERNET_HEADER, |layout| layout.network_at as u8),
        has_payload: layout.is_some_and(|layout| layout.datagram(frame).is_some()),
        ..match Headers::read(frame, vnet) {
            Some(headers) => headers.segments(frame.len()),
            None => Segments::opaque(frame.len()),
        }
    }
}

/// Writes the virtual packets `range` of `frame` as they leave the link: cut out, marked and corrupted.
///
/// Headers and changed bytes go to `out` (cleared first). The rest stays in the original frame. A congestion mark is
/// set in an IP header whose ECN field allows it (RFC 3168 §5). A corruption is one flipped bit:
/// - Visible: in the IP packet (in IPv6 after its header, which has no checksum), after the checksum was completed,
///   because the receiver must not complete it. A packet without a checksum (UDP over IPv4 with a field of zero, or not
///   IP) hides the corruption.
/// - Hidden: in the payload of TCP or UDP, with a corrected checksum. A packet without such a payload stays unchanged.
pub fn write(
    frame: &[u8],
    vnet: &VnetHeader,
    range: &PacketRange,
    changes: &Changes,
    out: &mut Vec<u8>,
) -> OutputFrame {
    let mut output = extract_headers(frame, vnet, range.first, range.count, out);
    if let Some(corruption) = changes.corruption {
        output = alter::corrupt(frame, output, corruption, out);
    }
    if changes.is_marked {
        output = alter::mark(frame, output, out);
    }
    output
}

/// Writes the frame for `count` virtual packets from `first` on to `out` (cleared first), and returns its virtual-net
/// header.
///
/// The complete range is a copy of the frame. A range past the end is shortened. One virtual packet becomes a plain
/// packet.
pub fn extract(frame: &[u8], vnet: &VnetHeader, first: u32, count: u32, out: &mut Vec<u8>) -> VnetHeader {
    let OutputFrame { vnet, payload } = extract_headers(frame, vnet, first, count, out);
    out.extend_from_slice(frame.get(payload).unwrap_or_default());
    vnet
}

/// Works like [`extract()`], but writes only the headers to `out`. The payload is sent from the original frame.
pub fn extract_headers(frame: &[u8], vnet: &VnetHeader, first: u32, count: u32, out: &mut Vec<u8>) -> OutputFrame {
    out.clear();
    let whole = OutputFrame { vnet: *vnet, payload: 0..frame.len() };
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
    let range = SegmentRange { first, is_last: first + count == total, payload: payload.len() };
    headers.rewrite(out, &range, vnet.gso_size);
    OutputFrame { vnet: headers.vnet(vnet, count), payload }
}
