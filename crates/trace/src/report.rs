//! Limits and results of an analysis.

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::Bytes;
use lfn_packet::TcpEndpoint;
use lfn_results::evidence::capture::CaptureEvidence;

use crate::series::Series;
use crate::totals::ConnectionTotals;

/// Points of the pictures of all open connections together, for each kind of points.
const MAX_SERIES_POINTS: usize = 50_000;
/// Points of a connection while many are open.
const MIN_SERIES_POINTS: usize = 50;

/// Limits of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisOptions {
    /// Maximum number of connections that are followed at the same time. The connection with the oldest packet is
    /// closed for a new one.
    pub max_open: usize,
    /// Maximum number of connections in the result: those with the most payload.
    pub max_finished: usize,
    /// Maximum number of points of the pictures of each connection, for each kind of points; 0 keeps none. While many
    /// connections are open, each has fewer points.
    pub series_points: usize,
    /// Time that the pictures show, since the first packet of the connection.
    pub series_from: Duration,
    pub series_to: Duration,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions {
            max_open: 20_000,
            max_finished: 1_000,
            series_points: 0,
            series_from: Duration::ZERO,
            series_to: Duration::MAX,
        }
    }
}

impl AnalysisOptions {
    /// Returns the options of a new connection, if so many are open. They share the points of the pictures.
    pub(crate) fn per_connection(self, open: usize) -> Self {
        let share = (MAX_SERIES_POINTS / open.max(1)).max(MIN_SERIES_POINTS);
        AnalysisOptions { series_points: self.series_points.min(share), ..self }
    }

    /// Returns an empty series of a connection that begins at `start`, if pictures are requested.
    pub(crate) fn new_series(&self, start: Instant) -> Option<Series> {
        let series = Series::new(self.series_points);
        (self.series_points > 0).then(|| series.limited_to(start + self.series_from, start + self.series_to))
    }
}

/// A connection that has ended, or the capture has.
#[derive(Debug)]
pub struct Connection {
    /// End that opened the connection; the end with the higher port if the handshake is missing.
    pub client: TcpEndpoint,
    pub server: TcpEndpoint,
    /// The client sends most of the data, which `evidence` describes.
    pub is_client_sender: bool,
    /// Time of the first packet, since 1970.
    pub start: Instant,
    pub evidence: CaptureEvidence,
    /// Place in a connection of MPTCP.
    pub mptcp: Option<Subflow>,
    /// Points of the pictures, if requested.
    pub series: Option<Series>,
}

/// Counts of the whole capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureTotals {
    /// TCP segments of the capture.
    pub segments: u64,
    /// Payload of all segments, as sent.
    pub payload: u64,
    /// Connections of the capture.
    pub connections: u64,
    /// Connections that were closed because too many were open.
    pub evicted: u64,
    /// Connections that the result does not list, because others have more payload.
    pub unlisted: u64,
    /// MPTCP connections with at least one subflow in the capture.
    pub mptcp_connection_count: u64,
    /// Time of the first and of the last segment, since 1970.
    pub first: Option<Instant>,
    pub last: Option<Instant>,
}

/// Place of a connection in its MPTCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// Number of the MPTCP connection, from 1; in a result, the largest payload first.
    pub mptcp: u64,
    /// Number in the MPTCP connection, from 1, in the order of the first packets.
    pub number: u64,
    /// The subflow was added with MP_JOIN.
    pub is_joined: bool,
    /// Token that MP_JOIN named; for the first subflow, the token of the server, or of the client if this is unknown.
    pub token: u32,
    /// The server of the MPTCP connection opened the subflow.
    pub(crate) is_reversed: bool,
}

/// A connection of MPTCP with at least one subflow in the result.
#[derive(Clone, Debug, PartialEq)]
pub struct MptcpConnection {
    /// Number of the MPTCP connection, from 1.
    pub number: u64,
    /// Version of MPTCP; none without the first subflow.
    pub version: Option<u8>,
    /// Tokens of both ends, as far as the capture shows them.
    pub client_token: Option<u32>,
    pub server_token: Option<u32>,
    /// Time of the first packet, since 1970.
    pub start: Instant,
    /// Time in which at least one subflow was open.
    pub duration: Duration,
    /// Payload of the direction with more payload. Data that was sent on two subflows counts twice.
    pub payload: Bytes,
    /// Payload of the other direction.
    pub reverse_payload: Bytes,
    /// Sums of all subflows, also of those that the result does not list.
    pub totals: ConnectionTotals,
}

/// Result of an analysis.
#[derive(Debug, Default)]
pub struct Finished {
    /// Connections, the largest payload first.
    pub connections: Vec<Connection>,
    /// MPTCP connections with a subflow among these connections, the largest payload first.
    pub mptcp: Vec<MptcpConnection>,
    pub totals: CaptureTotals,
    /// Sums of the connections that are not among these connections.
    pub unlisted: ConnectionTotals,
}
