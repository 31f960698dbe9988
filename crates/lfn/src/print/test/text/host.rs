//! The lines of the hosts: what each did beside moving the data, how well their clocks agree, and what they have to say.
//! Short, because all of it is in the JSON: an interface that is quiet and a queue that drops nothing are not worth a word.

use std::time::Duration;

use lfn_core::diagnose::Host;
use lfn_core::host::{Level, ThreadTime};
use lfn_core::units::show_duration;
use lfn_core::wire::test::EndReport;

use super::layout::wrapped;
use crate::print::test::Run;

/// Labelled lines of both hosts, the sender's first.
pub(super) fn hosts(run: &Run) -> String {
    let (sender, receiver) = (run.measurement.sender(), run.measurement.receiver());
    let ends = [(&run.evidence.sender, sender), (&run.evidence.receiver, receiver)];
    let mut page: String =
        ends.iter().filter_map(|(host, report)| Some(wrapped("host", &line(host, report)?))).collect();
    if let Some(clock) = run.measurement.clock {
        page += &wrapped("clocks", &format!("laid on each other within {}", show_duration(clock.error)));
    }
    for (host, report) in ends {
        for note in &report.notes {
            let label = if note.level == Level::Error { "error" } else { "note" };
            page += &wrapped(label, &format!("{}: {}", host.name, note.message));
        }
    }
    page
}

/// What one host did; nothing of one that does not tell.
fn line(host: &Host, report: &EndReport) -> Option<String> {
    let told = report.host.as_ref()?;
    let mut parts = Vec::new();
    if let Some(interface) = &told.interface {
        let rate = interface.rate.map(|rate| format!(", {rate}")).unwrap_or_default();
        parts.push(format!("{} (MTU {}{rate})", interface.name, interface.mtu_bytes));
    }
    if let Some((busy, packets)) = told.processors_at_work() {
        let all = told.processors.len();
        parts.push(format!("{busy:.1} of {all} processors busy, {packets:.2} on packets"));
    }
    parts.extend(waited(report));
    parts.extend(dropped(report));
    if let Some(segments) = told.counter("Tcp.RetransSegs").filter(|segments| *segments > 0) {
        parts.push(format!("{} resent by the whole host", super::summary::segments(segments.unsigned_abs())));
    }
    if let Some((others, _)) = host.others.filter(|(others, all)| others.as_f64() > 0.05 * all.as_f64()) {
        parts.push(format!("{others} of other traffic"));
    }
    Some(format!("{}: {}", host.name, parts.join("; ")))
}

/// How long the load's threads waited for a processor, where that is much.
fn waited(report: &EndReport) -> Option<String> {
    let threads: Vec<&ThreadTime> = report.streams.iter().filter_map(|stream| stream.thread.as_ref()).collect();
    let waited: Duration = threads.iter().filter_map(|thread| thread.waited).sum();
    let share = waited.as_secs_f64() / (report.elapsed.as_secs_f64() * threads.len() as f64).max(f64::MIN_POSITIVE);
    (!threads.is_empty() && share >= 0.1)
        .then(|| format!("load waited for a processor {:.0} % of the time", share.min(1.0) * 100.0))
}

/// What its queueing disciplines and its interface dropped.
fn dropped(report: &EndReport) -> Option<String> {
    let told = report.host.as_ref()?;
    let queue = told.qdiscs.iter().max_by_key(|qdisc| qdisc.counters.dropped_packets);
    let mut drops = Vec::new();
    if let Some(qdisc) = queue.filter(|qdisc| qdisc.counters.dropped_packets > 0) {
        drops.push(format!("{} dropped by {}", qdisc.counters.dropped_packets, qdisc.kind));
    }
    if let Some(interface) = &told.interface {
        let counters = interface.counters;
        let missed = counters.received_missed + counters.sent_dropped + counters.sent_errors + counters.received_errors;
        drops.extend((missed > 0).then(|| format!("{missed} dropped by the interface")));
    }
    (!drops.is_empty()).then(|| drops.join(", "))
}
