//! Results of an iperf3 server that do not fit into a report of lfn's own ends.

use lfn_base::figure::Figure;
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::measure::{EndReport, StreamReport, TestRequest};
use crate::udp::figures::{UdpFigures, UdpReceived, UdpSent};

/// Transport protocol of the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoadProtocol {
    #[default]
    Tcp,
    Udp,
}

/// Results of an iperf3 server for one direction of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Iperf3Report {
    /// Transport protocol of the load.
    pub protocol: LoadProtocol,
    /// Congestion control in use at the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far_congestion: Option<String>,
    /// Retransmitted segments from the sender's results; absent for UDP and if the sender does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Streams as the two ends counted them, without the warm-up.
    pub streams: Vec<Iperf3Stream>,
    /// Output of the server, if it was requested: a text or an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_output: Option<serde_json::Value>,
}

impl Iperf3Report {
    /// Returns reports of sender and receiver for the rules of datagrams of [`crate::diagnose`].
    /// They are for the diagnosis only and are not stored: a value that iperf3 does not report is zero here.
    pub fn udp_reports(
        &self,
        request: &TestRequest,
        sender: &EndReport,
        receiver: &EndReport,
    ) -> Option<(EndReport, EndReport)> {
        let udp = request.udp.as_deref()?;
        let bytes = udp.datagram_bytes.map_or(0, u64::from);
        let sent = |stream: &Iperf3Stream| UdpFigures {
            sent: Some(UdpSent {
                datagrams: stream.datagrams.unwrap_or(0),
                datagram_bytes: bytes,
                requested: udp.rate,
                achieved: Bytes(stream.sent_bytes).per(sender.elapsed),
                ..UdpSent::default()
            }),
            ..UdpFigures::default()
        };
        let received = |stream: &Iperf3Stream| UdpFigures {
            received: Some(UdpReceived {
                datagrams: stream.received_bytes / bytes.max(1),
                lost: stream.lost_datagrams.unwrap_or(0),
                ..UdpReceived::default()
            }),
            ..UdpFigures::default()
        };
        Some((self.with_figures(sender, sent), self.with_figures(receiver, received)))
    }

    fn with_figures(&self, end: &EndReport, figures: impl Fn(&Iperf3Stream) -> UdpFigures) -> EndReport {
        let streams = end.streams.iter().zip(&self.streams);
        let streams =
            streams.map(|(stream, reported)| StreamReport { udp: Some(Box::new(figures(reported))), ..stream.clone() });
        EndReport { streams: streams.collect(), ..end.clone() }
    }
}

/// One stream from the results of both ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Iperf3Stream {
    /// Number of the stream in iperf3.
    pub id: u32,
    /// Payload bytes that the sender sent.
    pub sent_bytes: u64,
    /// Payload bytes that the receiver received.
    pub received_bytes: u64,
    /// Datagrams sent; this and the next two are absent for TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<u64>,
    /// Datagrams that the receiver did not receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_datagrams: Option<u64>,
    /// Smoothed change of the transit time at the receiver (RFC 3550).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_seconds: Option<Figure>,
}
