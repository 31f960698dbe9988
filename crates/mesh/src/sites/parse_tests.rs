//! Reads the groups and the tests of a sites file.

use std::time::Duration;

use lfn_base::units::show_duration;

use super::error::Problem;
use super::limits::{MAX_INTERVAL, MAX_LOAD_TIME, MAX_STREAMS, MIN_INTERVAL, MIN_LOAD_TIME};
use super::model::{Directions, Group, GroupPairs, Test};
use super::names::{KnownNames, Names, TestPosition, items};
use super::reader::{Located, Problems, Table};
use crate::entry::EntryKind;

/// Length of a day.
const DAY: Duration = Duration::from_secs(86_400);

/// Maximum length of a load without the key `time`.
const DEFAULT_LOAD_TIME: Duration = Duration::from_secs(10);

/// Length of a latency measurement without the key `time`.
const DEFAULT_LATENCY_TIME: Duration = Duration::from_secs(5);

/// Kinds of tests with their names in the file.
const KINDS: &[(&str, EntryKind)] = &[
    ("load", EntryKind::Load),
    ("latency", EntryKind::Latency),
    ("path", EntryKind::Path),
    ("counters", EntryKind::Counters),
];

/// Returns the name of a kind of test in the file.
pub fn kind_name(kind: EntryKind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
}

/// Kind of a group in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupKind {
    Mesh,
    Star,
    List,
    Between,
}

impl GroupKind {
    const CHOICES: &'static [(&'static str, GroupKind)] = &[
        ("mesh", GroupKind::Mesh),
        ("star", GroupKind::Star),
        ("list", GroupKind::List),
        ("between", GroupKind::Between),
    ];

    /// Returns the keys that a group of this kind has.
    fn keys(self) -> &'static [&'static str] {
        match self {
            GroupKind::Mesh => &["members"],
            GroupKind::Star => &["center", "members"],
            GroupKind::List => &["pairs"],
            GroupKind::Between => &["from", "to"],
        }
    }

    fn name(self) -> &'static str {
        Self::CHOICES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// Reads all groups, and records their names.
pub(super) fn read_groups(root: &mut Table, known: &mut KnownNames, problems: &mut Problems) -> Vec<Group> {
    let mut groups = Vec::new();
    for mut table in items(root, "group", "[[group]]", problems) {
        let name = table.required_name("name", problems);
        let kind = table.required_choice("kind", GroupKind::CHOICES, problems);
        let pairs = kind.and_then(|kind| read_group_pairs(&mut table, kind, known, problems));
        // Without a kind, every key of a group is known.
        let all = ["members", "center", "pairs", "from", "to"];
        for key in all.into_iter().filter(|key| kind.is_none_or(|kind| !kind.keys().contains(key))) {
            if let (true, Some(kind)) = (table.has(key), kind) {
                problems.add(&table.span_of(key), Problem::KeyOfOtherGroup { key, kind: kind.name() });
            }
        }
        table.finish(problems);
        if let Some(name) = &name {
            known.groups.claim(name, problems);
        }
        if let (Some(name), Some(pairs)) = (name, pairs) {
            groups.push(Group { name: name.value, pairs });
        }
    }
    groups
}

fn read_group_pairs(
    table: &mut Table,
    kind: GroupKind,
    known: &KnownNames,
    problems: &mut Problems,
) -> Option<GroupPairs> {
    let mut members = |table: &mut Table, key: &'static str| -> Vec<String> {
        if !table.has(key) {
            table.note_missing(key);
        }
        let names = table.names(key, problems);
        names.into_iter().filter_map(|name| known.member(name, problems)).collect()
    };
    match kind {
        GroupKind::Mesh => Some(GroupPairs::Mesh { members: members(table, "members") }),
        GroupKind::Between => {
            let from = members(table, "from");
            Some(GroupPairs::Between { from, to: members(table, "to") })
        }
        GroupKind::Star => {
            let members = members(table, "members");
            let center = table.required_name("center", problems)?;
            Some(GroupPairs::Star { center: known.member(center, problems)?, members })
        }
        GroupKind::List => {
            if !table.has("pairs") {
                table.note_missing("pairs");
            }
            let pairs = table.pairs("pairs", problems);
            let pairs = pairs.into_iter().filter_map(|pair| known.member_pair(pair, problems)).collect();
            Some(GroupPairs::List { pairs })
        }
    }
}

/// Reads all tests, and returns the position of each.
pub(super) fn read_tests(
    root: &mut Table,
    known: &KnownNames,
    problems: &mut Problems,
) -> (Vec<Test>, Vec<TestPosition>) {
    let mut names = Names::new("test");
    let mut tests = Vec::new();
    let mut positions = Vec::new();
    for mut table in items(root, "test", "[[test]]", problems) {
        let name = table.required_name("name", problems);
        if let Some(name) = &name {
            names.claim(name, problems);
        }
        let span = name.as_ref().map_or_else(|| table.span.clone(), |name| name.span.clone());
        let position = TestPosition { span, interval: table.span_of("interval") };
        let test = read_test(&mut table, name, known, problems);
        table.finish(problems);
        if let Some(test) = test {
            tests.push(test);
            positions.push(position);
        }
    }
    (tests, positions)
}

