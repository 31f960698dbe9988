//! Comparison of several results as text: one line for each figure, one column for each result.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, show_duration};
use lfn_results::evidence::Side;
use lfn_results::measure::TestDirection;
use lfn_results::report::{Comparison, GoodputDifference, RunSummary};

use super::terminal::columns;

/// Width of the label column.
const LABEL: usize = 14;
/// Width of a result's column.
const CELL: usize = 16;

/// Returns the page for the terminal's width.
pub fn side_by_side(comparison: &Comparison) -> String {
    page(comparison, columns())
}

type Line = (&'static str, fn(&RunSummary) -> Option<String>);

const LINES: &[Line] = &[
    ("measured by", |s| Some(s.version.clone())),
    ("started", |s| s.started.as_ref().map(|time| time.chars().take(10).collect())),
    ("  UTC", |s| s.started.as_ref().map(|time| time.chars().skip(11).take(8).collect())),
    ("direction", |s| Some(if s.direction == TestDirection::Forward { "forward" } else { "reverse" }.into())),
    ("protocol", |s| Some(s.protocol.clone())),
    ("congestion", |s| s.congestion.clone()),
    ("data path", |s| s.modes.map(|modes| modes.to_string())),
    ("streams", |s| Some(s.streams.to_string())),
    ("capacity", |s| s.capacity.map(|capacity| capacity.to_string())),
    ("path MTU", |s| s.mtu.map(|mtu| format!("{mtu} B"))),
    ("MSS", |s| s.mss.map(|mss| format!("{mss} B"))),
    ("time", |s| Some(show_duration(rounded(s.time)))),
    ("goodput", |s| Some(s.goodput.to_string())),
    ("  95 % +-", |s| s.interval.map(rate)),
    ("CPU near", |s| per_gigabyte(s, Side::Near)),
    ("CPU far", |s| per_gigabyte(s, Side::Far)),
    ("resent", |s| s.retransmits.map(|count| count.to_string())),
    ("base RTT", |s| s.base_rtt.map(show_duration)),
    ("loaded RTT", |s| s.rtt.map(show_duration)),
    ("probes p50", |s| s.probe_p50.map(show_duration)),
    ("probes p99", |s| s.probe_p99.map(show_duration)),
    ("lost", |s| s.loss_percent.map(|loss| format!("{:.3} %", loss.get()))),
    ("jitter", |s| s.jitter.map(show_duration)),
    ("limited by", |s| s.findings.first().cloned()),
];

fn page(comparison: &Comparison, width: usize) -> String {
    let per_row = (width.saturating_sub(LABEL) / CELL).max(1);
    let mut page = String::new();
    for (group, results) in comparison.results.chunks(per_row).enumerate() {
        if group > 0 {
            page.push('\n');
        }
        page += &line("", results.iter().map(|summary| Some(heading(summary))));
        for (label, figure) in LINES {
            // A figure that no result has is skipped.
            if comparison.results.iter().any(|summary| figure(summary).is_some()) {
                page += &line(label, results.iter().map(figure));
            }
        }
        let difference_of =
            |index: usize| comparison.differences.iter().find(move |d| d.result == group * per_row + index);
        if !comparison.differences.is_empty() {
            page += &line(
                "difference",
                (0..results.len()).map(|index| Some(difference_of(index).map_or("-".into(), percent))),
            );
            page += &line("", (0..results.len()).map(|index| Some(difference_of(index).map_or("", verdict).into())));
        }
    }
    for warning in &comparison.warnings {
        // File names and messages of a failed test may hold any characters.
        let plain: String = warning.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        page += &format!("warning: {plain}\n");
    }
    page
}

/// Returns a line with a label and right-aligned cells, each cut to the width of its column.
fn line(label: &str, cells: impl Iterator<Item = Option<String>>) -> String {
    let mut text = format!("{label:<LABEL$}");
    for cell in cells {
        let cell = cell.unwrap_or_else(|| "-".into());
        let fitting: String = cell.chars().take(CELL - 1).collect();
        text += &format!("{fitting:>CELL$}");
    }
    format!("{}\n", text.trim_end())
}

/// Returns the file name, with the run's number if there are several. The end of a long name is kept.
fn heading(summary: &RunSummary) -> String {
    let name = summary.file.rsplit('/').next().unwrap_or(&summary.file);
    let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let run = if summary.run > 0 { format!("#{}", summary.run + 1) } else { String::new() };
    let room = CELL - 1 - run.chars().count();
    let skipped = name.chars().count().saturating_sub(room);
    format!("{}{run}", name.chars().skip(skipped).collect::<String>())
}

fn percent(difference: &GoodputDifference) -> String {
    difference.goodput_percent.map_or("-".into(), |percent| format!("{:+.1} %", percent.get()))
}

fn verdict(difference: &GoodputDifference) -> &'static str {
    match difference.significant {
        Some(true) => "significant",
        Some(false) => "insignificant",
        None if difference.interval.is_some() => "not comparable",
        None => "too short",
    }
}

fn per_gigabyte(summary: &RunSummary, side: Side) -> Option<String> {
    summary.cpu_seconds_per_gigabyte.get(side).map(|cpu| format!("{:.3} s/GB", cpu.get()))
}

fn rate(figure: Figure) -> String {
    BitRate(figure.get().max(0.0) as u64).to_string()
}

fn rounded(time: Duration) -> Duration {
    Duration::from_millis((time.as_secs_f64() * 10.0).round() as u64 * 100)
}

#[cfg(test)]
mod tests {
    use lfn_results::report::{compare, read_result};

    use super::*;

    /// Results of iperf3 3.12 and 3.21 for a test at 50 Mb/s.
    fn two() -> Comparison {
        let files = [
            ("old.json", include_str!("../../tests/iperf3/results/312-tcp.client.json")),
            ("results/a-much-longer-name.json", include_str!("../../tests/iperf3/results/321-reverse.client.json")),
            ("udp.json", include_str!("../../tests/iperf3/results/321-udp.server.json")),
        ];
        compare(&files.map(|(name, text)| (name.to_owned(), read_result(text.as_bytes()).unwrap())))
    }

    #[test]
    fn columns_fit_the_terminal_and_none_is_lost() {
        for width in [20, 40, 80, 120] {
            let page = page(&two(), width);
            for line in page.lines().filter(|line| !line.starts_with("warning")) {
                assert!(line.chars().count() <= width.max(LABEL + CELL), "{width}: {line}");
            }
            assert_eq!(page.matches(" forward").count(), 2, "{page}");
            assert!(page.contains("old.json") && page.contains("nger-name.json"), "{page}");
            assert!(page.contains("warning: different protocol: tcp, udp"), "{page}");
            assert!(page.contains("too short"), "{page}");
            assert!(page.contains("2026-") && page.contains("  UTC "), "{page}");
        }
    }
}
