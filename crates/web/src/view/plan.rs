//! The plan: the next loads, the use of hosts and bottlenecks, and the loads that do not fit.

use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};
use lfn_mesh::schedule::{DayPlan, ResourceLoad, Slot};
use lfn_mesh::sites::Sites;

use crate::format;

/// Next loads on the page.
const MAX_SLOTS: usize = 40;
/// Hosts and bottlenecks on the page.
const MAX_RESOURCES: usize = 40;
/// Loads that do not fit on the page.
const MAX_NOT_FITTING: usize = 200;

/// Rows of texts, cut to a maximum.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows<const N: usize> {
    pub rows: Vec<[String; N]>,
    /// Number of rows before the cut.
    pub total: usize,
}

impl<const N: usize> Rows<N> {
    fn cut(rows: impl ExactSizeIterator<Item = [String; N]>, max: usize) -> Self {
        Rows { total: rows.len(), rows: rows.take(max).collect() }
    }
}

/// The page of the plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanView {
    pub mesh: String,
    pub now: Duration,
    /// Time since 1970 from which the agents follow this plan, if they follow another one now.
    pub later: Option<Duration>,
    /// Number of loads today.
    pub today: usize,
    /// Start, end, test, sender, receiver, client and bytes of the loads that run now or next.
    pub next: Rows<7>,
    /// Kind, name, used share of today, number of loads and bytes.
    pub resources: Rows<5>,
    /// Site, used bytes and permitted bytes of today.
    pub budgets: Rows<3>,
    /// Test, sender, receiver and reason.
    pub not_fitting: Rows<4>,
    /// The same for pairs that no plan can measure.
    pub excluded: Rows<4>,
    /// Name, kind, pairs, interval and length of each test.
    pub tests: Rows<5>,
}

impl PlanView {
    /// Returns the page for the plans of today and of tomorrow, which the agents follow from `valid_from` on.
    pub fn new(
        sites: &Sites,
        today: &DayPlan,
        tomorrow: Option<&DayPlan>,
        valid_from: Duration,
        now: Duration,
    ) -> Self {
        let later = tomorrow.into_iter().flat_map(|plan| &plan.slots);
        let is_next = |slot: &&Slot| slot.end() > now && slot.start >= valid_from;
        let next: Vec<&Slot> = today.slots.iter().chain(later).filter(is_next).take(MAX_SLOTS).collect();
        let mut resources: Vec<&ResourceLoad> = today.loads.iter().filter(|load| load.slots > 0).collect();
        resources.sort_by_key(|load| std::cmp::Reverse(load.percent()));
        let budgets = today.budgets.iter();
        let budgets = budgets.map(|budget| [budget.site.clone(), budget.used.decimal(), budget.permitted.decimal()]);
        let not_fitting = today
            .not_fitting
            .iter()
            .map(|load| [load.test.clone(), load.from.clone(), load.to.clone(), load.reason.to_string()]);
        let excluded = today
            .excluded
            .iter()
            .map(|load| [load.test.clone(), load.from.clone(), load.to.clone(), load.reason.to_string()]);
        PlanView {
            mesh: sites.name.clone(),
            now,
            later: (valid_from > now).then_some(valid_from),
            today: today.slots.len(),
            next: Rows::cut(next.into_iter().map(|slot| slot_row(slot, now)), MAX_SLOTS),
            resources: Rows::cut(resources.into_iter().map(resource_row), MAX_RESOURCES),
            budgets: Rows::cut(budgets, usize::MAX),
            not_fitting: Rows::cut(not_fitting, MAX_NOT_FITTING),
            excluded: Rows::cut(excluded, MAX_NOT_FITTING),
            tests: Rows::cut(sites.tests.iter().map(test_row), usize::MAX),
        }
    }

    /// Returns whether the loads of tomorrow are needed to fill the page.
    pub fn needs_tomorrow(today: &DayPlan, now: Duration) -> bool {
        today.slots.iter().filter(|slot| slot.end() > now).count() < MAX_SLOTS
    }
}

fn slot_row(slot: &Slot, now: Duration) -> [String; 7] {
    let start = if slot.start <= now { "now".to_owned() } else { format::second(slot.start) };
    [
        start,
        format::second(slot.end()),
        slot.test.to_string(),
        slot.from.to_string(),
        slot.to.to_string(),
        slot.client.to_string(),
        bytes(slot.bytes),
    ]
}

fn resource_row(load: &ResourceLoad) -> [String; 5] {
    [
        load.resource.kind().to_owned(),
        load.resource.name(),
        format!("{} %", load.percent()),
        load.slots.to_string(),
        bytes(load.bytes),
    ]
}

fn test_row(test: &lfn_mesh::sites::Test) -> [String; 5] {
    let group = test.group.clone().unwrap_or_else(|| "all sites".to_owned());
    [test.name.clone(), test.kind.name().to_owned(), group, show_duration(test.interval), show_duration(test.time)]
}

fn bytes(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(|| "no limit".to_owned(), |bytes| format!("≤ {}", bytes.decimal()))
}
