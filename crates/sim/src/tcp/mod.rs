//! A TCP model for virtual time: a [`TcpSender`] and a [`TcpReceiver`] that work like a kernel's, segment by segment.
//!
//! The model has connection set-up, slow start from ten segments, Reno (RFC 5681), CUBIC (RFC 9438) with HyStart++ (RFC
//! 9406) or BBR, selective acknowledgements (RFC 2018), RACK and tail loss probes (RFC 8985), proportional rate
//! reduction (RFC 6937), timeouts (RFC 6298), delayed acknowledgements, a receive window, ECN (RFC 3168), and the undo
//! of spurious reductions (RFC 4015). It does not have growing buffers, Nagle, F-RTO, AccECN, path MTU discovery, or
//! hosts that are too slow.
//!
//! Neighbouring segments travel as one range of at most [`TcpSettings::range_segments`], so millions of segments in
//! flight cost only thousands of events per round trip. With a value of 1, each segment is sent, queued and
//! acknowledged separately.

mod control;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod sender;
mod wire;

pub use receiver::TcpReceiver;
pub use sender::{SendFailure, SenderStats, TcpSender};
pub(crate) use wire::{Ack, ReplyKind, SegmentKind};
pub use wire::{Reply, Segment};

use lfn_base::framing::ETHERNET_HEADER;
use lfn_base::path::PathProfile;
use lfn_base::plan::MAX_WINDOW;
use lfn_base::tcp_model::Congestion;
use lfn_base::units::Bytes;

/// Settings of both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpSettings {
    pub congestion: Congestion,
    /// True if CUBIC leaves slow start when the RTT grows (RFC 9406), as RFC 9438 §4.10 recommends.
    pub hystart: bool,
    /// First flight, segments (RFC 6928).
    pub initial_window: u32,
    /// Fixed receive window; whole segments count.
    pub window: Bytes,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Bytes on the wire around each payload, as the link counts them; also the length of an acknowledgement.
    pub headers: u32,
    /// True if the connection is ECN-capable.
    pub ecn: bool,
    /// Segments per acknowledgement when all arrive in order.
    pub ack_every: u32,
    /// Maximum segments that are sent as one range.
    pub range_segments: u32,
}

impl Default for TcpSettings {
    /// Linux defaults, over Ethernet and IPv4.
    fn default() -> Self {
        TcpSettings {
            congestion: Congestion::default(),
            hystart: true,
            initial_window: 10,
            window: MAX_WINDOW,
            mss: 1448,
            headers: 66,
            ecn: false,
            ack_every: 2,
            range_segments: 1,
        }
    }
}

impl TcpSettings {
    /// Returns the settings for full segments of this path, with defaults for the rest.
    pub fn for_path(path: &PathProfile) -> Self {
        let mss = path.mss();
        let headers = (path.mtu + ETHERNET_HEADER).saturating_sub(mss);
        TcpSettings { mss, headers, ..TcpSettings::default() }
    }

    /// Returns the segments that fit the receive window, at least one.
    fn window_segments(&self) -> u64 {
        (self.window.0 / u64::from(self.mss.max(1))).max(1)
    }
}
