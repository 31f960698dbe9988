//! Packing of all loads of one interval as early as possible, without regard to windows. The result is an order in which the
//! loads are placed into the windows of a day.
//!
//! Several orders are tried, and the shortest result counts. The bound is a time that no order can beat: the largest sum on one
//! resource, or the sum of the loads between n hosts divided by the n/2 pairs that can run at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::load::Load;
use super::timeline::{PlacingSpan, Timelines};

/// Maximum steps of all searches for a free time. Further loads are packed one after another.
const MAX_FIRST_FIT_STEPS: u64 = 100_000_000;

/// Maximum steps of all searches for a better order.
const MAX_DYNAMIC_STEPS: u64 = 40_000_000;

/// Remaining work of all packings of a plan. The counts are the same on every host.
#[derive(Debug, Clone)]
pub struct PackWork {
    first_fit: u64,
    dynamic: u64,
}

impl Default for PackWork {
    fn default() -> Self {
        PackWork { first_fit: MAX_FIRST_FIT_STEPS, dynamic: MAX_DYNAMIC_STEPS }
    }
}

/// Start of each load in seconds, and the length of the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Start of each load, in the order of the loads.
    pub starts: Vec<u64>,
    /// End of the last load with its guard.
    pub makespan: u64,
    pub bound: Bound,
}

/// A time that no order of the loads can beat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// The time in whole seconds.
    pub time: u64,
    /// The fullest resource; `None` if the number of hosts decides.
    pub resource: Option<u32>,
}

/// Packs the loads, and subtracts the work. The result depends only on the arguments.
pub fn pack(loads: &[&Load], lanes: &[u64], work: &mut PackWork) -> Packed {
    let fullness = Fullness::new(loads, lanes);
    let bound = bound(loads, lanes, &fullness);
    let mut best: Option<(Vec<u64>, u64)> = None;
    let mut consider = |candidate: Option<Vec<u64>>| {
        let Some(starts) = candidate else { return false };
        let makespan = starts.iter().zip(loads).map(|(start, load)| start + load.occupied).max().unwrap_or(0);
        if best.as_ref().is_none_or(|(_, shortest)| makespan < *shortest) {
            best = Some((starts, makespan));
        }
        best.as_ref().is_some_and(|(_, shortest)| *shortest <= bound.time)
    };
    let rank = |key: fn(&Fullness, &Load) -> [u64; 3]| {
        let mut order: Vec<usize> = (0..loads.len()).collect();
        order.sort_by_key(|load| (key(&fullness, loads[*load]), *load));
        order
    };
    let orders: [fn(&Fullness, &Load) -> [u64; 3]; 3] = [
        |full, load| [u64::MAX - full.of(load), u64::MAX - load.occupied, u64::from(load.host_round)],
        |full, load| [u64::from(load.host_round), u64::MAX - full.of(load), 0],
        |full, load| [u64::from(load.site_round), u64::from(load.host_round), u64::MAX - full.of(load)],
    ];
    let mut is_done = false;
    for (number, key) in orders.into_iter().enumerate() {
        // The first order gives a result, also without work.
        if !is_done && (number == 0 || work.first_fit > 0) {
            is_done = consider(Some(first_fit(loads, lanes, &rank(key), &mut work.first_fit)));
        }
    }
    if !is_done {
        consider(fullest_remaining(loads, lanes, &mut work.dynamic));
    }
    let (starts, makespan) = best.unwrap_or_default();
    Packed { starts, makespan, bound }
}

/// Sum of the loads of each resource, divided by its lanes.
struct Fullness(Vec<u64>);

impl Fullness {
    fn new(loads: &[&Load], lanes: &[u64]) -> Self {
        let mut sums = vec![0; lanes.len()];
        for load in loads {
            for resource in &load.resources {
                sums[*resource as usize] += load.occupied;
            }
        }
        Fullness(sums.iter().zip(lanes).map(|(sum, lanes): (&u64, &u64)| sum.div_ceil(*lanes)).collect())
    }

    /// Returns the sum of the fullest resource of the load.
    fn of(&self, load: &Load) -> u64 {
        load.resources.iter().map(|resource| self.0[*resource as usize]).max().unwrap_or(0)
    }
}

fn bound(loads: &[&Load], lanes: &[u64], fullness: &Fullness) -> Bound {
    let fullest = (0..lanes.len()).max_by_key(|resource| (fullness.0[*resource], Reverse(*resource)));
    let by_resource = fullest.map_or(0, |resource| fullness.0[resource]);
    let by_hosts = HostSets::new(loads).bound();
    if by_hosts > by_resource {
        return Bound { time: by_hosts, resource: None };
    }
    Bound { time: by_resource, resource: fullest.map(|resource| resource as u32) }
}

/// Sets of hosts that loads join, directly or over other hosts.
struct HostSets {
    parent: BTreeMap<usize, usize>,
    sums: BTreeMap<usize, u64>,
}

impl HostSets {
    fn new(loads: &[&Load]) -> Self {
        let mut sets = HostSets { parent: BTreeMap::new(), sums: BTreeMap::new() };
        for load in loads {
            let (from, to) = (sets.root(load.pair.from), sets.root(load.pair.to));
            sets.parent.insert(from, to);
        }
        for load in loads {
            let root = sets.root(load.pair.from);
            *sets.sums.entry(root).or_default() += load.occupied;
        }
        sets
    }

