//! Summary of a test: its figures, the prediction and the findings.

use std::time::Duration;

use lfn_core::diagnose::{Evidence, VerdictLimit};
use lfn_core::iperf3::LoadProtocol;
use lfn_core::report::StoredFinding;
use lfn_core::tcp_model::GoodputLimit;
use lfn_core::units::show_duration;

use super::ends::{end, server};
use super::host::hosts;
use super::layout::{paragraphs, round, wrapped};
use crate::print::measure::TestRun;
use crate::print::terminal::wrap_columns;

pub(super) fn summary(run: &TestRun, sender: &str, receiver: &str) -> String {
    // An iperf3 server reports only totals of datagrams.
    if run.measurement.request.udp.is_some() && run.iperf3.is_none() {
        return super::udp::summary(run, sender, receiver);
    }
    let evidence = &run.evidence;
    // Datagrams of an iperf3 server have no window and no start-up.
    let datagrams = run.iperf3.as_ref().filter(|iperf3| iperf3.protocol == LoadProtocol::Udp);
    let verdict = match datagrams {
        Some(iperf3) => super::iperf3::verdict(iperf3, &run.findings, evidence.goodput),
        None => verdict(run),
    };
    let mut page = format!("{}\n", paragraphs(&verdict, wrap_columns()));
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    let whole = format!("{} over all {}", evidence.goodput, show_duration(evidence.elapsed));
    line("goodput", whole + &datagrams.map_or_else(|| past_start_up(evidence), |_| String::new()));
    if let Some(predicted) = run.predicted {
        let measured = evidence.steady_goodput().as_f64() / predicted.goodput.as_f64().max(1.0);
        let limit = match predicted.limit {
            GoodputLimit::Capacity => "capacity",
            GoodputLimit::ReceiveWindow => "the receive window",
            GoodputLimit::SendBuffer => "the send buffer",
            GoodputLimit::Pacing => "pacing",
            GoodputLimit::Loss => "loss",
            GoodputLimit::RequestedRate => "the requested rate",
        };
        let between = run.expected.as_ref().map(|all| format!(" ({} to {})", all.min, all.max)).unwrap_or_default();
        line(
            "predicted",
            format!("{}{between}, limited by {limit}; measured {:.1} % of it", predicted.goodput, measured * 100.0),
        );
    }
    if datagrams.is_none() {
        let bdp = evidence.steady_goodput().times(evidence.base_rtt);
        line("in flight", format!("{}: goodput x base RTT of {}", bdp.decimal(), show_duration(evidence.base_rtt)));
    }
    line("sender", end(sender, run.measurement.sender(), true));
    line("receiver", end(receiver, run.measurement.receiver(), false));
    if let Some(server) = server(&run.measurement.far) {
        line("server", server);
    }
    if datagrams.is_none() {
        line("TCP", tcp(run));
    }
    page += &super::load::load(run);
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    for (name, text) in run.iperf3.iter().flat_map(super::iperf3::lines) {
        line(name, text);
    }
    if let Some(path) = &run.measurement.path {
        page += &super::path::path(path);
    }
    page += &hosts(run);
    if let Some(latency) = &run.measurement.latency {
        page += &super::latency::lines(latency);
    }
    page += &run.iperf3.as_ref().map(super::iperf3::printed).unwrap_or_default();
    page
}

/// Returns the steady goodput and its time, without start-up and without the short last interval of an interrupted or
/// counted test.
fn past_start_up(evidence: &Evidence) -> String {
    const REST: Duration = Duration::from_millis(1);
    let Some(steady) = evidence.steady else { return ", no steady part".into() };
    let (goodput, start, end) = (steady.goodput, round(steady.start), round(steady.end));
    let (start, end) = (show_duration(start), show_duration(end));
    match (steady.start.is_zero(), evidence.elapsed.saturating_sub(steady.end) > REST) {
        (true, false) => String::new(),
        (true, true) => format!(", {goodput} over the first {end}"),
        (false, false) => format!(", {goodput} in the steady part (after {start})"),
        (false, true) => format!(", {goodput} in the steady part ({start} to {end})"),
    }
}

/// Returns `goodput A of B possible:` with the limit: the first finding and its remedy, or the verdict. The other
/// findings follow.
fn verdict(run: &TestRun) -> String {
    let goodput = run.evidence.steady_goodput();
    // The prediction follows below. It contains the limit of the congestion control, which a remedy may remove.
    let capacity = run.evidence.path.map(|path| path.payload_capacity());
    let possible = capacity.map(|possible| format!(" of {possible} possible")).unwrap_or_default();
    if run.verdict.limit == VerdictLimit::Finding {
        let found = all_findings(&run.findings).unwrap_or_default();
        return format!("goodput {goodput}{possible}: {found}");
    }
    format!("goodput {goodput}{possible}: {}\n{}", run.verdict.summary, more_findings(&run.findings))
}

/// Returns all findings, the largest gain first; none without findings.
pub(super) fn all_findings(findings: &[StoredFinding]) -> Option<String> {
    let (first, more) = findings.split_first()?;
    Some(finding_text(first) + &more_findings(more))
}

/// Returns findings that are not the limit, or not the first one.
pub(super) fn more_findings(findings: &[StoredFinding]) -> String {
    findings.iter().map(|finding| format!("also: {}", finding_text(finding))).collect()
}

pub(in crate::print::measure) fn finding_text(finding: &StoredFinding) -> String {
    format!("{}. {}\nhint: {}\n", finding.name, finding.summary, finding.remedy)
}

