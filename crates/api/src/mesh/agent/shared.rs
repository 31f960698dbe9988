//! The plans, the access list, the spool and the clock, which the threads of an agent share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lfn_mesh::entry::{Entry, EntryKind};
use lfn_mesh::schedule::timing::MAX_CLOCK_ERROR;
use lfn_mesh::schedule::{Dated, DatedPlans, DayPlan, Validity};
use lfn_mesh::sites::Sites;
use lfn_mesh::spool::{Spool, SpoolError};
use lfn_mesh::sync::{AccessList, AgentServers, PlanUpdate};
use lfn_sys::clock;
use parking_lot::Mutex;

use super::clock_watch::{ClockState, ClockWatch, HostClocks};
use super::event::AgentEvent;

/// Interval at which threads check whether the agent stops.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Disk space that must be free for an entry before its measurement, bytes.
const RESERVED: u64 = 256 << 10;

/// Length of a day.
const DAY: Duration = Duration::from_secs(86_400);

/// Computed plans: those of yesterday, today and tomorrow.
const MAX_DAYS: usize = 3;

/// Time before the end of a day at which the plan of the next day is computed.
const PREPARATION: Duration = Duration::from_secs(120);

/// Disk space for the entries of one measurement.
pub(super) struct ReservedSpace<'a> {
    spool: &'a Mutex<Spool>,
}

impl Drop for ReservedSpace<'_> {
    fn drop(&mut self) {
        self.spool.lock().release(RESERVED);
    }
}

/// Plan of the mesh, as the agent has it.
#[derive(Debug)]
pub(super) struct AgentPlan {
    pub(super) digest: String,
    pub(super) host: String,
    pub(super) sites: Sites,
    /// Time since 1970 from which the plan is valid.
    pub(super) valid_from: Duration,
    /// Computed plans of the last days, oldest first.
    pub(super) days: Mutex<Vec<Arc<DayPlan>>>,
}

/// State that the threads of an agent share. The locks are independent: no thread holds two of them.
pub(super) struct Shared {
    pub(super) spool: Mutex<Spool>,
    pub(super) plans: Mutex<DatedPlans<Arc<AgentPlan>>>,
    pub(super) access: Mutex<Arc<AccessList>>,
    pub(super) servers: Mutex<Option<AgentServers>>,
    pub(super) clock: Mutex<ClockWatch>,
    /// Counts the entries, so that the link sends them soon.
    pub(super) appended: AtomicU64,
    /// The hub refused the last session.
    pub(super) refused: AtomicBool,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) on_event: Box<dyn Fn(&AgentEvent) + Send + Sync>,
}

impl Dated for AgentPlan {
    fn valid_from(&self) -> Duration {
        self.valid_from
    }
}

impl AgentPlan {
    /// Returns the plan of an update that cannot be used.
    pub(super) fn without_tests(&self, update: &PlanUpdate) -> Self {
        let mut sites = self.sites.clone();
        sites.tests.clear();
        AgentPlan {
            digest: update.digest.clone(),
            host: self.host.clone(),
            sites,
            valid_from: update.valid_from,
            days: Mutex::default(),
        }
    }

    /// Returns the plan of the day of this time since 1970.
    pub(super) fn day_plan(&self, time: Duration) -> Arc<DayPlan> {
        let mut days = self.days.lock();
        let start = Duration::from_secs(time.as_secs() / DAY.as_secs() * DAY.as_secs());
        if let Some(plan) = days.iter().find(|plan| plan.day == start) {
            return plan.clone();
        }
        let plan = Arc::new(DayPlan::of_day(&self.sites, time));
        if days.len() == MAX_DAYS {
            days.remove(0);
        }
        days.push(plan.clone());
        plan
    }

    /// Reports whether a load of the mesh may have used the path of an entry from its start until a time since 1970.
    fn own_load(&self, entry: &Entry, until: Duration) -> bool {
        let is_loaded = |day: Duration| self.day_plan(day).own_load(&entry.from, &entry.to, entry.time, until);
        is_loaded(entry.time)
            || (entry.time.as_secs() / DAY.as_secs() != until.as_secs() / DAY.as_secs() && is_loaded(until))
    }
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn event(&self, event: AgentEvent) {
        (self.on_event)(&event);
    }

    /// Returns the plan that is valid now.
    pub(super) fn plan(&self) -> Option<Arc<AgentPlan>> {
        self.valid_plan().map(|(plan, _)| plan)
    }

    /// Returns the plan that is valid now, and the time in which it is valid.
    pub(super) fn valid_plan(&self) -> Option<(Arc<AgentPlan>, Validity)> {
        let mut plans = self.plans.lock();
        plans.valid_at(clock::since_1970()).map(|(plan, validity)| (plan.clone(), validity))
    }

    /// Returns the plan that the hub announced last.
    pub(super) fn newest_plan(&self) -> Option<Arc<AgentPlan>> {
        self.plans.lock().newest().cloned()
    }

    /// Returns how the clock of this host compares with that of the hub.
    pub(super) fn clock_state(&self) -> ClockState {
        self.clock.lock().state(HostClocks::now(), MAX_CLOCK_ERROR)
    }

    /// Allocates space for the entries of a measurement. Without space, there is no measurement.
    pub(super) fn reserve(&self) -> Result<ReservedSpace<'_>, SpoolError> {
        self.spool.lock().reserve(RESERVED)?;
        Ok(ReservedSpace { spool: &self.spool })
    }

    /// Reports whether the hub refuses this agent. It measures nothing then: its host may have been removed from the mesh.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Computes the plan of tomorrow in the last minutes of a day. The first slot of a large mesh would start late otherwise.
    pub(super) fn prepare_tomorrow(&self, now: Duration) {
        let tomorrow = now + PREPARATION;
        if now.as_secs() / DAY.as_secs() != tomorrow.as_secs() / DAY.as_secs()
            && let Some(plan) = self.plan()
        {
            plan.day_plan(tomorrow);
        }
    }

    /// Stores an entry in the spool, with the marks that follow from the plan.
    pub(super) fn keep(&self, plan: &AgentPlan, mut entry: Entry, until: Duration) {
        entry.marks.clock = matches!(self.clock_state(), ClockState::Off { .. });
        entry.marks.maintenance = plan.sites.maintenance_of(&entry.from, &entry.to, entry.time, until).is_some();
        if entry.kind != EntryKind::Load {
            entry.marks.own_load = plan.own_load(&entry, until);
        }
        entry.truncate();
        let appended = self.spool.lock().append(&entry);
        match appended {
            Ok(_) => {
                self.appended.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.event(AgentEvent::NotKept { reason: error.to_string() }),
        }
    }
}
