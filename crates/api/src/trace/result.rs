//! Result document of an analysis: connections with their diagnoses, and the limits of all of them together.

use std::cmp::Reverse;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_packet::TcpEndpoint;
use lfn_results::diagnose::{Cause, diagnose};
use lfn_results::evidence::Evidence;
use lfn_results::evidence::capture::PeriodLimit;
use lfn_trace::{Connection, ConnectionTotals, Finished, MptcpConnection, Series};

use crate::documents::{
    CaptureCounts, CauseTotal, LimitTotal, TraceDocument, TraceSchema, TraceTotals, TracedConnection, TracedFile,
    TracedMptcp, TracedSubflow,
};

/// Result of an analysis.
#[derive(Debug, Default)]
pub struct Traced {
    pub document: TraceDocument,
    /// Points of the pictures of each connection, in the order of the document, if requested.
    pub series: Vec<Option<Series>>,
}

impl Traced {
    /// Reports whether a part of a capture could not be read.
    pub fn is_incomplete(&self) -> bool {
        self.damaged_file().is_some()
    }

    /// Returns the first file that could not be read to its end.
    pub fn damaged_file(&self) -> Option<&TracedFile> {
        self.document.files.iter().find(|file| file.damage.is_some())
    }
}

/// Makes the result of a finished analysis.
pub(super) fn result(
    finished: Finished,
    mut capture: CaptureCounts,
    files: Vec<TracedFile>,
    interface: Option<String>,
) -> Traced {
    capture.connections = finished.totals.connections;
    capture.evicted_connections = finished.totals.evicted;
    capture.unlisted_connections = finished.totals.unlisted;
    capture.mptcp_connection_count = finished.totals.mptcp_connection_count;
    let numbered = finished.connections.into_iter().zip(1..);
    let (connections, series): (Vec<_>, Vec<_>) =
        numbered.map(|(connection, number)| traced_connection(connection, number)).unzip();
    let mptcp_connections = finished.mptcp.iter().map(|mptcp| traced_mptcp(mptcp, &connections)).collect();
    let totals = totals(finished.unlisted, &connections, capture.excluded > 0);
    let schema = TraceSchema::Current;
    let document =
        TraceDocument { schema, files, interface, capture, connections, mptcp_connections, totals, pair: None };
    Traced { document, series }
}

/// Diagnoses a connection, and returns its pictures' points.
fn traced_connection(connection: Connection, number: u64) -> (TracedConnection, Option<Series>) {
    let mut with_evidence = Evidence::of_capture(connection.evidence);
    let diagnosis = diagnose(&with_evidence);
    let evidence = with_evidence.capture.take().map(|evidence| *evidence).unwrap_or_default();
    let traced = TracedConnection {
        number,
        client: endpoint_text(&connection.client),
        server: endpoint_text(&connection.server),
        start: since_1970(connection.start),
        goodput: goodput(evidence.payload, evidence.duration),
        mptcp: connection.mptcp.map(|subflow| TracedSubflow {
            connection: subflow.mptcp,
            subflow: subflow.number,
            is_joined: subflow.is_joined,
            token: token_text(subflow.token),
        }),
        evidence,
        diagnosis,
    };
    (traced, connection.series)
}

/// Returns address and port: `192.0.2.1:443`, `[2001:db8::1]:443`.
pub fn endpoint_text(end: &TcpEndpoint) -> String {
    std::net::SocketAddr::new(end.address, end.port).to_string()
}

/// Returns the time since 1970.
pub(super) fn since_1970(at: Instant) -> Duration {
    Duration::from_nanos(at.as_nanos())
}

fn goodput(payload: Bytes, time: Duration) -> BitRate {
    if time.is_zero() { BitRate(0) } else { payload.per(time) }
}

fn token_text(token: u32) -> String {
    format!("{token:08x}")
}

