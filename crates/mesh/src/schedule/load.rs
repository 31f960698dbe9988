//! Loads of a mesh: each test between two hosts in one direction, with the resources that it occupies.

use std::collections::BTreeSet;

use lfn_base::units::Bytes;

use super::resources::Resources;
use super::roles::{ExclusionReason, sender_is_client};
use super::timing::{GUARD, slot_length};
use crate::entry::EntryKind;
use crate::sites::pairs::{HostPair, HostTable};
use crate::sites::{Sites, Test};

/// One load that repeats every interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// Position in the order of the file: by test, then by pair.
    pub rank: usize,
    /// Number of the test in the file.
    pub test: usize,
    pub pair: HostPair,
    pub sender_is_client: bool,
    /// Numbers of its resources, ascending.
    pub resources: Box<[u32]>,
    /// Occupied time: the slot and its guard, seconds.
    pub occupied: u64,
    /// Seconds between two of these loads.
    pub interval: u64,
    /// Maximum bytes of one load; `None` if neither the file nor a rate limits them.
    pub bytes: Option<Bytes>,
    /// Round of the pair in a round-robin order of the hosts of the test. The pairs of one round have no host in common.
    pub host_round: u32,
    /// The same for the sites of the hosts.
    pub site_round: u32,
}

/// A pair of hosts that a test names but cannot measure in this direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    pub test: String,
    pub from: String,
    pub to: String,
    pub reason: ExclusionReason,
}

/// All loads of a mesh in the order of the file.
pub struct Loads {
    pub loads: Vec<Load>,
    pub excluded: Vec<Excluded>,
}

impl Loads {
    /// Lists the loads of all tests.
    pub fn new(sites: &Sites, table: &HostTable, resources: &Resources) -> Self {
        let mut all = Loads { loads: Vec::new(), excluded: Vec::new() };
        for (number, test) in sites.tests.iter().enumerate().filter(|(_, test)| test.kind == EntryKind::Load) {
            let pairs = table.pairs(test);
            let host_rounds = Rounds::new(pairs.iter().copied());
            let site_pair =
                |pair: HostPair| HostPair { from: resources.site_of(pair.from), to: resources.site_of(pair.to) };
            let site_rounds = Rounds::new(pairs.iter().copied().map(site_pair));
            for pair in pairs {
                let (from, to) = (table.host(pair.from), table.host(pair.to));
                match sender_is_client(from, to, EntryKind::Load) {
                    Ok(sender_is_client) => {
                        let load = Load {
                            rank: all.loads.len(),
                            test: number,
                            pair,
                            sender_is_client,
                            resources: resources.of_pair(pair).into_iter().map(|number| number as u32).collect(),
                            occupied: (slot_length(test.time) + GUARD).as_secs(),
                            interval: test.interval.as_secs(),
                            bytes: max_bytes(test, resources, pair),
                            host_round: host_rounds.round(pair),
                            site_round: site_rounds.round(site_pair(pair)),
                        };
                        all.loads.push(load);
                    }
                    Err(reason) => all.excluded.push(Excluded {
                        test: test.name.clone(),
                        from: from.name.clone(),
                        to: to.name.clone(),
                        reason,
                    }),
                }
            }
        }
        all
    }
}

/// Returns the pairs of load tests that no host can measure.
pub fn excluded_loads(sites: &Sites) -> Vec<Excluded> {
    Loads::new(sites, &HostTable::new(sites), &Resources::new(sites)).excluded
}

/// Returns the maximum bytes of one load: those of the test, and those that the path carries in its time.
fn max_bytes(test: &Test, resources: &Resources, pair: HostPair) -> Option<Bytes> {
    let by_rate = resources.rate_of(pair).map(|rate| rate.times(test.time));
    [by_rate, test.bytes].into_iter().flatten().min()
}

/// Round-robin order of numbers by the circle method: every two numbers meet in one round, and a number meets one other number
/// in a round.
struct Rounds {
    numbers: Vec<usize>,
}

impl Rounds {
    fn new(pairs: impl Iterator<Item = HostPair>) -> Self {
        let numbers: BTreeSet<usize> = pairs.flat_map(|pair| [pair.from, pair.to]).collect();
        Rounds { numbers: numbers.into_iter().collect() }
    }

    fn round(&self, pair: HostPair) -> u32 {
        let place = |number: usize| self.numbers.binary_search(&number).unwrap_or(0);
        let (first, second) = (place(pair.from).min(place(pair.to)), place(pair.from).max(place(pair.to)));
        let count = self.numbers.len();
        let round = match count {
            0..=2 => 0,
            _ if count % 2 == 1 => (first + second) % count,
            // The last number of an even count stands in the centre of the circle.
            _ if second == count - 1 => (2 * first) % (count - 1),
            _ => (first + second) % (count - 1),
        };
        u32::try_from(round).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_each_host_at_most_once() {
        for count in 2..30 {
            let all = || {
                let pairs = (0..count).flat_map(|from| (0..from).map(move |to| HostPair { from, to }));
                pairs.collect::<Vec<_>>()
            };
            let rounds = Rounds::new(all().into_iter());
            let number_of_rounds = if count % 2 == 0 { count - 1 } else { count };
            for round in 0..number_of_rounds {
                let hosts: Vec<usize> = all()
                    .into_iter()
                    .filter(|pair| rounds.round(*pair) == round as u32)
                    .flat_map(|pair| [pair.from, pair.to])
                    .collect();
                let different: BTreeSet<usize> = hosts.iter().copied().collect();
                assert_eq!((hosts.len(), different.len()), (count / 2 * 2, count / 2 * 2), "{count} {round}");
            }
        }
    }
}
