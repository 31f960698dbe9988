//! One pair in one direction: its line, findings, conditions and paths.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lfn_base::units::{BitRate, Ratio};
use lfn_mesh::compare::DayLog;
use lfn_mesh::entry::point::Point;
use lfn_mesh::entry::{Entry, EntryFinding, EntryKind, Marks};

use super::days::DaysView;
use super::matrix::{Cell, pair_rows};
use super::mesh::Mesh;
use super::state::{is_stale, loss_of};
use crate::format;

/// Intervals without a measurement that show as a gap.
const GAP_INTERVALS: u32 = 2;
/// The same, as a multiple of the median spacing, if the interval is unknown.
const GAP_SPACINGS: u32 = 3;

/// Input of [`PairView::new`]. Lists have the order of time.
pub(crate) struct PairInput<'a> {
    pub mesh: &'a Mesh,
    pub from: &'a str,
    pub to: &'a str,
    /// Days of the lines.
    pub days: u64,
    pub now: Duration,
    /// Loads and latency measurements of these days.
    pub loads: Vec<Point>,
    pub latencies: Vec<Point>,
    /// The loads before and after the newest change of their conditions ([`newest_change`]).
    pub change: Option<[Entry; 2]>,
    /// The newest entries of each kind with texts, also from before these days.
    pub newest: Vec<Entry>,
    /// The newest paths of this direction, and of the other one.
    pub paths: Vec<Entry>,
    pub reverse_paths: Vec<Entry>,
    pub days_compared: Option<DaysView>,
}

/// One point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Time of the measurement, since 1970.
    pub time: Duration,
    /// Value in bit/s, seconds or as a ratio; `None` for a failed measurement.
    pub value: Option<f64>,
    /// Predicted value; `None` without a prediction.
    pub predicted: Option<f64>,
    pub marks: Marks,
}

/// The points of a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub samples: Vec<Sample>,
    /// Time between two samples from which the line has a gap.
    pub max_gap: Duration,
}

/// The newest change of the conditions of loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConditionChange {
    /// Time of the first load with the new conditions.
    pub time: Duration,
    pub changes: Vec<ChangedCondition>,
}

/// One condition that differs; an empty value is an absent one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangedCondition {
    pub name: String,
    pub before: String,
    pub after: String,
}

/// The path of one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Route {
    /// Time of the newest trace; `None` without one.
    pub time: Option<Duration>,
    pub hops: Vec<Hop>,
    /// Time of the last trace over another path.
    pub changed_after: Option<Duration>,
    /// Hops of the other path that the newest path does not have.
    pub gone: Vec<String>,
}

/// A hop of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Address; empty for a hop without an answer.
    pub address: String,
    /// The other path does not have this hop.
    pub is_new: bool,
}

/// The page of a pair.
#[derive(Debug, Clone)]
pub(crate) struct PairView {
    pub mesh: String,
    pub from: String,
    pub to: String,
    pub from_site: String,
    pub to_site: String,
    pub now: Duration,
    pub since: Duration,
    pub days: u64,
    /// Newest figures; `None` if the archive has no entry of the pair.
    pub cell: Option<Cell>,
    pub load: Option<Entry>,
    pub latency: Option<Entry>,
    pub is_load_stale: bool,
    pub goodput: Line,
    pub base_rtt: Line,
    pub rtt: Line,
    pub loss: Line,
    pub findings: Vec<EntryFinding>,
    pub conditions: BTreeMap<String, String>,
    pub change: Option<ConditionChange>,
    pub routes: [Route; 2],
    /// Newest entries of each kind, newest first.
    pub newest: Vec<Entry>,
    /// The comparison of two days, if it was requested.
    pub days_compared: Option<DaysView>,
}

