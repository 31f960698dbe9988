//! The plan of one day: every slot, the loads that do not fit, and the use of each resource.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::Bytes;

use super::load::{Excluded, Load, Loads};
use super::pack::{PackWork, Packed, pack};
use super::placing::{DAY, PlacedLoad, Placing, PlacingRefusal, place};
use super::resources::{Resource, Resources};
use super::timing::{CLOSING_TIME, GUARD, MAX_CLOCK_ERROR};
use crate::sites::Sites;
use crate::sites::pairs::{HostPair, HostTable};

/// One load at a fixed time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Name of the test.
    pub test: Arc<str>,
    /// Host that sends the data.
    pub from: Arc<str>,
    /// Host that receives the data.
    pub to: Arc<str>,
    /// Host that runs the test: the sender or the receiver. The other host serves.
    pub client: Arc<str>,
    /// Start: time since 1970, whole seconds.
    pub start: Duration,
    /// Length with the time for set-up and close, without the guard after it.
    pub length: Duration,
    /// Maximum bytes of the load.
    pub bytes: Option<Bytes>,
}

impl Slot {
    /// Returns the host that serves the load.
    pub fn server(&self) -> &Arc<str> {
        if self.client == self.from { &self.to } else { &self.from }
    }

    /// Reports whether the server sends.
    pub fn is_reversed(&self) -> bool {
        self.client != self.from
    }

    /// Returns the time at which the load must end, by the clock of the client.
    pub fn deadline(&self) -> Duration {
        self.end() - CLOSING_TIME
    }

    /// Returns the end of the slot.
    pub fn end(&self) -> Duration {
        self.start + self.length
    }
}

/// A load that has no slot on this day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFitting {
    pub test: String,
    pub from: String,
    pub to: String,
    pub reason: NotFittingReason,
}

/// Reasons why a load has no slot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFittingReason {
    #[error("the slot needs {} s and the interval has {} s", .needed.as_secs(), .interval.as_secs())]
    LongerThanInterval { needed: Duration, interval: Duration },
    /// The loads that fit use `used`, and this one needs `needed` bytes more a day.
    #[error("budget of site {site}: {needed} more are needed, and {used} of {permitted} a day are used")]
    Budget { site: String, needed: Bytes, used: Bytes, permitted: Bytes },
    #[error("budget of site {site}: the bytes of this load have no limit")]
    UnlimitedBytes { site: String },
    /// The resource has no free time of this length in a window of the load.
    #[error("{} {} has no free time of this length: {percent} % of the day is used", .resource.kind(), .resource.name())]
    Full { resource: Resource, percent: u64 },
    /// Each resource has free times, but they do not coincide.
    #[error("its hosts and bottlenecks are never free at the same time; the fullest one is {} {} with {percent} % of the day", .resource.kind(), .resource.name())]
    NoCommonTime { resource: Resource, percent: u64 },
    #[error("the search for free times needs too many steps")]
    TooMuchWork,
}

/// Use of a resource on this day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLoad {
    pub resource: Resource,
    /// Loads at a time.
    pub lanes: u64,
    /// Number of slots of the day.
    pub slots: u64,
    /// Sum of the slots with their guards, divided by the lanes.
    pub busy: Duration,
    /// Maximum bytes of all slots; `None` if a load has no limit.
    pub bytes: Option<Bytes>,
}

impl ResourceLoad {
    /// Returns the used share of the day in percent, rounded up.
    pub fn percent(&self) -> u64 {
        (self.busy.as_secs() * 100).div_ceil(DAY)
    }
}

/// Use of the budget of a site on this day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetUse {
    pub site: String,
    pub used: Bytes,
    pub permitted: Bytes,
}

/// Packing of all loads of one interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    pub interval: Duration,
    /// Number of loads in one interval.
    pub loads: usize,
    /// Time that no schedule of these loads can beat.
    pub bound: Duration,
    /// Resource with the largest sum of slots; `None` if the number of hosts decides.
    pub bound_resource: Option<Resource>,
    /// Time that the loads need, one after another as early as possible.
    pub makespan: Duration,
}

