//! Limits of a mesh as a whole: the number of its pairs and of its loads a day. Counts come before lists, so that a mesh of
//! 10,000 sites is refused at once.

use super::error::Problem;
use super::limits::{MAX_LOADS_A_DAY, MAX_PAIRS};
use super::model::Sites;
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
}
