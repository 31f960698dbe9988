//! Entries of finished tests: results of `lfn test` and of iperf3.
//!
//! The agent makes its entries with [`add_run`], and `lfn mesh import` makes those of a file with [`entries_of`]. Both have
//! the same conditions, so an imported result can be compared with a result of the mesh.

mod conditions;
mod hosts;
mod iperf3;
#[cfg(test)]
mod tests;

pub use conditions::conditions_of;
pub use hosts::{ResultError, ResultHosts};

use std::time::Duration;

use lfn_base::date;
use lfn_base::units::Bytes;
use lfn_results::diagnose::VerdictLimit;
use lfn_results::evidence::{HostNames, LoadKind, Side};
use lfn_results::path_report::{PathReport, TraceProtocol};
use lfn_results::report::{Run, StoredResult, TestDocument};

use hosts::names;

use crate::entry::{Entry, EntryFinding, EntryKind, Outcome};

/// Creates the entries of a stored result. `bytes` is the content of its file.
pub fn entries_of(stored: &StoredResult, bytes: &[u8], hosts: ResultHosts<'_>) -> Result<Vec<Entry>, ResultError> {
    match stored {
        StoredResult::Test(document) => entries_of_test(document, hosts),
        StoredResult::Iperf3(_) => iperf3::entries_of(stored, bytes, hosts),
        StoredResult::Tuning(_) => Err(ResultError::Comparison),
    }
}

fn entries_of_test(document: &TestDocument, hosts: ResultHosts<'_>) -> Result<Vec<Entry>, ResultError> {
    let names = names(&document.origin.hosts, hosts)?;
    let started = date::parse(&document.origin.started).ok_or(ResultError::NoTime)?;
    let mut entries = Vec::new();
    let mut time = started;
    for run in &document.runs {
        let (from, to) = (names.name(run.sender), names.name(run.receiver));
        let mut load = Entry::new(EntryKind::Load, from, to, time);
        add_run(&mut load, run);
        entries.push(load);
        entries.extend(latency_entry(run, from, to, time));
        entries.extend(run.evidence.path_report.as_ref().and_then(|report| path_entry(report, &names, started)));
        // Both directions of a bidirectional test start together.
        if !run.evidence.bidirectional {
            time = time.saturating_add(run.elapsed);
        }
    }
    // A report of the path is the same in each run.
    entries.dedup_by(|one, other| one.kind == EntryKind::Path && other == one);
    if let (true, Some(error)) = (document.runs.is_empty(), &document.error) {
        let mut failed = Entry::new(EntryKind::Load, &*names.near, &*names.far, started);
        failed.outcome = Outcome::Failed;
        failed.error = Some(error.message.clone());
        entries.push(failed);
    }
    if entries.is_empty() {
        return Err(ResultError::NoRun);
    }
    entries.iter_mut().for_each(Entry::truncate);
    Ok(entries)
}

/// Adds the figures, the verdict and the conditions of a test to the entry of a load.
pub fn add_run(entry: &mut Entry, run: &Run) {
    entry.duration = Some(run.elapsed);
    entry.bytes = Some(Bytes(run.bytes));
    entry.goodput = Some(run.steady_goodput);
    entry.predicted = run.diagnosis.predicted.as_ref().map(|predicted| predicted.goodput);
    entry.capacity = entry.capacity.or(run.evidence.path.map(|path| path.capacity));
    entry.base_rtt = Some(run.base_rtt).filter(|rtt| !rtt.is_zero());
    entry.retransmits = run.retransmits;
    if let Some(rtt) = run.evidence.latency.as_ref().and_then(|latency| latency.loaded.rtt) {
        (entry.rtt, entry.max_rtt) = (Some(rtt.p50), Some(rtt.max));
    }
    if run.evidence.kind() == LoadKind::Datagrams {
        add_datagrams(entry, run);
    }
    entry.verdict.clone_from(&run.diagnosis.verdict.summary);
    entry.findings = run
        .diagnosis
        .findings
        .iter()
        .map(|finding| EntryFinding {
            name: finding.name.clone(),
            summary: finding.summary.clone(),
            remedy: finding.remedy.command.clone(),
            host: finding.remedy.host.clone(),
        })
        .collect();
    entry.outcome = outcome(run);
    entry.conditions = conditions_of(run);
}

/// Returns the outcome: a path that limits a test is healthy.
fn outcome(run: &Run) -> Outcome {
    if run.is_unreliable() {
        return Outcome::Unknown;
    }
    match run.diagnosis.verdict.limit {
        VerdictLimit::Finding => Outcome::Limited,
        VerdictLimit::Path
        | VerdictLimit::Predicted
        | VerdictLimit::ProbablyPath
        | VerdictLimit::RequestedRate
        | VerdictLimit::AbovePrediction => Outcome::Good,
        VerdictLimit::Resource | VerdictLimit::Ramp | VerdictLimit::Unknown => Outcome::Unknown,
    }
}

fn add_datagrams(entry: &mut Entry, run: &Run) {
    let streams = |side: Side| run.evidence.end(side).streams.iter().filter_map(|stream| stream.udp.as_deref());
    let sent = streams(run.sender).filter_map(|udp| Some(udp.sent.as_ref()?.datagrams));
    let lost = streams(run.receiver).filter_map(|udp| Some(udp.received.as_ref()?.lost));
    let (sent, lost) = (sent.reduce(u64::saturating_add), lost.reduce(u64::saturating_add));
    if let (Some(sent), Some(lost)) = (sent, lost) {
        (entry.packets, entry.lost_packets) = (Some(sent), Some(lost.min(sent)));
    }
}

/// Returns the round trips of probes before the load.
fn latency_entry(run: &Run, from: &str, to: &str, time: Duration) -> Option<Entry> {
    let idle = &run.evidence.latency.as_ref()?.idle;
    let rtt = idle.rtt?;
    Some(Entry {
        base_rtt: Some(rtt.min),
        rtt: Some(rtt.p50),
        max_rtt: Some(rtt.max),
        packets: Some(idle.sent),
        lost_packets: Some(idle.lost.min(idle.sent)),
        outcome: Outcome::Good,
        ..Entry::new(EntryKind::Latency, from, to, time)
    })
}

/// Returns the hops from the client to the server.
fn path_entry(report: &PathReport, names: &HostNames, time: Duration) -> Option<Entry> {
    let trace = report.traces.iter().find(|trace| trace.protocol == TraceProtocol::Tcp).or(report.traces.first())?;
    let mut hops = Vec::new();
    for hop in &trace.hops {
        hops.resize(usize::from(hop.ttl.saturating_sub(1)).max(hops.len()), String::new());
        hops.push(hop.nodes.first().map(|node| node.address.to_string()).unwrap_or_default());
    }
    let entry = Entry::new(EntryKind::Path, &*names.near, &*names.far, time);
    (!hops.is_empty()).then_some(Entry { hops, outcome: Outcome::Good, ..entry })
}
