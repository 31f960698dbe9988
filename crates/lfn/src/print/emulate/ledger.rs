//! The fidelity ledger for people: what the link was, what it did, and whether the run may be believed.
//!
//! One table a path, one column a direction; where that is too wide, one direction under the other. What did not happen
//! has no row: a clean run is a short page, and what is on it is worth reading.

use std::time::Duration;

use lfn_core::link::DropCause;
use lfn_core::units::{Ratio, show_duration};
use lfn_net::emulator::{Calibration, Change, DirectionLedger, Ledger, PathLedger};

use crate::print::terminal;

/// Columns of the labels.
const LABEL: usize = 24;
/// Columns of a direction.
const COLUMN: usize = 27;

/// Changes that are told one by one.
const MOST_CHANGES: usize = 10;

/// What the link was and did, and the verdict, as wide as what is said may be; that of a run that could not go on is never
/// that it was faithful.
pub fn shown(ledger: &Ledger, is_broken: bool) -> String {
    text(ledger, is_broken, terminal::talk_breaks_at())
}

fn text(ledger: &Ledger, is_broken: bool, columns: usize) -> String {
    let mut page = Page { columns, text: String::new() };
    for (number, path) in (1..).zip(&ledger.paths) {
        let name = if ledger.paths.len() > 1 { format!("path {number}") } else { "link".to_owned() };
        page.link(&name, path, ledger.seed);
        page.table(path);
    }
    if let Some(calibration) = &ledger.calibration {
        page.calibration(calibration);
    }
    page.verdict(ledger, is_broken);
    page.text
}

/// What is to be read, line by line.
struct Page {
    columns: usize,
    text: String,
}

/// A row of the table: its label, and what stands there for each direction.
type Row = (String, [String; 2]);

impl Page {
    fn link(&mut self, name: &str, ledger: &PathLedger, seed: u64) {
        let path = &ledger.path;
        let queue = path.queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
        let rtt = show_duration(path.base_rtt);
        self.line(format_args!("{name}: {rtt}, {}{queue}, MTU {}, seed {seed}", path.capacity, path.mtu));
        for link in ledger.links.iter().filter(|link| ledger.links.len() > 1 || says_more(link)) {
            self.wrapped("      ", link);
        }
        let changes: Vec<&Change> = ledger.changes.iter().filter(|change| !change.settings.is_empty()).collect();
        let (told, rest) = changes.split_at(changes.len().min(MOST_CHANGES));
        for change in told {
            let which = change.link.map(|number| format!(" of link {number}")).unwrap_or_default();
            let at = show_duration(Duration::from_secs_f64(change.at));
            self.wrapped(&format!("      from {at}{which}: "), &change.settings);
        }
        if !rest.is_empty() {
            self.line(format_args!("      and {} more changes", rest.len()));
        }
    }

    /// Settings in lines that fit, broken at commas.
    fn wrapped(&mut self, indent: &str, settings: &str) {
        let mut line = indent.to_owned();
        for setting in settings.split_inclusive(',') {
            if line.len() > indent.len() && line.len() + setting.len() > self.columns {
                self.whole(&line);
                line = " ".repeat(indent.len());
            }
            line += setting;
        }
        self.whole(&line);
    }

    /// What was measured before the run.
    fn calibration(&mut self, calibration: &Calibration) {
        let idle = show_duration(Duration::from_secs_f64(calibration.idle));
        let room = calibration.costs.map(|costs| {
            let thousands = (costs.packets_per_second() / 1000.0).round() as u64;
            format!("; room for {} in bulk, {} packets/s", costs.bulk(), grouped(thousands.saturating_mul(1000)))
        });
        self.line(format_args!("calibrated: {idle} off each way{}", room.unwrap_or_default()));
    }