/// The plan of one day (UTC). It is a pure function of the sites and the day, and the same on every host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayPlan {
    /// Start of the day: time since 1970.
    pub day: Duration,
    /// Slots by start, then in the order of the file. Every slot ends on this day.
    pub slots: Vec<Slot>,
    pub not_fitting: Vec<NotFitting>,
    /// Pairs that a load test names but that cannot be measured on any day.
    pub excluded: Vec<Excluded>,
    /// Use of every host, interface and bottleneck.
    pub loads: Vec<ResourceLoad>,
    pub budgets: Vec<BudgetUse>,
    /// Packing of each interval, the shortest interval first.
    pub packings: Vec<Packing>,
    resources: Resources,
    /// Numbers of the slots of each resource, in order.
    slots_of: Vec<Vec<u32>>,
}

impl DayPlan {
    /// Returns the plan of the day that contains `time` (since 1970).
    pub fn of_day(sites: &Sites, time: Duration) -> DayPlan {
        let table = HostTable::new(sites);
        let resources = Resources::new(sites);
        let Loads { loads, excluded } = Loads::new(sites, &table, &resources);
        let mut intervals: BTreeMap<u64, Vec<&Load>> = BTreeMap::new();
        for load in &loads {
            intervals.entry(load.interval).or_default().push(load);
        }
        let mut work = PackWork::default();
        let packed: Vec<(Vec<&Load>, Packed)> = intervals
            .into_values()
            .map(|loads| {
                let packed = pack(&loads, &resources.lanes, &mut work);
                (loads, packed)
            })
            .collect();
        let day = time.as_secs() / DAY;
        let placing = place(sites, &resources, &packed, day);
        let packings = packed.iter().map(|(loads, packed)| packing(loads, packed, &resources)).collect();
        let builder = Builder { sites, table: &table, day: Duration::from_secs(day * DAY) };
        builder.build(resources, placing, excluded, packings)
    }

    /// Returns the slots of this client that start at `earliest` (since 1970) or later, in order.
    pub fn client_slots<'p>(&'p self, host: &str, earliest: Duration) -> impl Iterator<Item = &'p Slot> + use<'p> {
        let number = self.resources.hosts.get(host).copied();
        let own = number.map_or(&[][..], |number| &self.slots_of[number][..]);
        let first = own.partition_point(|slot| self.slots[*slot as usize].start < earliest);
        let slots = own[first..].iter().map(|slot| &self.slots[*slot as usize]);
        slots.filter(move |slot| self.resources.hosts.get(&*slot.client).copied() == number)
    }

    /// Reports whether a load of the mesh may have used a resource of the pair between two times since 1970. The times of the
    /// slots are widened by the maximum clock error. Unknown hosts have no loads.
    pub fn own_load(&self, first: &str, second: &str, from: Duration, until: Duration) -> bool {
        let hosts = &self.resources.hosts;
        let (Some(&first), Some(&second)) = (hosts.get(first), hosts.get(second)) else { return false };
        let pair = HostPair { from: first, to: second };
        self.resources.of_pair(pair).into_iter().any(|resource| {
            let slots = &self.slots_of[resource];
            // Slots of one lane do not overlap, so that the ends are in order, too, up to the longest slot.
            let longest = slots.iter().map(|slot| self.slots[*slot as usize].length).max().unwrap_or_default();
            let earliest = from.saturating_sub(longest + 2 * MAX_CLOCK_ERROR + GUARD);
            let first = slots.partition_point(|slot| self.slots[*slot as usize].start < earliest);
            let mut near = slots[first..].iter().map(|slot| &self.slots[*slot as usize]);
            near.by_ref()
                .take_while(|slot| slot.start <= until + MAX_CLOCK_ERROR)
                .any(|slot| slot.end() + MAX_CLOCK_ERROR >= from)
        })
    }
}

fn packing(loads: &[&Load], packed: &Packed, resources: &Resources) -> Packing {
    Packing {
        interval: Duration::from_secs(loads.first().map_or(0, |load| load.interval)),
        loads: loads.len(),
        bound: Duration::from_secs(packed.bound.time),
        bound_resource: packed.bound.resource.map(|number| resources.list[number as usize].clone()),
        makespan: Duration::from_secs(packed.makespan),
    }
}

/// Inputs that turn placed loads into the plan.
struct Builder<'a> {
    sites: &'a Sites,
    table: &'a HostTable<'a>,
    day: Duration,
}

