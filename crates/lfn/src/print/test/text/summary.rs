//! Summary of a test: its figures, the prediction and the findings.

use std::time::Duration;

use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::show_duration;
use lfn_results::diagnose::VerdictLimit;
use lfn_results::evidence::figures::{Figures, StreamFigures};
use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::report::Run;

use super::ends::{end, server};
use super::findings::{all_findings, missing_evidence, more_findings};
use super::host::hosts;
use super::layout::{paragraphs, round, segments, wrapped};
use crate::print::terminal::wrap_columns;

pub(super) fn summary(run: &Run, sender: &str, receiver: &str) -> String {
    // An iperf3 server reports only totals of datagrams.
    if run.evidence.request.udp.is_some() && run.evidence.iperf3.is_none() {
        return super::udp::summary(run, sender, receiver);
    }
    // Datagrams of an iperf3 server have no window and no start-up.
    let datagrams = run.evidence.iperf3.as_ref().filter(|iperf3| iperf3.protocol == LoadProtocol::Udp);
    let verdict = match datagrams {
        Some(iperf3) => super::iperf3::verdict(iperf3, &run.diagnosis.findings, run.goodput),
        None => verdict(run),
    };
    let verdict = verdict + &missing_evidence(run);
    let mut page = format!("{}\n", paragraphs(&verdict, wrap_columns()));
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    let whole = format!("{} over all {}", run.goodput, show_duration(run.elapsed));
    line("goodput", whole + &datagrams.map_or_else(|| past_start_up(run), |_| String::new()));
    if let Some(predicted) = run.diagnosis.predicted {
        let measured = run.steady_goodput.as_f64() / predicted.goodput.as_f64().max(1.0);
        let limit = match predicted.limit {
            GoodputLimit::Capacity => "capacity",
            GoodputLimit::ReceiveWindow => "the receive window",
            GoodputLimit::SendBuffer => "the send buffer",
            GoodputLimit::Pacing => "pacing",
            GoodputLimit::Loss => "loss",
            GoodputLimit::Lockstep => "lock-step",
            GoodputLimit::RequestedRate => "the requested rate",
        };
        let between =
            run.diagnosis.expected.as_ref().map(|all| format!(" ({} to {})", all.min, all.max)).unwrap_or_default();
        line(
            "predicted",
            format!("{}{between}, limited by {limit}; measured {:.1} % of it", predicted.goodput, measured * 100.0),
        );
    }
    if datagrams.is_none() {
        let bdp = run.measured_bdp.decimal();
        line("in flight", format!("{bdp}: goodput x base RTT of {}", show_duration(run.base_rtt)));
    }
    line("sender", end(sender, run.evidence.sender(), true));
    line("receiver", end(receiver, run.evidence.receiver(), false));
    if let Some(server) = server(&run.evidence.far) {
        line("server", server);
    }
    if datagrams.is_none() {
        line("TCP", tcp(run));
    }
    page += &super::load::load(run);
    let mut line = |name: &str, text: String| page += &wrapped(name, &text);
    for (name, text) in run.evidence.iperf3.iter().flat_map(super::iperf3::lines) {
        line(name, text);
    }
    if let Some(path) = &run.evidence.path_report {
        page += &super::path::path(path);
    }
    page += &hosts(run);
    if let Some(latency) = &run.evidence.latency {
        page += &super::latency::lines(latency);
    }
    page += &run.evidence.iperf3.as_ref().map(super::iperf3::printed).unwrap_or_default();
    page
}

/// Returns the steady goodput and its time, without start-up and without the short last interval of an interrupted or
/// counted test.
fn past_start_up(run: &Run) -> String {
    const REST: Duration = Duration::from_millis(1);
    let Some(steady) = run.steady else { return ", no steady part".into() };
    let (goodput, start, end) = (steady.goodput, round(steady.start), round(steady.end));
    let (start, end) = (show_duration(start), show_duration(end));
    match (steady.start.is_zero(), run.elapsed.saturating_sub(steady.end) > REST) {
        (true, false) => String::new(),
        (true, true) => format!(", {goodput} over the first {end}"),
        (false, false) => format!(", {goodput} in the steady part (after {start})"),
        (false, true) => format!(", {goodput} in the steady part ({start} to {end})"),
    }
}

