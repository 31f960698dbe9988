//! Accuracy report of an emulation as text: the settings, the counters and the verdict.
//!
//! Each path has a table with one column for each direction. If the table is too wide, one direction is under the
//! other. A counter of zero has no row, so a clean run has a short page.

use std::time::Duration;

use lfn_base::units::{Ratio, show_duration};
use lfn_emulate::{AccuracyReport, Calibration, DirectionReport, EmulatedPathReport, LinkChange};
use lfn_link::DropCause;

use crate::print::{grouped, terminal};

/// Width of the label column.
const LABEL: usize = 24;
/// Width of a direction's column.
const COLUMN: usize = 27;

/// Maximum number of changes that are listed.
const MAX_CHANGES: usize = 10;

/// Returns the report for the width of standard output, for a stored result.
pub fn page(report: &AccuracyReport, is_broken: bool) -> String {
    text(report, is_broken, terminal::columns())
}

/// Returns the report for the width of stderr. A run that ended early is never accurate.
pub fn for_stderr(report: &AccuracyReport, is_broken: bool) -> String {
    text(report, is_broken, terminal::stderr_columns())
}

fn text(report: &AccuracyReport, is_broken: bool, columns: usize) -> String {
    let mut page = ReportText { columns, text: String::new() };
    for (number, path) in (1..).zip(&report.paths) {
        let name = if report.paths.len() > 1 { format!("path {number}") } else { "link".to_owned() };
        page.link(&name, path, report.seed);
        page.table(path);
    }
    if let Some(calibration) = &report.calibration {
        page.calibration(calibration);
    }
    page.verdict(report, is_broken);
    page.text
}

/// Text of the report, built line by line.
struct ReportText {
    columns: usize,
    text: String,
}

/// Row of the table: its label and the values of both directions.
type Row = (String, [String; 2]);

impl ReportText {
    fn link(&mut self, name: &str, report: &EmulatedPathReport, seed: u64) {
        let path = &report.path;
        let queue = path.queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
        let rtt = show_duration(path.base_rtt);
        self.line(format_args!("{name}: {rtt}, {}{queue}, MTU {}, seed {seed}", path.capacity, path.mtu));
        for link in report.links.iter().filter(|link| report.links.len() > 1 || has_more_settings(link)) {
            self.wrapped("      ", link);
        }
        let changes: Vec<&LinkChange> = report.changes.iter().filter(|change| !change.settings.is_empty()).collect();
        let (listed, rest) = changes.split_at(changes.len().min(MAX_CHANGES));
        for change in listed {
            let link_name = change.link.map(|number| format!(" of link {number}")).unwrap_or_default();
            let at = show_duration(seconds(change.at));
            self.wrapped(&format!("      from {at}{link_name}: "), &change.settings);
        }
        if !rest.is_empty() {
            self.line(format_args!("      and {} more changes", rest.len()));
        }
    }

    /// Adds settings in lines that fit, broken at commas.
    fn wrapped(&mut self, indent: &str, settings: &str) {
        let mut line = indent.to_owned();
        for setting in settings.split_inclusive(',') {
            if line.len() > indent.len() && line.len() + setting.len() > self.columns {
                self.push_line(&line);
                line = " ".repeat(indent.len());
            }
            line += setting;
        }
        self.push_line(&line);
    }

    /// Adds the calibration from before the run.
    fn calibration(&mut self, calibration: &Calibration) {
        let idle = show_duration(seconds(calibration.idle_latency));
        let room = calibration.costs.map(|costs| {
            let thousands = (costs.packets_per_second() / 1000.0).round() as u64;
            format!(
                "; this machine can carry {} or {} packets/s",
                costs.bulk(),
                grouped(thousands.saturating_mul(1000))
            )
        });
        self.line(format_args!("calibration: {idle} subtracted each way{}", room.unwrap_or_default()));
    }

