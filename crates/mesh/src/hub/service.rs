//! The hub's end of a mesh session.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_session::server::ServerSession;
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_session::{SessionError, Ticket};
use parking_lot::{Mutex, RwLock};

use super::access::{MeshSecret, agent_of_token};
use super::check::check_entry;
use super::digest_of;
use super::plan::{HubPlan, PlanFile, Plans, saved_plans};
use super::registry::{Recorded, Registry};
use super::store::{Clock, Store};
use crate::archive::{Archive, InsertCount};
use crate::sites::{HostKind, Sites};
use crate::sync::{AccessUpdate, HubGreeting, MAX_BATCH_ENTRIES, NumberedEntry, RefusedEntry, SyncReply, SyncRequest};

/// Maximum wait for the next message of an agent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum sessions of one agent at the same time. Lost connections of an agent stay open for some seconds.
const MAX_SESSIONS_OF_AGENT: usize = 8;

/// Refused entries that one answer lists.
const MAX_LISTED_REFUSALS: usize = 100;

/// Settings of a hub.
#[derive(Debug)]
pub struct HubOptions {
    /// The sites file as it is now.
    pub plan: HubPlan,
    /// File that keeps the plan and the time from which it is valid.
    pub plan_file: PathBuf,
    pub secret: MeshSecret,
    /// File that keeps the servers of the agents.
    pub registry: PathBuf,
    /// Saved tickets of hosts that run `lfn serve`, by the name of the host.
    pub tickets: BTreeMap<String, Ticket>,
    /// Time after which details are deleted.
    pub keep_detail: Duration,
    pub clock: Clock,
}

/// An event of the hub for its log.
#[derive(Debug, Clone, PartialEq)]
pub enum HubEvent {
    /// An agent dialled for the first time, or its address or its servers changed.
    AgentChanged { host: String, address: SocketAddr, version: String },
    /// Entries of an agent are on disk.
    Stored { host: String, count: InsertCount },
    /// Entries of an agent are not valid, and are never stored.
    Refused { host: String, count: usize, first: String },
    /// Entries could not be stored; the agent keeps them.
    NotStored { host: String, problem: String },
    /// Two agents use one ticket. The second one is refused.
    SecondInstance { host: String, address: SocketAddr },
    /// The time from which the announced plan was valid, since 1970, was too late: the clock of the hub was ahead.
    AnnouncedAgain { was: Duration, valid_from: Duration },
    /// Hosts that the sites file no longer has lost their access, while another plan is announced.
    HostsRemoved { hosts: Vec<String> },
}

/// The hub of a mesh.
pub struct Hub {
    pub(super) plans: RwLock<Plans>,
    pub(super) plan_file: PlanFile,
    /// The sites file as it was read last. It may be newer than the announced plan.
    pub(super) file: RwLock<Arc<Sites>>,
    pub(super) secret: MeshSecret,
    pub(super) registry: Registry,
    pub(super) tickets: RwLock<BTreeMap<String, Ticket>>,
    /// Hosts of the archive and of all plans since the start. Entries may be about them.
    pub(super) known_hosts: RwLock<BTreeSet<String>>,
    /// Number of sessions of each agent that has one.
    sessions: Mutex<BTreeMap<String, usize>>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) on_event: Box<dyn Fn(&HubEvent) + Send + Sync>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("plan", &self.plan().digest()).finish_non_exhaustive()
    }
}

