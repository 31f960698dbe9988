//! Socket options of a test's streams: what is asked for, and what the kernel granted.

use serde::{Deserialize, Serialize};

use super::dscp::Dscp;
use super::request::{MOST_STREAMS, RequestError};
use crate::units::{BitRate, Bytes};
use crate::wire::CongestionWish;

/// Largest receive window TCP can announce: 65535 << 14 (RFC 7323 §2.3).
pub const LARGEST_WINDOW: Bytes = Bytes(65_535 << 14);

/// The kernel raises smaller clamps to half its smallest receive buffer (`SOCK_MIN_RCVBUF`).
const SMALLEST_WINDOW: u64 = 2048;

/// Socket options asked for at one end; `None` leaves the kernel's own choice. Of an option with several values stream
/// n has the nth, beginning again after the last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SocketWish {
    /// Send buffer (`SO_SNDBUF`).
    #[serde(default, rename = "sndbuf_bytes", skip_serializing_if = "Option::is_none")]
    pub sndbuf: Option<Bytes>,
    /// Receive buffer (`SO_RCVBUF`).
    #[serde(default, rename = "rcvbuf_bytes", skip_serializing_if = "Option::is_none")]
    pub rcvbuf: Option<Bytes>,
    /// Receive window to hold exactly.
    #[serde(default, rename = "window_bytes", skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// Congestion control of the sending end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub congestion: Vec<CongestionWish>,
    /// The most each stream of the sending end may send (`SO_MAX_PACING_RATE`).
    #[serde(default, rename = "pacing_bits_per_second", skip_serializing_if = "Vec::is_empty")]
    pub pacing: Vec<BitRate>,
    /// Largest segment to announce (`TCP_MAXSEG`). That of the client's end bounds both directions: Linux sends no larger
    /// ones than it takes.
    #[serde(default, rename = "mss_bytes", skip_serializing_if = "Option::is_none")]
    pub mss: Option<Bytes>,
    /// Mark of the packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Multipath TCP (RFC 8684), at both ends or at none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mptcp: bool,
    /// What the plan asks of each stream: buffers are set explicitly only where autotuning would stop short of it.
    #[serde(default, rename = "planned_bytes", skip_serializing_if = "Option::is_none")]
    pub planned: Option<Bytes>,
    /// The most each stream may have in flight before the bottleneck's queue is half full, where the path is known that
    /// well: autotuning, which would fill the queue and then lose, is bounded by it. An exact window is not promised.
    #[serde(default, rename = "planned_most_bytes", skip_serializing_if = "Option::is_none")]
    pub planned_most: Option<Bytes>,
}

impl SocketWish {
    /// Whether these options have a meaning.
    pub fn check(&self) -> Result<(), RequestError> {
        for buffer in [self.sndbuf, self.rcvbuf].into_iter().flatten() {
            if buffer.0 == 0 || buffer.0 > 1 << 30 {
                return Err(RequestError::Buffer(buffer));
            }
        }
        if let Some(window) = self.window.filter(|window| window.0 < SMALLEST_WINDOW || *window > LARGEST_WINDOW) {
            return Err(RequestError::Window(window));
        }
        // What tcp(7)'s TCP_MAXSEG takes.
        if let Some(mss) = self.mss.filter(|mss| !(88..=32_767).contains(&mss.0)) {
            return Err(RequestError::Mss(mss));
        }
        let values = self.congestion.len().max(self.pacing.len());
        if values > usize::from(MOST_STREAMS) {
            return Err(RequestError::Values(values));
        }
        if let Some(&pace) = self.pacing.iter().find(|pace| pace.0 < 8_000) {
            return Err(RequestError::Pace(pace));
        }
        self.congestion.iter().map(CongestionWish::name).try_for_each(|name| {
            // TCP_CA_NAME_MAX is 16 with the closing zero.
            let fits = !name.is_empty() && name.len() <= 15 && name.chars().all(|c| c.is_ascii_graphic());
            if fits { Ok(()) } else { Err(RequestError::Congestion(name.to_owned())) }
        })
    }

    /// The congestion control of a stream.
    pub fn congestion_of(&self, stream: u16) -> Option<&CongestionWish> {
        of_stream(&self.congestion, stream)
    }

    /// The pace of a stream.
    pub fn pacing_of(&self, stream: u16) -> Option<BitRate> {
        of_stream(&self.pacing, stream).copied()
    }
}

/// The value of stream n: the nth, beginning again after the last.
pub fn of_stream<T>(values: &[T], stream: u16) -> Option<&T> {
    values.get(usize::from(stream).checked_rem(values.len())?)
}

/// Socket options of one stream. A granted buffer is half of what `getsockopt` says, because Linux doubles what it is
/// asked for; under autotuning (nothing asked) it is what the kernel had come to at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SocketReport {
    /// Send buffer asked for.
    pub sndbuf_asked_bytes: Option<Bytes>,
    /// Send buffer granted.
    pub sndbuf_granted_bytes: Bytes,
    /// Receive buffer asked for.
    pub rcvbuf_asked_bytes: Option<Bytes>,
    /// Receive buffer granted.
    pub rcvbuf_granted_bytes: Bytes,
    /// Receive window asked for, to be held exactly.
    pub window_asked_bytes: Option<Bytes>,
    /// Bound of the receive window that was set again and again: what was asked for, or the plan's.
    pub window_bound_bytes: Option<Bytes>,
    /// Congestion control asked for.
    pub congestion_asked: Option<String>,
    /// Congestion control the plan prefers, where none was asked for.
    #[serde(default)]
    pub congestion_planned: Option<String>,
    /// Congestion control in use after the connect, where a route's `congctl` may have overridden what was asked.
    pub congestion: String,
    /// Pace asked for.
    #[serde(default, rename = "pacing_asked_bits_per_second")]
    pub pacing_asked: Option<BitRate>,
    /// Bound of the pace in force; none without one.
    #[serde(default, rename = "pacing_granted_bits_per_second")]
    pub pacing_granted: Option<BitRate>,
    /// Largest segment asked for.
    #[serde(default)]
    pub mss_asked_bytes: Option<Bytes>,
    /// Payload of a full segment as the kernel sends them (`TCP_MAXSEG` once connected): the options of every header,
    /// 12 bytes of time stamps, are taken off.
    #[serde(default)]
    pub mss_granted_bytes: Option<Bytes>,
    /// Mark asked for.
    #[serde(default)]
    pub dscp_asked: Option<Dscp>,
    /// Mark of the packets that leave.
    #[serde(default)]
    pub dscp_granted: Option<Dscp>,
    /// Multipath TCP asked for.
    #[serde(default)]
    pub mptcp_asked: bool,
    /// Further subflows beside the first; none where it is plain TCP, also after falling back to it.
    #[serde(default)]
    pub mptcp_subflows: Option<u8>,
    /// Address and port of this end, which say where it is bound.
    #[serde(default)]
    pub local_address: Option<String>,
}