    fn table(&mut self, path: &EmulatedPathReport) {
        let [(forward_name, forward), (backward_name, backward)] = path.directions();
        let both = [forward, backward];
        let mut rows = Rows::default();
        rows.packets("packets offered", both.map(|d| d.offered), true);
        rows.packets("forwarded", both.map(|d| d.forwarded), true);
        for cause in DropCause::ALL {
            let count = |d: &DirectionReport| d.dropped.get(&cause).copied().unwrap_or(0);
            rows.packets(&format!("dropped: {}", cause.name()), both.map(count), false);
        }
        rows.packets("duplicated", both.map(|d| d.duplicated), false);
        rows.packets("marked (ECN)", both.map(|d| d.marked), false);
        rows.packets("corrupted", both.map(|d| d.corrupted), false);
        rows.packets("still in the link", both.map(|d| d.in_flight), false);
        rows.row("throughput", both.map(|d| d.throughput.to_string()));
        rows.row("utilisation", both.map(|d| per_cent(d.utilisation)));
        if both.iter().any(|d| d.queueing_delay.max > 0.0) {
            rows.row("maximum queue", both.map(|d| d.queue_peak.to_string()));
            let waits = |d: &DirectionReport| {
                times([d.queueing_delay.p50, d.queueing_delay.p90, d.queueing_delay.p99, d.queueing_delay.max])
            };
            rows.row("queued p50/p90/p99/max", both.map(waits));
        }
        rows.row("lateness p50/p99/max", both.map(|d| times([d.lateness.p50, d.lateness.p99, d.lateness.max])));
        if self.columns >= LABEL + 2 * COLUMN {
            self.side_by_side([forward_name, backward_name], rows.0);
        } else {
            self.stacked([forward_name, backward_name], rows.0);
        }
    }

    /// Adds a table with one column for each direction.
    fn side_by_side(&mut self, names: [&str; 2], rows: Vec<Row>) {
        for (label, [forward, backward]) in [(String::new(), names.map(str::to_owned))].into_iter().chain(rows) {
            self.push_line(&format!("{label:<LABEL$}{forward:>COLUMN$}{backward:>COLUMN$}"));
        }
    }

    /// Adds one direction under the other. A value that does not fit after its label is in the next line.
    fn stacked(&mut self, names: [&str; 2], rows: Vec<Row>) {
        for (index, name) in names.into_iter().enumerate() {
            self.push_line(&format!("{name}:"));
            for (label, values) in &rows {
                let value = &values[index];
                let room = self.columns.saturating_sub(label.chars().count());
                if value.chars().count() < room {
                    self.push_line(&format!("{label}{value:>room$}"));
                } else {
                    self.push_line(label);
                    self.push_line(&format!("{value:>0$}", self.columns));
                }
            }
        }
    }

    /// Adds the verdict, and the facts that a percentile hides.
    fn verdict(&mut self, report: &AccuracyReport, is_broken: bool) {
        let mut too_few = Vec::new();
        for path in &report.paths {
            for (name, direction) in path.directions() {
                let (latest, limit) = (seconds(direction.lateness.max), path.lateness_limit());
                if latest <= limit {
                    continue;
                }
                let latest = show_duration(latest);
                let packets = direction.lateness.packets;
                if direction.lateness.has_few_packets() {
                    let plural = if packets == 1 { "" } else { "s" };
                    too_few.push(format!("{name} {packets} packet{plural}, latest {latest} late"));
                } else {
                    self.line(format_args!("note: {name}: the latest packet left {latest} late"));
                }
            }
        }
        for fault in report.inaccuracies() {
            self.line(format_args!("not accurate: {fault}"));
        }
        if is_broken {
            self.line(format_args!(
                "not accurate: the link failed during the run; the figures above are from before the failure"
            ));
        } else if !too_few.is_empty() {
            self.line(format_args!("too few packets to judge the lateness: {}", too_few.join("; ")));
        } else if report.is_accurate() {
            let limit = report
                .paths
                .iter()
                .map(EmulatedPathReport::lateness_limit)
                .min()
                .map(show_duration)
                .unwrap_or_default();
            self.line(format_args!("accurate: only intended packet drops, p99 lateness within {limit}"));
        }
    }

    /// Adds words in lines that fit.
    fn line(&mut self, words: std::fmt::Arguments<'_>) {
        let words = words.to_string();
        let text = words.trim_start();
        let indent = " ".repeat(words.len() - text.len());
        let mut line = indent.clone() + text.split(' ').next().unwrap_or_default();
        for word in text.split(' ').skip(1) {
            if line.chars().count() + 1 + word.chars().count() > self.columns {
                self.push_line(&line);
                line = format!("{indent}  {word}");
            } else {
                line = format!("{line} {word}");
            }
        }
        self.push_line(&line);
    }

    fn push_line(&mut self, line: &str) {
        self.text += line.trim_end();
        self.text.push('\n');
    }
}

/// Rows of a path's table.
#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    /// Adds packet counts; a row of zeros only if `always` is true.
    fn packets(&mut self, label: &str, counts: [u64; 2], always: bool) {
        if always || counts.iter().any(|count| *count > 0) {
            self.row(label, counts.map(grouped));
        }
    }

    fn row(&mut self, label: &str, both: [String; 2]) {
        self.0.push((label.to_owned(), both));
    }
}