impl Builder<'_> {
    fn build(
        &self,
        resources: Resources,
        placing: Placing,
        excluded: Vec<Excluded>,
        packings: Vec<Packing>,
    ) -> DayPlan {
        let mut placed = placing.placed;
        placed.sort_by_key(|placed| (placed.start, placed.load.rank));
        let names: Vec<Arc<str>> = self.sites.hosts().map(|host| Arc::from(host.name.as_str())).collect();
        let tests: Vec<Arc<str>> = self.sites.tests.iter().map(|test| Arc::from(test.name.as_str())).collect();
        let slots: Vec<Slot> = placed.iter().map(|placed| self.slot(placed, &names, &tests)).collect();
        let mut slots_of = vec![Vec::new(); resources.list.len()];
        let mut busy = vec![0_u64; resources.list.len()];
        for (number, placed) in placed.iter().enumerate() {
            for resource in &placed.load.resources {
                slots_of[*resource as usize].push(u32::try_from(number).unwrap_or(u32::MAX));
                busy[*resource as usize] += placed.load.occupied;
            }
        }
        let loads: Vec<ResourceLoad> = (0..resources.list.len())
            .map(|number| ResourceLoad {
                resource: resources.list[number].clone(),
                lanes: resources.lanes[number],
                slots: slots_of[number].len() as u64,
                busy: Duration::from_secs(busy[number].div_ceil(resources.lanes[number])),
                bytes: sum_of_known(slots_of[number].iter().map(|slot| slots[*slot as usize].bytes)),
            })
            .collect();
        let not_fitting =
            placing.refused.iter().map(|(load, refusal)| self.not_fitting(load, refusal, &loads)).collect();
        let budgets = placing.budgets.into_iter().map(|budget| BudgetUse {
            site: self.sites.sites[budget.site].name.clone(),
            used: Bytes(budget.used),
            permitted: Bytes(budget.permitted),
        });
        let budgets = budgets.collect();
        DayPlan { day: self.day, slots, not_fitting, excluded, loads, budgets, packings, resources, slots_of }
    }

    fn slot(&self, placed: &PlacedLoad, names: &[Arc<str>], tests: &[Arc<str>]) -> Slot {
        let load = placed.load;
        let client = if load.sender_is_client { load.pair.from } else { load.pair.to };
        Slot {
            test: tests[load.test].clone(),
            from: names[load.pair.from].clone(),
            to: names[load.pair.to].clone(),
            client: names[client].clone(),
            start: self.day + Duration::from_secs(placed.start),
            length: Duration::from_secs(load.occupied) - GUARD,
            bytes: load.bytes,
        }
    }

    fn not_fitting(&self, load: &Load, refusal: &PlacingRefusal, loads: &[ResourceLoad]) -> NotFitting {
        let site = |number: usize| self.sites.sites[number].name.clone();
        let used = |number: u32| (loads[number as usize].resource.clone(), loads[number as usize].percent());
        let reason = match *refusal {
            PlacingRefusal::LongerThanInterval => NotFittingReason::LongerThanInterval {
                needed: Duration::from_secs(load.occupied),
                interval: Duration::from_secs(load.interval),
            },
            PlacingRefusal::Budget { site: number, needed, used, permitted } => NotFittingReason::Budget {
                site: site(number),
                needed: Bytes(needed),
                used: Bytes(used),
                permitted: Bytes(permitted),
            },
            PlacingRefusal::UnlimitedBytes { site: number } => NotFittingReason::UnlimitedBytes { site: site(number) },
            PlacingRefusal::Full(number) => {
                let (resource, percent) = used(number);
                NotFittingReason::Full { resource, percent }
            }
            PlacingRefusal::NoCommonTime => {
                let fullest = load.resources.iter().max_by_key(|number| loads[**number as usize].busy);
                let (resource, percent) = used(fullest.copied().unwrap_or(0));
                NotFittingReason::NoCommonTime { resource, percent }
            }
            PlacingRefusal::TooMuchWork => NotFittingReason::TooMuchWork,
        };
        NotFitting {
            test: self.sites.tests[load.test].name.clone(),
            from: self.table.host(load.pair.from).name.clone(),
            to: self.table.host(load.pair.to).name.clone(),
            reason,
        }
    }
}

/// Returns the sum, or `None` if one figure is unknown.
fn sum_of_known(mut figures: impl Iterator<Item = Option<Bytes>>) -> Option<Bytes> {
    figures.try_fold(Bytes(0), |sum, bytes| Some(Bytes(sum.0.saturating_add(bytes?.0))))
}
