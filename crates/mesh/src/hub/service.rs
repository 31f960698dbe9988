//! The hub's end of a mesh session.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_session::server::ServerSession;
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_session::{SessionError, Ticket, join_host_port, split_host_port};
use parking_lot::RwLock;
use serde::Serialize;

use super::access::{MeshSecret, agent_of_token};
use super::check::check_entry;
use super::registry::Registry;
use super::store::{Clock, Store};
use crate::archive::{Archive, InsertCount};
use crate::sites::pairs::HostTable;
use crate::sites::{Host, HostKind, Sites, SitesErrors};
use crate::sync::{
    AccessList, AccessUpdate, HubGreeting, MAX_BATCH_ENTRIES, NumberedEntry, PairClient, PairTarget, PlanUpdate,
    RefusedEntry, SyncReply, SyncRequest,
};

/// Maximum wait for the next message of an agent.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Default port of a STAMP reflector (RFC 8762).
const STAMP_PORT: u16 = 862;

/// Refused entries that one answer lists.
const MAX_LISTED_REFUSALS: usize = 100;

/// The sites file of the hub.
#[derive(Debug)]
pub struct HubPlan {
    /// Text of the file.
    pub text: String,
    /// Hash of the text.
    pub digest: String,
    pub sites: Arc<Sites>,
    /// Hosts that each host has tests with.
    partners: BTreeMap<String, BTreeSet<String>>,
}

impl HubPlan {
    /// Parses a sites file.
    pub fn parse(text: String) -> Result<Self, SitesErrors> {
        let sites = Sites::parse(&text)?;
        let digest = short_digest(text.as_bytes());
        let mut partners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let table = HostTable::new(&sites);
        for pair in sites.tests.iter().flat_map(|test| table.pairs(test)) {
            let (from, to) = (&table.host(pair.from).name, &table.host(pair.to).name);
            partners.entry(from.clone()).or_default().insert(to.clone());
            partners.entry(to.clone()).or_default().insert(from.clone());
        }
        Ok(HubPlan { text, digest, partners, sites: Arc::new(sites) })
    }
}

/// Settings of a hub.
#[derive(Debug)]
pub struct HubOptions {
    pub plan: HubPlan,
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
    secret: MeshSecret,
    registry: Registry,
    tickets: BTreeMap<String, Ticket>,
    store: Store,
    clock: Clock,
    on_event: Box<dyn Fn(&HubEvent) + Send + Sync>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("plan", &self.plan.read().digest).finish_non_exhaustive()
    }
}

impl Hub {
    /// Starts a hub that stores entries in the archive.
    pub fn start(
        options: HubOptions,
        archive: Archive,
        on_event: impl Fn(&HubEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Ok(Hub {
            plan: RwLock::new(Arc::new(options.plan)),
            secret: options.secret,
            registry: Registry::open(options.registry),
            tickets: options.tickets,
            store: Store::start(archive, options.keep_detail, options.clock)?,
            clock: options.clock,
            on_event: Box::new(on_event),
        })
    }

    /// Returns the current plan.
    pub fn plan(&self) -> Arc<HubPlan> {
        self.plan.read().clone()
    }

    /// Replaces the plan. Agents receive it with their next request.
    pub fn set_plan(&self, plan: HubPlan) {
        *self.plan.write() = Arc::new(plan);
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
    fn answer(&self, agent: &str, peer: SocketAddr, request: SyncRequest) -> Result<SyncReply, Refusal> {
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
        if request.plan.as_ref() != Some(&plan.digest) {
            reply.plan = Some(PlanUpdate { digest: plan.digest.clone(), sites: plan.text.clone() });
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
        let none = BTreeSet::new();
        let partners = plan.partners.get(agent).unwrap_or(&none).iter().filter_map(|name| plan.sites.host(name));
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
            HostKind::Serve => (self.tickets.get(&partner.name).map(Ticket::to_string), stamp_at(STAMP_PORT)),
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

fn digest_of(value: &impl Serialize) -> String {
    short_digest(&serde_json::to_vec(value).unwrap_or_default())
}

fn short_digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().chars().take(16).collect()
}