/// Returns `goodput A of B possible:` with the limit: the first finding and its remedy, or the verdict. The other
/// findings follow.
fn verdict(run: &Run) -> String {
    let goodput = run.steady_goodput;
    // The prediction follows below. It contains the limit of the congestion control, which a remedy may remove.
    let capacity = run.evidence.path.map(|path| path.payload_capacity());
    let possible = capacity.map(|possible| format!(" of {possible} possible")).unwrap_or_default();
    if run.diagnosis.verdict.limit == VerdictLimit::Finding {
        let found = all_findings(&run.diagnosis.findings).unwrap_or_default();
        return format!("goodput {goodput}{possible}: {found}");
    }
    format!(
        "goodput {goodput}{possible}: {}\n{}",
        run.diagnosis.verdict.summary,
        more_findings(&run.diagnosis.findings)
    )
}

fn tcp(run: &Run) -> String {
    let resent = run.retransmits.map_or("an unknown number of segments".into(), segments);
    let share_text =
        resent_share(run).map(|share| format!(" ({:.2} % of the sent data)", share * 100.0)).unwrap_or_default();
    if run.evidence.sender().streams.iter().all(|stream| stream.tcp_info.is_none()) {
        return format!("no figures of the sender's kernel; {resent} retransmitted");
    }
    let scale = run.window_scale.map_or("none".into(), |scale| scale.to_string());
    let streams = Figures::of(&run.evidence).streams;
    let sum =
        |figure: fn(&StreamFigures) -> Duration| -> f64 { streams.iter().map(|flow| figure(flow).as_secs_f64()).sum() };
    let busy = sum(|flow| flow.busy).max(f64::MIN_POSITIVE);
    let share = |time: f64| format!("{:.0} %", (time / busy * 100.0).min(100.0));
    format!(
        "window scale {scale}, {resent} retransmitted{share_text}; limited by receive window {} of the time, by send buffer {}",
        share(sum(|flow| flow.rwnd_limited)),
        share(sum(|flow| flow.sndbuf_limited)),
    )
}

/// Returns the retransmitted share of the sent payload bytes; none if it is zero or unknown.
fn resent_share(run: &Run) -> Option<f64> {
    let (mut sent, mut resent) = (0u64, 0u64);
    for stream in &run.evidence.sender().streams {
        let info = stream.tcp_info.as_ref()?;
        sent = sent.saturating_add(info.sent_bytes?);
        resent = resent.saturating_add(info.retransmitted_bytes?);
    }
    (resent > 0).then(|| resent as f64 / sent.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use lfn_base::path::PathProfile;
    use lfn_base::units::BitRate;
    use lfn_results::diagnose::{Finding, Remedy};
    use lfn_results::evidence::Evidence;
    use lfn_results::measure::{EndReport, Interval, StreamReport, TestRequest};

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
        Evidence::of_test(TestRequest::default(), rtt, EndReport::default(), report)
    }

    #[test]
    fn each_goodput_is_printed_with_its_time() {
        let goodput_text = |bytes: &[u64], rest| past_start_up(&Run::new(received(bytes, rest)));
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
        evidence.near.streams = vec![StreamReport::default()];
        let mut run = Run::new(evidence);
        let page = verdict(&run);
        assert_eq!(
            page,
            "goodput 8 Mb/s of 8.034 Mb/s possible: limited by the path, 8.4 Mb/s (no other bottleneck found)\n"
        );
        assert!(summary(&run, "near", "far").starts_with("goodput 8 Mb/s of "));
        let remedy = Remedy { command: "true".into(), host: Some("near".into()) };
        let finding = Finding {
            name: "queueing".into(),
            summary: "packets wait".into(),
            evidence: Default::default(),
            remedy,
            confidence: None,
            confirmation: None,
            predicted: None,
            gain: Some(BitRate(0)),
        };
        run.diagnosis.findings = vec![finding];
        assert!(verdict(&run).ends_with("\nalso: queueing. packets wait\nhint: true   # on near\n"));
    }
}
