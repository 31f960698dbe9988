//! Limits of a mesh as a whole: the number of its pairs and of its loads a day. Counts come before lists, so that a mesh of
//! 10,000 sites is refused at once.

use super::error::Problem;
use super::limits::{MAX_LOADS_A_DAY, MAX_PAIRS, MAX_PARALLEL_MEASUREMENTS, PATH_TIME};
use super::model::{HostKind, Sites, Test};
use super::names::TestPosition;
use super::pairs::HostTable;
use super::reader::Problems;
use crate::entry::EntryKind;

/// Records tests without pairs, and the first test beyond a limit.
pub(super) fn check_size(sites: &Sites, positions: &[TestPosition], problems: &mut Problems) {
    let table = HostTable::new(sites);
    let (mut pairs, mut loads) = (0_u64, 0_u64);
    for (test, position) in sites.tests.iter().zip(positions) {
        let count = match test.kind {
            EntryKind::Counters => table.hosts_of(test).len() as u64,
            _ => table.count(test),
        };
        if count == 0 {
            problems.add(&position.span, Problem::NoPairs { test: test.name.clone() });
        }
        pairs = pairs.saturating_add(count);
        if pairs > MAX_PAIRS {
            problems.add(&position.span, Problem::TooMany { what: "pairs of hosts", count: pairs, max: MAX_PAIRS });
            return;
        }
        if test.kind == EntryKind::Load {
            let times = (86_400 / test.interval.as_secs().max(1)).max(1);
            loads = loads.saturating_add(count.saturating_mul(times));
            if loads > MAX_LOADS_A_DAY {
                let problem = Problem::TooMany { what: "loads a day", count: loads, max: MAX_LOADS_A_DAY };
                problems.add(&position.interval, problem);
                return;
            }
        }
    }
    check_parallel(sites, &table, positions, problems);
}

/// Returns the time of one measurement divided by its interval: the mean number of measurements of a pair at once.
fn share(test: &Test) -> f64 {
    let time = match test.kind {
        EntryKind::Latency => test.time,
        EntryKind::Path => PATH_TIME.min(test.interval),
        EntryKind::Load | EntryKind::Counters => return 0.0,
    };
    time.as_secs_f64() / test.interval.as_secs_f64()
}

/// Records the hosts whose tests without slots need more measurements at once than an agent runs.
fn check_parallel(sites: &Sites, table: &HostTable, positions: &[TestPosition], problems: &mut Problems) {
    let max = MAX_PARALLEL_MEASUREMENTS as f64;
    // A host has at most one pair with each other host, so that most meshes need no list of pairs.
    let largest = sites.tests.iter().map(|test| share(test) * table.count(test).min(table.len() as u64) as f64);
    if largest.sum::<f64>() <= max {
        return;
    }
    let mut needed = vec![0.0; table.len()];
    let mut listed = vec![false; table.len()];
    for (test, position) in sites.tests.iter().zip(positions) {
        let share = share(test);
        if share == 0.0 {
            continue;
        }
        for pair in table.pairs(test) {
            let (from, to) = (table.host(pair.from), table.host(pair.to));
            let is_measured = from.kind == HostKind::Agent && to.serves(test.kind) && !to.dial_only;
            needed[pair.from] += if is_measured { share } else { 0.0 };
        }
        for (number, needed) in needed.iter().enumerate().filter(|(_, needed)| **needed > max) {
            if !std::mem::replace(&mut listed[number], true) {
                let (host, needed) = (table.host(number).name.clone(), needed.ceil() as u64);
                problems.add(&position.interval, Problem::TooManyMeasurements { host, needed });
            }
        }
    }
}
