//! Analysis of captures as text: the capture, one block for each connection, then the totals.

use std::time::Duration;

use lfn_api::documents::{
    CaptureCounts, LimitTotal, TraceDocument, TraceTotals, TracedConnection, TracedMptcp, TracedSubflow,
};
use lfn_api::trace::limit_phrase;
use lfn_base::units::{Bytes, show_duration};
use lfn_results::diagnose::{Diagnosis, Finding, VerdictLimit};
use lfn_results::evidence::capture::{CaptureEvidence, CapturePoint, Period, PeriodLimit};

use super::pair;
use super::share::limit_and_share;
use crate::print::label_columns::{Page, wrap};
use crate::print::settings::is_quiet;
use crate::print::terminal::columns;
use crate::print::{counted, grouped};

/// Periods that the line of periods names.
const MAX_PERIODS: usize = 8;

/// Returns the whole text, with the blocks of the largest connections.
pub(super) fn page(document: &TraceDocument, connections: usize) -> String {
    let mut page = Page::default();
    page.row("capture", capture(&document.capture));
    if let Some(others) = other_packets(&document.capture) {
        page.row("", others);
    }
    page.gap();
    if let Some(pair) = &document.pair {
        pair::add(&mut page, pair);
    }
    add_connections(&mut page, document, connections);
    if document.capture.connections != 1 {
        add_totals(&mut page, &document.totals);
    }
    page.text().trim_end().to_owned() + "\n"
}

/// Adds the blocks of the largest connections. The subflows of an MPTCP connection stand together beneath its heading.
fn add_connections(page: &mut Page, document: &TraceDocument, count: usize) {
    let mut left = count.min(document.connections.len());
    let mut printed: Vec<u64> = Vec::new();
    for connection in &document.connections {
        if left == 0 {
            break;
        }
        let Some(subflow) = &connection.mptcp else {
            add_connection(page, connection);
            left -= 1;
            continue;
        };
        if printed.contains(&subflow.connection) {
            continue;
        }
        printed.push(subflow.connection);
        if let Some(mptcp) = document.mptcp_connections.iter().find(|mptcp| mptcp.number == subflow.connection) {
            paragraph(page, &mptcp_heading(mptcp));
            page.gap();
        }
        let of_same = |other: &&TracedConnection| {
            other.mptcp.as_ref().is_some_and(|other| other.connection == subflow.connection)
        };
        let mut subflows: Vec<&TracedConnection> = document.connections.iter().filter(of_same).take(left).collect();
        left -= subflows.len();
        subflows.sort_by_key(|connection| connection.mptcp.as_ref().map(|subflow| subflow.subflow));
        for subflow in subflows {
            add_connection(page, subflow);
        }
    }
    let (listed, all) = (document.connections.len(), document.capture.connections);
    let shown = count.min(listed);
    if shown < listed {
        let more = grouped((listed - shown) as u64);
        page.row("more", format!("{more} not printed: --connections {listed} prints all"));
    }
    if (listed as u64) < all {
        let (listed, all) = (grouped(listed as u64), grouped(all));
        page.row("listed", format!("{listed} of {all} connections listed: those with the most payload"));
    }
}

/// Returns the line above the subflows of an MPTCP connection.
fn mptcp_heading(mptcp: &TracedMptcp) -> String {
    let subflows = counted(mptcp.subflows, "subflow");
    let limit = mptcp.limit.map(|limit| format!(", mostly limited by {}", limit_phrase(limit))).unwrap_or_default();
    let token = mptcp.server_token.as_ref().or(mptcp.client_token.as_ref());
    let token = token.map(|token| format!(" (token {token})")).unwrap_or_default();
    let start = if mptcp.version.is_none() { "; the capture lacks its first handshake" } else { "" };
    let (number, goodput, payload) = (mptcp.number, mptcp.goodput, mptcp.payload.decimal());
    let time = show_duration(rounded(mptcp.duration));
    format!("MPTCP connection {number}{token}: {subflows}, goodput {goodput}, {payload} in {time}{limit}{start}")
}

fn capture(counts: &CaptureCounts) -> String {
    let time = match (counts.first, counts.last) {
        (Some(first), Some(last)) => format!(" in {}", show_duration(rounded(last.saturating_sub(first)))),
        _ => String::new(),
    };
    let (packets, connections) = (counted(counts.packets, "packet"), counted(counts.connections, "connection"));
    format!("{packets}{time}, {}, {connections}", Bytes(counts.bytes).decimal())
}

