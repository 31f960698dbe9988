//! The agent of one host: serves the tests of other agents, measures by the schedule, and sends the entries to the hub.
//!
//! Each thread owns its part: `link` talks to the hub, `loads` runs the loads of the schedule, `samples` measures latency, paths
//! and counters. They share the plan and the access list ([`Shared`]). Every entry goes to the spool first. The state directory
//! has the last plan, so that the agent measures while the hub is away.

mod clock_watch;
mod event;
mod link;
mod load_entry;
mod load_run;
mod loads;
mod partner_server;
mod samples;
mod state;

pub use event::AgentEvent;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lfn_mesh::entry::{Entry, EntryKind};
use lfn_mesh::schedule::DayPlan;
use lfn_mesh::schedule::timing::MAX_CLOCK_ERROR;
use lfn_mesh::sites::Sites;
use lfn_mesh::spool::{Spool, SpoolError};
use lfn_mesh::sync::{AccessList, AgentServers};
use lfn_session::Ticket;
use lfn_sys::clock;
use parking_lot::Mutex;

use super::MeshError;
use clock_watch::{ClockState, ClockWatch};
use state::AgentState;

/// Interval at which threads check whether the agent stops.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Default maximum length of the spool, bytes.
pub const MAX_SPOOL: u64 = 1 << 30;

/// Disk space that must be free for an entry before its measurement, bytes.
const RESERVED: u64 = 256 << 10;

/// Options of an agent.
#[derive(Debug, Clone)]
pub struct AgentStart {
    /// Ticket of the hub for this agent; `None` uses the ticket of the last start.
    pub hub: Option<Ticket>,
    /// Directory of the key, the plan and the spool.
    pub state: PathBuf,
    /// Address to listen on for tests; `None` listens on every address.
    pub bind: Option<IpAddr>,
    /// Port to listen on for tests; `None` uses that of the sites file. 0 uses any free port.
    pub port: Option<u16>,
    /// Maximum length of the spool, bytes.
    pub max_spool: u64,
}

/// Plan of the mesh, as the agent has it.
#[derive(Debug)]
pub(super) struct AgentPlan {
    digest: String,
    host: String,
    sites: Sites,
    /// Plan of the day that was computed last.
    day: Mutex<Option<Arc<DayPlan>>>,
}

/// Counts of the entries of an agent since its first start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Entries that were made.
    pub made: u64,
    /// Entries that the hub has stored.
    pub acknowledged: u64,
}

/// What the threads of an agent share. The locks are independent: no thread holds two of them.
struct Shared {
    spool: Mutex<Spool>,
    plan: Mutex<Option<Arc<AgentPlan>>>,
    access: Mutex<Arc<AccessList>>,
    servers: Mutex<Option<AgentServers>>,
    clock: Mutex<ClockWatch>,
    /// Counts the entries, so that the link sends them soon.
    appended: AtomicU64,
    stop: Arc<AtomicBool>,
    on_event: Box<dyn Fn(&AgentEvent) + Send + Sync>,
}

/// An agent on its own threads. Stops when it is dropped.
pub struct RunningAgent {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts an agent. `on_event` is called on the threads of the agent.
pub fn start(
    options: &AgentStart,
    on_event: impl Fn(&AgentEvent) + Send + Sync + 'static,
) -> Result<RunningAgent, MeshError> {
    let state = AgentState::open(&options.state, options.hub.clone())?;
    let spool = Spool::open(&options.state.join("spool"), options.max_spool)?;
    let shared = Arc::new(Shared {
        spool: Mutex::new(spool),
        plan: Mutex::new(state.saved_plan().map(Arc::new)),
        access: Mutex::new(Arc::new(state.saved_access())),
        servers: Mutex::default(),
        clock: Mutex::default(),
        appended: AtomicU64::new(0),
        stop: Arc::default(),
        on_event: Box::new(on_event),
    });
    let mut agent = RunningAgent { shared: shared.clone(), threads: Vec::new() };
    let link = link::Link::new(shared.clone(), state, options);
    agent.spawn("hub link", move || link.run())?;
    let loads = shared.clone();
    agent.spawn("loads", move || loads::run(&loads))?;
    agent.spawn("samples", move || samples::run(&shared))?;
    Ok(agent)
}

impl RunningAgent {
    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), MeshError> {
        self.threads.push(thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }

    /// Returns how many entries the agent made, and how many the hub has stored.
    pub fn counts(&self) -> AgentCounts {
        let spool = self.shared.spool.lock();
        AgentCounts { made: spool.appended(), acknowledged: spool.acknowledged() }
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been reported on stderr.
            let _ = thread.join();
        }
    }
}

impl AgentPlan {
    /// Returns the plan of the day of this time since 1970.
    fn day_plan(&self, time: Duration) -> Arc<DayPlan> {
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
    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn event(&self, event: AgentEvent) {
        (self.on_event)(&event);
    }

    fn plan(&self) -> Option<Arc<AgentPlan>> {
        self.plan.lock().clone()
    }

    /// Returns how the clock of this host compares with that of the hub.
    fn clock_state(&self) -> ClockState {
        self.clock.lock().state(clock::since_1970(), clock::since_boot(), MAX_CLOCK_ERROR)
    }

    /// Allocates space for the entry of a measurement. Without space, there is no measurement.
    fn reserve(&self) -> Result<(), SpoolError> {
        self.spool.lock().reserve(RESERVED)
    }

    /// Stores an entry in the spool, with the marks that follow from the plan.
    fn keep(&self, plan: &AgentPlan, mut entry: Entry, until: Duration) {
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
