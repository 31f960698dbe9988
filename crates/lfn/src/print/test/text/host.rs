//! Lines of the hosts: their activity besides the load, the error of their clocks, and their notes. The lines are
//! short, because JSON has all figures.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_results::evidence::figures::{Figures, HostFigures};
use lfn_results::host::{NoteLevel, ThreadTime};
use lfn_results::measure::EndReport;
use lfn_results::report::Run;

use super::layout::{segments, wrapped};

/// Returns the labelled lines of both hosts, the sender first.
pub(super) fn hosts(run: &Run) -> String {
    let (sender, receiver) = (run.evidence.sender(), run.evidence.receiver());
    let figures = Figures::of(&run.evidence);
    let ends = [(&figures.sender, sender), (&figures.receiver, receiver)];
    let mut page: String =
        ends.iter().filter_map(|(host, report)| Some(wrapped("host", &line(host, report)?))).collect();
    if let Some(clock) = run.evidence.clock {
        page += &wrapped("clocks", &format!("offset known to ±{}", show_duration(clock.error)));
    }
    for (host, report) in ends {
        for note in &report.notes {
            let label = if note.level == NoteLevel::Error { "error" } else { "note" };
            page += &wrapped(label, &format!("{}: {}", host.name, note.message));
        }
    }
    page
}

/// Returns the figures of one host; none if the host does not report them.
fn line(host: &HostFigures, report: &EndReport) -> Option<String> {
    let figures = report.host.as_ref()?;
    let mut parts = Vec::new();
    if let Some(interface) = &figures.interface {
        let rate = interface.rate.map(|rate| format!(", {rate}")).unwrap_or_default();
        parts.push(format!("{} (MTU {}{rate})", interface.name, interface.mtu_bytes));
    }
    if let Some((busy, packets)) = figures.processors_at_work() {
        let all = figures.processors.len();
        parts.push(format!("{busy:.1} of {all} CPUs busy, {packets:.2} of them on packets"));
    }
    parts.extend(waited(report));
    parts.extend(dropped(report));
    if let Some(count) = figures.counter("Tcp.RetransSegs").filter(|count| *count > 0) {
        parts.push(format!("{} retransmitted by the whole host", segments(count.unsigned_abs())));
    }
    if let Some((others, _)) = host.other_traffic.filter(|(others, all)| others.as_f64() > 0.05 * all.as_f64()) {
        parts.push(format!("{others} of other traffic"));
    }
    Some(format!("{}: {}", host.name, parts.join("; ")))
}

/// Returns the time that the load's threads waited for a CPU, if it is long.
fn waited(report: &EndReport) -> Option<String> {
    let threads: Vec<&ThreadTime> = report.streams.iter().filter_map(|stream| stream.thread.as_ref()).collect();
    let waited: Duration = threads.iter().filter_map(|thread| thread.waited).sum();
    let share = waited.as_secs_f64() / (report.elapsed.as_secs_f64() * threads.len() as f64).max(f64::MIN_POSITIVE);
    (!threads.is_empty() && share >= 0.1)
        .then(|| format!("the load waited for a CPU {:.0} % of the time", share.min(1.0) * 100.0))
}

/// Returns the drops of the queueing disciplines and of the interface.
fn dropped(report: &EndReport) -> Option<String> {
    let figures = report.host.as_ref()?;
    let queue = figures.qdiscs.iter().max_by_key(|qdisc| qdisc.counters.dropped_packets);
    let mut drops = Vec::new();
    if let Some(qdisc) = queue.filter(|qdisc| qdisc.counters.dropped_packets > 0) {
        drops.push(format!("{} dropped by {}", qdisc.counters.dropped_packets, qdisc.kind));
    }
    if let Some(interface) = &figures.interface {
        let counters = interface.counters;
        let missed = counters.received_missed + counters.sent_dropped + counters.sent_errors + counters.received_errors;
        drops.extend((missed > 0).then(|| format!("{missed} dropped by the interface")));
    }
    (!drops.is_empty()).then(|| drops.join(", "))
}
