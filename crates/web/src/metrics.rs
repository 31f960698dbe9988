//! The newest entries as metrics in the text format of Prometheus (version 0.0.4).
//!
//! Every metric is a gauge with the newest figure, however old. Its age is that of `lfn_mesh_last_entry_timestamp_seconds`, so
//! an alert on age also fires while nothing new arrives.

use std::fmt::{Display, Write as _};

use lfn_base::units::Bytes;
use lfn_mesh::entry::{Entry, EntryKind, Outcome};

use crate::view::loss_ratio;

/// Sources of the metrics of [`metrics_text`].
pub(crate) struct MetricsInput<'a> {
    /// The newest entry of each pair and kind.
    pub latest: &'a [Entry],
    /// Number of entries of the archive.
    pub entries: u64,
    /// Size of the archive.
    pub bytes: Bytes,
}

/// Returns all metrics, one family after the other.
pub(crate) fn metrics_text(input: &MetricsInput<'_>) -> String {
    let of = |kind| input.latest.iter().filter(move |entry: &&Entry| entry.kind == kind);
    let (loads, latencies) = (|| of(EntryKind::Load), || of(EntryKind::Latency));
    let mut text = String::new();
    let mut family = Family::new(&mut text, "goodput_bits_per_second", "Steady goodput of the newest load.");
    for entry in loads() {
        family.add_optional(entry, &[], entry.goodput.map(|rate| rate.0));
    }
    let mut family =
        Family::new(&mut text, "predicted_goodput_bits_per_second", "Predicted goodput of the newest load.");
    for entry in loads() {
        family.add_optional(entry, &[], entry.predicted.map(|rate| rate.0));
    }
    let mut family = Family::new(&mut text, "rtt_seconds", "RTT of the newest latency measurement.");
    for entry in latencies() {
        family.add_optional(entry, &[("stat", "min")], entry.base_rtt.map(|rtt| rtt.as_secs_f64()));
        family.add_optional(entry, &[("stat", "median")], entry.rtt.map(|rtt| rtt.as_secs_f64()));
    }
    let mut family = Family::new(&mut text, "loss_ratio", "Share of lost packets of the newest latency measurement.");
    for entry in latencies() {
        family.add_optional(entry, &[], loss_ratio(entry).map(|loss| loss.get()));
    }
    let mut family =
        Family::new(&mut text, "one_way_delay_seconds", "Minimum one-way delay of the newest latency measurement.");
    for entry in latencies() {
        family.add_optional(entry, &[], entry.one_way_delay.map(|delay| delay.as_secs_f64()));
    }
    let mut family = Family::new(&mut text, "outcome", "1 for the outcome of the newest load, 0 for the others.");
    for entry in loads() {
        for outcome in Outcome::ALL {
            family.add(entry, &[("outcome", outcome.name())], u8::from(entry.outcome == outcome));
        }
    }
    let mut family = Family::new(&mut text, "last_entry_timestamp_seconds", "Time of the newest entry of each kind.");
    for entry in input.latest {
        family.add(entry, &[("kind", entry.kind.name())], entry.time.as_secs_f64());
    }
    let mut family = Family::new(&mut text, "archive_entries", "Entries of the archive.");
    family.add_plain(input.entries);
    let mut family = Family::new(&mut text, "archive_bytes", "Size of the archive.");
    family.add_plain(input.bytes.0);
    text
}

/// Lines of one metric.
struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    fn new(text: &'a mut String, name: &'static str, help: &str) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP lfn_mesh_{name} {help}\n# TYPE lfn_mesh_{name} gauge\n");
        Family { text, name }
    }

    fn add_optional(&mut self, entry: &Entry, labels: &[(&str, &str)], value: Option<impl Display>) {
        if let Some(value) = value {
            self.add(entry, labels, value);
        }
    }

    fn add(&mut self, entry: &Entry, labels: &[(&str, &str)], value: impl Display) {
        // Writing to a string cannot fail.
        let _ =
            write!(self.text, "lfn_mesh_{}{{from=\"{}\",to=\"{}\"", self.name, escape(&entry.from), escape(&entry.to));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{text}\"");
        }
        let _ = writeln!(self.text, "}} {value}");
    }

    fn add_plain(&mut self, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "lfn_mesh_{} {value}", self.name);
    }
}

/// Escapes the value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::BitRate;

    use super::*;

    #[test]
    fn metrics_have_labels_escapes_and_times_of_entries() {
        let time = Duration::from_millis(1_795_329_723_456);
        let load = Entry {
            goodput: Some(BitRate(94_100_000)),
            outcome: Outcome::Limited,
            ..Entry::new(EntryKind::Load, "a\"\\\n<b>", "b", time)
        };
        let latency = Entry {
            base_rtt: Some(Duration::from_micros(40_123)),
            packets: Some(100),
            lost_packets: Some(1),
            ..Entry::new(EntryKind::Latency, "b", "a", time)
        };
        let text = metrics_text(&MetricsInput { latest: &[load, latency], entries: 2, bytes: Bytes(8192) });
        for line in [
            r#"lfn_mesh_goodput_bits_per_second{from="a\"\\\n<b>",to="b"} 94100000"#,
            r#"lfn_mesh_outcome{from="a\"\\\n<b>",to="b",outcome="limited"} 1"#,
            r#"lfn_mesh_outcome{from="a\"\\\n<b>",to="b",outcome="good"} 0"#,
            r#"lfn_mesh_rtt_seconds{from="b",to="a",stat="min"} 0.040123"#,
            r#"lfn_mesh_loss_ratio{from="b",to="a"} 0.01"#,
            r#"lfn_mesh_last_entry_timestamp_seconds{from="b",to="a",kind="latency"} 1795329723.456"#,
            "lfn_mesh_archive_entries 2",
            "lfn_mesh_archive_bytes 8192",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains("stat=\"median\""), "an unknown figure has no line");
    }
}