/// Returns a time from seconds. A stored report may have any number.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// Returns true if the link has settings that the first line does not show.
fn has_more_settings(link: &str) -> bool {
    const SHOWN: [&str; 3] = ["rtt", "rate", "queue"];
    link.split(',').any(|setting| setting.split_once('=').is_some_and(|(key, _)| !SHOWN.contains(&key)))
}

fn per_cent(share: Ratio) -> String {
    match share.get() * 100.0 {
        value if value > 0.0 && value < 0.05 => "below 0.1 %".to_owned(),
        value => format!("{value:.1} %"),
    }
}

/// Formats ascending times in the unit of the largest, `0.02 / 3.1 / 12 ms`. A time that would be zero in this unit has
/// its own unit, `20 / 50 µs / 4.0 s`.
fn times<const N: usize>(seconds: [f64; N]) -> String {
    let longest = seconds.into_iter().fold(0.0, f64::max);
    if longest == 0.0 {
        return "0 s".to_owned();
    }
    let (scale, unit) = unit_of(longest);
    let shown = seconds.map(|value| {
        let vanishes = value > 0.0 && value * scale < 0.01;
        let (scale, unit) = if vanishes { unit_of(value) } else { (scale, unit) };
        (two_digits(value * scale), unit)
    });
    let mut values = Vec::with_capacity(N);
    for (place, (value, unit)) in shown.iter().enumerate() {
        let is_last_of_unit = shown.get(place + 1).is_none_or(|(_, next)| next != unit);
        values.push(if is_last_of_unit && value != "0" { format!("{value} {unit}") } else { value.clone() });
    }
    let spaced = values.join(" / ");
    if spaced.chars().count() < COLUMN { spaced } else { values.join("/") }
}

/// Returns the factor and the name of a suitable unit for a time in seconds.
fn unit_of(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "µs"),
    }
}

