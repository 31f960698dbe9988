//! Two days of a pair side by side, and the differences between them.

use lfn_mesh::compare::{DayLog, Difference, DifferenceKind, DirectionComparison, DirectionLog, compare};

use super::pair::PairView;
use crate::format::{self, UNKNOWN};

/// Two days of a pair.
#[derive(Debug, Clone)]
pub(crate) struct DaysView {
    /// The first and the second day.
    pub first: String,
    pub second: String,
    /// The conclusion in one or more sentences.
    pub summary: String,
    pub directions: Vec<DirectionView>,
}

/// One direction of two days.
#[derive(Debug, Clone)]
pub(crate) struct DirectionView {
    pub from: String,
    pub to: String,
    /// Name of a figure and its values on both days.
    pub figures: Vec<[String; 3]>,
    /// Name, both values, part (test or network), and whether the difference explains the change.
    pub differences: Vec<[String; 5]>,
}

impl DaysView {
    pub fn new(first: &DayLog, second: &DayLog) -> Self {
        let comparison = compare(first, second);
        let directions = [
            direction(&first.forward, &second.forward, &comparison.forward),
            direction(&first.reverse, &second.reverse, &comparison.reverse),
        ];
        DaysView {
            first: format::day(first.day),
            second: format::day(second.day),
            summary: comparison.summary,
            directions: directions.into(),
        }
    }
}

impl DirectionView {
    /// Returns the caption of the figures.
    pub fn caption(&self) -> String {
        format!("Two days, {} → {}", self.from, self.to)
    }
}

impl PairView {
    /// Returns the days that the form of the page offers: the compared ones, or the last two.
    pub fn compared_days(&self) -> [String; 2] {
        let day = |seconds| format::day(self.now.saturating_sub(std::time::Duration::from_secs(seconds)));
        self.days_compared
            .as_ref()
            .map_or_else(|| [day(86_400), day(0)], |days| [days.first.clone(), days.second.clone()])
    }
}

fn direction(first: &DirectionLog, second: &DirectionLog, comparison: &DirectionComparison) -> DirectionView {
    DirectionView {
        from: comparison.from.clone(),
        to: comparison.to.clone(),
        figures: figures(first)
            .into_iter()
            .zip(figures(second))
            .map(|((name, a), (_, b))| [name.to_owned(), a, b])
            .collect(),
        differences: comparison.differences.iter().map(difference).collect(),
    }
}

fn figures(log: &DirectionLog) -> Vec<(&'static str, String)> {
    let goodput = log
        .goodput
        .map_or_else(|| UNKNOWN.to_owned(), |range| format!("{} ({} to {})", range.median, range.min, range.max));
    let verdict = log.loads.last().map(|load| load.error.clone().unwrap_or_else(|| load.verdict.clone()));
    let findings: Vec<&str> = log.findings.iter().map(|finding| finding.name.as_str()).collect();
    let hops = log.routes.last().map(|route| route.hops.iter().map(|hop| if hop.is_empty() { "*" } else { hop }));
    let text = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| UNKNOWN.to_owned());
    vec![
        ("Median goodput (range)", goodput),
        ("Predicted", format::rate(log.predicted)),
        ("Capacity", format::rate(log.capacity)),
        ("Minimum RTT", format::time(log.rtt.and_then(|rtt| rtt.min))),
        ("Loss", format::loss(log.loss())),
        ("Bandwidth-delay product", log.bdp.map_or_else(|| UNKNOWN.to_owned(), |bdp| bdp.decimal())),
        ("Loads, failed measurements", format!("{}, {}", log.loads.len(), log.failed)),
        ("Verdict of the last load", text(verdict)),
        ("Findings", text(Some(findings.join(", ")))),
        ("Path", text(hops.map(|hops| hops.collect::<Vec<_>>().join(" ")))),
    ]
}

fn difference(difference: &Difference) -> [String; 5] {
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
    let part = match difference.kind {
        DifferenceKind::Test => "test",
        DifferenceKind::Network => "network",
    };
    let explains = if difference.effect.explains() { "yes" } else { "no" };
    [difference.name.clone(), shown(&difference.first), shown(&difference.second), part.to_owned(), explains.to_owned()]
}
