//! Placing of loads into the windows of one day.
//!
//! A window of an interval is the time from one multiple of the interval since 1970 to the next one. Every load has one slot in
//! each of its windows. The search begins at an offset in the window, goes to the end of the window, and continues at the start
//! of the window. The offset moves a little every day, so that no pair always has the same hour.

use std::collections::BTreeMap;

use super::load::Load;
use super::pack::Packed;
use super::resources::Resources;
use super::timeline::{PlacingSpan, Timelines};
use crate::sites::Sites;

/// Length of a day, seconds.
pub const DAY: u64 = 86_400;

/// Maximum steps of one search for the places of all loads of a day. The count is the same on every host.
const MAX_STEPS: u64 = 200_000_000;

/// A load in one window.
#[derive(Debug, Clone, Copy)]
pub struct PlacedLoad<'a> {
    pub load: &'a Load,
    /// Start of the slot: seconds since the start of the day.
    pub start: u64,
}

/// Reasons why a load has no slot, with numbers instead of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacingRefusal {
    LongerThanInterval,
    Budget { site: usize, needed: u64, used: u64, permitted: u64 },
    UnlimitedBytes { site: usize },
    Full(u32),
    NoCommonTime,
    TooMuchWork,
}

/// Bytes a day of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub site: usize,
    pub used: u64,
    pub permitted: u64,
}

/// Result of the placing.
pub struct Placing<'a> {
    pub placed: Vec<PlacedLoad<'a>>,
    pub refused: Vec<(&'a Load, PlacingRefusal)>,
    pub budgets: Vec<Budget>,
}

/// Places the loads of one day, given by its number since 1970.
pub fn place<'a>(sites: &Sites, resources: &Resources, packed: &[(Vec<&'a Load>, Packed)], day: u64) -> Placing<'a> {
    let intervals: Vec<IntervalLoads> =
        packed.iter().map(|(loads, packed)| IntervalLoads::new(loads, packed, day)).collect();
    let mut budgets = Budgets::new(sites);
    let refused_by_budget = admit(&intervals, resources, &mut budgets);
    let seed = seed(&sites.name);
    let moved = place_all(&intervals, resources, &refused_by_budget, |interval| interval.offset(seed, day));
    // Another search would need as much work.
    let is_over = moved.refused.iter().any(|(_, refusal)| *refusal == PlacingRefusal::TooMuchWork);
    // Free times at both ends of a window are lost if no load fits into them. Full meshes start at the start of the window.
    let chosen = if moved.refused.is_empty() || is_over {
        moved
    } else {
        let fixed = place_all(&intervals, resources, &refused_by_budget, |_| 0);
        if fixed.refused.len() < moved.refused.len() { fixed } else { moved }
    };
    let mut refused: Vec<(&Load, PlacingRefusal)> = chosen.refused;
    refused.extend(
        intervals
            .iter()
            .flat_map(|interval| &interval.loads)
            .filter_map(|load| refused_by_budget.get(&load.rank).map(|refusal| (*load, refusal.clone()))),
    );
    refused.sort_by_key(|(load, _)| load.rank);
    // Bytes of loads without a slot are not used.
    for (load, refusal) in &refused {
        if !matches!(refusal, PlacingRefusal::Budget { .. } | PlacingRefusal::UnlimitedBytes { .. }) {
            budgets.release(load, resources);
        }
    }
    Placing { placed: chosen.placed, refused, budgets: budgets.0.into_values().collect() }
}

/// Returns a number that differs between meshes.
fn seed(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    hash.as_bytes().iter().take(6).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Loads of one interval that run on this day, in the order in which they are placed.
struct IntervalLoads<'a> {
    /// Seconds between two windows, at most a day.
    window: u64,
    loads: Vec<&'a Load>,
}