    fn table(&mut self, path: &PathLedger) {
        let [(there, forth), (back, returning)] = path.directions();
        let both = [forth, returning];
        let mut rows = Rows::default();
        rows.packets("packets offered", both.map(|d| d.offered), true);
        rows.packets("forwarded", both.map(|d| d.forwarded), true);
        for cause in DropCause::ALL {
            let count = |d: &DirectionLedger| d.dropped.get(&cause).copied().unwrap_or(0);
            rows.packets(&format!("dropped: {}", cause.word()), both.map(count), false);
        }
        rows.packets("duplicated", both.map(|d| d.duplicated), false);
        rows.packets("marked (ECN)", both.map(|d| d.marked), false);
        rows.packets("damaged", both.map(|d| d.damaged), false);
        rows.packets("still in the link", both.map(|d| d.in_flight), false);
        rows.row("throughput", both.map(|d| d.throughput.to_string()));
        rows.row("utilisation", both.map(|d| per_cent(d.utilisation)));
        if both.iter().any(|d| d.queueing.max > 0.0) {
            rows.row("queue at most", both.map(|d| d.queue_peak.to_string()));
            let waits = |d: &DirectionLedger| times([d.queueing.p50, d.queueing.p90, d.queueing.p99, d.queueing.max]);
            rows.row("queued p50/p90/p99/max", both.map(waits));
        }
        rows.row("late   p50/p99/max", both.map(|d| times([d.lateness.p50, d.lateness.p99, d.lateness.max])));
        if self.columns >= LABEL + 2 * COLUMN {
            self.beside([there, back], rows.0);
        } else {
            self.under([there, back], rows.0);
        }
    }

    /// A column for each direction.
    fn beside(&mut self, names: [&str; 2], rows: Vec<Row>) {
        for (label, [forth, back]) in [(String::new(), names.map(str::to_owned))].into_iter().chain(rows) {
            self.whole(&format!("{label:<LABEL$}{forth:>COLUMN$}{back:>COLUMN$}"));
        }
    }

    /// One direction under the other; what has no room beside its label stands below that.
    fn under(&mut self, names: [&str; 2], rows: Vec<Row>) {
        for (which, name) in names.into_iter().enumerate() {
            self.whole(&format!("{name}:"));
            for (label, values) in &rows {
                let value = &values[which];
                let room = self.columns.saturating_sub(label.chars().count());
                if value.chars().count() < room {
                    self.whole(&format!("{label}{value:>room$}"));
                } else {
                    self.whole(label);
                    self.whole(&format!("{value:>0$}", self.columns));
                }
            }
        }
    }

    /// Whether the run may be believed; and what a percentile does not tell (of few packets it is the latest).
    fn verdict(&mut self, ledger: &Ledger, is_broken: bool) {
        for path in &ledger.paths {
            for (name, direction) in path.directions() {
                let (latest, limit) = (Duration::from_secs_f64(direction.lateness.max), path.lateness_limit());
                if latest > limit && !direction.lateness.is_of_few() {
                    self.line(format_args!("note: {name}: the latest packet left {} late", show_duration(latest)));
                }
            }
        }
        for fault in ledger.faults() {
            self.line(format_args!("not faithful: {fault}"));
        }
        if is_broken {
            self.line(format_args!("not faithful: the link broke off, and all of the above is of the time until then"));
        } else if ledger.is_faithful() {
            let limit =
                ledger.paths.iter().map(PathLedger::lateness_limit).min().map(show_duration).unwrap_or_default();
            self.line(format_args!("faithful: no drop but the link's own, p99 lateness within {limit}"));
        }
    }

    /// Words, in lines that fit.
    fn line(&mut self, words: std::fmt::Arguments<'_>) {
        let words = words.to_string();
        let text = words.trim_start();
        let indent = " ".repeat(words.len() - text.len());
        let mut line = indent.clone() + text.split(' ').next().unwrap_or_default();
        for word in text.split(' ').skip(1) {
            if line.chars().count() + 1 + word.chars().count() > self.columns {
                self.whole(&line);
                line = format!("{indent}  {word}");
            } else {
                line = format!("{line} {word}");
            }
        }
        self.whole(&line);
    }

    fn whole(&mut self, line: &str) {
        self.text += line.trim_end();
        self.text.push('\n');
    }
}

/// The rows of a path's table.
#[derive(Default)]
struct Rows(Vec<Row>);

impl Rows {
    /// Counts of packets; a row of zeros only where `always` says so.
    fn packets(&mut self, label: &str, counts: [u64; 2], always: bool) {
        if always || counts.iter().any(|count| *count > 0) {
            self.row(label, counts.map(grouped));
        }
    }

