//! The plans of the hub, and what changes with the sites file while the hub runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lfn_session::Ticket;

use super::access_list::is_removed;
use super::plan::HubPlan;
use super::{Hub, HubEvent};
use crate::sites::{HostKind, Sites};

impl Hub {
    /// Returns the plan that was announced last. It may be valid later only.
    pub fn plan(&self) -> Arc<HubPlan> {
        self.plans.read().newest.clone()
    }

    /// Reports whether the plan is not valid yet. A plan whose time is too late, because the clock of the hub was wrong, is
    /// announced again first.
    pub fn is_plan_pending(&self) -> bool {
        let now = (self.clock)();
        let mut plans = self.plans.write();
        if plans.is_too_late(now) {
            let (plan, was) = (HubPlan::clone(&plans.newest), plans.newest.valid_from);
            if let Some(again) = plans.followed_by(plan, now) {
                *plans = again;
                // As at the start of the hub.
                let _ = self.plan_file.write(&plans);
                (self.on_event)(&HubEvent::AnnouncedAgain { was, valid_from: plans.newest.valid_from });
            }
        }
        plans.is_pending(now)
    }

    /// Announces a plan, and returns the time since 1970 from which it is valid. Agents receive it with their next request.
    /// `None` while the plan before it is not valid yet: agents know two plans at most.
    pub fn announce(&self, plan: HubPlan) -> Option<Duration> {
        let mut plans = self.plans.write();
        let sites = plan.sites.clone();
        *plans = plans.followed_by(plan, (self.clock)())?;
        // As at the start of the hub.
        let _ = self.plan_file.write(&plans);
        self.known_hosts.write().extend(sites.hosts().map(|host| host.name.clone()));
        *self.file.write() = sites;
        Some(plans.newest.valid_from)
    }

    /// Replaces the sites file as it is now, while another plan is announced. Hosts that the file does not have lose their access
    /// at once. All other changes wait.
    pub fn remove_missing_hosts(&self, file: Arc<Sites>) {
        let plans = self.plans.read().clone();
        let mut current = self.file.write();
        let is_new = |host: &&crate::sites::Host| is_removed(&file, host) && !is_removed(&current, host);
        let in_use = plans.in_use((self.clock)());
        let mut hosts: Vec<_> =
            in_use.flat_map(|plan| plan.sites.hosts().filter(is_new)).map(|host| host.name.clone()).collect();
        hosts.sort();
        hosts.dedup();
        *current = file;
        drop(current);
        if !hosts.is_empty() {
            (self.on_event)(&HubEvent::HostsRemoved { hosts });
        }
    }

    /// Returns the agents that may dial the hub: those of the announced plan that are still in the sites file.
    pub fn agents(&self) -> Vec<String> {
        let (plan, file) = (self.plan(), self.file.read().clone());
        let agents = plan.sites.hosts().filter(|host| host.kind == HostKind::Agent && !is_removed(&file, host));
        agents.map(|host| host.name.clone()).collect()
    }

    /// Replaces the tickets of hosts that run `lfn serve`, by the name of the host.
    pub fn set_tickets(&self, tickets: BTreeMap<String, Ticket>) {
        *self.tickets.write() = tickets;
    }

    /// Replaces the time after which details are deleted.
    pub fn set_keep_detail(&self, keep_detail: Duration) {
        self.store.set_keep_detail(keep_detail);
    }
}
