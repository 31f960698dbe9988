//! Document of `lfn trace`.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use lfn_results::diagnose::Diagnosis;
use lfn_results::evidence::capture::{CaptureEvidence, PeriodLimit};
use lfn_results::evidence::pair::PairEvidence;
use serde::{Deserialize, Serialize};

use super::schema_name::schema_name;

/// Result of an analysis of packet captures, schema `lfn.trace/1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceDocument {
    /// Name and version of the schema.
    pub schema: TraceSchema,
    /// Files in the order of their first packets. A live capture has none.
    pub files: Vec<TracedFile>,
    /// Interface of a live capture; null for files.
    pub interface: Option<String>,
    pub capture: CaptureCounts,
    /// Connections, the largest payload first.
    pub connections: Vec<TracedConnection>,
    /// Connections of MPTCP with a subflow in `connections`, the largest payload first.
    pub mptcp_connections: Vec<TracedMptcp>,
    pub totals: TraceTotals,
    /// Comparison of two captures of the same packets; absent for one capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<PairEvidence>,
}

/// File of a capture with its counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedFile {
    /// Name as it was typed; `-` is standard input.
    pub name: String,
    /// Compression of the file; null if there is none.
    pub compression: Option<String>,
    /// Packets that were read.
    pub packets: u64,
    /// Time of the first packet, since 1970.
    #[serde(rename = "first_unix_seconds", with = "optional_seconds")]
    pub first: Option<Duration>,
    /// Time of the last packet, since 1970.
    #[serde(rename = "last_unix_seconds", with = "optional_seconds")]
    pub last: Option<Duration>,
    /// Reason why the rest of the file could not be read; absent if the file is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// Packets of the capture by kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaptureCounts {
    /// Packets of all kinds.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// Bytes of these packets in the capture.
    pub captured_bytes: u64,
    /// Packets of each protocol, the most bytes first. Each packet counts once.
    pub protocols: Vec<ProtocolCount>,
    /// Fragments of IP packets. The first fragment counts by its protocol, too.
    pub fragments: u64,
    /// Packets of TCP that `--filter` and `--port` exclude.
    pub excluded: u64,
    /// Packets that the capture missed; null if the capture has no such count.
    pub dropped: Option<u64>,
    /// Connections of TCP that were analysed.
    pub connections: u64,
    /// Connections that were closed early, because too many were open.
    pub evicted_connections: u64,
    /// Connections that are not listed, because others have more payload.
    pub unlisted_connections: u64,
    /// Connections of MPTCP with all their subflows, also those that are not listed.
    pub mptcp_connection_count: u64,
    /// Packets whose time is 1 s or more before that of an earlier packet of their file.
    pub time_steps_back: u64,
    /// Number of the first of these packets in its file, from 1; null if there is none.
    #[serde(rename = "first_time_step_back_packet")]
    pub first_time_step_back: Option<u64>,
    /// Time of the first packet, since 1970; null without packets.
    #[serde(rename = "first_unix_seconds", with = "optional_seconds")]
    pub first: Option<Duration>,
    /// Time of the last packet, since 1970; null without packets.
    #[serde(rename = "last_unix_seconds", with = "optional_seconds")]
    pub last: Option<Duration>,
}

/// Packets of one protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProtocolCount {
    /// Name of the protocol: `TCP`, `UDP` (without QUIC), `QUIC`, `ICMP` (with ICMPv6), `SCTP` and others. Frames of no
    /// protocol are `not IP`, `later fragments`, or `malformed` (headers that are cut off or contradict each other).
    pub name: String,
    /// Packets of this protocol.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
}

/// A connection of the capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedConnection {
    /// Number of the connection in this result, from 1.
    pub number: u64,
    /// Address and port of the end that opened the connection.
    pub client: String,
    /// Address and port of the other end.
    pub server: String,
    /// Time of the first packet, since 1970.
    #[serde(rename = "start_unix_seconds", with = "seconds")]
    pub start: Duration,
    /// Payload divided by the duration.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Place in a connection of MPTCP; absent for other connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mptcp: Option<TracedSubflow>,
    /// Figures of the connection, before any judgement.
    pub evidence: CaptureEvidence,
    /// Cause that limited the connection, with other findings.
    pub diagnosis: Diagnosis,
}