impl PairView {
    /// Computes the lines, the findings and the changes of the pair.
    pub fn new(input: PairInput<'_>) -> Self {
        let PairInput {
            mesh,
            from,
            to,
            days,
            now,
            loads,
            latencies,
            change,
            mut newest,
            paths,
            reverse_paths,
            days_compared,
        } = input;
        newest.sort_by_key(|entry| std::cmp::Reverse(entry.time));
        let first = |kind| newest.iter().find(|entry| entry.kind == kind).cloned();
        let (load, latency) = (first(EntryKind::Load), first(EntryKind::Latency));
        let both: Vec<Entry> = load.iter().chain(&latency).cloned().collect();
        let cell = pair_rows(mesh, &both, now).pop().map(|row| row.cell);
        let site = |host| mesh.site_of(host).unwrap_or_default().to_owned();
        let rate = |rate: Option<BitRate>| rate.map(BitRate::as_f64);
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let loss = |point: &Point| loss_of(point.packets, point.lost_packets).map(Ratio::get);
        let interval = |entry: &Option<Entry>| entry.as_ref().and_then(|entry| mesh.interval(entry));
        let (load_interval, latency_interval) = (interval(&load), interval(&latency));
        PairView {
            mesh: mesh.name.clone(),
            from: from.to_owned(),
            to: to.to_owned(),
            from_site: site(from),
            to_site: site(to),
            now,
            since: now.saturating_sub(Duration::from_secs(days * 86_400)),
            days,
            cell,
            is_load_stale: load.as_ref().is_some_and(|load| is_stale(mesh, load, now)),
            goodput: line(&loads, load_interval, |point| rate(point.goodput), |point| rate(point.predicted)),
            base_rtt: line(&latencies, latency_interval, |point| seconds(point.base_rtt), |_| None),
            rtt: line(&latencies, latency_interval, |point| seconds(point.rtt), |_| None),
            loss: line(&latencies, latency_interval, loss, |_| None),
            findings: load.as_ref().map(|load| load.findings.clone()).unwrap_or_default(),
            conditions: load.as_ref().map(|load| load.conditions.clone()).unwrap_or_default(),
            change: change.map(|[before, after]| compare_conditions(&before, &after)),
            routes: [route(&paths), route(&reverse_paths)],
            load,
            latency,
            newest,
            days_compared,
        }
    }

    /// Returns the days that the form of the page offers: the compared ones, the two newest days with loads, or the last two.
    pub fn compared_days(&self) -> [String; 2] {
        if let Some(days) = &self.days_compared {
            return [days.first.clone(), days.second.clone()];
        }
        let loads = self.newest.iter().filter(|entry| entry.kind == EntryKind::Load);
        let mut days: Vec<Duration> = loads.map(|load| DayLog::day_of(load.time)).collect();
        days.dedup();
        let [newest, before] = match days[..] {
            [newest, before, ..] => [newest, before],
            _ => [self.now, self.now.saturating_sub(Duration::from_secs(86_400))],
        };
        [format::day(before), format::day(newest)]
    }
}

/// Returns the line of one figure. `interval` is the planned interval.
fn line(
    points: &[Point],
    interval: Option<Duration>,
    value: impl Fn(&Point) -> Option<f64>,
    predicted: impl Fn(&Point) -> Option<f64>,
) -> Line {
    let sample = |point: &Point| Sample {
        time: point.time,
        value: value(point),
        predicted: predicted(point),
        marks: point.marks,
    };
    let max_gap = interval.map_or_else(
        || median_spacing(points).saturating_mul(GAP_SPACINGS),
        |interval| interval.saturating_mul(GAP_INTERVALS),
    );
    // A figure that the measurement does not have is no failure.
    let has_figure = |point: &&Point| value(point).is_some() || is_failed(point);
    Line { samples: points.iter().filter(has_figure).map(sample).collect(), max_gap }
}

fn is_failed(point: &Point) -> bool {
    point.goodput.is_none() && point.base_rtt.is_none() && point.rtt.is_none()
}

/// Returns the median time between neighbours; zero for fewer than two points.
fn median_spacing(points: &[Point]) -> Duration {
    let pairs = points.windows(2);
    let mut spacings: Vec<Duration> = pairs.map(|pair| pair[1].time.saturating_sub(pair[0].time)).collect();
    spacings.sort_unstable();
    spacings.get(spacings.len() / 2).copied().unwrap_or_default()
}

/// Finds the newest load whose conditions differ from those of the load before, and returns the times of both. Loads with
/// unknown conditions are skipped.
pub(crate) fn newest_change(loads: &[Point]) -> Option<[Duration; 2]> {
    let mut known = loads.iter().rev().filter(|load| load.conditions.is_some());
    let mut after = known.next()?;
    for before in known {
        if before.conditions != after.conditions {
            return Some([before.time, after.time]);
        }
        after = before;
    }
    None
}

