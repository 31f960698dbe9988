//! The plans, the access list, the spool and the clock, which the threads of an agent share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lfn_mesh::entry::{Entry, EntryKind};
use lfn_mesh::schedule::timing::MAX_CLOCK_ERROR;
use lfn_mesh::schedule::{Dated, DatedPlans, DayPlan, Validity};
use lfn_mesh::sites::Sites;
use lfn_mesh::spool::{Spool, SpoolError};
use lfn_mesh::sync::{AccessList, AgentServers};
use lfn_sys::clock;
use parking_lot::Mutex;

use super::clock_watch::{ClockState, ClockWatch, HostClocks};
use super::event::AgentEvent;

/// Interval at which threads check whether the agent stops.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Disk space that must be free for an entry before its measurement, bytes.
const RESERVED: u64 = 256 << 10;

/// Plan of the mesh, as the agent has it.
#[derive(Debug)]
pub(super) struct AgentPlan {
    pub(super) digest: String,
    pub(super) host: String,
    pub(super) sites: Sites,
    /// Time since 1970 from which the plan is valid.
    pub(super) valid_from: Duration,
    /// Plan of the day that was computed last.
    pub(super) day: Mutex<Option<Arc<DayPlan>>>,
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
    pub(super) stop: Arc<AtomicBool>,
    pub(super) on_event: Box<dyn Fn(&AgentEvent) + Send + Sync>,
}

impl Dated for AgentPlan {
    fn valid_from(&self) -> Duration {
        self.valid_from
    }
}

impl AgentPlan {
    /// Returns the plan of the day of this time since 1970.
    pub(super) fn day_plan(&self, time: Duration) -> Arc<DayPlan> {
        let mut day = self.day.lock();
        let start = Duration::from_secs(time.as_secs() / 86_400 * 86_400);
        match &*day {
            Some(plan) if plan.day == start => plan.clone(),
            _ => {
                let plan = Arc::new(DayPlan::of_day(&self.sites, time));
                *day = Some(plan.clone());
                plan
            }
        }
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

    /// Allocates space for the entry of a measurement. Without space, there is no measurement.
    pub(super) fn reserve(&self) -> Result<(), SpoolError> {
        self.spool.lock().reserve(RESERVED)
    }

    /// Stores an entry in the spool, with the marks that follow from the plan.
    pub(super) fn keep(&self, plan: &AgentPlan, mut entry: Entry, until: Duration) {
        entry.marks.clock = matches!(self.clock_state(), ClockState::Off { .. });
        entry.marks.maintenance = plan.sites.is_in_maintenance(&entry.from, &entry.to, entry.time);
        if entry.kind != EntryKind::Load {
            entry.marks.own_load = plan.day_plan(entry.time).own_load(&entry.from, &entry.to, entry.time, until);
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
