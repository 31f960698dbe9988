//! Tests that run always: latency, paths and counters. They use no slots. Each pair has its own phase in the interval, so that
//! the tests of a mesh do not start together.

use std::time::Duration;

use super::load::Excluded;
use super::roles::{can_run, sender_is_client};
use crate::entry::EntryKind;
use crate::sites::pairs::HostTable;
use crate::sites::{HostKind, Sites, Test};

/// A measurement that a host repeats at its interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuousTest {
    /// Name of the test.
    pub test: String,
    pub kind: EntryKind,
    /// Host that runs the measurement.
    pub from: String,
    /// Host that is measured; the same host for counters.
    pub to: String,
    /// Time between two measurements.
    pub interval: Duration,
    /// Length of one latency measurement.
    pub time: Duration,
    /// Start of the first measurement after 1970, less than the interval.
    pub phase: Duration,
}

impl ContinuousTest {
    /// Returns the first start after `now`: time since 1970.
    pub fn next_start(&self, now: Duration) -> Duration {
        let interval = self.interval.as_nanos().max(1);
        let since = (now.saturating_sub(self.phase)).as_nanos();
        let periods = if now < self.phase { 0 } else { since / interval + 1 };
        let nanos = u64::try_from(periods * interval).unwrap_or(u64::MAX);
        self.phase.saturating_add(Duration::from_nanos(nanos))
    }
}

/// Returns the tests that `host` runs always, in the order of the file. Every pair is measured by both of its hosts, if both
/// run an agent.
pub fn continuous_tests(sites: &Sites, host: &str) -> Vec<ContinuousTest> {
    let table = HostTable::new(sites);
    let mut found = Vec::new();
    for test in sites.tests.iter().filter(|test| test.kind != EntryKind::Load) {
        let mut add = |to: &str| {
            let phase = phase([&sites.name, &test.name, host, to], test.interval);
            let (from, to) = (host.to_owned(), to.to_owned());
            let (test, kind, interval, time) = (test.name.clone(), test.kind, test.interval, test.time);
            found.push(ContinuousTest { test, kind, from, to, interval, time, phase });
        };
        if test.kind == EntryKind::Counters {
            let own = table.hosts_of(test).into_iter().map(|number| table.host(number));
            own.filter(|own| own.name == host && own.kind == HostKind::Agent).for_each(|own| add(&own.name));
            continue;
        }
        for pair in table.pairs(test) {
            let (from, to) = (table.host(pair.from), table.host(pair.to));
            if from.name == host && can_run(from, to, test.kind) {
                add(&to.name);
            }
        }
    }
    found
}

/// A test without slots, with the number of its measurements in one interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinuousCount {
    pub test: String,
    pub kind: EntryKind,
    pub interval: Duration,
    pub measurements: usize,
}

/// Returns the number of measurements of each test without slots, in the order of the file.
pub fn continuous_counts(sites: &Sites) -> Vec<ContinuousCount> {
    let table = HostTable::new(sites);
    let count = |test: &Test| match test.kind {
        EntryKind::Counters => {
            table.hosts_of(test).into_iter().filter(|host| table.host(*host).kind == HostKind::Agent).count()
        }
        kind => {
            let pairs = table.pairs(test).into_iter();
            pairs.filter(|pair| can_run(table.host(pair.from), table.host(pair.to), kind)).count()
        }
    };
    let tests = sites.tests.iter().filter(|test| test.kind != EntryKind::Load);
    tests
        .map(|test| ContinuousCount {
            test: test.name.clone(),
            kind: test.kind,
            interval: test.interval,
            measurements: count(test),
        })
        .collect()
}

/// Returns the pairs of tests without slots that no host can measure.
pub fn excluded_continuous(sites: &Sites) -> Vec<Excluded> {
    let table = HostTable::new(sites);
    let mut excluded = Vec::new();
    for test in sites.tests.iter().filter(|test| matches!(test.kind, EntryKind::Latency | EntryKind::Path)) {
        for pair in table.pairs(test) {
            let (from, to) = (table.host(pair.from), table.host(pair.to));
            if let Err(reason) = sender_is_client(from, to, test.kind) {
                let (test, from, to) = (test.name.clone(), from.name.clone(), to.name.clone());
                excluded.push(Excluded { test, from, to, reason });
            }
        }
    }
    excluded
}

/// Returns a time less than the interval that depends only on the names.
fn phase(names: [&str; 4], interval: Duration) -> Duration {
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes()).update(&[0]);
    }
    let number = hasher.finalize().as_bytes().iter().take(7).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let nanos = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
    Duration::from_nanos(number % nanos)
}
