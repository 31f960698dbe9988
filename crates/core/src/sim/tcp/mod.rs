//! A modelled TCP for virtual time: a [`Sender`] and a [`Receiver`] that do what a kernel's would, segment by segment.
//!
//! Connection set-up, slow start from ten segments, Reno (RFC 5681), CUBIC (RFC 9438) with HyStart++ (RFC 9406) or BBR,
//! selective acknowledgements (RFC 2018), RACK and tail loss probes (RFC 8985), proportional rate reduction (RFC 6937),
//! timeouts (RFC 6298), delayed acknowledgements, a receive window, ECN (RFC 3168), and reductions taken back when
//! they turn out to be for nothing (RFC 4015). Not modelled: buffers that grow, Nagle, F-RTO, AccECN, path MTU
//! discovery, and anything a host would be too slow for.
//!
//! Neighbouring segments travel as one range of at most [`Settings::grain`], so a path that holds millions of them costs
//! thousands of events a round trip. With a grain of 1 every segment is sent, queued and acknowledged alone.

mod control;
mod receiver;
mod repair;
mod rtt;
mod scoreboard;
mod sender;
mod wire;

pub use receiver::Receiver;
pub use sender::{Ended, Sender, SenderStats};
pub use wire::{Reply, Segment};

use crate::path::PathProfile;
use crate::tcp_model::Congestion;
use crate::units::Bytes;

/// The largest receive window a TCP header can offer: 65,535 scaled by 2¹⁴ (RFC 7323 §2.3).
pub const MOST_WINDOW: Bytes = Bytes(65_535 << 14);

/// How both ends of a connection behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Congestion control.
    pub congestion: Congestion,
    /// Whether CUBIC leaves slow start when the round trip grows (RFC 9406), as RFC 9438 §4.10 asks for.
    pub hystart: bool,
    /// First flight, segments (RFC 6928).
    pub initial_window: u32,
    /// Receive window, fixed; counted in whole segments.
    pub window: Bytes,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Bytes on the wire around each payload, as the link counts them; also the length of an acknowledgement.
    pub headers: u32,
    /// Whether the connection is ECN-capable.
    pub ecn: bool,
    /// Segments that one acknowledgement answers, when all arrives in order.
    pub ack_every: u32,
    /// Most segments that are sent as one range.
    pub grain: u32,
}

/// Bytes of the Ethernet header, which a link counts (see [`LinkConfig::rate`](crate::link::LinkConfig::rate)).
const ETHERNET_HEADER: u32 = 14;

impl Default for Settings {
    /// Linux' as it comes, over Ethernet and IPv4.
    fn default() -> Self {
        Settings {
            congestion: Congestion::default(),
            hystart: true,
            initial_window: 10,
            window: MOST_WINDOW,
            mss: 1448,
            headers: 66,
            ecn: false,
            ack_every: 2,
            grain: 1,
        }
    }
}

impl Settings {
    /// Full segments of this path, all else as by default.
    pub fn of(path: &PathProfile) -> Self {
        let mss = path.mss();
        let headers = (path.mtu + ETHERNET_HEADER).saturating_sub(mss);
        Settings { mss, headers, ..Settings::default() }
    }

    /// Segments that fit the receive window; one at least, or nothing would ever move.
    fn window_segments(&self) -> u64 {
        (self.window.0 / u64::from(self.mss.max(1))).max(1)
    }
}
