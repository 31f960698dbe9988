//! What an iperf3 server said: the lines of the summary, and what it printed itself.

use std::time::Duration;

use lfn_core::report::{Figure, Finding, Iperf3, Iperf3Stream};
use lfn_core::units::{BitRate, show_duration};
use serde_json::Value;

use super::summary::all_of;

/// Labelled lines.
pub(super) fn lines(iperf3: &Iperf3) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some((lost, sent, share)) = lost(iperf3) {
        let jitter =
            iperf3.streams.iter().filter_map(|stream| stream.jitter_seconds.map(Figure::get)).fold(0.0, f64::max);
        let jitter = show_duration(Duration::try_from_secs_f64(jitter).unwrap_or_default());
        lines.push(("UDP", format!("{lost} of {sent} datagrams lost ({share:.2} %), jitter {jitter} at most")));
    }
    let congestion = iperf3.far_congestion.as_ref().map(|name| format!("the server's congestion control is {name}; "));
    let unknown = "its kernel, its buffers and its intervals are not known: iperf3 does not tell them";
    lines.push(("iperf3", format!("{}{unknown}", congestion.unwrap_or_default())));
    lines
}

/// Datagrams lost, and sent, and the share of them in per cent, if the server's results tell.
fn lost(iperf3: &Iperf3) -> Option<(u64, u64, f64)> {
    let sum = |figure: fn(&Iperf3Stream) -> Option<u64>| -> Option<u64> { iperf3.streams.iter().map(figure).sum() };
    let (sent, lost) = (sum(|stream| stream.datagrams)?, sum(|stream| stream.lost_datagrams)?);
    let share = if sent == 0 { 0.0 } else { 100.0 * lost as f64 / sent as f64 };
    Some((lost, sent, share))
}

/// What there is to say of a test of datagrams.
pub(super) fn verdict(iperf3: &Iperf3, findings: &[Finding], goodput: BitRate) -> String {
    let why = all_of(findings).unwrap_or_else(|| match lost(iperf3) {
        None => "what was lost is not known\n".into(),
        Some((0, ..)) => "nothing was lost\n".into(),
        Some((lost, sent, _)) => format!("{lost} of {sent} datagrams were lost, which may be chance\n"),
    });
    format!("goodput {goodput}: {why}")
}

/// What the server printed, apart from our own report.
pub(super) fn printed(iperf3: &Iperf3) -> String {
    let text = match &iperf3.server_output {
        None => return String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    // Servers set columns by tabs.
    format!("\nserver output:\n{}\n", text.replace(['\t', '\r'], " ").trim_end())
}

#[cfg(test)]
mod tests {
    use lfn_core::diagnose::Evidence;
    use lfn_core::iperf3::Protocol;
    use lfn_core::wire::test::{EndReport, StreamReport, TestRequest, UdpRequest};
    use lfn_net::tester::Measurement;

    use super::*;
    use crate::print::test::Run;

    #[test]
    fn datagrams_that_did_not_arrive_are_the_verdict() {
        let told = |datagrams, lost_datagrams| {
            let stream = Iperf3Stream { sent_bytes: 125_000, datagrams, lost_datagrams, ..Iperf3Stream::default() };
            let said = Iperf3 { protocol: Protocol::Udp, streams: vec![stream.clone(), stream], ..Iperf3::default() };
            let udp = UdpRequest { datagram_bytes: Some(1000), ..UdpRequest::default() };
            let request = TestRequest { streams: 2, udp: Some(Box::new(udp)), ..TestRequest::default() };
            let streams = vec![StreamReport::default(); 2];
            let end = EndReport { elapsed: Duration::from_secs(1), streams, ..EndReport::default() };
            let evidence = Evidence::new(None, Duration::ZERO, None, ("near", &end), ("far", &end), "--iperf3 far");
            let run = Run::of_iperf3(Measurement::new(request, Duration::ZERO, end.clone(), end), evidence, said);
            let causes: Vec<String> = run.findings.iter().map(|finding| finding.name.clone()).collect();
            (causes.join(" "), verdict(run.iperf3.as_ref().unwrap(), &run.findings, BitRate(1_000_000)))
        };
        assert_eq!(told(Some(100), Some(0)).1, "goodput 1 Mb/s: nothing was lost\n");
        let (causes, text) = told(Some(100), Some(5));
        assert!(text.contains("loss. 5.000 % of the datagrams (10 of 200) did not arrive, or found no room"), "{text}");
        assert!(causes == "loss" && !text.contains("--ramp"), "{causes}: {text}");
        assert!(told(Some(100), Some(2)).1.ends_with("4 of 200 datagrams were lost, which may be chance\n"));
        assert_eq!(told(Some(100), None).1, "goodput 1 Mb/s: what was lost is not known\n");
    }
}
