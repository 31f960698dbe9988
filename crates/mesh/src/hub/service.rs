//! The hub's end of a mesh session.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_session::server::ServerSession;
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_session::{SessionError, Ticket, join_host_port, split_host_port};
use parking_lot::RwLock;

use super::access::{MeshSecret, agent_of_token};
use super::check::check_entry;
use super::digest_of;
use super::plan::{HubPlan, PlanFile, saved_plan};
use super::registry::Registry;
use super::store::{Clock, Store};
use crate::archive::{Archive, InsertCount};
use crate::sites::{Host, HostKind};
use crate::sync::{
    AccessList, AccessUpdate, HubGreeting, MAX_BATCH_ENTRIES, NumberedEntry, PairClient, PairTarget, RefusedEntry,
    SyncReply, SyncRequest,
};

/// Maximum wait for the next message of an agent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Default port of a STAMP reflector (RFC 8762).
const STAMP_PORT: u16 = 862;

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
    /// Tickets of hosts that run `lfn serve`, by the name of the host.
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
}

/// The hub of a mesh.
pub struct Hub {
    plan: RwLock<Arc<HubPlan>>,
    plan_file: PlanFile,
    secret: MeshSecret,
    registry: Registry,
    tickets: BTreeMap<String, Ticket>,
    store: Store,
    clock: Clock,
    on_event: Box<dyn Fn(&HubEvent) + Send + Sync>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("plan", &self.plan.read().digest()).finish_non_exhaustive()
    }
}

impl Hub {
    /// Starts a hub that stores entries in the archive. While the saved plan is not valid yet, the hub keeps it, and the sites
    /// file as it is now has to wait.
    pub fn start(
        options: HubOptions,
        archive: Archive,
        on_event: impl Fn(&HubEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let plan_file = PlanFile(options.plan_file);
        let now = (options.clock)();
        let plan = match saved_plan(&plan_file.0) {
            None => options.plan,
            Some(saved) if saved.text == options.plan.text || saved.valid_from > now => saved,
            Some(saved) => options.plan.after(&saved, now),
        };
        // Without the file, a hub that starts again announces the plan for a later time.
        let _ = plan_file.write(&plan);
        Ok(Hub {
            plan: RwLock::new(Arc::new(plan)),
            plan_file,
            secret: options.secret,
            registry: Registry::open(options.registry),
            tickets: options.tickets,
            store: Store::start(archive, options.keep_detail, options.clock)?,
            clock: options.clock,
            on_event: Box::new(on_event),
        })
    }

    /// Returns the plan that was announced last. It may be valid later only.
    pub fn plan(&self) -> Arc<HubPlan> {
        self.plan.read().clone()
    }

    /// Reports whether the plan is not valid yet.
    pub fn is_plan_pending(&self) -> bool {
        self.plan.read().valid_from > (self.clock)()
    }

    /// Announces a plan, and returns the time since 1970 from which it is valid. Agents receive it with their next request.
    /// `None` while the plan before it is not valid yet: agents know two plans at most.
    pub fn announce(&self, plan: HubPlan) -> Option<Duration> {
        let mut current = self.plan.write();
        let now = (self.clock)();
        if current.valid_from > now {
            return None;
        }
        let plan = plan.after(&current, now);
        // As at the start of the hub.
        let _ = self.plan_file.write(&plan);
        let valid_from = plan.valid_from;
        *current = Arc::new(plan);
        Some(valid_from)
    }

    /// Returns when each agent dialled last, since the hub started.
    pub fn seen(&self) -> BTreeMap<String, Duration> {
        self.registry.seen()
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
        match self.plan().sites.host(host).map(|host| host.kind) {
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
        // Without the file, the agent registers again after the next start of the hub.
        let is_changed = self.registry.record(agent, peer, request.servers, &request.version, now).unwrap_or(false);
        if is_changed {
            let version = request.version.chars().take(40).collect();
            (self.on_event)(&HubEvent::AgentChanged { host: agent.to_owned(), address: peer, version });
        }
        let mut reply = SyncReply { host: agent.to_owned(), clock: now, ..SyncReply::default() };
        if !request.entries.is_empty() {
            self.store_entries(agent, request.entries, &mut reply);
        }
        let plan = self.plan();
        if request.plan.as_ref() != Some(&plan.digest()) {
            reply.plan = Some(plan.update());
        }
        let access = self.access_list(agent, &plan);
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
        for NumberedEntry { number, entry } in entries {
            match check_entry(agent, entry, now) {
                Ok(entry) => valid.push(entry),
                Err(error) => {
                    let reason: String = error.to_string().chars().filter(|c| !c.is_control()).take(300).collect();
                    refused.push(RefusedEntry { number, reason });
                }
            }
        }
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

    /// Returns the clients and the servers of an agent.
    fn access_list(&self, agent: &str, plan: &HubPlan) -> AccessList {
        let partners = plan.partners(agent).filter_map(|name| plan.sites.host(name));
        let mut access = AccessList { stamp_key: self.secret.stamp_key(), ..AccessList::default() };
        for partner in partners {
            if partner.kind == HostKind::Agent {
                let token = self.secret.pair_token(&partner.name, agent).hash();
                access.clients.push(PairClient { host: partner.name.clone(), token });
            }
            access.targets.push(self.target(agent, partner));
        }
        access
    }

    /// Returns how an agent reaches a host.
    fn target(&self, agent: &str, partner: &Host) -> PairTarget {
        let address = partner.address.as_deref().and_then(|address| split_host_port(address).ok());
        let servers = self.registry.agent(&partner.name).and_then(|agent| agent.servers);
        let stamp_at = |port: u16| address.as_ref().map(|(host, _)| join_host_port(host, port));
        let (ticket, stamp) = match partner.kind {
            HostKind::Agent => {
                let ticket = servers.zip(address.clone()).map(|(servers, (host, _))| Ticket {
                    host,
                    port: servers.port,
                    token: self.secret.pair_token(agent, &partner.name),
                    fingerprint: servers.fingerprint,
                });
                (
                    ticket.map(|ticket| ticket.to_string()),
                    servers.and_then(|servers| servers.stamp_port).and_then(stamp_at),
                )
            }
            HostKind::Serve => {
                (self.tickets.get(&partner.name).map(Ticket::to_string), partner.stamp_port.and_then(stamp_at))
            }
            HostKind::Stamp => {
                let port = address.as_ref().and_then(|(_, port)| *port);
                (None, stamp_at(port.unwrap_or(STAMP_PORT)))
            }
            HostKind::Iperf3 => (None, None),
        };
        let reachable = !partner.dial_only;
        PairTarget {
            host: partner.name.clone(),
            ticket: ticket.filter(|_| reachable),
            stamp: stamp.filter(|_| reachable),
        }
    }
}
