//! Socket options of a test's streams: what is asked for, and what the kernel granted.

use serde::{Deserialize, Serialize};

use super::request::RequestError;
use crate::units::Bytes;
use crate::wire::CongestionWish;

/// Largest receive window TCP can announce: 65535 << 14 (RFC 7323 §2.3).
pub const LARGEST_WINDOW: Bytes = Bytes(65_535 << 14);

/// The kernel raises smaller clamps to half its smallest receive buffer (`SOCK_MIN_RCVBUF`).
const SMALLEST_WINDOW: u64 = 2048;

/// Socket options asked for at one end; `None` leaves the kernel's own choice.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionWish>,
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
        match self.congestion.as_ref().map(CongestionWish::name) {
            // TCP_CA_NAME_MAX is 16 with the closing zero.
            Some(name) if name.is_empty() || name.len() > 15 || !name.chars().all(|c| c.is_ascii_graphic()) => {
                Err(RequestError::Congestion(name.to_owned()))
            }
            _ => Ok(()),
        }
    }
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
}
