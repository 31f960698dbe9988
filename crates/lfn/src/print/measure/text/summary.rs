//! Summary of a test: its figures, the prediction and the findings.

use std::time::Duration;

use lfn_core::diagnose::Evidence;
use lfn_core::iperf3::LoadProtocol;
use lfn_core::report::StoredFinding;
use lfn_core::tcp_model::GoodputLimit;
use lfn_core::units::{BitRate, show_duration};

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
    let mut page = String::new();
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    let whole = format!("{} over all {}", evidence.goodput, show_duration(evidence.elapsed));
    // Datagrams of an iperf3 server have no window and no start-up.
    let datagrams = run.iperf3.as_ref().filter(|iperf3| iperf3.protocol == LoadProtocol::Udp);
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
    page.push('\n');
    let verdict = match datagrams {
        Some(iperf3) => super::iperf3::verdict(iperf3, &run.findings, evidence.goodput),
        None => verdict(run),
    };
    page += &paragraphs(&verdict, wrap_columns());
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

/// Maximum measurement error: a higher share of the possible goodput means that the given capacity is too low.
const MAX_MEASUREMENT_ERROR: f64 = 1.05;

/// Returns `goodput A of B possible: cause. Summary` with the remedy, then the other findings.
fn verdict(run: &TestRun) -> String {
    let goodput = run.evidence.steady_goodput();
    let possible =
        run.evidence.possible_goodput().map(|possible| format!(" of {possible} possible")).unwrap_or_default();
    match all_findings(&run.findings) {
        Some(found) => format!("goodput {goodput}{possible}: {found}"),
        None => format!("goodput {goodput}{possible}: {}\n", without_finding(run, goodput)),
    }
}

/// Returns all findings, the largest gain first; none without findings.
pub(super) fn all_findings(findings: &[StoredFinding]) -> Option<String> {
    let (first, more) = findings.split_first()?;
    let more: String = more.iter().map(|finding| format!("also: {}", finding_text(finding))).collect();
    Some(finding_text(first) + &more)
}

/// Returns the verdict on a goodput without a finding.
fn without_finding(run: &TestRun, goodput: BitRate) -> String {
    let is_beyond = |max: BitRate| goodput.as_f64() > MAX_MEASUREMENT_ERROR * max.as_f64();
    if run.expected.as_ref().is_some_and(|expected| goodput < expected.min) {
        return "less than predicted, and no cause found".into();
    }
    let within = run.expected.as_ref().is_some_and(|expected| goodput <= expected.max);
    if !within && run.evidence.path.is_some_and(|path| is_beyond(path.payload_capacity())) {
        return "the path carries more than the given capacity".into();
    }
    if !within && run.evidence.possible_goodput().is_some_and(is_beyond) {
        return "more than the formulas predict for a path with this loss".into();
    }
    if is_limited_by_pacing(run, goodput) {
        return "limited by the requested pacing (--pacing)".into();
    }
    "limited by the path (no other bottleneck found)".into()
}

/// Returns true if the goodput is close to the pacing rate; headers and clocks take the rest.
fn is_limited_by_pacing(run: &TestRun, goodput: BitRate) -> bool {
    const NEAR: f64 = 0.9;
    let paces = run.evidence.streams.iter().map(|flow| flow.sender_socket.pacing_requested);
    let pace = paces.map(|pace| pace.map(|pace| pace.as_f64())).sum::<Option<f64>>();
    pace.is_some_and(|pace| pace > 0.0 && goodput.as_f64() >= NEAR * pace)
}

pub(super) fn finding_text(finding: &StoredFinding) -> String {
    format!("{}. {}\nhint: {}\n", finding.name, finding.summary, finding.remedy)
}

fn tcp(run: &TestRun) -> String {
    let resent = resent(run).map_or("an unknown number of segments".into(), segments);
    let share_text =
        resent_share(run).map(|share| format!(" ({:.3} % of the sent data)", share * 100.0)).unwrap_or_default();
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
    use lfn_core::diagnose::{NamedReport, StreamEvidence};
    use lfn_core::path::PathProfile;
    use lfn_core::wire::measure::{EndReport, Interval, SocketReport, TestRequest};
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
    fn without_a_finding_the_verdict_has_the_reason() {
        let verdict_of = |goodput: u64, pace: Option<u64>, capacity: Option<u64>| {
            let mut evidence = received(&[1_000_000; 3], None);
            (evidence.goodput, evidence.steady) = (BitRate(goodput), None);
            evidence.path = capacity.map(|rate| PathProfile::new(BitRate(rate), Duration::from_millis(10)));
            let sender_socket = SocketReport { pacing_requested: pace.map(BitRate), ..SocketReport::default() };
            evidence.streams = vec![StreamEvidence { sender_socket, ..StreamEvidence::default() }];
            let ends = (EndReport::default(), EndReport::default());
            let measurement = Measurement::new(TestRequest::default(), Duration::ZERO, ends.0, ends.1);
            let mut run = TestRun::new(measurement, evidence);
            run.findings.clear();
            verdict(&run)
        };
        assert_eq!(
            verdict_of(5_000_000, None, None),
            "goodput 5 Mb/s: limited by the path (no other bottleneck found)\n"
        );
        assert_eq!(
            verdict_of(5_000_000, Some(5_000_000), None),
            "goodput 5 Mb/s: limited by the requested pacing (--pacing)\n"
        );
        assert_eq!(
            verdict_of(2_000_000, Some(5_000_000), None),
            "goodput 2 Mb/s: limited by the path (no other bottleneck found)\n"
        );
        let paced = verdict_of(4_900_000, Some(5_000_000), Some(20_000_000));
        assert_eq!(paced, "goodput 4.9 Mb/s of 19.13 Mb/s possible: limited by the requested pacing (--pacing)\n");
        let less = verdict_of(9_000_000, None, Some(20_000_000));
        assert!(less.ends_with("possible: less than predicted, and no cause found\n"), "{less}");
        let more = verdict_of(25_000_000, None, Some(20_000_000));
        assert!(more.ends_with("possible: the path carries more than the given capacity\n"), "{more}");
    }
}
