//! Socket options of a test's streams: requested and granted values.

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::plan::MAX_WINDOW;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use super::dscp::Dscp;
use super::error::RequestError;
use super::limits::MAX_STREAMS;

/// The kernel raises a smaller clamp to half its minimum receive buffer (`SOCK_MIN_RCVBUF`).
const MIN_WINDOW: u64 = 2048;

/// Socket options requested at one end; `None` keeps the kernel's choice. If an option has several values, stream n
/// gets value n, and the values repeat after the last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SocketRequest {
    /// Send buffer size (`SO_SNDBUF`).
    #[serde(default, rename = "sndbuf_bytes", skip_serializing_if = "Option::is_none")]
    pub sndbuf: Option<Bytes>,
    /// Receive buffer size (`SO_RCVBUF`).
    #[serde(default, rename = "rcvbuf_bytes", skip_serializing_if = "Option::is_none")]
    pub rcvbuf: Option<Bytes>,
    /// Fixed receive window, kept exactly.
    #[serde(default, rename = "window_bytes", skip_serializing_if = "Option::is_none")]
    pub window: Option<Bytes>,
    /// Congestion control of the sending end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub congestion: Vec<CongestionRequest>,
    /// Maximum send rate of each stream of the sending end (`SO_MAX_PACING_RATE`).
    #[serde(default, rename = "pacing_bits_per_second", skip_serializing_if = "Vec::is_empty")]
    pub pacing: Vec<BitRate>,
    /// Maximum segment size to announce (`TCP_MAXSEG`). The value of the client's end limits both directions, because
    /// Linux never sends segments larger than it receives.
    #[serde(default, rename = "mss_bytes", skip_serializing_if = "Option::is_none")]
    pub mss: Option<Bytes>,
    /// DSCP mark of the packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Multipath TCP (RFC 8684), at both ends or at neither.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mptcp: bool,
    /// Buffer that the plan needs for each stream. Buffers are set explicitly only if autotuning cannot reach it.
    #[serde(default, rename = "planned_bytes", skip_serializing_if = "Option::is_none")]
    pub planned: Option<Bytes>,
    /// Maximum bytes in flight of each stream before the bottleneck's queue is half full, if the path is known well
    /// enough. Limits autotuning, which would otherwise fill the queue and cause loss. The window is not kept exactly.
    #[serde(default, rename = "planned_max_bytes", skip_serializing_if = "Option::is_none")]
    pub planned_max: Option<Bytes>,
}

impl SocketRequest {
    /// Checks that the options are valid.
    pub fn check(&self) -> Result<(), RequestError> {
        for buffer in [self.sndbuf, self.rcvbuf].into_iter().flatten() {
            if buffer.0 == 0 || buffer.0 > 1 << 30 {
                return Err(RequestError::Buffer(buffer));
            }
        }
        if let Some(window) = self.window.filter(|window| window.0 < MIN_WINDOW || *window > MAX_WINDOW) {
            return Err(RequestError::Window(window));
        }
        // Range of TCP_MAXSEG in tcp(7).
        if let Some(mss) = self.mss.filter(|mss| !(88..=32_767).contains(&mss.0)) {
            return Err(RequestError::Mss(mss));
        }
        let values = self.congestion.len().max(self.pacing.len());
        if values > usize::from(MAX_STREAMS) {
            return Err(RequestError::Values(values));
        }
        if let Some(&pace) = self.pacing.iter().find(|pace| pace.0 < 8_000) {
            return Err(RequestError::Pace(pace));
        }
        self.congestion.iter().map(CongestionRequest::name).try_for_each(|name| {
            // TCP_CA_NAME_MAX is 16 with the closing zero.
            let fits = !name.is_empty() && name.len() <= 15 && name.chars().all(|c| c.is_ascii_graphic());
            if fits { Ok(()) } else { Err(RequestError::Congestion(name.to_owned())) }
        })
    }

    /// Returns the congestion control of a stream.
    pub fn congestion_of(&self, stream: u16) -> Option<&CongestionRequest> {
        value_for_stream(&self.congestion, stream)
    }

    /// Returns the pacing rate of a stream.
    pub fn pacing_of(&self, stream: u16) -> Option<BitRate> {
        value_for_stream(&self.pacing, stream).copied()
    }
}

/// Returns value n for stream n. The values repeat after the last.
pub fn value_for_stream<T>(values: &[T], stream: u16) -> Option<&T> {
    values.get(usize::from(stream).checked_rem(values.len())?)
}

/// Socket options of one stream. A granted buffer is half of the value from `getsockopt`, because Linux doubles the
/// requested value. With autotuning (nothing requested), the granted buffer is the final size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SocketReport {
    /// Requested send buffer size.
    pub sndbuf_requested_bytes: Option<Bytes>,
    /// Granted send buffer size.
    pub sndbuf_granted_bytes: Bytes,
    /// Requested receive buffer size.
    pub rcvbuf_requested_bytes: Option<Bytes>,
    /// Granted receive buffer size.
    pub rcvbuf_granted_bytes: Bytes,
    /// Buffer that autotuning may reach because a tuned test raised the limit in an emulated path: `tcp_wmem` of a
    /// sender, `tcp_rmem` of a receiver.
    #[serde(default)]
    pub autotuning_max_bytes: Option<Bytes>,
    /// Requested fixed receive window.
    pub window_requested_bytes: Option<Bytes>,
    /// Limit of the receive window that was set repeatedly: the requested value, or the plan's.
    pub window_limit_bytes: Option<Bytes>,
    /// Requested congestion control algorithm.
    pub congestion_requested: Option<String>,
    /// Congestion control that the plan prefers, if none was requested.
    #[serde(default)]
    pub congestion_planned: Option<String>,
    /// Congestion control in use after the connection was established. A route's `congctl` may override the request.
    pub congestion: String,
    /// Requested pacing rate limit.
    #[serde(default, rename = "pacing_requested_bits_per_second")]
    pub pacing_requested: Option<BitRate>,
    /// Pacing rate limit in force; absent without one.
    #[serde(default, rename = "pacing_granted_bits_per_second")]
    pub pacing_granted: Option<BitRate>,
    /// Requested maximum segment size.
    #[serde(default)]
    pub mss_requested_bytes: Option<Bytes>,
    /// Payload of a full segment as the kernel sends it (`TCP_MAXSEG` of the connection), without header options: 12
    /// bytes of timestamps.
    #[serde(default)]
    pub mss_granted_bytes: Option<Bytes>,
    /// Requested DSCP mark of the packets.
    #[serde(default)]
    pub dscp_requested: Option<Dscp>,
    /// DSCP mark of the sent packets.
    #[serde(default)]
    pub dscp_granted: Option<Dscp>,
    /// Multipath TCP was requested.
    #[serde(default)]
    pub mptcp_requested: bool,
    /// Additional subflows; absent for plain TCP, also after a fallback to it.
    #[serde(default)]
    pub mptcp_subflows: Option<u8>,
    /// Local address and port of this end.
    #[serde(default)]
    pub local_address: Option<String>,
}
