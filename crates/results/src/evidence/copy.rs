//! Counters of both sides of a copy.

use std::ops::Add;
use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::tcp_model::Congestion;
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

/// Kernel counters of one side's data streams, summed over the streams. Counters that a kernel does not report are zero.
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
    /// Streams whose windows are counted: a stream that broke keeps its counters only.
    #[serde(default)]
    pub streams: u16,
    /// Congestion control of the streams, if the model knows it (`TCP_CONGESTION`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// Granted send buffers (`SO_SNDBUF`), bytes.
    #[serde(rename = "send_buffer_bytes", default)]
    pub send_buffer: Bytes,
    /// Number of segments that this end received (`tcpi_segs_in`).
    #[serde(default)]
    pub segments_received: u64,
    /// Segments sent with payload (`tcpi_data_segs_out`).
    #[serde(default)]
    pub data_segments_sent: u64,
    /// Payload bytes sent, with retransmissions (`tcpi_bytes_sent`).
    #[serde(default)]
    pub sent_bytes: u64,
    /// Payload bytes of the retransmissions (`tcpi_bytes_retrans`).
    #[serde(default)]
    pub retransmitted_bytes: u64,
    /// Segments that the peer reported as received twice (`tcpi_dsack_dups`).
    #[serde(default)]
    pub duplicates: u64,
    /// Number of reordering events that the sender saw (`tcpi_reord_seen`).
    #[serde(default)]
    pub reorderings: u64,
    /// Number of retransmission timeouts of the sender (`tcpi_total_rto`).
    #[serde(default)]
    pub timeouts: u64,
    /// Number of segments that arrived (`tcpi_delivered`).
    #[serde(default)]
    pub delivered: u64,
    /// Delivered segments with a congestion mark (`tcpi_delivered_ce`).
    #[serde(default)]
    pub marked: u64,
    /// Streams with explicit congestion notification (`TCPI_OPT_ECN`).
    #[serde(default)]
    pub with_ecn: u16,
    /// Streams at which a packet with an ECN codepoint arrived (`TCPI_OPT_ECN_SEEN`).
    #[serde(default)]
    pub ecn_seen: u16,
    /// Streams without window scaling.
    #[serde(default)]
    pub without_scaling: u16,
    /// Largest payload of a full segment (`tcpi_snd_mss`), bytes.
    #[serde(default)]
    pub mss_bytes: u32,
    /// Smallest path MTU (`tcpi_pmtu`), bytes; 0 if unknown.
    #[serde(default)]
    pub pmtu_bytes: u32,
    /// Largest mean deviation of the RTT (`tcpi_rttvar`), seconds.
    #[serde(default, with = "finite_seconds")]
    pub rtt_deviation_seconds: f64,
    /// Smallest slow-start threshold of the streams without retransmissions (`tcpi_snd_ssthresh`), bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_bytes: Option<u64>,
}

