//! The log of a pair as text, one day or two days side by side; and as a page of HTML. On a
//! narrow terminal, the values of two days stand below each other.

use std::time::Duration;

use lfn_api::documents::LogDocument;
use lfn_api::pictures::of_log;
use lfn_base::date;
use lfn_base::units::{BitRate, show_duration};
use lfn_mesh::compare::{
    DayLog, Difference, DirectionComparison, DirectionLog, Effect, Explanation, GoodputRange, KEPT_MAX, RttRange,
};

use crate::print::html::{HtmlPage, HtmlTable};

/// Width of a page in HTML, columns.
const WIDTH: usize = 80;

/// Minimum width of the column of a day.
const MIN_COLUMN: usize = 20;

/// Width of the labels.
const LABEL: usize = 18;

/// Returns the page of a log for lines of this width, in columns.
pub fn page(document: &LogDocument, width: usize) -> String {
    let days: Vec<&DayLog> = [Some(&document.log), document.against.as_ref()].into_iter().flatten().collect();
    let mut page = Page::new(&days, width);
    match page.column < MIN_COLUMN {
        true => page.wrap("", &format!("days (UTC): {}", page.days.join(", "))),
        false => page.row("day (UTC)", page.days.clone().into_iter()),
    }
    for is_forward in [true, false] {
        let logs: Vec<&DirectionLog> =
            days.iter().map(|day| if is_forward { &day.forward } else { &day.reverse }).collect();
        let comparison = document.comparison.as_ref();
        let compared = comparison.map(|comparison| match is_forward {
            true => &comparison.forward,
            false => &comparison.reverse,
        });
        page.direction(&logs, compared);
    }
    if let Some(comparison) = &document.comparison {
        page.text.push('\n');
        page.wrap("result: ", &comparison.summary);
    }
    page.text
}

/// Returns the page of HTML of a log: the text, the loads and the charts.
pub fn report(document: &LogDocument) -> HtmlPage {
    let days: Vec<&DayLog> = [Some(&document.log), document.against.as_ref()].into_iter().flatten().collect();
    let dates: Vec<String> = days.iter().map(|day| show_day(day.day)).collect();
    let logs = days.iter().flat_map(|day| [(day.day, &day.forward), (day.day, &day.reverse)]);
    HtmlPage {
        title: format!("Log {} and {}, {} (UTC)", document.first, document.second, dates.join(" against ")),
        summary: page(document, WIDTH),
        tables: logs.filter(|(_, log)| !log.loads.is_empty()).map(|(day, log)| loads_table(day, log)).collect(),
        album: of_log(document),
        json: serde_json::to_string_pretty(document).unwrap_or_default(),
    }
}

fn loads_table(day: Duration, log: &DirectionLog) -> HtmlTable {
    let rows = log.loads.iter().map(|load| {
        let show = |rate: Option<BitRate>| rate.map(|rate| rate.to_string()).unwrap_or_default();
        vec![
            show_time(load.time),
            show(load.goodput),
            show(load.predicted),
            load.retransmits.map(|segments| segments.to_string()).unwrap_or_default(),
            load.error.clone().unwrap_or_else(|| load.verdict.clone()),
        ]
    });
    HtmlTable {
        name: format!("Loads {} → {}, {}", log.from, log.to, show_day(day)),
        head: vec!["time (UTC)", "goodput", "predicted", "retransmitted segments", "verdict"],
        rows: rows.collect(),
    }
}

/// A page that is written line by line.
struct Page {
    text: String,
    /// Maximum width of a line, columns.
    width: usize,
    /// Width of the column of a day.
    column: usize,
    /// The days; their values stand below each other if their columns are too narrow.
    days: Vec<String>,
}

impl Page {
    fn new(days: &[&DayLog], width: usize) -> Self {
        let column = (width.saturating_sub(LABEL) / days.len().max(1)).saturating_sub(2);
        Page { text: String::new(), width, column, days: days.iter().map(|day| show_day(day.day)).collect() }
    }