    fn root(&mut self, host: usize) -> usize {
        let mut root = host;
        while let Some(&parent) = self.parent.get(&root).filter(|parent| **parent != root) {
            root = parent;
        }
        self.parent.insert(root, root);
        self.parent.insert(host, root);
        root
    }

    /// Returns the longest sum of a set divided by the loads that its hosts can run at once.
    fn bound(mut self) -> u64 {
        let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
        let hosts: Vec<usize> = self.parent.keys().copied().collect();
        for host in hosts {
            let root = self.root(host);
            *counts.entry(root).or_default() += 1;
        }
        let times = self.sums.iter().map(|(root, sum)| sum.div_ceil((counts[root] / 2).max(1)));
        times.max().unwrap_or(0)
    }
}

/// Places the loads in this order, each at the first time at which its resources are free. Subtracts the work. Without
/// remaining work, each load follows the end of all others.
fn first_fit(loads: &[&Load], lanes: &[u64], order: &[usize], work: &mut u64) -> Vec<u64> {
    let mut timelines = Timelines::new(lanes);
    let mut starts = vec![0; loads.len()];
    let mut end = 0;
    for &number in order {
        let load = loads[number];
        if timelines.steps >= *work {
            starts[number] = end;
            end += load.occupied;
            continue;
        }
        let span = PlacingSpan { start: 0, end: u64::MAX / 2 };
        let start = timelines.first_free(&load.resources, span, load.occupied).unwrap_or(0);
        timelines.occupy(&load.resources, start, load.occupied);
        starts[number] = start;
        end = end.max(start + load.occupied);
    }
    *work = work.saturating_sub(timelines.steps);
    starts
}

/// Goes forward in time and starts the loads of the resources with the largest sum of waiting loads first. Returns `None` if
/// this needs too much work. Subtracts the work.
fn fullest_remaining(loads: &[&Load], lanes: &[u64], work: &mut u64) -> Option<Vec<u64>> {
    *work = work.checked_sub(lanes.iter().sum())?;
    let mut remaining = vec![0_u64; lanes.len()];
    for load in loads {
        for resource in &load.resources {
            remaining[*resource as usize] += load.occupied;
        }
    }
    let mut ends: Vec<Vec<u64>> = lanes.iter().map(|lanes| vec![0; *lanes as usize]).collect();
    let mut waiting: Vec<usize> = (0..loads.len()).collect();
    let mut starts = vec![0; loads.len()];
    let mut now = 0_u64;
    while !waiting.is_empty() {
        let steps = waiting.iter().map(|number| 2 + loads[*number].resources.len() as u64).sum();
        let Some(remaining_work) = work.checked_sub(steps) else {
            *work = 0;
            return None;
        };
        *work = remaining_work;
        let urgency = |number: &usize| {
            let sums = loads[*number]
                .resources
                .iter()
                .map(|resource| remaining[*resource as usize].div_ceil(lanes[*resource as usize]));
            let (max, sum) = sums.fold((0, 0), |(max, sum): (u64, u64), own| (max.max(own), sum + own));
            (Reverse(max), Reverse(sum), loads[*number].host_round, *number)
        };
        waiting.sort_by_cached_key(urgency);
        let mut next = u64::MAX;
        waiting.retain(|&number| {
            let load = loads[number];
            let free =
                load.resources.iter().map(|resource| ends[*resource as usize].iter().min().copied().unwrap_or(0));
            let free = free.max().unwrap_or(0);
            if free > now {
                next = next.min(free);
                return true;
            }
            starts[number] = now;
            for resource in &load.resources {
                remaining[*resource as usize] -= load.occupied;
                if let Some(end) = ends[*resource as usize].iter_mut().min() {
                    *end = now + load.occupied;
                }
            }
            false
        });
        // A load that was free before another one started is found again at the end of the other one.
        now = if next == u64::MAX { now } else { next };
    }
    Some(starts)
}

#[cfg(test)]
mod tests {
    use super::super::load::Loads;
    use super::super::resources::Resources;
    use super::*;
    use crate::sites::Sites;
    use crate::sites::pairs::HostTable;

    #[test]
    fn loads_beyond_the_work_limit_are_packed_in_series() {
        let site = |at: usize| format!("[[site]]\nname = \"s{at}\"\naddress = \"h{at}\"\n");
        let hosts: String = (0..8).map(site).collect();
        let test = "[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"1d\"\ntime = \"1s\"\n";
        let sites = Sites::parse(&format!("name = \"m\"\n{hosts}{test}")).unwrap();
        let resources = Resources::new(&sites);
        let loads = Loads::new(&sites, &HostTable::new(&sites), &resources).loads;
        let loads: Vec<&Load> = loads.iter().collect();
        let mut work = PackWork { first_fit: 50, dynamic: 100 };
        let packed = pack(&loads, &resources.lanes, &mut work);
        assert_eq!((work.first_fit, work.dynamic), (0, 0));
        assert!(packed.makespan > packed.bound.time);
        for (one, load) in loads.iter().enumerate() {
            for (other, second) in loads.iter().enumerate().skip(one + 1) {
                let (first, later) = (packed.starts[one], packed.starts[other]);
                let is_apart = first + load.occupied <= later || later + second.occupied <= first;
                let shares = load.resources.iter().any(|resource| second.resources.contains(resource));
                assert!(is_apart || !shares, "{load:?} at {first}, {second:?} at {later}");
            }
        }
        let full = pack(&loads, &resources.lanes, &mut PackWork::default());
        assert_eq!(full.makespan, full.bound.time);
    }
}
