//! What an iperf3 server said of a test: what the report of our own ends has no place for.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::iperf3::Protocol;

/// What an iperf3 server said of one direction of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Iperf3 {
    /// What carried the load.
    pub protocol: Protocol,
    /// Congestion control in use at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_congestion: Option<String>,
    /// Segments sent again, by the end that sent; absent where it does not tell, and of UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Each stream as the two ends counted it, the warm-up left out.
    pub streams: Vec<Iperf3Stream>,
    /// What the server prints, where it was asked for: its text, or its object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_output: Option<serde_json::Value>,
}

/// One stream by both ends' results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Iperf3Stream {
    /// As iperf3 numbers it.
    pub id: u32,
    /// Payload sent, by the sender.
    pub sent_bytes: u64,
    /// Payload received, by the receiver.
    pub received_bytes: u64,
    /// Datagrams sent; absent of TCP, as are the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<u64>,
    /// Of them not received, by the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_datagrams: Option<u64>,
    /// Smoothed change of the transit time at the receiver (RFC 3550).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_seconds: Option<Figure>,
}