/// Figures of the host of one side that its sockets do not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CopyHost {
    /// `net.ipv4.tcp_rmem`: minimum, initial and maximum receive buffer of autotuning.
    pub tcp_rmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_wmem`: minimum, initial and maximum send buffer of autotuning.
    pub tcp_wmem_bytes: [u64; 3],
    /// `net.ipv4.tcp_moderate_rcvbuf`: receive buffers are autotuned.
    pub moderate_rcvbuf: bool,
    /// `net.ipv4.tcp_window_scaling`: window scaling is enabled.
    pub window_scaling: bool,
    /// Recoveries from losses since the copy began, over all connections (`TCPSackRecovery`); absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recoveries: Option<u64>,
    /// Ends of slow start by HyStart since the copy began, over all connections; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hystart_exits: Option<u64>,
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
    /// Age of the other side's counters: they belong to an earlier time. Zero if unknown.
    #[serde(skip)]
    pub peer_age: Duration,
    /// Payload bytes that this side counts: resent blocks count twice, holes do not count.
    pub bytes: Bytes,
    pub sender: StreamTime,
    pub receiver: StreamTime,
    /// Present if the sender reports its sockets.
    pub sockets: Option<SocketEvidence>,
    /// Present if the receiver reports its sockets.
    #[serde(default)]
    pub receiver_sockets: Option<SocketEvidence>,
    /// Host of the sender, if the sender reports it.
    #[serde(default)]
    pub sender_host: Option<CopyHost>,
    /// Host of the receiver, if the receiver reports it.
    #[serde(default)]
    pub receiver_host: Option<CopyHost>,
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
            streams: 1,
            congestion: None,
            send_buffer: Bytes(0),
            segments_received: info.received_segments.unwrap_or(0).into(),
            data_segments_sent: info.sent_data_segments.unwrap_or(0).into(),
            sent_bytes: info.sent_bytes.unwrap_or(0),
            retransmitted_bytes: info.retransmitted_bytes.unwrap_or(0),
            duplicates: info.duplicate_segments.unwrap_or(0).into(),
            reorderings: info.reorderings.unwrap_or(0).into(),
            timeouts: info.timeouts.unwrap_or(0).into(),
            delivered: info.delivered_segments.unwrap_or(0).into(),
            marked: info.delivered_marked_segments.unwrap_or(0).into(),
            with_ecn: info.ecn.into(),
            ecn_seen: info.ecn_seen.into(),
            without_scaling: (!info.window_scaling).into(),
            mss_bytes: info.snd_mss_bytes,
            pmtu_bytes: info.pmtu_bytes,
            rtt_deviation_seconds: info.rttvar.as_secs_f64(),
            threshold_bytes: info
                .ssthresh_segments
                .filter(|_| info.retransmitted_segments == 0)
                .map(|at| u64::from(at) * u64::from(info.snd_mss_bytes)),
        }
    }
}

impl Add for SocketEvidence {
    type Output = Self;

    /// Returns the sum of the counters of two groups of streams.
    fn add(self, other: SocketEvidence) -> Self {
        let least_of = |a: u32, b: u32| if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        // A peer's counters may be any numbers.
        let sum = |figure: fn(&SocketEvidence) -> u64| figure(&self).saturating_add(figure(&other));
        let count = |figure: fn(&SocketEvidence) -> u16| figure(&self).saturating_add(figure(&other));
        SocketEvidence {
            receive_window: Bytes(sum(|sockets| sockets.receive_window.0)),
            congestion_window: Bytes(sum(|sockets| sockets.congestion_window.0)),
            busy_seconds: self.busy_seconds + other.busy_seconds,
            rwnd_limited_seconds: self.rwnd_limited_seconds + other.rwnd_limited_seconds,
            sndbuf_limited_seconds: self.sndbuf_limited_seconds + other.sndbuf_limited_seconds,
            retransmits: sum(|sockets| sockets.retransmits),
            segments_sent: sum(|sockets| sockets.segments_sent),
            rtt_seconds: self.rtt_seconds.max(other.rtt_seconds),
            switched_to_bbr: self.switched_to_bbr || other.switched_to_bbr,
            min_rtt_seconds: self.min_rtt_seconds.min(other.min_rtt_seconds),
            in_slow_start: count(|sockets| sockets.in_slow_start),
            streams: count(|sockets| sockets.streams),
            congestion: self.congestion.or(other.congestion),
            send_buffer: Bytes(sum(|sockets| sockets.send_buffer.0)),
            segments_received: sum(|sockets| sockets.segments_received),
            data_segments_sent: sum(|sockets| sockets.data_segments_sent),
            sent_bytes: sum(|sockets| sockets.sent_bytes),
            retransmitted_bytes: sum(|sockets| sockets.retransmitted_bytes),
            duplicates: sum(|sockets| sockets.duplicates),
            reorderings: sum(|sockets| sockets.reorderings),
            timeouts: sum(|sockets| sockets.timeouts),
            delivered: sum(|sockets| sockets.delivered),
            marked: sum(|sockets| sockets.marked),
            with_ecn: count(|sockets| sockets.with_ecn),
            ecn_seen: count(|sockets| sockets.ecn_seen),
            without_scaling: count(|sockets| sockets.without_scaling),
            mss_bytes: self.mss_bytes.max(other.mss_bytes),
            pmtu_bytes: least_of(self.pmtu_bytes, other.pmtu_bytes),
            rtt_deviation_seconds: self.rtt_deviation_seconds.max(other.rtt_deviation_seconds),
            threshold_bytes: self.threshold_bytes.into_iter().chain(other.threshold_bytes).min(),
        }
    }
}
