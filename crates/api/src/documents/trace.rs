//! Document of `lfn trace`.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use lfn_results::diagnose::Diagnosis;
use lfn_results::evidence::capture::{CaptureEvidence, PeriodLimit};
use lfn_results::evidence::pair::PairEvidence;
use serde::Serialize;

use super::schema_name::schema_name;

/// Result of an analysis of packet captures, schema `lfn.trace/1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    pub totals: TraceTotals,
    /// Comparison of two captures of the same packets; absent for one capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<PairEvidence>,
}

/// File of a capture with its counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CaptureCounts {
    /// Packets of all kinds.
    pub packets: u64,
    /// Bytes of these packets on the wire.
    pub bytes: u64,
    /// Bytes of these packets in the capture.
    pub captured_bytes: u64,
    /// Packets of TCP, with those that are excluded.
    pub tcp: u64,
    /// Packets of UDP without QUIC.
    pub udp: u64,
    /// Packets of UDP that look like QUIC (RFC 9000).
    pub quic: u64,
    /// Packets of ICMP and ICMPv6.
    pub icmp: u64,
    /// Packets of other protocols over IP.
    pub other_ip: u64,
    /// Fragments of IP packets. The first fragment also counts by its protocol.
    pub fragments: u64,
    /// Frames without an IP packet.
    pub not_ip: u64,
    /// Frames whose headers are cut off or contradict each other.
    pub malformed: u64,
    /// Packets of TCP that `--host` and `--port` exclude.
    pub excluded: u64,
    /// Packets that the capture missed; null if the capture has no such count.
    pub dropped: Option<u64>,
    /// Connections of TCP that were analysed.
    pub connections: u64,
    /// Connections that were closed early, because too many were open.
    pub evicted_connections: u64,
    /// Connections that are not listed, because others have more payload.
    pub unlisted_connections: u64,
    /// Time of the first packet, since 1970; null without packets.
    #[serde(rename = "first_unix_seconds", with = "optional_seconds")]
    pub first: Option<Duration>,
    /// Time of the last packet, since 1970; null without packets.
    #[serde(rename = "last_unix_seconds", with = "optional_seconds")]
    pub last: Option<Duration>,
}

/// A connection of the capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
    /// Figures of the connection, before any judgement.
    pub evidence: CaptureEvidence,
    /// Cause that limited the connection, with other findings.
    pub diagnosis: Diagnosis,
}

/// Limits of all connections together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceTotals {
    /// Payload of the listed connections in the direction with more payload, each byte counted once.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
    /// Sum of the durations of the listed connections.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    /// Time and payload of each limit, the longest time first.
    pub limits: Vec<LimitTotal>,
    /// First findings of the connections, the longest time first.
    pub causes: Vec<CauseTotal>,
    /// Limit of the whole capture in one phrase.
    pub summary: String,
}

/// Time and payload of one limit over all connections.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
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
