//! What a test came to, beside what was predicted, and why.

use std::time::Duration;

use lfn_core::diagnose::Evidence;
use lfn_core::iperf3::Protocol;
use lfn_core::report::Finding;
use lfn_core::tcp_model::Limit;
use lfn_core::units::{BitRate, show_duration};

use super::ends::{end, server};
use super::host::hosts;
use super::layout::{paragraphs, round, wrapped};
use crate::print::terminal::breaks_at;
use crate::print::test::Run;

pub(super) fn summary(run: &Run, sender: &str, receiver: &str) -> String {
    // Of an iperf3 server's datagrams only the totals are known.
    if run.measurement.request.udp.is_some() && run.iperf3.is_none() {
        return super::udp::summary(run, sender, receiver);
    }
    let evidence = &run.evidence;
    let mut page = String::new();
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    let whole = format!("{} over all {}", evidence.goodput, show_duration(evidence.elapsed));
    // Of an iperf3 server's datagrams: they fill no window and know no start-up.
    let datagrams = run.iperf3.as_ref().filter(|iperf3| iperf3.protocol == Protocol::Udp);
    line("goodput", whole + &datagrams.map_or_else(|| past_start_up(evidence), |_| String::new()));
    if let Some(predicted) = run.predicted {
        let measured = evidence.judged_goodput().as_f64() / predicted.goodput.as_f64().max(1.0);
        let limit = match predicted.limit {
            Limit::Capacity => "capacity",
            Limit::ReceiveWindow => "the receive window",
            Limit::SendBuffer => "the send buffer",
            Limit::Pacing => "pacing",
            Limit::Loss => "loss",
            Limit::Asked => "the rate asked",
        };
        let between = run.expected.as_ref().map(|all| format!(" ({} to {})", all.least, all.most)).unwrap_or_default();
        line(
            "predicted",
            format!("{}{between}, limited by {limit}; {:.1} % of it measured", predicted.goodput, measured * 100.0),
        );
    }
    if datagrams.is_none() {
        let bdp = evidence.judged_goodput().times(evidence.base_rtt);
        line("in flight", format!("{}: goodput x least RTT, {}", bdp.decimal(), show_duration(evidence.base_rtt)));
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
    page += &paragraphs(&verdict, breaks_at());
    page += &run.iperf3.as_ref().map(super::iperf3::printed).unwrap_or_default();
    page
}

/// The goodput that is judged, and of which time it is: neither of start-up nor of the short rest that an interrupt or a
/// count leaves at the end.
fn past_start_up(evidence: &Evidence) -> String {
    const REST: Duration = Duration::from_millis(1);
    let Some(steady) = evidence.steady else { return ", no part past start-up".into() };
    let (goodput, start, end) = (steady.goodput, round(steady.start), round(steady.end));
    let (start, end) = (show_duration(start), show_duration(end));
    match (steady.start.is_zero(), evidence.elapsed.saturating_sub(steady.end) > REST) {
        (true, false) => String::new(),
        (true, true) => format!(", {goodput} over the first {end}"),
        (false, false) => format!(", {goodput} past start-up ({start})"),
        (false, true) => format!(", {goodput} past start-up ({start}) until {end}"),
    }
}

/// More than this share of what is possible is not measurement error: the capacity given was wrong.
const TOO_GOOD: f64 = 1.05;

/// `goodput A of B possible: cause. Why.` and the cure; then any further findings.
fn verdict(run: &Run) -> String {
    let goodput = run.evidence.judged_goodput();
    let possible = run.evidence.possible().map(|possible| format!(" of {possible} possible")).unwrap_or_default();
    match all_of(&run.findings) {
        Some(found) => format!("goodput {goodput}{possible}: {found}"),
        None => format!("goodput {goodput}{possible}: {}\n", without_finding(run, goodput)),
    }
}

/// What was found, the most to gain first; nothing of nothing.
pub(super) fn all_of(findings: &[Finding]) -> Option<String> {
    let (first, more) = findings.split_first()?;
    let more: String = more.iter().map(|finding| format!("also: {}", because(finding))).collect();
    Some(because(first) + &more)
}

/// What there is to say of a goodput that no finding explains.
fn without_finding(run: &Run, goodput: BitRate) -> String {
    let beyond = |most: BitRate| goodput.as_f64() > TOO_GOOD * most.as_f64();
    if run.expected.as_ref().is_some_and(|expected| goodput < expected.least) {
        return "less than predicted, and nothing found that explains it".into();
    }
    let within = run.expected.as_ref().is_some_and(|expected| goodput <= expected.most);
    if !within && run.evidence.path.is_some_and(|path| beyond(path.payload_capacity())) {
        return "the path carries more than the capacity that was given".into();
    }
    if !within && run.evidence.possible().is_some_and(beyond) {
        return "more than the formulas allow a path of this loss".into();
    }
    if is_paced(run, goodput) {
        return "the pace that was asked".into();
    }
    "nothing found that holds it back".into()
}

/// Whether it is what the streams were paced to, or as near to it as headers and clocks leave.
fn is_paced(run: &Run, goodput: BitRate) -> bool {
    const NEAR: f64 = 0.9;
    let paces = run.evidence.flows.iter().map(|flow| flow.sending.pacing_asked);
    let pace = paces.map(|pace| pace.map(|pace| pace.as_f64())).sum::<Option<f64>>();
    pace.is_some_and(|pace| pace > 0.0 && goodput.as_f64() >= NEAR * pace)
}

pub(super) fn because(finding: &Finding) -> String {
    format!("{}. {}\nhint: {}\n", finding.name, finding.summary, finding.cure)
}

fn tcp(run: &Run) -> String {
    let resent = resent(run).map_or("an unknown number of segments".into(), segments);
    let again =
        resent_share(run).map(|share| format!(" ({:.3} % of what was sent)", share * 100.0)).unwrap_or_default();
    if run.measurement.sender().streams.iter().all(|stream| stream.tcp_info.is_none()) {
        return format!("the sender's kernel is not known; {resent} resent");
    }
    let scale = run.window_scale().map_or("none".into(), |scale| scale.to_string());
    let sum = |figure: fn(&lfn_core::diagnose::Flow) -> Duration| -> f64 {
        run.evidence.flows.iter().map(|flow| figure(flow).as_secs_f64()).sum()
    };
    let busy = sum(|flow| flow.busy).max(f64::MIN_POSITIVE);
    let share = |time: f64| format!("{:.0} %", (time / busy * 100.0).min(100.0));
    format!(
        "window scale {scale}, {resent} resent{again}; stopped by rwnd {}, by send buffer {}",
        share(sum(|flow| flow.rwnd_limited)),
        share(sum(|flow| flow.sndbuf_limited)),
    )
}

pub(super) fn segments(count: u64) -> String {
    if count == 1 { "1 segment".into() } else { format!("{count} segments") }
}

/// Which share of the payload bytes that were sent was sent again; nothing of none, and where a kernel does not tell.
fn resent_share(run: &Run) -> Option<f64> {
    let (mut sent, mut again) = (0u64, 0u64);
    for stream in &run.measurement.sender().streams {
        let info = stream.tcp_info.as_ref()?;
        sent = sent.saturating_add(info.sent_bytes?);
        again = again.saturating_add(info.retransmitted_bytes?);
    }
    (again > 0).then(|| again as f64 / sent.max(1) as f64)
}

/// Segments sent again in the whole test, if the sender tells.
pub fn resent(run: &Run) -> Option<u64> {
    let streams = &run.measurement.sender().streams;
    let told = streams.iter().filter_map(|stream| Some(u64::from(stream.tcp_info.as_ref()?.retransmitted_segments)));
    told.reduce(|a, b| a + b).or(run.iperf3.as_ref().and_then(|iperf3| iperf3.retransmits))
}

#[cfg(test)]
mod tests {
    use lfn_core::diagnose::Flow;
    use lfn_core::path::PathProfile;
    use lfn_core::wire::test::{EndReport, Interval, SocketReport, TestRequest};
    use lfn_net::tester::Measurement;

    use super::*;

    /// Received in seconds, and in a rest of 0.4 s.
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
        Evidence::new(None, rtt, None, ("near", &EndReport::default()), ("far", &report), "far")
    }

    #[test]
    fn of_two_goodputs_it_is_said_of_which_time_they_are() {
        let told = |bytes: &[u64], rest| past_start_up(&received(bytes, rest));
        assert_eq!(told(&[1_000_000; 3], None), "");
        assert_eq!(told(&[250_000, 1_000_000, 1_000_000], None), ", 8 Mb/s past start-up (1 s)");
        // An interrupt in the middle of an interval: the two goodputs are not of the same time.
        assert_eq!(told(&[1_000_000; 3], Some(100_000)), ", 8 Mb/s over the first 3 s");
        assert_eq!(told(&[250_000, 1_000_000, 1_000_000], Some(100_000)), ", 8 Mb/s past start-up (1 s) until 3 s");
        assert_eq!(told(&[1_000_000], None), ", no part past start-up");
    }

    #[test]
    fn where_nothing_was_found_it_is_said_whether_anything_was_to_be() {
        let told = |goodput: u64, pace: Option<u64>, capacity: Option<u64>| {
            let mut evidence = received(&[1_000_000; 3], None);
            (evidence.goodput, evidence.steady) = (BitRate(goodput), None);
            evidence.path = capacity.map(|rate| PathProfile::new(BitRate(rate), Duration::from_millis(10)));
            let sending = SocketReport { pacing_asked: pace.map(BitRate), ..SocketReport::default() };
            evidence.flows = vec![Flow { sending, ..Flow::default() }];
            let ends = (EndReport::default(), EndReport::default());
            let measurement = Measurement::new(TestRequest::default(), Duration::ZERO, ends.0, ends.1);
            let mut run = Run::new(measurement, evidence);
            run.findings.clear();
            verdict(&run)
        };
        assert_eq!(told(5_000_000, None, None), "goodput 5 Mb/s: nothing found that holds it back\n");
        assert_eq!(told(5_000_000, Some(5_000_000), None), "goodput 5 Mb/s: the pace that was asked\n");
        assert_eq!(told(2_000_000, Some(5_000_000), None), "goodput 2 Mb/s: nothing found that holds it back\n");
        let paced = told(4_900_000, Some(5_000_000), Some(20_000_000));
        assert_eq!(paced, "goodput 4.9 Mb/s of 19.13 Mb/s possible: the pace that was asked\n");
        let less = told(9_000_000, None, Some(20_000_000));
        assert!(less.ends_with("possible: less than predicted, and nothing found that explains it\n"), "{less}");
        let more = told(25_000_000, None, Some(20_000_000));
        assert!(more.ends_with("possible: the path carries more than the capacity that was given\n"), "{more}");
    }
}