fn compare_conditions(before: &Entry, after: &Entry) -> ConditionChange {
    let names: BTreeSet<&String> = before.conditions.keys().chain(after.conditions.keys()).collect();
    let value = |entry: &Entry, name: &String| entry.conditions.get(name).cloned().unwrap_or_default();
    let changes = names.into_iter().map(|name| ChangedCondition {
        name: name.clone(),
        before: value(before, name),
        after: value(after, name),
    });
    let changes = changes.filter(|change| change.before != change.after).collect();
    ConditionChange { time: after.time, changes }
}

/// Compares the newest path with the last different one. A hop that did not answer differs from no other hop.
fn route(paths: &[Entry]) -> Route {
    let traced = || paths.iter().rev().filter(|path| !path.hops.is_empty());
    let Some(newest) = traced().next() else { return Route::default() };
    let has = |hops: &[String], hop: &String| hops.iter().any(|other| other == hop);
    let missing = |hops: &[String], other: &[String]| -> Vec<String> {
        hops.iter().filter(|hop| !hop.is_empty() && !has(other, hop)).cloned().collect()
    };
    let other = traced()
        .skip(1)
        .find(|path| !missing(&newest.hops, &path.hops).is_empty() || !missing(&path.hops, &newest.hops).is_empty());
    let hop = |address: &String| Hop {
        address: address.clone(),
        is_new: !address.is_empty() && other.is_some_and(|other| !has(&other.hops, address)),
    };
    Route {
        time: Some(newest.time),
        hops: newest.hops.iter().map(hop).collect(),
        changed_after: other.map(|other| other.time),
        gone: other.map(|other| missing(&other.hops, &newest.hops)).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn load(time: u64, conditions: &[(&str, &str)]) -> Entry {
        let conditions = conditions.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Entry { conditions, ..Entry::new(EntryKind::Load, "a", "b", at(time)) }
    }

    fn path(time: u64, hops: &[&str]) -> Entry {
        let hops = hops.iter().map(|hop| (*hop).to_owned()).collect();
        Entry { hops, ..Entry::new(EntryKind::Path, "a", "b", at(time)) }
    }

    #[test]
    fn newest_change_skips_loads_without_conditions() {
        let point = |time, conditions| Point { time: at(time), conditions, ..Point::default() };
        let loads = [point(1, Some(7)), point(2, Some(8)), point(3, None), point(4, Some(8))];
        assert_eq!(newest_change(&loads), Some([at(1), at(2)]));
        assert_eq!(newest_change(&loads[1..]), None);
        assert_eq!(newest_change(&[point(1, Some(7)), point(2, None), point(3, Some(8))]), Some([at(1), at(3)]));
    }

    #[test]
    fn changed_conditions_are_listed_with_both_values() {
        let before = load(1, &[("kernel", "6.1"), ("wscale", "7")]);
        let after = load(2, &[("kernel", "6.1"), ("wscale", "0"), ("flags", "-Z")]);
        let change = compare_conditions(&before, &after);
        let changes = change.changes.iter().map(|c| (c.name.as_str(), c.before.as_str(), c.after.as_str()));
        assert_eq!(changes.collect::<Vec<_>>(), [("flags", "", "-Z"), ("wscale", "7", "0")]);
        assert_eq!(change.time, at(2));
    }

    #[test]
    fn new_and_lost_hops_are_those_of_the_last_other_path() {
        let paths = [path(1, &["r1", "x", "d"]), path(2, &["r1", "r2", "d"]), path(3, &["r1", "", "r3", "d"])];
        let route = route(&paths);
        assert_eq!((route.time, route.changed_after), (Some(at(3)), Some(at(2))));
        let new: Vec<_> = route.hops.iter().filter(|hop| hop.is_new).map(|hop| hop.address.as_str()).collect();
        assert_eq!((new, route.gone), (vec!["r3"], vec!["r2".to_owned()]));
    }

    #[test]
    fn silent_hop_is_no_change() {
        let route = route(&[path(1, &["r1", "d"]), path(2, &["", "r1", "d"])]);
        assert_eq!((route.changed_after, route.hops.iter().any(|hop| hop.is_new)), (None, false));
    }

    #[test]
    fn gap_is_three_usual_spacings_without_a_plan() {
        let loads = [0, 10, 20, 30, 900].map(|time| Point { time: at(time), ..Point::default() });
        assert_eq!(line(&loads, None, |_| None, |_| None).max_gap, at(30));
        assert_eq!(line(&loads, Some(at(60)), |_| None, |_| None).max_gap, at(120));
    }
}