fn tcp(run: &TestRun) -> String {
    let resent = resent(run).map_or("an unknown number of segments".into(), segments);
    let share_text =
        resent_share(run).map(|share| format!(" ({:.2} % of the sent data)", share * 100.0)).unwrap_or_default();
    if run.measurement.sender().streams.iter().all(|stream| stream.tcp_info.is_none()) {
        return format!("no figures of the sender's kernel; {resent} retransmitted");
    }
    let scale = run.window_scale().map_or("none".into(), |scale| scale.to_string());
    let sum = |figure: fn(&lfn_core::diagnose::StreamEvidence) -> Duration| -> f64 {
        run.evidence.streams.iter().map(|flow| figure(flow).as_secs_f64()).sum()
    };
    let busy = sum(|flow| flow.busy).max(f64::MIN_POSITIVE);
    let share = |time: f64| format!("{:.0} %", (time / busy * 100.0).min(100.0));
    format!(
        "window scale {scale}, {resent} retransmitted{share_text}; limited by receive window {} of the time, by send buffer {}",
        share(sum(|flow| flow.rwnd_limited)),
        share(sum(|flow| flow.sndbuf_limited)),
    )
}

pub(super) fn segments(count: u64) -> String {
    if count == 1 { "1 segment".into() } else { format!("{count} segments") }
}

/// Returns the retransmitted share of the sent payload bytes; none if it is zero or unknown.
fn resent_share(run: &TestRun) -> Option<f64> {
    let (mut sent, mut resent) = (0u64, 0u64);
    for stream in &run.measurement.sender().streams {
        let info = stream.tcp_info.as_ref()?;
        sent = sent.saturating_add(info.sent_bytes?);
        resent = resent.saturating_add(info.retransmitted_bytes?);
    }
    (resent > 0).then(|| resent as f64 / sent.max(1) as f64)
}

/// Returns the retransmitted segments of the whole test, if the sender reports them.
pub fn resent(run: &TestRun) -> Option<u64> {
    let streams = &run.measurement.sender().streams;
    let retransmitted =
        streams.iter().filter_map(|stream| Some(u64::from(stream.tcp_info.as_ref()?.retransmitted_segments)));
    retransmitted.reduce(|a, b| a + b).or(run.iperf3.as_ref().and_then(|iperf3| iperf3.retransmits))
}

#[cfg(test)]
mod tests {
    use lfn_core::diagnose::{NamedReport, Remedy, StreamEvidence};
    use lfn_core::path::PathProfile;
    use lfn_core::units::BitRate;
    use lfn_core::wire::measure::{EndReport, Interval, TestRequest};
    use lfn_net::tester::Measurement;

    use super::*;

    /// Intervals of one second, and a last one of 0.4 s.
    fn received(bytes: &[u64], rest: Option<u64>) -> Evidence {
        let second = Duration::from_secs(1);
        let mut intervals: Vec<Interval> = Vec::new();
        for (&bytes, time) in bytes.iter().zip(std::iter::repeat(second)).chain(rest.iter().zip([second * 2 / 5])) {
            let start = intervals.last().map_or(Duration::ZERO, |last| last.end);
            intervals.push(Interval { start, end: start + time, bytes, ..Interval::default() });
        }
        let elapsed = intervals.last().unwrap().end;
        let bytes = intervals.iter().map(|interval| interval.bytes).sum();
        let report = EndReport { elapsed, bytes, intervals, ..EndReport::default() };
        let rtt = Duration::from_millis(10);
        Evidence::new(
            None,
            rtt,
            None,
            NamedReport::new("near", &EndReport::default()),
            NamedReport::new("far", &report),
            "far",
        )
    }

    #[test]
    fn each_goodput_is_printed_with_its_time() {
        let goodput_text = |bytes: &[u64], rest| past_start_up(&received(bytes, rest));
        assert_eq!(goodput_text(&[1_000_000; 3], None), "");
        assert_eq!(goodput_text(&[250_000, 1_000_000, 1_000_000], None), ", 8 Mb/s in the steady part (after 1 s)");
        // Interrupted in the middle of an interval: the two goodputs cover different times.
        assert_eq!(goodput_text(&[1_000_000; 3], Some(100_000)), ", 8 Mb/s over the first 3 s");
        assert_eq!(
            goodput_text(&[250_000, 1_000_000, 1_000_000], Some(100_000)),
            ", 8 Mb/s in the steady part (1 s to 3 s)"
        );
        assert_eq!(goodput_text(&[1_000_000], None), ", no steady part");
    }

    #[test]
    fn the_verdict_comes_first_and_other_findings_after_it() {
        let mut evidence = received(&[1_000_000; 3], None);
        evidence.path = Some(PathProfile::new(BitRate(8_400_000), Duration::from_millis(10)));
        evidence.streams = vec![StreamEvidence::default()];
        let ends = (EndReport::default(), EndReport::default());
        let measurement = Measurement::new(TestRequest::default(), Duration::ZERO, ends.0, ends.1);
        let run = TestRun::new(measurement, evidence);
        let page = verdict(&run);
        assert_eq!(
            page,
            "goodput 8 Mb/s of 8.034 Mb/s possible: limited by the path, 8.4 Mb/s (no other bottleneck found)\n"
        );
        assert!(summary(&run, "near", "far").starts_with("goodput 8 Mb/s of "));
        let remedy = Remedy { command: "true".into(), host: Some("near".into()) };
        let finding = StoredFinding {
            name: "queueing".into(),
            summary: "packets wait".into(),
            evidence: Default::default(),
            remedy,
            predicted: None,
            gain: Some(BitRate(0)),
        };
        let run = TestRun { findings: vec![finding], ..run };
        assert!(verdict(&run).ends_with("\nalso: queueing. packets wait\nhint: true   # on near\n"));
    }
}