/// Place of a connection in its MPTCP connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedSubflow {
    /// Number of the MPTCP connection in `mptcp_connections`, from 1.
    pub connection: u64,
    /// Number of the subflow in the MPTCP connection, from 1, in the order of the first packets.
    pub subflow: u64,
    /// The subflow was added to the MPTCP connection with MP_JOIN.
    pub is_joined: bool,
    /// Token that MP_JOIN named, hexadecimal. For the first subflow, the token of the server, or of the client if that of the
    /// server is unknown.
    pub token: String,
}

/// A connection of MPTCP. Its subflows are those with the same token (RFC 8684).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedMptcp {
    /// Number of the MPTCP connection, from 1.
    pub number: u64,
    /// Version of MPTCP; null if the capture lacks the first handshake.
    pub version: Option<u8>,
    /// Token of the client, hexadecimal; null if unknown.
    pub client_token: Option<String>,
    /// Token of the server, hexadecimal; null if unknown. Without the first handshake, the token that MP_JOIN named.
    pub server_token: Option<String>,
    /// Subflows of the MPTCP connection, also those that are not listed.
    pub subflows: u64,
    /// Numbers of the listed connections that are its subflows.
    pub connections: Vec<u64>,
    /// Time of the first packet, since 1970.
    #[serde(rename = "start_unix_seconds", with = "seconds")]
    pub start: Duration,
    /// Time in which at least one subflow was open.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    /// Payload of all subflows, in the direction with more payload. Data that was sent on two subflows counts twice.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
    /// Payload of all subflows in the other direction.
    #[serde(rename = "reverse_payload_bytes")]
    pub reverse_payload: Bytes,
    /// Payload divided by the duration.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Packets of both directions of all subflows.
    pub packets: u64,
    /// Packets of all subflows that were sent again.
    pub retransmissions: u64,
    /// Packets of all subflows that were lost.
    pub lost_packets: u64,
    /// Limit that took the most time of the subflows; null if unknown.
    pub limit: Option<PeriodLimit>,
    /// Time and payload of each limit, the longest time first.
    pub limits: Vec<LimitTotal>,
}

/// Sums and limits of all connections together, also of those that are not listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceTotals {
    /// TCP connections in the capture.
    pub connections: u64,
    /// Payload of the connections in the direction with more payload, each byte counted once.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
    /// Packets of both directions.
    pub packets: u64,
    /// Packets with payload, in the direction with more payload.
    pub data_packets: u64,
    /// Packets that were sent again, in this direction.
    pub retransmissions: u64,
    /// Packets that were lost, in this direction.
    pub lost_packets: u64,
    /// Sum of the durations of the connections.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    /// Time and payload of each limit, the longest time first.
    pub limits: Vec<LimitTotal>,
    /// First findings of the connections, the most payload first.
    pub causes: Vec<CauseTotal>,
    /// Limit of the whole capture in one phrase.
    pub summary: String,
}

/// Time and payload of one limit over all connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LimitTotal {
    pub limit: PeriodLimit,
    /// Sum of the periods with this limit.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// Payload of these periods.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
}

/// A cause that limited connections as their first finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CauseTotal {
    /// Name of the finding.
    pub name: String,
    /// Connections with this cause.
    pub connections: u64,
    /// Sum of the durations of these connections.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// Payload of these connections.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
}

/// A line of `lfn trace --output ndjson`, schema `lfn.trace.event/1`: flagged packets if requested, one line for each
/// connection, then the totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TraceEvent {
    /// Packet with flags (`--flags`).
    Packet {
        /// Name and version of the schema.
        schema: TraceEventSchema,
        #[serde(flatten)]
        packet: FlaggedPacketLine,
    },
    /// Connection of the capture.
    Connection {
        /// Name and version of the schema.
        schema: TraceEventSchema,
        connection: Box<TracedConnection>,
    },
    /// Last line: everything except for the connections.
    End {
        /// Name and version of the schema.
        schema: TraceEventSchema,
        /// The document without its connections.
        result: Box<TraceDocument>,
    },
}

/// A packet with flags.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlaggedPacketLine {
    /// Number of the packet in its file, from 1.
    pub number: u64,
    /// Number of the file in the order of reading, from 1.
    pub file: u64,
    /// Time since the first packet of the capture.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// Address and port of the sender of the packet.
    pub from: String,
    /// Address and port of the receiver of the packet.
    pub to: String,
    /// Names of the flags. Those that Wireshark has too begin with `tcp.analysis.`.
    pub flags: Vec<String>,
}

schema_name! {
    /// Name and version of the schema of an analysis of captures.
    TraceSchema = "lfn.trace/1"
}

schema_name! {
    /// Name and version of the schema of a line of an analysis of captures.
    TraceEventSchema = "lfn.trace.event/1"
}