    fn row(&mut self, label: &str, both: [String; 2]) {
        self.0.push((label.to_owned(), both));
    }
}

/// True if a link's settings are more than the line above them tells.
fn says_more(link: &str) -> bool {
    const TOLD: [&str; 3] = ["rtt", "rate", "queue"];
    link.split(',').any(|setting| setting.split_once('=').is_some_and(|(key, _)| !TOLD.contains(&key)))
}

/// `1,234,567`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let head = digits.len() % 3;
    let (first, rest) = digits.split_at(head);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    [first.to_owned()].into_iter().filter(|first| !first.is_empty()).chain(groups).collect::<Vec<_>>().join(",")
}

fn per_cent(share: Ratio) -> String {
    format!("{:.1} %", share.get() * 100.0)
}

/// `0.02 / 3.1 / 12 ms`: seconds that ascend, in the unit that the largest needs; one that would vanish in it has its own,
/// `20 / 50 µs / 4.0 s`.
fn times<const N: usize>(seconds: [f64; N]) -> String {
    let most = seconds.into_iter().fold(0.0, f64::max);
    if most == 0.0 {
        return "0 s".to_owned();
    }
    let (scale, unit) = unit_of(most);
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

/// By what to multiply seconds to read them well, and what they are then.
fn unit_of(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s >= 1.0 => (1.0, "s"),
        s if s >= 1e-3 => (1e3, "ms"),
        _ => (1e6, "µs"),
    }
}

