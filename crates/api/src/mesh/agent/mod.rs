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
mod options;
mod partner_server;
mod samples;
mod shared;
mod state;

pub use event::AgentEvent;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use lfn_mesh::spool::Spool;
use parking_lot::Mutex;

use super::MeshError;
pub use options::AgentStart;
use shared::Shared;
use state::AgentState;

/// Default maximum length of the spool, bytes.
pub const MAX_SPOOL: u64 = 1 << 30;

/// Counts of the entries of an agent since its first start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Entries that were made.
    pub made: u64,
    /// Entries that the hub has stored.
    pub acknowledged: u64,
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
        plans: Mutex::new(state.saved_plans()),
        access: Mutex::new(Arc::new(state.saved_access())),
        servers: Mutex::default(),
        clock: Mutex::default(),
        appended: AtomicU64::new(0),
        refused: AtomicBool::new(false),
        stop: Arc::default(),
        on_event: Box::new(on_event),
    });
    if let Some(damage) = shared.spool.lock().take_damage() {
        shared.event(AgentEvent::SpoolDamaged { lost: damage.lost, path: damage.path });
    }
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
