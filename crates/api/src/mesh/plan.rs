//! The schedule of a day from a sites file.

use std::path::PathBuf;
use std::time::Duration;

use lfn_base::date;
use lfn_mesh::schedule::{DayPlan, Excluded, NotFitting, Resource, continuous_counts, excluded_continuous};
use lfn_mesh::sites::{Bottleneck, Host, Sites, kind_name};

use super::MeshError;
use super::sites_file::load_sites;
use crate::documents::{
    ListedSlot, MeshPlanDocument, PackedInterval, ResourceUse, SiteBudget, TestWithoutSlots, UnplannedLoad,
};

/// Options of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOptions {
    /// Path of the sites file.
    pub file: PathBuf,
    /// A time of the day since 1970.
    pub day: Duration,
    /// Only the loads of this host.
    pub host: Option<String>,
}

/// Returns the schedule of one day: the same for every caller with the same file and day.
pub fn plan(options: &PlanOptions) -> Result<MeshPlanDocument, MeshError> {
    let sites = load_sites(&options.file)?;
    let host = match &options.host {
        None => None,
        Some(name) => Some(sites.host(name).ok_or_else(|| MeshError::NoSuchHost(name.clone()))?),
    };
    let plan = DayPlan::of_day(&sites, options.day);
    let concerns = |from: &str, to: &str| host.is_none_or(|host| from == host.name || to == host.name);
    let slots = plan.slots.iter().filter(|slot| concerns(&slot.from, &slot.to));
    let resources = plan.loads.iter().filter(|load| host.is_none_or(|host| is_used_by(&load.resource, host, &sites)));
    let budgets = plan.budgets.iter().filter(|budget| host.is_none_or(|host| budget.site == host.site));
    let not_fitting = plan.not_fitting.iter().filter(|load| concerns(&load.from, &load.to));
    let continuous = excluded_continuous(&sites);
    let excluded = plan.excluded.iter().chain(&continuous).filter(|pair| concerns(&pair.from, &pair.to));
    let day = date::rfc3339(plan.day);
    Ok(MeshPlanDocument {
        mesh: sites.name.clone(),
        day: day.split('T').next().unwrap_or_default().to_owned(),
        host: options.host.clone(),
        slots: slots
            .map(|slot| ListedSlot {
                start: date::rfc3339(slot.start),
                test: slot.test.to_string(),
                from: slot.from.to_string(),
                to: slot.to.to_string(),
                client: slot.client.to_string(),
                length: slot.length,
                bytes: slot.bytes,
            })
            .collect(),
        resources: resources
            .map(|load| ResourceUse {
                kind: load.resource.kind().to_owned(),
                name: load.resource.name(),
                loads_at_once: load.lanes,
                slots: load.slots,
                busy: load.busy,
                bytes: load.bytes,
            })
            .collect(),
        budgets: budgets
            .map(|budget| SiteBudget {
                site: budget.site.clone(),
                used_bytes: budget.used,
                permitted_bytes: budget.permitted,
            })
            .collect(),
        intervals: plan
            .packings
            .iter()
            .map(|packing| PackedInterval {
                interval: packing.interval,
                loads: packing.loads,
                makespan: packing.makespan,
                bound: packing.bound,
                bound_by: packing.bound_resource.as_ref().map(|by| format!("{} {}", by.kind(), by.name())),
            })
            .collect(),
        without_slots: continuous_counts(&sites)
            .into_iter()
            .map(|count| TestWithoutSlots {
                test: count.test,
                kind: kind_name(count.kind).to_owned(),
                interval: count.interval,
                measurements: count.measurements,
            })
            .collect(),
        not_fitting: not_fitting.map(not_fitting_load).collect(),
        excluded: excluded.map(excluded_pair).collect(),
        ..MeshPlanDocument::default()
    })
}

fn not_fitting_load(load: &NotFitting) -> UnplannedLoad {
    let NotFitting { test, from, to, reason } = load.clone();
    UnplannedLoad { test, from, to, reason: reason.to_string() }
}

/// Returns the form of an excluded pair in a document.
pub(super) fn excluded_pair(pair: &Excluded) -> UnplannedLoad {
    let Excluded { test, from, to, reason } = pair.clone();
    UnplannedLoad { test, from, to, reason: reason.to_string() }
}

/// Reports whether loads of this host may use the resource.
fn is_used_by(resource: &Resource, host: &Host, sites: &Sites) -> bool {
    let is_named = |name: &String| *name == host.name || *name == host.site;
    match resource {
        Resource::Host { name } => *name == host.name,
        Resource::Interface { site, name } => *site == host.site && host.interface.as_ref() == Some(name),
        Resource::Bottleneck { name } => sites.bottleneck(name).is_some_and(|Bottleneck { sites, pairs, .. }| {
            sites.iter().any(is_named) || pairs.iter().flatten().any(is_named)
        }),
    }
}
