//! Results of an iperf3 server: the lines of the summary, and the server's own output.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, show_duration};
use lfn_results::diagnose::Finding;
use lfn_results::iperf3_report::{Iperf3Report, Iperf3Stream};
use serde_json::Value;

use super::findings::all_findings;

/// Returns the labelled lines of the summary.
pub(super) fn lines(iperf3: &Iperf3Report) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some((lost, sent, share)) = lost(iperf3) {
        let jitter =
            iperf3.streams.iter().filter_map(|stream| stream.jitter_seconds.map(Figure::get)).fold(0.0, f64::max);
        let jitter = show_duration(Duration::try_from_secs_f64(jitter).unwrap_or_default());
        lines.push(("UDP", format!("{lost} of {sent} datagrams lost ({share:.2} %), maximum jitter {jitter}")));
    }
    let congestion = iperf3.far_congestion.as_ref().map(|name| format!("the server's congestion control is {name}; "));
    let unknown = "its kernel, buffers and intervals are unknown: iperf3 does not report them";
    lines.push(("iperf3", format!("{}{unknown}", congestion.unwrap_or_default())));
    lines
}

/// Returns the lost datagrams, the sent datagrams and the lost share in per cent, if the server reports them.
fn lost(iperf3: &Iperf3Report) -> Option<(u64, u64, f64)> {
    let sum = |figure: fn(&Iperf3Stream) -> Option<u64>| -> Option<u64> { iperf3.streams.iter().map(figure).sum() };
    let (sent, lost) = (sum(|stream| stream.datagrams)?, sum(|stream| stream.lost_datagrams)?);
    let share = if sent == 0 { 0.0 } else { 100.0 * lost as f64 / sent as f64 };
    Some((lost, sent, share))
}

/// Returns the verdict of a test of datagrams.
pub(super) fn verdict(iperf3: &Iperf3Report, findings: &[Finding], goodput: BitRate) -> String {
    let why = all_findings(findings).unwrap_or_else(|| match lost(iperf3) {
        None => "the loss is unknown\n".into(),
        Some((0, ..)) => "nothing was lost\n".into(),
        Some((lost, sent, _)) => format!("{lost} of {sent} datagrams were lost, possibly by chance\n"),
    });
    format!("goodput {goodput}: {why}")
}

/// Returns the server's own output.
pub(super) fn printed(iperf3: &Iperf3Report) -> String {
    let text = match &iperf3.server_output {
        None => return String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    // Servers use tabs for columns.
    format!("\nserver output:\n{}\n", text.replace(['\t', '\r'], " ").trim_end())
}

#[cfg(test)]
mod tests {
    use lfn_results::evidence::Evidence;
    use lfn_results::iperf3_report::LoadProtocol;
    use lfn_results::measure::{EndReport, StreamReport, TestRequest, UdpRequest};
    use lfn_results::report::Run;

    use super::*;

    #[test]
    fn the_verdict_reports_lost_datagrams() {
        let verdict_of = |datagrams, lost_datagrams| {
            let stream = Iperf3Stream { sent_bytes: 125_000, datagrams, lost_datagrams, ..Iperf3Stream::default() };
            let report = Iperf3Report {
                protocol: LoadProtocol::Udp,
                streams: vec![stream.clone(), stream],
                ..Iperf3Report::default()
            };
            let udp = UdpRequest { datagram_bytes: Some(1000), ..UdpRequest::default() };
            let request = TestRequest { streams: 2, udp: Some(Box::new(udp)), ..TestRequest::default() };
            let streams = vec![StreamReport::default(); 2];
            let end = EndReport { elapsed: Duration::from_secs(1), streams, ..EndReport::default() };
            let evidence = Evidence::of_test(request, Duration::ZERO, end.clone(), end);
            let run = Run::new(Evidence { iperf3: Some(report), ..evidence });
            let causes: Vec<String> = run.diagnosis.findings.iter().map(|finding| finding.name.clone()).collect();
            (
                causes.join(" "),
                verdict(run.evidence.iperf3.as_ref().unwrap(), &run.diagnosis.findings, BitRate(1_000_000)),
            )
        };
        assert_eq!(verdict_of(Some(100), Some(0)).1, "goodput 1 Mb/s: nothing was lost\n");
        let (causes, text) = verdict_of(Some(100), Some(5));
        assert!(
            text.contains("loss. 5.000 % of the datagrams (10 of 200) were lost on the path or in the receiver"),
            "{text}"
        );
        assert!(causes == "loss" && !text.contains("--ramp"), "{causes}: {text}");
        assert!(verdict_of(Some(100), Some(2)).1.ends_with("4 of 200 datagrams were lost, possibly by chance\n"));
        assert_eq!(verdict_of(Some(100), None).1, "goodput 1 Mb/s: the loss is unknown\n");
    }
}