/// Two digits or all before the point: a table is to be read, and exact figures are in the JSON.
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
    use lfn_core::path::PathProfile;
    use lfn_core::units::{BitRate, Bytes};
    use lfn_net::emulator::{Change, Cost, Costs, Lateness, Queueing};

    use super::*;

    const WIDTH: usize = 80;

    fn run(links: &[&str], direction: &DirectionLedger) -> Ledger {
        let mut path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        path.queue = Some(Bytes(9_095_625));
        let links = links.iter().map(|link| (*link).to_owned()).collect();
        let (near_to_far, far_to_near) = (direction.clone(), direction.clone());
        Ledger {
            seed: u64::MAX,
            calibration: None,
            paths: vec![PathLedger { path, links, changes: Vec::new(), near_to_far, far_to_near }],
        }
    }

    #[test]
    fn a_link_that_was_changed_says_so() {
        let mut run = run(&["rtt=20ms,rate=50mbit"], &DirectionLedger::default());
        let change = Change { at: 12.3, link: Some(1), settings: "rate=10mbit".to_owned(), base_rtt: 0.1 };
        run.paths[0].changes = vec![change; 18];
        run.paths[0].changes[0].settings.clear();
        let page = text(&run, false, WIDTH);
        let told = page.lines().filter(|line| *line == "      from 12.3 s of link 1: rate=10mbit").count();
        assert_eq!(told, MOST_CHANGES, "{page}");
        assert!(page.contains("\n      and 7 more changes\n"), "{page}");
    }

    #[test]
    fn a_clean_run_is_a_short_page() {
        let page = text(&run(&["rtt=539ms,rate=135mbit"], &DirectionLedger::default()), false, WIDTH);
        assert_eq!(page.lines().count(), 8, "{page}");
        assert!(page.ends_with("faithful: no drop but the link's own, p99 lateness within 5.39 ms\n"), "{page}");
    }

    #[test]
    fn a_run_that_broke_off_is_not_called_faithful() {
        let page = text(&run(&[""], &DirectionLedger::default()), true, WIDTH);
        assert!(!page.contains("\nfaithful: ") && page.contains("\nnot faithful: the link broke off"), "{page}");
        assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
    }

    #[test]
    fn whatever_happened_fits_the_page() {
        const MANY: u64 = 123_456_789_012;
        let late = Lateness { mean: 0.1, p50: 0.999, p99: 0.999, max: 59.9, ..Lateness::default() };
        let direction = DirectionLedger {
            offered: MANY,
            forwarded: MANY,
            dropped: DropCause::ALL.map(|cause| (cause, MANY)).into(),
            marked: MANY,
            damaged: MANY,
            duplicated: MANY,
            in_flight: MANY,
            queue_peak: Bytes(MANY),
            queueing: Queueing { p50: 0.999, p90: 0.999, p99: 0.999, max: 0.999 },
            throughput: BitRate(MANY),
            utilisation: Ratio::new(1.0).unwrap(),
            lateness: late,
            ..DirectionLedger::default()
        };
        let setting = "loss=gilbert:p=1%:r=25%:h=0:k=100%,jitter=pareto:5ms:corr=25%:reorder,outage=every:15s:200ms";
        let (packet, gigabyte) = (Cost { thread: 1.23e-6, all: 2e-6 }, Cost { thread: 0.012_34, all: 0.5 });
        let costs = Some(Costs { packet, gigabyte, processors: 99 });
        let calibration = Some(Calibration { idle: 0.000_999, costs });
        let ledger = Ledger { calibration, ..run(&[setting, setting], &direction) };
        let page = text(&ledger, false, WIDTH);
        assert!(page.lines().all(|line| line.chars().count() <= WIDTH && line.trim_end() == line), "{page}");
        for wanted in ["123,456,789,012", "marked", "damaged", "duplicated", "100.0 %", "outage=every:15s:200ms"] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
        assert!(DropCause::ALL.iter().all(|cause| page.contains(cause.word())), "{page}");
        assert!(page.contains("note: near to far: the latest packet left 59.9 s late\n"), "{page}");
        assert!(page.contains("\nnot faithful: far to near: p99 lateness 999 ms is above 5.39 ms\n"), "{page}");
        narrow(&ledger, &page);
    }

    /// The same where there is less room: every figure is there still.
    fn narrow(ledger: &Ledger, wide: &str) {
        for columns in [40, 60, 77] {
            let page = text(ledger, false, columns);
            for line in page.lines() {
                // A setting is one word, however long.
                assert!(line.chars().count() <= columns || !line.trim().contains(' '), "{columns}: {line}");
            }
            assert_eq!(page.lines().filter(|line| line.trim() == "far to near:").count(), 1, "{page}");
            let figures = |page: &str| page.split_whitespace().filter(|word| *word == "123,456,789,012").count();
            assert_eq!(figures(&page), figures(wide), "{columns}: {page}");
        }
    }

    #[test]
    fn the_latest_of_few_packets_is_told_once() {
        for (packets, notes) in [(20, 0), (2000, 2)] {
            let lateness = Lateness { packets, p99: 0.1, max: 0.1, ..Lateness::default() };
            let page = text(&run(&[""], &DirectionLedger { lateness, ..DirectionLedger::default() }), false, WIDTH);
            assert_eq!(page.matches("note: ").count(), notes, "{page}");
            assert_eq!(page.matches("\nnot faithful: ").count(), 2, "{page}");
            assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
        }
    }

    #[test]
    fn figures_are_short() {
        let grouped = [0, 7, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "7", "999", "1,000", "1,234,567"]);
        assert_eq!(times([0.0, 0.000_05, 0.0125]), "0 / 0.05 / 12 ms");
        assert_eq!(times([0.0, 0.0]), "0 s");
        assert_eq!(times([20e-6, 50e-6, 4.0]), "20 / 50 µs / 4.0 s");
        assert_eq!(times([0.0, 20e-6, 4.0]), "0 / 20 µs / 4.0 s");
        assert_eq!(times([100e-6, 200e-6, 0.0091, 99.0]), "100/200 µs/9.1 ms/99 s");
    }

    #[test]
    fn settings_are_told_where_there_are_more_than_rtt_rate_and_queue() {
        let links =
            |links: &[&str]| text(&run(links, &DirectionLedger::default()), false, WIDTH).matches("rate=").count();
        assert_eq!(links(&["rtt=20ms,rate=50mbit,queue=1bdp"]), 0);
        assert_eq!(links(&["rtt=20ms,rate=50mbit,loss=1%"]), 1);
        assert_eq!(links(&["rtt=20ms,rate=50mbit", "rtt=20ms,rate=20mbit"]), 2);
    }
}