/// Returns the packets that are not analysed, and those that the capture missed.
fn other_packets(counts: &CaptureCounts) -> Option<String> {
    let mut parts = Vec::new();
    let others: Vec<String> = counts
        .protocols
        .iter()
        .filter(|protocol| protocol.name != "TCP")
        .map(|protocol| format!("{} {} ({})", protocol.packets, protocol.name, Bytes(protocol.bytes).decimal()))
        .collect();
    if !others.is_empty() {
        parts.push(format!("not analysed: {}", others.join(", ")));
    }
    if counts.excluded > 0 {
        parts.push(format!("excluded: {} TCP", counts.excluded));
    }
    if counts.fragments > 0 {
        parts.push(format!("{} fragments", counts.fragments));
    }
    if let Some(dropped) = counts.dropped.filter(|dropped| *dropped > 0) {
        parts.push(format!("missed by the capture: {}", counted(dropped, "packet")));
    }
    if let Some(first) = counts.first_time_step_back {
        let count = counted(counts.time_steps_back, "packet");
        parts.push(format!(
            "time runs backwards by 1 s or more at {count}, first at packet {first}: times and rates may be wrong"
        ));
    }
    if counts.evicted_connections > 0 {
        parts.push(format!("{} idle connections closed early: too many were open", counts.evicted_connections));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn add_connection(page: &mut Page, connection: &TracedConnection) {
    let TracedConnection { number, client, server, goodput, evidence, diagnosis, .. } = connection;
    let (sender, receiver) =
        if evidence.sender.is_empty() { (client, server) } else { (&evidence.sender, &evidence.receiver) };
    let subflow = connection.mptcp.as_ref().map(subflow_label).unwrap_or_default();
    paragraph(page, &format!("connection {number}{subflow}: {sender} to {receiver}"));
    let verdict = &diagnosis.verdict.summary;
    paragraph(page, &format!("goodput {goodput}: {verdict}"));
    for (at, finding) in diagnosis.findings.iter().enumerate() {
        let is_limit = at == 0 && diagnosis.verdict.limit == VerdictLimit::Finding;
        add_finding(page, finding, if is_limit { "" } else { "also: " });
    }
    page.row("payload", payload(evidence));
    page.row("path", path(evidence));
    if let Some(shares) = shares(evidence) {
        page.row("time", shares);
    }
    if let Some(periods) = periods(&evidence.periods) {
        page.row("periods", periods);
    }
    if let Some(hidden) = hidden(diagnosis) {
        page.row("hidden", hidden);
    }
    if let Some(unseen) = unseen(evidence, diagnosis) {
        page.row("not visible", unseen);
    }
    page.gap();
}

fn subflow_label(subflow: &TracedSubflow) -> String {
    let (connection, number) = (subflow.connection, subflow.subflow);
    let joined = if subflow.is_joined { ", joined" } else { "" };
    format!(" (subflow {number} of MPTCP connection {connection}{joined})")
}

/// Adds a text from the first column on, wrapped.
fn paragraph(page: &mut Page, text: &str) {
    page.commands(wrap(text, columns()));
}

/// Adds a finding and its remedy. The remedy is not wrapped, so that it can be pasted.
fn add_finding(page: &mut Page, finding: &Finding, label: &str) {
    let confidence =
        finding.confidence.map(|confidence| format!(" (confidence: {})", confidence.name())).unwrap_or_default();
    paragraph(page, &format!("{label}{}. {}{confidence}", finding.name, finding.summary));
    if !finding.remedy.command.is_empty() && !is_quiet() {
        page.commands([format!("hint: {}", finding.remedy)]);
    }
}

fn payload(evidence: &CaptureEvidence) -> String {
    let back = match evidence.reverse_payload {
        Bytes(0) => String::new(),
        back => format!(", {} in the other direction", back.decimal()),
    };
    let active = if evidence.active + Duration::from_millis(1) < evidence.duration && !evidence.active.is_zero() {
        format!(", active for {}", show_duration(rounded(evidence.active)))
    } else {
        String::new()
    };
    format!("{} in {}{active}{back}", evidence.payload.decimal(), show_duration(rounded(evidence.duration)))
}

fn path(evidence: &CaptureEvidence) -> String {
    let rtt = &evidence.rtt;
    let rtt = if rtt.base.is_zero() {
        "RTT unknown".to_owned()
    } else {
        let median =
            if rtt.median.is_zero() { String::new() } else { format!(", median {}", show_duration(rtt.median)) };
        format!("base RTT {}{median}", show_duration(rtt.base))
    };
    let point = match evidence.point {
        CapturePoint::Sender => ", captured at the sender",
        CapturePoint::Receiver => ", captured at the receiver",
        CapturePoint::Middle => ", captured between both ends",
        CapturePoint::Unknown => "",
    };
    let (lost, packets) = (evidence.loss.before_capture + evidence.loss.after_capture, evidence.data_packets);
    let lost = if lost == 0 { "no losses".to_owned() } else { format!("{lost} of {packets} packets lost") };
    format!("{rtt}{point}, {lost}")
}

/// Returns the share of the time of each limit.
fn shares(evidence: &CaptureEvidence) -> Option<String> {
    let mut totals: Vec<(PeriodLimit, Duration)> = Vec::new();
    for period in &evidence.periods {
        let time = period.end.saturating_sub(period.start);
        match totals.iter_mut().find(|(limit, _)| *limit == period.limit) {
            Some((_, total)) => *total += time,
            None => totals.push((period.limit, time)),
        }
    }
    let all: Duration = totals.iter().map(|(_, time)| *time).sum();
    totals.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    share_list(totals.iter().map(|(limit, time)| (*limit, *time)), all)
}

fn share_list(totals: impl Iterator<Item = (PeriodLimit, Duration)>, all: Duration) -> Option<String> {
    let seconds = all.as_secs_f64();
    let share = |time: Duration| if seconds > 0.0 { time.as_secs_f64() / seconds } else { 0.0 };
    let parts: Vec<String> = totals.map(|(limit, time)| limit_and_share(limit, share(time))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the periods in order; the longest ones if there are many.
fn periods(periods: &[Period]) -> Option<String> {
    let mut shown: Vec<&Period> = periods.iter().collect();
    shown.sort_by_key(|period| std::cmp::Reverse(period.end.saturating_sub(period.start)));
    shown.truncate(MAX_PERIODS);
    shown.sort_by_key(|period| period.start);
    let parts: Vec<String> = shown
        .iter()
        .map(|period| {
            let (start, end) = (show_duration(rounded(period.start)), show_duration(rounded(period.end)));
            format!("{} {start} to {end}", period.limit.name())
        })
        .collect();
    let label = if periods.len() > shown.len() { format!("the longest of {}: ", periods.len()) } else { String::new() };
    (!parts.is_empty()).then(|| format!("{label}{}", parts.join(", ")))
}

/// Returns the causes that another cause hides.
fn hidden(diagnosis: &Diagnosis) -> Option<String> {
    let parts: Vec<String> =
        diagnosis.hidden.iter().map(|hidden| format!("{} (behind {})", hidden.cause, hidden.behind)).collect();
    (!parts.is_empty()).then(|| format!("cannot be seen: {}", parts.join(", ")))
}

/// Returns the facts that this capture does not show.
fn unseen(evidence: &CaptureEvidence, diagnosis: &Diagnosis) -> Option<String> {
    let (handshake, faults) = (&evidence.handshake, &evidence.faults);
    let mut parts = Vec::new();
    if !handshake.is_complete {
        parts.push(match (handshake.window_scale, handshake.is_scale_inferred) {
            (Some(scale), true) => format!("the handshake; window scale {scale} was inferred"),
            _ => "the handshake".to_owned(),
        });
    }
    if faults.is_one_way {
        parts.push("packets of the other direction".to_owned());
    }
    if faults.missed > Bytes(0) {
        parts.push(format!("{} of payload that the capture missed", faults.missed.decimal()));
    }
    if faults.truncated_options > 0 {
        parts.push(format!("TCP options of {} packets (capture with -s 128)", faults.truncated_options));
    }
    if faults.captured_twice > 0 {
        parts.push(format!("a second copy of {} packets, which count once", faults.captured_twice));
    }
    for missing in &diagnosis.missing {
        parts.push(format!("{} (for {})", missing.evidence, missing.findings.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn add_totals(page: &mut Page, totals: &TraceTotals) {
    page.row("all", &totals.summary);
    page.row("sum", sums(totals));
    let all: Duration = totals.limits.iter().map(|LimitTotal { time, .. }| *time).sum();
    if let Some(shares) = share_list(totals.limits.iter().map(|total| (total.limit, total.time)), all) {
        page.row("time", shares);
    }
    let causes: Vec<String> = totals
        .causes
        .iter()
        .map(|cause| {
            let (name, count) = (&cause.name, cause.connections);
            format!("{name} {count} ({}, {})", show_duration(rounded(cause.time)), cause.payload.decimal())
        })
        .collect();
    if !causes.is_empty() {
        page.row("causes", causes.join(", "));
    }
}

/// Returns the sums over all connections.
fn sums(totals: &TraceTotals) -> String {
    let (connections, packets) = (counted(totals.connections, "connection"), counted(totals.packets, "packet"));
    let resent = counted(totals.retransmissions, "retransmission");
    let (payload, lost) = (totals.payload.decimal(), grouped(totals.lost_packets));
    format!("{connections}, {payload} of payload, {packets}, {lost} lost, {resent}")
}

/// Returns the time without figures below a microsecond, and without those below a millisecond from a second on.
fn rounded(time: Duration) -> Duration {
    let unit = if time >= Duration::from_secs(1) { 1_000_000 } else { 1_000 };
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(nanos / unit * unit)
}
