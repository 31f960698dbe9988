//! All connections of a capture.

use lfn_base::time::Instant;
use lfn_packet::{TcpEndpoint, TcpSegment};
use lfn_results::evidence::capture::CaptureEvidence;

use crate::flags::PacketFlags;
use crate::series::Series;

/// Limits of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct AnalysisOptions {
    /// Maximum number of connections that are followed at the same time. The one that is idle for the longest time is
    /// closed for a new one.
    pub max_open: usize,
    /// Maximum number of connections in the result: those with the most payload.
    pub max_finished: usize,
    /// Points of the pictures of each connection; 0 keeps none.
    pub series_points: usize,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        AnalysisOptions { max_open: 20_000, max_finished: 20_000, series_points: 0 }
    }
}

/// Follows the connections of a capture.
#[derive(Debug)]
pub struct Analysis {
    options: AnalysisOptions,
    totals: CaptureTotals,
}

/// A connection that has ended, or the capture has.
#[derive(Debug)]
pub struct Connection {
    /// End that opened the connection; the end with the higher port if the handshake is missing.
    pub client: TcpEndpoint,
    pub server: TcpEndpoint,
    /// Time of the first packet, since 1970.
    pub start: Instant,
    pub evidence: CaptureEvidence,
    /// Points of the pictures, if requested.
    pub series: Option<Series>,
}

/// Counts of the whole capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureTotals {
    /// TCP segments.
    pub segments: u64,
    /// Payload of all segments, as sent.
    pub payload: u64,
    /// Connections seen.
    pub connections: u64,
    /// Connections that were closed because too many were open.
    pub evicted: u64,
    /// Connections that the result does not list, because others have more payload.
    pub unlisted: u64,
    /// Time of the first and of the last segment, since 1970.
    pub first: Option<Instant>,
    pub last: Option<Instant>,
}

/// Result of an analysis.
#[derive(Debug, Default)]
pub struct Finished {
    /// Connections, the largest payload first.
    pub connections: Vec<Connection>,
    pub totals: CaptureTotals,
}

impl Analysis {
    /// Creates an analysis without connections.
    pub fn new(options: AnalysisOptions) -> Self {
        Analysis { options, totals: CaptureTotals::default() }
    }

    /// Adds the next segment, captured at `at` since 1970, and returns its flags.
    pub fn add(&mut self, at: Instant, _segment: &TcpSegment) -> PacketFlags {
        self.totals.segments += 1;
        self.totals.first.get_or_insert(at);
        self.totals.last = Some(at);
        PacketFlags::default()
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> &CaptureTotals {
        &self.totals
    }

    /// Ends the analysis.
    pub fn finish(self) -> Finished {
        let _ = self.options;
        Finished { connections: Vec::new(), totals: self.totals }
    }
}