fn read_test(
    table: &mut Table,
    name: Option<Located<String>>,
    known: &KnownNames,
    problems: &mut Problems,
) -> Option<Test> {
    let kind = table.required_choice("kind", KINDS, problems);
    let group = table.name("group", problems).and_then(|group| known.groups.look_up(group, problems));
    let interval = table.required_duration("interval", problems);
    let interval = interval.and_then(|interval| in_range(table, "interval", interval, INTERVALS, problems));
    let time = table.duration("time", problems);
    let time = time.and_then(|time| in_range(table, "time", time, TIMES, problems));
    let bytes = table.bytes("bytes", problems);
    let streams = table.count("streams", 1..MAX_STREAMS + 1, problems);
    let congestion = table.name("congestion", problems).map(|congestion| congestion.value);
    let directions = table.choice("directions", Directions::CHOICES, problems).unwrap_or_default();
    let kind = kind?;
    for key in ["time", "bytes", "streams", "congestion", "directions"] {
        let fits = match key {
            "time" => matches!(kind, EntryKind::Load | EntryKind::Latency),
            "directions" => kind != EntryKind::Counters,
            _ => kind == EntryKind::Load,
        };
        if table.has(key) && !fits {
            problems.add(&table.span_of(key), Problem::KeyOfOtherKind { key, kind: kind_name(kind) });
        }
    }
    let (name, interval) = (name?.value, interval?);
    let default_time = if kind == EntryKind::Load { DEFAULT_LOAD_TIME } else { DEFAULT_LATENCY_TIME };
    let has_time = time.is_some();
    let time = time.unwrap_or(default_time);
    // The default is never longer than the interval; slots of loads are checked by the plan.
    let time = if kind == EntryKind::Latency && !has_time { time.min(interval) } else { time };
    if kind == EntryKind::Latency && time > interval {
        let (time, interval) = (show_duration(time), show_duration(interval));
        let problem = Problem::LongerThanInterval { test: name.clone(), time, interval };
        problems.add(&table.span_of("time"), problem);
    }
    if kind == EntryKind::Load {
        check_load_interval(table, &name, interval, problems);
    }
    Some(Test { name, kind, group, interval, time, bytes, streams, congestion, directions })
}

/// Permitted durations of a key.
#[derive(Clone, Copy)]
struct DurationRange {
    min: Duration,
    max: Duration,
}

const INTERVALS: DurationRange = DurationRange { min: MIN_INTERVAL, max: MAX_INTERVAL };
const TIMES: DurationRange = DurationRange { min: MIN_LOAD_TIME, max: MAX_LOAD_TIME };

fn in_range(
    table: &Table,
    key: &'static str,
    found: Located<Duration>,
    range: DurationRange,
    problems: &mut Problems,
) -> Option<Duration> {
    if (range.min..=range.max).contains(&found.value) {
        return Some(found.value);
    }
    let value = show_duration(found.value);
    let range = format!("{} to {}", show_duration(range.min), show_duration(range.max));
    problems.add(&found.span, Problem::Range { table: table.name, key, value, range });
    None
}

/// Records an interval that does not fit a day.
fn check_load_interval(table: &Table, test: &str, interval: Duration, problems: &mut Problems) {
    let seconds = interval.as_secs();
    let is_whole = interval.subsec_nanos() == 0;
    if is_whole && (DAY.as_secs().is_multiple_of(seconds) || seconds.is_multiple_of(DAY.as_secs())) {
        return;
    }
    let nearest = nearest_interval(interval);
    let show = show_duration;
    let problem = Problem::Interval { test: test.to_owned(), interval: show(interval), nearest };
    problems.add(&table.span_of("interval"), problem);
}

/// Returns the nearest permitted intervals as a phrase: the longest shorter one, and the shortest longer one.
fn nearest_interval(interval: Duration) -> String {
    let (seconds, day) = (interval.as_secs().max(1), DAY.as_secs());
    let (shorter, longer) = if seconds > day {
        (seconds / day * day, (seconds / day + 1) * day)
    } else {
        let divides = |candidate: &u64| day % candidate == 0;
        let shorter = (1..=seconds).rev().find(divides).unwrap_or(1);
        (shorter, (seconds + 1..=day).find(divides).unwrap_or(day))
    };
    format!("{} or {}", in_largest_unit(shorter), in_largest_unit(longer))
}

/// Formats seconds in the largest unit without a fraction, as the file has them.
fn in_largest_unit(seconds: u64) -> String {
    match seconds {
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}min", seconds / 60),
        _ => format!("{seconds}s"),
    }
}
