//! Counters of both sides of a copy.

use std::ops::Add;
use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Time that one side's streams spent since the copy began, in seconds, summed over the streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StreamTime {
    /// Reading the source or writing the destination.
    #[serde(rename = "disk_seconds", with = "finite_seconds")]
    pub disk: f64,
    /// Computing and checking digests.
    #[serde(rename = "hash_seconds", with = "finite_seconds")]
    pub hash: f64,
    /// Writing to or reading from the network, including waiting.
    #[serde(rename = "network_seconds", with = "finite_seconds")]
    pub network: f64,
    /// Part of the network time: waiting for this server's rate limiter.
    #[serde(rename = "rate_limited_seconds", default, with = "finite_seconds")]
    pub rate_limited: f64,
}

/// Kernel counters of the sender's data streams, summed over the streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SocketEvidence {
    /// Receive windows that the peer offers (`tcpi_snd_wnd`), bytes; 0 if the kernel does not report them.
    #[serde(rename = "receive_window_bytes")]
    pub receive_window: Bytes,
    /// Congestion windows (`tcpi_snd_cwnd` × `tcpi_snd_mss`), bytes.
    #[serde(rename = "congestion_window_bytes")]
    pub congestion_window: Bytes,
    /// Seconds with data in flight (`tcpi_busy_time`).
    #[serde(with = "finite_seconds")]
    pub busy_seconds: f64,
    /// Seconds limited by the receive window (`tcpi_rwnd_limited`).
    #[serde(with = "finite_seconds")]
    pub rwnd_limited_seconds: f64,
    /// Seconds limited by the send buffer (`tcpi_sndbuf_limited`).
    #[serde(with = "finite_seconds")]
    pub sndbuf_limited_seconds: f64,
    /// Count of retransmitted segments (`tcpi_total_retrans`).
    pub retransmits: u64,
    /// Sent segments, including retransmissions (`tcpi_segs_out`); 0 if the kernel does not report them.
    #[serde(default)]
    pub segments_sent: u64,
    /// Maximum smoothed RTT of the streams at present (`tcpi_rtt`), seconds.
    #[serde(default, with = "finite_seconds")]
    pub rtt_seconds: f64,
    /// The sender changed its congestion control to BBR during the copy.
    #[serde(default)]
    pub switched_to_bbr: bool,
    /// Minimum RTT of the streams (`tcpi_min_rtt`), seconds.
    #[serde(with = "finite_seconds")]
    pub min_rtt_seconds: f64,
    /// Streams in slow start (`tcpi_snd_cwnd` < `tcpi_snd_ssthresh`).
    pub in_slow_start: u16,
}

/// Serde form of seconds. The counters of a peer can add up to infinity, which JSON cannot hold; the largest number
/// replaces it.
#[expect(non_camel_case_types, reason = "serde expects the path of a module here")]
enum finite_seconds {}

impl finite_seconds {
    fn serialize<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(if seconds.is_finite() { *seconds } else { f64::MAX })
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        f64::deserialize(deserializer)
    }
}

#[cfg(any(test, feature = "schema"))]
impl schemars::JsonSchema for finite_seconds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FiniteSeconds".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number" })
    }
}

/// Counters of both sides at one moment, cumulative since the copy began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressSample {
    /// Time since the copy began.
    #[serde(rename = "seconds", with = "lfn_base::path::seconds")]
    pub at: Duration,
    /// Payload bytes that this side counts: resent blocks count twice, holes do not count.
    pub bytes: Bytes,
    pub sender: StreamTime,
    pub receiver: StreamTime,
    /// Present if the sender reports its sockets.
    pub sockets: Option<SocketEvidence>,
}

/// Figures of a copy, or of a part of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CopyEvidence {
    /// Counters at the start of the examined time; zero for the whole copy.
    #[serde(default)]
    pub start: ProgressSample,
    /// Counters at the end of the examined time. `bytes` are the bytes that crossed the path once.
    pub end: ProgressSample,
    /// Number of data streams.
    pub streams: u16,
    /// Predicted goodput with slow start; null if the path is unknown.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Total time without a connection.
    #[serde(rename = "disconnected_seconds", with = "lfn_base::path::seconds", default)]
    pub disconnected: Duration,
    /// Total time with a connection in which nothing arrived.
    #[serde(rename = "stalled_seconds", with = "lfn_base::path::seconds", default)]
    pub stalled: Duration,
}

impl CopyEvidence {
    /// Returns the payload that crossed the path in the examined time, divided by this time.
    pub fn goodput(&self) -> BitRate {
        let bytes = self.end.bytes.0.saturating_sub(self.start.bytes.0);
        Bytes(bytes).per(self.end.at.saturating_sub(self.start.at))
    }
}

impl SocketEvidence {
    /// Returns the counters of one stream.
    pub fn of_stream(info: &TcpInfo) -> Self {
        let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
        SocketEvidence {
            receive_window: Bytes(info.snd_wnd_bytes.unwrap_or(0).into()),
            congestion_window: info.cwnd(),
            busy_seconds: seconds(info.busy),
            rwnd_limited_seconds: seconds(info.rwnd_limited),
            sndbuf_limited_seconds: seconds(info.sndbuf_limited),
            retransmits: info.retransmitted_segments.into(),
            segments_sent: info.sent_segments.unwrap_or(0).into(),
            rtt_seconds: info.rtt.as_secs_f64(),
            switched_to_bbr: false,
            min_rtt_seconds: seconds(info.min_rtt),
            in_slow_start: u16::from(info.ssthresh_segments.is_none_or(|ssthresh| info.cwnd_segments < ssthresh)),
        }
    }
}

impl Add for SocketEvidence {
    type Output = Self;

    /// Returns the sum of the counters of two groups of streams.
    fn add(self, other: SocketEvidence) -> Self {
        SocketEvidence {
            receive_window: Bytes(self.receive_window.0 + other.receive_window.0),
            congestion_window: Bytes(self.congestion_window.0 + other.congestion_window.0),
            busy_seconds: self.busy_seconds + other.busy_seconds,
            rwnd_limited_seconds: self.rwnd_limited_seconds + other.rwnd_limited_seconds,
            sndbuf_limited_seconds: self.sndbuf_limited_seconds + other.sndbuf_limited_seconds,
            retransmits: self.retransmits + other.retransmits,
            segments_sent: self.segments_sent + other.segments_sent,
            rtt_seconds: self.rtt_seconds.max(other.rtt_seconds),
            switched_to_bbr: self.switched_to_bbr || other.switched_to_bbr,
            min_rtt_seconds: self.min_rtt_seconds.min(other.min_rtt_seconds),
            in_slow_start: self.in_slow_start + other.in_slow_start,
        }
    }
}
