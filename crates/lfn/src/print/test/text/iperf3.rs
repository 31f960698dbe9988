//! What an iperf3 server said: the lines of the summary, and what it printed itself.

use std::time::Duration;

use lfn_core::report::{Figure, Iperf3, Iperf3Stream};
use lfn_core::units::{BitRate, show_duration};
use serde_json::Value;

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

/// What there is to say of a test of datagrams: where they were lost the far end does not tell.
pub(super) fn verdict(iperf3: &Iperf3, goodput: BitRate) -> String {
    match lost(iperf3) {
        None => format!("goodput {goodput}: what was lost is not known\n"),
        Some((0, ..)) => format!("goodput {goodput}: nothing was lost\n"),
        Some((lost, sent, share)) => format!(
            "goodput {goodput}: loss. {lost} of {sent} datagrams ({share:.2} %) did not arrive, or found no room in the \
             receiver's buffer: iperf3 does not tell these apart\nhint: a lower --pacing\n"
        ),
    }
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
    use lfn_core::iperf3::Protocol;

    use super::*;

    #[test]
    fn datagrams_that_did_not_arrive_are_the_verdict() {
        let told = |datagrams, lost_datagrams| {
            let stream = Iperf3Stream { datagrams, lost_datagrams, ..Iperf3Stream::default() };
            let (protocol, streams) = (Protocol::Udp, vec![stream.clone(), stream]);
            let iperf3 = Iperf3 { protocol, far_congestion: None, retransmits: None, streams, server_output: None };
            verdict(&iperf3, BitRate(1_000_000))
        };
        assert_eq!(told(Some(100), Some(0)), "goodput 1 Mb/s: nothing was lost\n");
        assert!(told(Some(100), Some(5)).starts_with("goodput 1 Mb/s: loss. 10 of 200 datagrams (5.00 %) did not"));
        assert_eq!(told(Some(100), None), "goodput 1 Mb/s: what was lost is not known\n");
    }
}