/// Makes the entry of a connection of MPTCP, with the numbers of its listed subflows.
fn traced_mptcp(mptcp: &MptcpConnection, connections: &[TracedConnection]) -> TracedMptcp {
    let is_subflow = |connection: &&TracedConnection| {
        connection.mptcp.as_ref().is_some_and(|subflow| subflow.connection == mptcp.number)
    };
    TracedMptcp {
        number: mptcp.number,
        version: mptcp.version,
        client_token: mptcp.client_token.map(token_text),
        server_token: mptcp.server_token.map(token_text),
        subflows: mptcp.totals.connections,
        connections: connections.iter().filter(is_subflow).map(|connection| connection.number).collect(),
        start: since_1970(mptcp.start),
        duration: mptcp.duration,
        payload: mptcp.payload,
        reverse_payload: mptcp.reverse_payload,
        goodput: goodput(mptcp.payload, mptcp.duration),
        packets: mptcp.totals.packets,
        retransmissions: mptcp.totals.retransmissions,
        lost_packets: mptcp.totals.lost,
        limit: mptcp.totals.main_limit(),
        limits: limits(&mptcp.totals),
    }
}

/// Returns the time and the payload of each limit, the longest time first.
fn limits(sums: &ConnectionTotals) -> Vec<LimitTotal> {
    let limits = sums.limits.iter();
    let mut limits: Vec<LimitTotal> =
        limits.map(|(limit, sum)| LimitTotal { limit: *limit, time: sum.time, payload: sum.payload }).collect();
    limits.sort_by_key(|total| Reverse(total.time));
    limits
}

/// Adds the listed connections to the sums of the others.
fn totals(mut sums: ConnectionTotals, connections: &[TracedConnection], has_excluded: bool) -> TraceTotals {
    for connection in connections {
        let first = connection.diagnosis.findings.first().map(|finding| finding.name.as_str());
        sums.add(&connection.evidence, first);
    }
    let limits = limits(&sums);
    let mut causes: Vec<CauseTotal> = Vec::new();
    for (name, sum) in &sums.findings {
        let (name, connections, time, payload) = (name.clone(), sum.connections, sum.time, sum.payload);
        causes.push(CauseTotal { name, connections, time, payload });
    }
    causes.sort_by_key(|total| (Reverse(total.payload), Reverse(total.connections)));
    let summary = match connections {
        [connection] if sums.connections == 1 => connection.diagnosis.verdict.summary.clone(),
        [] if has_excluded => "no TCP connection matches the filter".to_owned(),
        _ => summary(&sums, &limits, &causes),
    };
    TraceTotals {
        connections: sums.connections,
        payload: sums.payload,
        packets: sums.packets,
        data_packets: sums.data_packets,
        retransmissions: sums.retransmissions,
        lost_packets: sums.lost,
        duration: sums.duration,
        limits,
        causes,
        summary,
    }
}

/// Returns the limit of the whole capture in one phrase: the cause of at least half of the payload, else the limit of most
/// payload. A small connection that waits for a long time does not limit the transfer next to it.
fn summary(sums: &ConnectionTotals, limits: &[LimitTotal], causes: &[CauseTotal]) -> String {
    let main_cause = causes.first().filter(|cause| cause.payload.0 >= sums.payload.0 / 2);
    match (sums.connections, main_cause, limits.iter().max_by_key(|limit| limit.payload)) {
        (0, _, _) => "the capture has no TCP connection".to_owned(),
        (all, Some(cause), _) => {
            let phrase = Cause::from_name(&cause.name).map_or(cause.name.as_str(), |cause| cause.phrase());
            let (limited, payload) = (cause.connections, cause.payload.decimal());
            format!("mostly limited by {phrase}: {limited} of {all} connections, {payload}")
        }
        (_, None, Some(limit)) => {
            let (phrase, payload) = (limit_phrase(limit.limit), limit.payload.decimal());
            format!("mostly limited by {phrase}: {payload}; no finding has half of the payload")
        }
        (_, None, None) => "the limit is unknown".to_owned(),
    }
}

/// Returns the limit of a period in words.
pub fn limit_phrase(limit: PeriodLimit) -> &'static str {
    match limit {
        PeriodLimit::StartUp => "slow start",
        PeriodLimit::Application => "the applications",
        PeriodLimit::Receiver => "the receiver",
        PeriodLimit::Path => "the path",
        PeriodLimit::Recovery => "the repair of losses",
    }
}