impl Hub {
    /// Starts a hub that stores entries in the archive. While the saved plan is not valid yet, the hub keeps it, and the sites
    /// file as it is now has to wait, except for the hosts that it does not have. A saved plan whose time is too late is
    /// replaced.
    pub fn start(
        options: HubOptions,
        archive: Archive,
        on_event: impl Fn(&HubEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let plan_file = PlanFile(options.plan_file);
        let now = (options.clock)();
        let file = options.plan.sites.clone();
        let plans = match saved_plans(&plan_file.0) {
            None => Plans::first(options.plan),
            Some(saved) => {
                let plans = next_plans(&saved, options.plan, now);
                if saved.is_too_late(now) {
                    let (was, valid_from) = (saved.newest.valid_from, plans.newest.valid_from);
                    on_event(&HubEvent::AnnouncedAgain { was, valid_from });
                }
                plans
            }
        };
        // Without the file, a hub that starts again announces the plan for a later time.
        let _ = plan_file.write(&plans);
        let mut known_hosts: BTreeSet<String> = archive.hosts().map_err(io::Error::other)?.into_iter().collect();
        let in_plans = plans.before.iter().chain([&plans.newest]).flat_map(|plan| plan.sites.hosts());
        known_hosts.extend(in_plans.map(|host| host.name.clone()));
        Ok(Hub {
            plans: RwLock::new(plans),
            plan_file,
            file: RwLock::new(file),
            secret: options.secret,
            registry: Registry::open(options.registry),
            tickets: RwLock::new(options.tickets),
            known_hosts: RwLock::new(known_hosts),
            sessions: Mutex::default(),
            store: Store::start(archive, options.keep_detail, options.clock)?,
            clock: options.clock,
            on_event: Box::new(on_event),
        })
    }

    /// Returns when each agent dialled last, since the hub started.
    pub fn seen(&self) -> BTreeMap<String, Duration> {
        self.registry.seen()
    }

    /// Writes the servers of agents to their file, if they changed. Sessions cannot do so, because they run in the sandbox.
    pub fn save_agents(&self) -> io::Result<()> {
        self.registry.save()
    }

    /// Serves one session of an agent, until the agent closes it.
    pub fn serve(&self, session: &mut ServerSession) -> Result<(), SessionError> {
        let peer = session.peer();
        let agent = match session.token() {
            (Some(name), _) => agent_of_token(name).map(str::to_owned),
            (None, _) => None,
        };
        let agent = agent.ok_or_else(|| {
            let refusal = Refusal::new(RefusalCode::Forbidden, "this ticket is not the ticket of an agent");
            SessionError::Refused(refusal.hint("print the ticket of an agent at the hub: lfn mesh ticket SITES HOST"))
        })?;
        self.check_agent(&agent).map_err(SessionError::Refused)?;
        let _place = AgentSession::enter(self, &agent).map_err(SessionError::Refused)?;
        session.control.send(&HubGreeting { host: agent.clone() })?;
        loop {
            let received = session.control.recv(REQUEST_TIMEOUT, "while the hub waited for results");
            let request = match received {
                Ok(request) => request,
                Err(SessionError::Closed { .. }) => return Ok(()),
                Err(error) => return Err(error),
            };
            session.check()?;
            let reply = self.answer(&agent, peer, request).map_err(SessionError::Refused)?;
            session.control.send(&reply)?;
        }
    }

    /// Refuses a host that the plan does not have as an agent.
    fn check_agent(&self, host: &str) -> Result<(), Refusal> {
        let (plan, file) = (self.plan(), self.file.read().clone());
        match plan.sites.host(host).and_then(|_| file.host(host)).map(|host| host.kind) {
            Some(HostKind::Agent) => Ok(()),
            Some(kind) => Err(Refusal::new(
                RefusalCode::Forbidden,
                format!("{host} is a host of kind {} in the sites file, not an agent", kind.name()),
            )),
            None => Err(Refusal::new(RefusalCode::Forbidden, format!("the sites file of the hub has no host {host}"))
                .hint("add the host to the sites file of the hub")),
        }
    }

    /// Stores the entries of a request, and returns the answer.
    pub(super) fn answer(&self, agent: &str, peer: SocketAddr, request: SyncRequest) -> Result<SyncReply, Refusal> {
        if request.entries.len() > MAX_BATCH_ENTRIES {
            let text =
                format!("{} entries in one message; at most {MAX_BATCH_ENTRIES} are allowed", request.entries.len());
            return Err(Refusal::new(RefusalCode::Limit, text));
        }
        self.check_agent(agent)?;
        let now = (self.clock)();
        match self.registry.record(agent, peer, &request, now) {
            Recorded::Unchanged => {}
            Recorded::Changed => {
                let version = request.version.chars().take(40).collect();
                (self.on_event)(&HubEvent::AgentChanged { host: agent.to_owned(), address: peer, version });
            }
            Recorded::SecondInstance { is_new } => {
                if is_new {
                    (self.on_event)(&HubEvent::SecondInstance { host: agent.to_owned(), address: peer });
                }
                let text = format!("another agent with the ticket of {agent} is connected");
                let hint = "stop one of them, or print a ticket of another host: lfn mesh ticket SITES HOST";
                return Err(Refusal::new(RefusalCode::Forbidden, text).hint(hint));
            }
        }
        let mut reply = SyncReply { host: agent.to_owned(), clock: now, ..SyncReply::default() };
        if !request.entries.is_empty() {
            self.store_entries(agent, request.entries, &mut reply);
        }
        let plan = self.plan();
        if request.plan.as_ref() != Some(&plan.digest()) {
            reply.plan = Some(plan.update());
        }
        let access = self.access_list(agent);
        let digest = digest_of(&access);
        if request.access.as_ref() != Some(&digest) {
            reply.access = Some(AccessUpdate { digest, access });
        }
        reply.clock = (self.clock)();
        Ok(reply)
    }

    fn store_entries(&self, agent: &str, entries: Vec<NumberedEntry>, reply: &mut SyncReply) {
        let now = (self.clock)();
        let last = entries.iter().map(|entry| entry.number).max();
        let mut valid = Vec::with_capacity(entries.len());
        let mut refused = Vec::new();
        let known = self.known_hosts.read();
        for NumberedEntry { number, entry } in entries {
            match check_entry(agent, &entry, now, |host| known.contains(host)) {
                Ok(entry) => valid.push(entry),
                Err(error) => {
                    let reason: String = error.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
                    refused.push(RefusedEntry { number, reason });
                }
            }
        }
        drop(known);
        if let Some(first) = refused.first() {
            let (count, first) = (refused.len(), first.reason.clone());
            (self.on_event)(&HubEvent::Refused { host: agent.to_owned(), count, first });
        }
        match self.store.insert(valid) {
            Ok(count) => {
                reply.acknowledged = last;
                (self.on_event)(&HubEvent::Stored { host: agent.to_owned(), count });
            }
            Err(problem) => {
                reply.problem = Some(problem.clone());
                (self.on_event)(&HubEvent::NotStored { host: agent.to_owned(), problem });
            }
        }
        refused.truncate(MAX_LISTED_REFUSALS);
        reply.refused = refused;
    }
}

/// Returns the plans at the start of a hub: those of the file, or the sites file as it is now after them.
fn next_plans(saved: &Plans, file: HubPlan, now: Duration) -> Plans {
    if saved.newest.text == file.text && !saved.is_too_late(now) {
        return saved.clone();
    }
    saved.followed_by(file, now).unwrap_or_else(|| saved.clone())
}

/// A session of an agent, which counts until it is dropped.
struct AgentSession<'h> {
    hub: &'h Hub,
    agent: String,
}

impl<'h> AgentSession<'h> {
    fn enter(hub: &'h Hub, agent: &str) -> Result<Self, Refusal> {
        let mut sessions = hub.sessions.lock();
        let count = sessions.entry(agent.to_owned()).or_default();
        if *count >= MAX_SESSIONS_OF_AGENT {
            let text = format!("{agent} has {MAX_SESSIONS_OF_AGENT} sessions, and more are not allowed");
            return Err(
                Refusal::new(RefusalCode::Full, text).hint("stop other programs that use the ticket of this agent")
            );
        }
        *count += 1;
        Ok(AgentSession { hub, agent: agent.to_owned() })
    }
}

impl Drop for AgentSession<'_> {
    fn drop(&mut self) {
        let mut sessions = self.hub.sessions.lock();
        let left = sessions.get(&self.agent).map_or(0, |count| count - 1);
        match left {
            0 => sessions.remove(&self.agent),
            left => sessions.insert(self.agent.clone(), left),
        };
    }
}
