//! What an iperf3 server said: the lines of the summary, and what it printed itself.

use std::time::Duration;

use lfn_core::report::{Figure, Iperf3, Iperf3Stream};
use lfn_core::units::show_duration;
use serde_json::Value;

/// Labelled lines.
pub(super) fn lines(iperf3: &Iperf3) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let sum = |figure: fn(&Iperf3Stream) -> Option<u64>| -> Option<u64> { iperf3.streams.iter().map(figure).sum() };
    if let (Some(sent), Some(lost)) = (sum(|stream| stream.datagrams), sum(|stream| stream.lost_datagrams)) {
        let share = if sent == 0 { 0.0 } else { 100.0 * lost as f64 / sent as f64 };
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
