//! Result document of an analysis: connections with their diagnoses, and the limits of all of them together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_packet::TcpEndpoint;
use lfn_results::diagnose::{Cause, diagnose};
use lfn_results::evidence::Evidence;
use lfn_results::evidence::capture::PeriodLimit;
use lfn_trace::{Connection, Finished, Series};

use crate::documents::{
    CaptureCounts, CauseTotal, LimitTotal, TraceDocument, TraceSchema, TraceTotals, TracedConnection, TracedFile,
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
    let numbered = finished.connections.into_iter().zip(1..);
    let (connections, series): (Vec<_>, Vec<_>) =
        numbered.map(|(connection, number)| traced_connection(connection, number)).unzip();
    let totals = totals(&connections);
    let schema = TraceSchema::Current;
    let document = TraceDocument { schema, files, interface, capture, connections, totals, pair: None };
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
        goodput: if evidence.duration.is_zero() { BitRate(0) } else { evidence.payload.per(evidence.duration) },
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

/// Adds up the limits and the first findings of all connections.
fn totals(connections: &[TracedConnection]) -> TraceTotals {
    let mut limits: BTreeMap<PeriodLimit, LimitTotal> = BTreeMap::new();
    let mut causes: BTreeMap<&str, CauseTotal> = BTreeMap::new();
    let (mut payload, mut duration) = (Bytes(0), Duration::ZERO);
    for connection in connections {
        let evidence = &connection.evidence;
        payload = Bytes(payload.0 + evidence.payload.0);
        duration += evidence.duration;
        for period in &evidence.periods {
            let new = LimitTotal { limit: period.limit, time: Duration::ZERO, payload: Bytes(0) };
            let total = limits.entry(period.limit).or_insert(new);
            total.time += period.end.saturating_sub(period.start);
            total.payload = Bytes(total.payload.0 + period.payload.0);
        }
        if let Some(first) = connection.diagnosis.findings.first() {
            let new = CauseTotal { name: first.name.clone(), connections: 0, time: Duration::ZERO, payload: Bytes(0) };
            let total = causes.entry(&first.name).or_insert(new);
            total.connections += 1;
            total.time += evidence.duration;
            total.payload = Bytes(total.payload.0 + evidence.payload.0);
        }
    }
    let mut limits: Vec<LimitTotal> = limits.into_values().collect();
    limits.sort_by_key(|total| Reverse(total.time));
    let mut causes: Vec<CauseTotal> = causes.into_values().collect();
    causes.sort_by_key(|total| (Reverse(total.time), Reverse(total.connections)));
    let summary = summary(connections, &limits, &causes);
    TraceTotals { payload, duration, limits, causes, summary }
}

/// Returns the limit of the whole capture in one phrase.
fn summary(connections: &[TracedConnection], limits: &[LimitTotal], causes: &[CauseTotal]) -> String {
    match (connections, causes.first(), limits.first()) {
        ([], _, _) => "the capture has no TCP connection".to_owned(),
        ([connection], _, _) => connection.diagnosis.verdict.summary.clone(),
        (all, Some(cause), _) => {
            let phrase = Cause::from_name(&cause.name).map_or(cause.name.as_str(), |cause| cause.phrase());
            let (limited, all) = (cause.connections, all.len());
            format!("mostly limited by {phrase}: {limited} of {all} connections, {}", show_duration(cause.time))
        }
        (_, None, Some(limit)) => {
            format!("mostly limited by {}: {}, without a finding", limit_phrase(limit.limit), show_duration(limit.time))
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
