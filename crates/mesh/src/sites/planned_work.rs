//! Maintenance windows of a mesh: the next ones, and those of a pair.

use std::time::Duration;

use super::maintenance::{Maintenance, MaintenanceScope, Window};
use super::model::{Host, Sites};

/// A maintenance with one of its windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedWindow<'s> {
    pub maintenance: &'s Maintenance,
    pub window: Window,
}

impl Sites {
    /// Returns the window of each maintenance that contains `time` or follows it (since 1970), by start.
    pub fn next_windows(&self, time: Duration) -> Vec<PlannedWindow<'_>> {
        let mut windows: Vec<PlannedWindow> = self
            .maintenance
            .iter()
            .filter_map(|maintenance| Some(PlannedWindow { maintenance, window: maintenance.window(time)? }))
            .collect();
        windows.sort_by_key(|planned| planned.window.start);
        windows
    }

    /// Returns a maintenance of the path between two hosts that overlaps the time from `from` to `until` (since 1970). Unknown
    /// hosts have none.
    pub fn maintenance_of(&self, first: &str, second: &str, from: Duration, until: Duration) -> Option<&Maintenance> {
        let (first, second) = (self.host(first)?, self.host(second)?);
        let mut planned = self.maintenance.iter();
        planned
            .find(|maintenance| maintenance.overlaps(from, until) && self.concerns(&maintenance.scope, first, second))
    }

    /// Reports whether a maintenance concerns the path between two hosts.
    fn concerns(&self, scope: &MaintenanceScope, first: &Host, second: &Host) -> bool {
        match scope {
            MaintenanceScope::Site(site) => first.site == *site || second.site == *site,
            MaintenanceScope::Pair(pair) => is_pair(pair, first, second),
            MaintenanceScope::Circuit(name) => {
                let Some(circuit) = self.circuit(name) else { return false };
                let bottleneck = circuit.bottleneck.as_deref().and_then(|name| self.bottleneck(name));
                is_pair(&circuit.between, first, second)
                    || bottleneck.is_some_and(|bottleneck| {
                        let crosses = |site: &String| first.site == *site || second.site == *site;
                        (first.site != second.site && bottleneck.sites.iter().any(crosses))
                            || bottleneck.pairs.iter().any(|pair| is_pair(pair, first, second))
                    })
            }
        }
    }
}

/// Reports whether two hosts are the pair, or hosts of its sites.
fn is_pair([first, second]: &[String; 2], one: &Host, other: &Host) -> bool {
    let is = |name: &String, host: &Host| host.site == *name || host.name == *name;
    (is(first, one) && is(second, other)) || (is(first, other) && is(second, one))
}