/// Formats a value with two digits, or all digits before the point. JSON has the exact value.
fn two_digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v >= 10.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::path::PathProfile;
    use lfn_base::units::{BitRate, Bytes};
    use lfn_emulate::{CpuCost, ForwardingCosts, Lateness, LinkChange, QueueingDelay};

    use super::*;

    const WIDTH: usize = 80;

    fn run(links: &[&str], direction: &DirectionReport) -> AccuracyReport {
        let mut path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        path.queue = Some(Bytes(9_095_625));
        let links = links.iter().map(|link| (*link).to_owned()).collect();
        let (near_to_far, far_to_near) = (direction.clone(), direction.clone());
        AccuracyReport {
            seed: u64::MAX,
            calibration: None,
            paths: vec![EmulatedPathReport { path, links, changes: Vec::new(), near_to_far, far_to_near }],
        }
    }

    #[test]
    fn changes_of_a_link_are_listed() {
        let mut run = run(&["rtt=20ms,rate=50mbit"], &DirectionReport::default());
        let change = LinkChange { at: 12.3, link: Some(1), settings: "rate=10mbit".to_owned(), base_rtt: 0.1 };
        run.paths[0].changes = vec![change; 18];
        run.paths[0].changes[0].settings.clear();
        let page = text(&run, false, WIDTH);
        let listed = page.lines().filter(|line| *line == "      from 12.3 s of link 1: rate=10mbit").count();
        assert_eq!(listed, MAX_CHANGES, "{page}");
        assert!(page.contains("\n      and 7 more changes\n"), "{page}");
    }

    #[test]
    fn a_clean_run_has_a_short_page() {
        let page = text(&run(&["rtt=539ms,rate=135mbit"], &DirectionReport::default()), false, WIDTH);
        assert_eq!(page.lines().count(), 8, "{page}");
        assert!(page.ends_with("accurate: only intended packet drops, p99 lateness within 5.39 ms\n"), "{page}");
    }

    #[test]
    fn a_run_that_ended_early_is_not_accurate() {
        let page = text(&run(&[""], &DirectionReport::default()), true, WIDTH);
        assert!(!page.contains("\naccurate: ") && page.contains("\nnot accurate: the link failed"), "{page}");
        assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
    }

    #[test]
    fn all_counters_fit_the_page() {
        const MANY: u64 = 123_456_789_012;
        let late = Lateness { mean: 0.1, p50: 0.999, p99: 0.999, max: 59.9, ..Lateness::default() };
        let direction = DirectionReport {
            offered: MANY,
            forwarded: MANY,
            dropped: DropCause::ALL.map(|cause| (cause, MANY)).into(),
            marked: MANY,
            corrupted: MANY,
            duplicated: MANY,
            in_flight: MANY,
            queue_peak: Bytes(MANY),
            queueing_delay: QueueingDelay { p50: 0.999, p90: 0.999, p99: 0.999, max: 0.999, histogram: Vec::new() },
            throughput: BitRate(MANY),
            utilisation: Ratio::new(1.0).unwrap(),
            lateness: late,
            ..DirectionReport::default()
        };
        let setting = "loss=gilbert:p=1%:r=25%:h=0:k=100%,jitter=pareto:5ms:corr=25%:reorder,outage=every:15s:200ms";
        let (packet, gigabyte) = (CpuCost { thread: 1.23e-6, all: 2e-6 }, CpuCost { thread: 0.012_34, all: 0.5 });
        let costs = Some(ForwardingCosts { packet, gigabyte, processors: 99 });
        let calibration = Some(Calibration { idle_latency: 0.000_999, costs });
        let report = AccuracyReport { calibration, ..run(&[setting, setting], &direction) };
        let page = text(&report, false, WIDTH);
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH && line.trim_end() == line), "{page}");
        for expected in ["123,456,789,012", "marked", "corrupted", "duplicated", "100.0 %", "outage=every:15s:200ms"] {
            assert!(page.contains(expected), "{expected} is not in {page}");
        }
        assert!(DropCause::ALL.iter().all(|cause| page.contains(cause.name())), "{page}");
        assert!(page.contains("note: near to far: the latest packet left 59.9 s late\n"), "{page}");
        assert!(page.contains("\nnot accurate: far to near: p99 lateness 999 ms is above 5.39 ms\n"), "{page}");
        narrow(&report, &page);
    }

    /// Asserts that narrow pages have the same figures.
    fn narrow(report: &AccuracyReport, wide: &str) {
        for columns in [40, 60, 77] {
            let page = text(report, false, columns);
            for line in page.lines() {
                // A setting is one word of any length.
                assert!(line.chars().count() <= columns || !line.trim().contains(' '), "{columns}: {line}");
            }
            assert_eq!(page.lines().filter(|line| line.trim() == "far to near:").count(), 1, "{page}");
            let figures = |page: &str| page.split_whitespace().filter(|word| *word == "123,456,789,012").count();
            assert_eq!(figures(&page), figures(wide), "{columns}: {page}");
        }
    }

    #[test]
    fn few_packets_are_not_judged() {
        for (packets, notes) in [(20, 0), (2000, 2)] {
            let lateness = Lateness { packets, p99: 0.1, max: 0.1, ..Lateness::default() };
            let page = text(&run(&[""], &DirectionReport { lateness, ..DirectionReport::default() }), false, WIDTH);
            assert_eq!(page.matches("note: ").count(), notes, "{page}");
            assert_eq!(page.matches("\nnot accurate: ").count(), notes, "{page}");
            assert_eq!(page.matches("too few packets to judge").count(), usize::from(notes == 0), "{page}");
            assert!(!page.contains("\naccurate: ") && page.lines().all(|line| line.len() <= WIDTH), "{page}");
        }
    }

    #[test]
    fn figures_are_short() {
        let grouped = [0, 7, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(times([0.0, 0.000_05, 0.0125]), "0 / 0.05 / 12 ms");
        assert_eq!(times([0.0, 0.0]), "0 s");
        let shares = [0.0, 1e-7, 0.001, 1.0].map(|share| per_cent(Ratio::new(share).unwrap()));
        assert_eq!(shares, ["0.0 %", "below 0.1 %", "0.1 %", "100.0 %"]);
        assert_eq!(times([20e-6, 50e-6, 4.0]), "20 / 50 µs / 4.0 s");
        assert_eq!(times([0.0, 20e-6, 4.0]), "0 / 20 µs / 4.0 s");
        assert_eq!(times([100e-6, 200e-6, 0.0091, 99.0]), "100/200 µs/9.1 ms/99 s");
    }

    #[test]
    fn settings_beyond_rtt_rate_and_queue_are_listed() {
        let links =
            |links: &[&str]| text(&run(links, &DirectionReport::default()), false, WIDTH).matches("rate=").count();
        assert_eq!(links(&["rtt=20ms,rate=50mbit,queue=1bdp"]), 0);
        assert_eq!(links(&["rtt=20ms,rate=50mbit,loss=1%"]), 1);
        assert_eq!(links(&["rtt=20ms,rate=50mbit", "rtt=20ms,rate=20mbit"]), 2);
    }
}
