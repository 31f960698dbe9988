//! What an iperf3 server said of a test: what the report of our own ends has no place for.

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::iperf3::Protocol;
use crate::udp::figures::{Received, Sent, UdpFigures};
use crate::units::Bytes;
use crate::wire::test::{EndReport, StreamReport, TestRequest};

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

impl Iperf3 {
    /// Sender and receiver of a test of datagrams, as the rules of our own ([`crate::diagnose::diagnose_datagrams`]) look
    /// at them; nothing of TCP. To be judged and not to be stored: what iperf3 does not tell is zero here.
    pub fn judged(
        &self,
        request: &TestRequest,
        sender: &EndReport,
        receiver: &EndReport,
    ) -> Option<(EndReport, EndReport)> {
        let udp = request.udp.as_deref()?;
        let bytes = udp.datagram_bytes.map_or(0, u64::from);
        let sent = |stream: &Iperf3Stream| UdpFigures {
            sent: Some(Sent {
                datagrams: stream.datagrams.unwrap_or(0),
                datagram_bytes: bytes,
                asked: udp.rate,
                achieved: Bytes(stream.sent_bytes).per(sender.elapsed),
                ..Sent::default()
            }),
            ..UdpFigures::default()
        };
        let received = |stream: &Iperf3Stream| UdpFigures {
            received: Some(Received {
                datagrams: stream.received_bytes / bytes.max(1),
                lost: stream.lost_datagrams.unwrap_or(0),
                ..Received::default()
            }),
            ..UdpFigures::default()
        };
        Some((self.with(sender, sent), self.with(receiver, received)))
    }

    fn with(&self, end: &EndReport, figures: impl Fn(&Iperf3Stream) -> UdpFigures) -> EndReport {
        let streams = end.streams.iter().zip(&self.streams);
        let streams =
            streams.map(|(stream, told)| StreamReport { udp: Some(Box::new(figures(told))), ..stream.clone() });
        EndReport { streams: streams.collect(), ..end.clone() }
    }
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