impl<'a> IntervalLoads<'a> {
    fn new(all: &[&'a Load], packed: &Packed, day: u64) -> Self {
        let interval = all.first().map_or(DAY, |load| load.interval);
        let days = (interval / DAY).max(1);
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by_key(|load| (packed.starts[*load], *load));
        // An interval of several days is divided into equal parts of the packed order, one for each day.
        let is_today = |load: &usize| packed.starts[*load] * days / packed.makespan.max(1) == day % days;
        let loads = order.into_iter().filter(|load| days == 1 || is_today(load)).map(|load| all[load]).collect();
        IntervalLoads { window: interval.min(DAY), loads }
    }

    /// Returns the number of windows of a day.
    fn windows(&self) -> u64 {
        DAY / self.window
    }

    /// Returns the offset in each window at which the search begins. It moves by one twenty-fourth of the window and one minute
    /// a day, so that daily loads see every hour, and the time between two loads stays close to the interval.
    fn offset(&self, seed: u64, day: u64) -> u64 {
        (seed + day * (self.window / 24 + 60)) % self.window
    }
}

/// Result of one search.
struct Attempt<'a> {
    placed: Vec<PlacedLoad<'a>>,
    refused: Vec<(&'a Load, PlacingRefusal)>,
}

/// Refused loads by their rank.
type RefusedLoads = BTreeMap<usize, PlacingRefusal>;

/// Finds the loads that fit the budgets, in the order of the file, and returns the others.
fn admit(intervals: &[IntervalLoads], resources: &Resources, budgets: &mut Budgets) -> RefusedLoads {
    let mut loads: Vec<(&Load, u64)> =
        intervals.iter().flat_map(|interval| interval.loads.iter().map(|load| (*load, interval.windows()))).collect();
    loads.sort_by_key(|(load, _)| load.rank);
    let mut refused = BTreeMap::new();
    for (load, windows) in loads {
        if let Err(refusal) = budgets.admit(load, windows, resources) {
            refused.insert(load.rank, refusal);
        }
    }
    refused
}

fn place_all<'a>(
    intervals: &[IntervalLoads<'a>],
    resources: &Resources,
    skipped: &RefusedLoads,
    offset: impl Fn(&IntervalLoads) -> u64,
) -> Attempt<'a> {
    let mut timelines = Timelines::new(&resources.lanes);
    let mut attempt = Attempt { placed: Vec::new(), refused: Vec::new() };
    for interval in intervals {
        let offset = offset(interval);
        for load in interval.loads.iter().filter(|load| !skipped.contains_key(&load.rank)) {
            match find_starts(&mut timelines, load, interval, offset) {
                Ok(starts) => {
                    for start in starts {
                        timelines.occupy(&load.resources, start, load.occupied);
                        attempt.placed.push(PlacedLoad { load, start });
                    }
                }
                Err(refusal) => attempt.refused.push((load, refusal)),
            }
        }
    }
    attempt
}

/// Returns the start of a load in each window of its interval.
fn find_starts(
    timelines: &mut Timelines,
    load: &Load,
    interval: &IntervalLoads,
    offset: u64,
) -> Result<Vec<u64>, PlacingRefusal> {
    if load.occupied > interval.window {
        return Err(PlacingRefusal::LongerThanInterval);
    }
    let mut starts = Vec::new();
    for window in 0..interval.windows() {
        if timelines.steps > MAX_STEPS {
            return Err(PlacingRefusal::TooMuchWork);
        }
        let all = PlacingSpan { start: window * interval.window, end: (window + 1) * interval.window };
        let late = PlacingSpan { start: all.start + offset, ..all };
        let start = timelines.first_free(&load.resources, late, load.occupied);
        let Some(start) = start.or_else(|| timelines.first_free(&load.resources, all, load.occupied)) else {
            let full = timelines.full_resource(&load.resources, all, load.occupied);
            return Err(full.map_or(PlacingRefusal::NoCommonTime, PlacingRefusal::Full));
        };
        starts.push(start);
    }
    Ok(starts)
}

/// Budgets of the sites that have one.
struct Budgets(BTreeMap<usize, Budget>);

impl Budgets {
    fn new(sites: &Sites) -> Self {
        let budgets = sites.sites.iter().enumerate().filter_map(|(site, item)| {
            let permitted = item.budget?.0;
            Some((site, Budget { site, used: 0, permitted }))
        });
        Budgets(budgets.collect())
    }

    /// Returns the sites of both hosts, which may be the same.
    fn sites_of(load: &Load, resources: &Resources) -> [usize; 2] {
        [load.pair.from, load.pair.to].map(|host| resources.site_of(host))
    }

    /// Uses the bytes of a load at both of its sites, if both permit them.
    fn admit(&mut self, load: &Load, windows: u64, resources: &Resources) -> Result<(), PlacingRefusal> {
        let sites = Self::sites_of(load, resources);
        let needed = |site: usize, bytes: u64| {
            let ends = sites.iter().filter(|own| **own == site).count() as u64;
            bytes.saturating_mul(windows).saturating_mul(ends)
        };
        for site in sites {
            let Some(budget) = self.0.get(&site) else { continue };
            let Some(bytes) = load.bytes else { return Err(PlacingRefusal::UnlimitedBytes { site }) };
            let (used, permitted, needed) = (budget.used, budget.permitted, needed(site, bytes.0));
            if used.saturating_add(needed) > permitted {
                return Err(PlacingRefusal::Budget { site, needed, used, permitted });
            }
        }
        for site in sites {
            if let (Some(budget), Some(bytes)) = (self.0.get_mut(&site), load.bytes) {
                budget.used += bytes.0.saturating_mul(windows);
            }
        }
        Ok(())
    }

    /// Returns the bytes of an admitted load.
    fn release(&mut self, load: &Load, resources: &Resources) {
        let windows = (DAY / load.interval).max(1);
        for site in Self::sites_of(load, resources) {
            if let (Some(budget), Some(bytes)) = (self.0.get_mut(&site), load.bytes) {
                budget.used = budget.used.saturating_sub(bytes.0.saturating_mul(windows));
            }
        }
    }
}