    /// Adds a label and the value of each day. Long values continue in the next lines. Nothing without a value.
    fn row(&mut self, label: &str, values: impl Iterator<Item = String>) {
        let values: Vec<String> = values.collect();
        if values.iter().all(String::is_empty) {
            return;
        }
        let is_long = label.chars().count() > LABEL - 1;
        if self.column < MIN_COLUMN {
            return self.stacked(label, &values);
        }
        if is_long {
            self.wrap("  ", label.trim_start());
        }
        let cells: Vec<Vec<String>> = values.iter().map(|value| wrapped(value, self.column)).collect();
        for at in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let label = if at == 0 && !is_long { label } else { "" };
            let mut line = format!("{label:<LABEL$}");
            for cell in &cells {
                let text = cell.get(at).map_or("", String::as_str);
                line.push_str(&format!("{text:<width$}  ", width = self.column));
            }
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// Adds the values of a row below its label, each with its day if there are two.
    fn stacked(&mut self, label: &str, values: &[String]) {
        self.wrap("  ", label.trim());
        let days = self.days.clone();
        for (day, value) in days.iter().zip(values).filter(|(_, value)| !value.is_empty()) {
            let text = if days.len() > 1 { format!("{day}: {value}") } else { value.clone() };
            self.wrap("    ", &text);
        }
    }

    /// Adds a text with a label, wrapped under its first word, or below a label that takes more than half of the width.
    fn wrap(&mut self, label: &str, text: &str) {
        let indent = label.chars().count();
        let (first, indent) = if indent * 2 > self.width { (label.trim_end(), 4) } else { ("", indent) };
        if !first.is_empty() {
            self.text.push_str(&format!("{first}\n"));
        }
        for (at, line) in wrapped(text, self.width - indent).into_iter().enumerate() {
            let start = if at == 0 && first.is_empty() && indent == label.chars().count() { label } else { "" };
            self.text.push_str(&format!("{start:<indent$}{line}\n"));
        }
    }

    fn direction(&mut self, logs: &[&DirectionLog], compared: Option<&DirectionComparison>) {
        let Some(first) = logs.first() else { return };
        self.text.push('\n');
        self.wrap("", &format!("{} → {}", first.from, first.to));
        if logs.iter().all(|log| log.entries == 0) {
            self.text.push_str("  no entry\n");
            return;
        }
        self.row("  path", logs.iter().map(|log| show_path(log)));
        self.row("  RTT", logs.iter().map(|log| log.rtt.map(show_rtt).unwrap_or_default()));
        self.row("  one-way delay", logs.iter().map(|log| log.one_way_delay.map(show_duration).unwrap_or_default()));
        self.row("  loss", logs.iter().map(|log| show_loss(log)));
        self.row("  capacity", logs.iter().map(|log| log.capacity.map(|rate| rate.to_string()).unwrap_or_default()));
        self.row("  BDP", logs.iter().map(|log| log.bdp.map(|bytes| bytes.decimal()).unwrap_or_default()));
        self.row("  goodput", logs.iter().map(|log| show_goodput(log)));
        self.row("  predicted", logs.iter().map(|log| show_predicted(log)));
        self.row("  verdict", logs.iter().map(|log| show_verdicts(log)));
        self.row("  findings", logs.iter().map(|log| show_findings(log)));
        match compared {
            None => self.conditions(first),
            Some(compared) => self.comparison(logs, compared),
        }
    }

    /// Adds the conditions of one day.
    fn conditions(&mut self, log: &DirectionLog) {
        for (name, value) in &log.conditions {
            self.row(&format!("  {name} "), [value.clone()].into_iter());
        }
        for (name, periods) in &log.changed_conditions {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
            let text =
                periods.iter().map(|period| format!("{} from {}", value(&period.value), show_time(period.since)));
            self.row(&format!("  {name} "), [text.collect::<Vec<_>>().join("; ")].into_iter());
        }
    }

    /// Adds the differences, and the conditions that are the same on both days.
    fn comparison(&mut self, logs: &[&DirectionLog], compared: &DirectionComparison) {
        let same = logs.iter().map(|log| &log.conditions).reduce(|_, conditions| conditions);
        let is_same = |name: &String| !compared.differences.iter().any(|difference| difference.name == *name);
        let same = same.into_iter().flatten().filter(|(name, _)| is_same(name));
        let same: Vec<String> = same.map(|(name, value)| format!("{name} {value}")).collect();
        if !same.is_empty() {
            self.wrap("  same on both days: ", &same.join(", "));
        }
        if !compared.differences.is_empty() {
            self.text.push_str("  differences\n");
        }
        for difference in &compared.differences {
            self.difference(difference, compared);
        }
    }

    fn difference(&mut self, difference: &Difference, compared: &DirectionComparison) {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let values = [&difference.first, &difference.second].map(value);
        self.row(&format!("    {}", difference.name), values.into_iter());
        let effect = show_effect(&difference.effect, compared);
        if !effect.is_empty() {
            let indent = if self.column < MIN_COLUMN { 4 } else { LABEL };
            self.wrap(&" ".repeat(indent), &effect);
        }
    }
}

/// Returns the effect of a difference with its figures.
fn show_effect(effect: &Effect, compared: &DirectionComparison) -> String {
    let (Some(limit), Some(cause)) = (effect.limit, effect.limited_by) else { return String::new() };
    let medians = [compared.goodput.first, compared.goodput.second].map(|goodput| goodput.map(|range| range.median));
    let [Some(one), Some(other)] = medians else { return String::new() };
    let (slow, fast) = (one.min(other), one.max(other));
    let limits = format!("limits the goodput to {limit} ({cause})");
    match effect.explanation {
        Explanation::Explains => format!("explains: {limits}; measured {slow} against {fast}"),
        Explanation::LimitTooHigh => format!("no explanation: {limits}; measured {slow}, below half of this limit"),
        Explanation::LimitExceeded => format!("no explanation: {limits}; measured {slow}, above this limit"),
        Explanation::NoLowerLimit if fast.as_f64() > limit.as_f64() * KEPT_MAX => {
            format!("no explanation: {limits}; the prediction of the faster day is not higher")
        }
        Explanation::NoLowerLimit => {
            format!("no explanation: {limits}; the faster day measured {fast}, below this limit or within 5 % of it")
        }
        Explanation::NoModel => String::new(),
    }
}

fn show_day(day: Duration) -> String {
    date::rfc3339(day).chars().take(10).collect()
}

fn show_time(time: Duration) -> String {
    date::rfc3339(time).chars().skip(11).take(5).collect()
}

fn show_path(log: &DirectionLog) -> String {
    let hop = |hop: &String| if hop.is_empty() { "*".to_owned() } else { hop.clone() };
    let route = |hops: &[String]| hops.iter().map(hop).collect::<Vec<_>>().join(" ");
    match log.routes.as_slice() {
        [route_of_day] => route(&route_of_day.hops),
        routes => routes
            .iter()
            .map(|changed| format!("from {}: {}", show_time(changed.since), route(&changed.hops)))
            .collect::<Vec<_>>()
            .join("; "),
    }
}

fn show_rtt(rtt: RttRange) -> String {
    let known = [("min", rtt.min), ("median", rtt.median), ("max", rtt.max)];
    let known = known.into_iter().filter_map(|(name, time)| Some(format!("{name} {}", show_duration(time?))));
    known.collect::<Vec<_>>().join(", ")
}

fn show_loss(log: &DirectionLog) -> String {
    match log.packets {
        0 => String::new(),
        packets => format!("{} of {packets} packets", log.lost_packets),
    }
}

fn show_goodput(log: &DirectionLog) -> String {
    let count = |number: usize| if number == 1 { "1 load".to_owned() } else { format!("{number} loads") };
    let (all, usual) = (log.loads.len(), log.loads.iter().filter(|load| load.has_usual_goodput()).count());
    let others = if usual < all { format!(" of {}", count(all)) } else { String::new() };
    let number = if usual < all { usual.to_string() } else { count(usual) };
    match log.goodput {
        None if all == 0 => String::new(),
        None => format!("none of {} succeeded outside of maintenance", count(all)),
        Some(GoodputRange { min, max, .. }) if min == max => format!("{min} ({number}{others})"),
        Some(GoodputRange { min, max, .. }) => format!("{min} to {max} ({number}{others})"),
    }
}

fn show_predicted(log: &DirectionLog) -> String {
    let limit = log.predicted_limit.map(|limit| format!(" ({limit})")).unwrap_or_default();
    log.predicted.map(|predicted| format!("{predicted}{limit}")).unwrap_or_default()
}

/// Returns the verdicts of a day, each once.
fn show_verdicts(log: &DirectionLog) -> String {
    let mut verdicts: Vec<&str> = Vec::new();
    for load in &log.loads {
        let text = load.error.as_deref().unwrap_or(&load.verdict);
        if !text.is_empty() && !verdicts.contains(&text) {
            verdicts.push(text);
        }
    }
    verdicts.join("; ")
}

fn show_findings(log: &DirectionLog) -> String {
    log.findings.iter().map(|finding| finding.name.clone()).collect::<Vec<_>>().join(", ")
}

/// Divides a text into lines of a width, between words if possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let length = line.chars().count();
        if length > 0 && length + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > width {
            lines.push(word.drain(..width).collect());
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use lfn_base::date;
    use lfn_mesh::compare::compare;
    use lfn_mesh::entry::{Entry, EntryKind, Marks, Outcome};

    use super::*;

    fn vbns(days: [&str; 2]) -> LogDocument {
        let text = include_str!("../../../../../contrib/mesh/vbns-1997.ndjson");
        let entries: Vec<Entry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [log, against] = days.map(|day| DayLog::of(&entries, "ncar", "psc", date::parse(day).unwrap()));
        let comparison = Some(compare(&log, &against));
        LogDocument {
            first: "ncar".into(),
            second: "psc".into(),
            log,
            against: Some(against),
            comparison,
            ..document()
        }
    }

    fn document() -> LogDocument {
        LogDocument {
            schema: lfn_api::documents::LogSchema::Current,
            first: "a".into(),
            second: "b".into(),
            log: DayLog::of(&[], "a", "b", Duration::ZERO),
            against: None,
            comparison: None,
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [20, 40, 60, 80, 100] {
            let mut document = vbns(["1997-03-03", "1997-03-04"]);
            for _ in 0..2 {
                let text = page(&document, width);
                assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
                (document.against, document.comparison) = (None, None);
            }
        }
        let text = page(&vbns(["1997-03-03", "1997-03-04"]), 40);
        assert!(text.contains("    1997-03-03: ") && text.contains("    1997-03-04: "), "{text}");
    }

    #[test]
    fn values_of_long_names_are_aligned() {
        let conditions =
            [("mtu".to_owned(), "9000".to_owned()), ("sysctl.to.net.ipv4.tcp_rmem".to_owned(), "1 2 3".to_owned())];
        let load = Entry { conditions: conditions.into(), ..Entry::new(EntryKind::Load, "a", "b", Duration::ZERO) };
        let text = page(&LogDocument { log: DayLog::of(&[load], "a", "b", Duration::ZERO), ..document() }, 80);
        let column = |value: &str| text.lines().find_map(|line| line.find(value));
        assert_eq!((column("9000"), column("1 2 3")), (Some(LABEL), Some(LABEL)), "{text}");
    }

    #[test]
    fn loads_that_count_are_counted() {
        let load = |seconds, outcome, maintenance| Entry {
            goodput: Some(BitRate(1_000_000)),
            outcome,
            marks: Marks { maintenance, ..Marks::default() },
            ..Entry::new(EntryKind::Load, "a", "b", Duration::from_secs(seconds))
        };
        let loads = [
            load(1, Outcome::Good, false),
            load(2, Outcome::Good, false),
            load(3, Outcome::Failed, false),
            load(4, Outcome::Good, true),
        ];
        let show = |loads: &[Entry]| show_goodput(&DayLog::of(loads, "a", "b", Duration::ZERO).forward);
        assert_eq!(show(&loads), "1 Mb/s (2 of 4 loads)");
        assert_eq!(show(&loads[..2]), "1 Mb/s (2 loads)");
        assert_eq!(show(&loads[..1]), "1 Mb/s (1 load)");
        assert_eq!(show(&loads[2..]), "none of 2 loads succeeded outside of maintenance");
    }

    #[test]
    fn a_limit_that_is_no_change_is_described_truly() {
        let mut document = vbns(["1997-03-03", "1997-03-04"]);
        let compared = &document.comparison.as_mut().unwrap().forward;
        let fast = compared.goodput.first.unwrap().median.max(compared.goodput.second.unwrap().median);
        let effect = |limit| Effect {
            explanation: Explanation::NoLowerLimit,
            limit: Some(limit),
            limited_by: Some(lfn_base::tcp_model::GoodputLimit::Capacity),
        };
        assert!(
            show_effect(&effect(BitRate(fast.0 / 2)), compared).contains("prediction of the faster day is not higher")
        );
        assert!(show_effect(&effect(BitRate(fast.0 * 2)), compared).contains("below this limit or within 5 % of it"));
    }
}
