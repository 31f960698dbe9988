//! The hub of a mesh: a server for agents, the archive, and the tickets of agents.
//!
//! The state directory has the key of the server, the secret from which all tickets follow, and the servers of the agents.
//! The sites file is read again when it changes. A file with problems is reported, and the hub keeps the plan that it has. A
//! changed file becomes valid later, at the same time on all agents. Until then, a further change only ends the access of the
//! hosts that the file no longer has.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use lfn_mesh::archive::Archive;
pub use lfn_mesh::hub::HubEvent;
use lfn_mesh::hub::{Hub, HubOptions, HubPlan, MeshSecret, agent_token_name};
use lfn_mesh::sites::{HostKind, Sites};
use lfn_session::identity::{self, ServerIdentity};
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::ServerEvent;
use lfn_session::server::tokens::file::{FILE_NAME, TokenFile, TokenRecord};
use lfn_session::{Rights, Ticket, split_host_port};
use lfn_sys::clock;
pub use lfn_web::CertificateFiles;
use lfn_web::{Limits, MeshView, PageOptions, PageServer};
use rustix::fs::{FlockOperation, flock};

use super::{HUB_PORT, MeshError, PLAN_FILE, read_sites};
use crate::hosts::SavedHosts;
use crate::serve::{KeyStorage, RunningServer, ServeOptions, TicketHost, serve};

/// File of the secret in the state directory.
const SECRET_FILE: &str = "secret";

/// Time after which details are deleted, unless the sites file has another one.
const KEEP_DETAIL: Duration = Duration::from_secs(30 * 86_400);

/// Interval at which the sites file and the saved hosts are checked for changes, and the servers of agents are saved.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which threads check whether the hub stops.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum agents with a session at the same time.
const MAX_SESSIONS: u32 = 256;

/// Maximum agents of one address with a session at the same time. Sessions are short, so that the many agents of one address
/// (NAT) wait for less than a second.
const MAX_SESSIONS_OF_ADDRESS: u32 = 64;

/// Options of a hub.
#[derive(Debug, Clone)]
pub struct HubStart {
    /// Path of the sites file.
    pub sites: PathBuf,
    /// Directory of the key and the secret.
    pub state: PathBuf,
    /// File of the archive.
    pub archive: PathBuf,
    /// Address to listen on for agents; `None` listens on every address.
    pub bind: Option<IpAddr>,
    /// Port to listen on for agents; `None` uses that of the sites file, or [`HUB_PORT`]. 0 uses any free port.
    pub port: Option<u16>,
    pub page: PageStart,
}

/// Options of the page of a hub.
#[derive(Debug, Clone)]
pub struct PageStart {
    /// Address of the page; port 0 uses any free port.
    pub address: SocketAddr,
    /// Certificate of the page for HTTPS.
    pub certificate: Option<CertificateFiles>,
    /// Serve HTTP on an address that other hosts can reach.
    pub insecure: bool,
}

/// An event of a running hub for its log.
#[derive(Debug)]
pub enum HubLogEvent<'a> {
    Mesh(&'a HubEvent),
    /// The sites file changed. The agents follow it from a time since 1970.
    PlanChanged {
        hosts: usize,
        valid_from: Duration,
    },
    /// The changed sites file cannot be used; the hub keeps its plan.
    PlanRefused(MeshError),
    /// The servers of agents are not on disk: after a restart, agents that are away have no ticket.
    AgentsNotSaved(io::Error),
}

/// A hub on its own threads. Stops when it is dropped.
#[derive(Debug)]
pub struct RunningHub {
    /// Stops first: no session then uses the hub.
    server: Option<RunningServer>,
    page: PageServer,
    page_token: String,
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    reloader: Option<JoinHandle<()>>,
    listen: SocketAddr,
    /// Locks the state directory.
    _lock: File,
}

/// Starts a hub. `on_event` is called on the threads of the hub.
pub fn start(
    options: &HubStart,
    on_event: impl Fn(&HubLogEvent<'_>) + Send + Sync + 'static,
) -> Result<RunningHub, MeshError> {
    let plan = read_plan(&options.sites)?;
    let (sites, text) = (plan.sites.clone(), plan.text.clone());
    let lock = lock_state(&options.state)?;
    let hosts_modified = saved_hosts_modified();
    let secret = load_secret(&options.state)?;
    let on_event = Arc::new(on_event);
    let log = Arc::clone(&on_event);
    let settings = HubOptions {
        secret: secret.clone(),
        plan_file: options.state.join(PLAN_FILE),
        registry: options.state.join("agents.json"),
        tickets: saved_tickets().unwrap_or_default(),
        keep_detail: keep_detail(&sites),
        clock: clock::since_1970,
        plan,
    };
    let archive = Archive::open(&options.archive)?;
    let hub = Hub::start(settings, archive, move |event| log(&HubLogEvent::Mesh(event)))?;
    let hub = Arc::new(hub);
    let plan = hub.plan();
    write_agent_tokens(&options.state, &secret, hub.agents())?;
    let port = options.port.unwrap_or_else(|| hub_address(&sites).map_or(HUB_PORT, |(_, port)| port));
    let served = ServeOptions {
        bind: options.bind,
        port,
        key: KeyStorage::Saved { new_token: false },
        state: Some(options.state.clone()),
        hub: Some(hub.clone()),
        connections: ConnectionLimits::default(),
        ..ServeOptions::new(limits())
    };
    let server = serve(&served, |_: &ServerEvent<'_>| ())?;
    let listen = server.document().listen;
    let page_token = load_page_token(&options.state)?;
    let page = PageOptions {
        address: options.page.address,
        token: page_token.clone(),
        archive: options.archive.clone(),
        certificate: options.page.certificate.clone(),
        insecure: options.page.insecure,
        limits: Limits::default(),
    };
    let page = PageServer::bind(page, Arc::new(PageMesh(hub.clone())))?;
    let stop = Arc::new(AtomicBool::new(false));
    let reload = Reloader {
        sites: options.sites.clone(),
        state: options.state.clone(),
        secret,
        hub: hub.clone(),
        stop: stop.clone(),
        modified: modified(&options.sites).filter(|_| plan.text == text),
        checked: None,
        hosts_modified,
        is_save_failing: false,
    };
    let reloader = thread::Builder::new().name("sites file".into()).spawn(move || reload.run(&*on_event))?;
    Ok(RunningHub { server: Some(server), page, page_token, hub, stop, reloader: Some(reloader), listen, _lock: lock })
}

impl RunningHub {
    /// Returns the address on which the hub listens for agents.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Returns the address of the page, and the password that the page requires.
    pub fn page(&self) -> (String, &str) {
        (self.page.url(), &self.page_token)
    }

    /// Returns the hub that runs.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }
}

impl Drop for RunningHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.server = None;
        if let Some(reloader) = self.reloader.take() {
            // A panic has been reported on stderr.
            let _ = reloader.join();
        }
    }
}

/// Returns the ticket with which the agent of a host dials the hub. `at` replaces the address of the sites file.
pub fn agent_ticket(sites: &Path, state: &Path, host: &str, at: Option<&str>) -> Result<Ticket, MeshError> {
    let plan = read_plan(sites)?;
    if plan.sites.host(host).is_none_or(|host| host.kind != HostKind::Agent) {
        let hosts = plan.sites.site(host).into_iter().flat_map(|site| &site.hosts);
        let agents = hosts.filter(|host| host.kind == HostKind::Agent).map(|host| host.name.clone());
        return Err(MeshError::NoSuchAgent { name: host.to_owned(), agents_of_site: agents.collect() });
    }
    if !state.join(SECRET_FILE).exists() {
        return Err(MeshError::NoHub(state.to_owned()));
    }
    let secret = load_secret(state)?;
    let (address, port) = match at {
        Some(typed) => with_hub_port(typed)?,
        None => hub_address(&plan.sites).unwrap_or_else(|| (TicketHost::find(None).host, HUB_PORT)),
    };
    let fingerprint = ServerIdentity::load_or_create(state)?.fingerprint();
    Ok(Ticket { host: address, port, token: secret.agent_token(host), fingerprint })
}

/// Reads and checks a sites file.
pub fn read_plan(path: &Path) -> Result<HubPlan, MeshError> {
    let text = read_sites(path)?;
    HubPlan::parse(text).map_err(|errors| MeshError::Sites { path: path.to_owned(), errors })
}

/// Locks the state directory against other hubs, and creates it at the first start.
fn lock_state(state: &Path) -> Result<File, MeshError> {
    DirBuilder::new().recursive(true).mode(0o700).create(state)?;
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(state.join("hub.lock"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(MeshError::StateInUse(state.to_owned())),
        locked => Ok(locked.map(|()| file).map_err(io::Error::from)?),
    }
}

/// Returns the time after which details are deleted.
fn keep_detail(sites: &Sites) -> Duration {
    sites.hub.keep_detail.unwrap_or(KEEP_DETAIL)
}

/// Returns the address of the hub in the sites file.
fn hub_address(sites: &Sites) -> Option<(String, u16)> {
    with_hub_port(sites.hub.address.as_deref()?).ok()
}

/// Splits an address. Without a port, the port is that of a hub.
fn with_hub_port(typed: &str) -> Result<(String, u16), MeshError> {
    let (host, port) = split_host_port(typed)?;
    Ok((host, port.unwrap_or(HUB_PORT)))
}

/// Reads the secret of the hub, and creates it at the first start.
fn load_secret(state: &Path) -> Result<MeshSecret, MeshError> {
    let path = state.join(SECRET_FILE);
    if let Some(text) = identity::read_secret(&path)? {
        return MeshSecret::parse(&text).ok_or(MeshError::DamagedState(path));
    }
    let mut bytes = [0; 32];
    for half in bytes.chunks_mut(16) {
        half.copy_from_slice(identity::new_token()?.as_bytes());
    }
    let secret = MeshSecret::from_bytes(bytes);
    identity::write_secret(&path, &secret.to_text())?;
    Ok(secret)
}

/// Reads the password of the page, and creates it at the first start.
fn load_page_token(state: &Path) -> Result<String, MeshError> {
    let path = state.join("page-token");
    if let Some(text) = identity::read_secret(&path)? {
        return Ok(text.trim().to_owned());
    }
    let token = HEXLOWER.encode(identity::new_token()?.as_bytes());
    identity::write_secret(&path, &token)?;
    Ok(token)
}

/// The mesh as the page sees it.
struct PageMesh(Arc<Hub>);

impl MeshView for PageMesh {
    fn sites(&self) -> Arc<Sites> {
        self.0.plan().sites.clone()
    }

    fn valid_from(&self) -> Duration {
        self.0.plan().valid_from
    }

    fn now(&self) -> Duration {
        clock::since_1970()
    }
}

/// Writes the tokens of these agents, so that the server accepts them and no others.
fn write_agent_tokens(
    state: &Path,
    secret: &MeshSecret,
    agents: impl IntoIterator<Item = String>,
) -> Result<(), MeshError> {
    let record = |host: String| (agent_token_name(&host), token_record(secret.agent_token(&host).hash()));
    let tokens: BTreeMap<String, TokenRecord> = agents.into_iter().map(record).collect();
    TokenFile::update(&state.join(FILE_NAME), |file| file.tokens = tokens)?;
    Ok(())
}

/// Returns the record of a token for tests, without an end. Equal tokens have equal records, so that the file changes only
/// when a host is added or removed.
pub(super) fn token_record(hash: lfn_session::TokenHash) -> TokenRecord {
    let rights = Rights { test: true, ..Rights::default() };
    TokenRecord { hash, rights, root: None, rate: None, created: 0, expires: None }
}

/// Returns the saved tickets of all hosts. Without them, tests with hosts that run `lfn serve` fail with a reason.
fn saved_tickets() -> Option<BTreeMap<String, Ticket>> {
    let saved = SavedHosts::load().ok()?;
    Some(saved.iter().filter_map(|(name, ticket)| Some((name.to_owned(), ticket.parse().ok()?))).collect())
}

/// Returns when the saved hosts changed last.
fn saved_hosts_modified() -> Option<SystemTime> {
    SavedHosts::path().ok().and_then(|path| modified(&path))
}

fn limits() -> ServerLimits {
    let default = ServerLimits::default();
    let total = ResourceLimits { sessions: MAX_SESSIONS, queue: 4096, ..default.total };
    let client = ResourceLimits { sessions: MAX_SESSIONS_OF_ADDRESS, ..total };
    ServerLimits { total, client, clients: MAX_SESSIONS, ..default }
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|file| file.modified()).ok()
}

/// Reads the sites file and the saved hosts again when they change, and saves the servers of agents.
struct Reloader {
    sites: PathBuf,
    state: PathBuf,
    secret: MeshSecret,
    hub: Arc<Hub>,
    stop: Arc<AtomicBool>,
    /// Change of the sites file that the hub has announced.
    modified: Option<SystemTime>,
    /// Change of the sites file that was read for removed hosts.
    checked: Option<SystemTime>,
    hosts_modified: Option<SystemTime>,
    is_save_failing: bool,
}

impl Reloader {
    fn run(mut self, on_event: &dyn Fn(&HubLogEvent<'_>)) {
        let mut waited = Duration::ZERO;
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
            waited += POLL_INTERVAL;
            if waited < RELOAD_INTERVAL {
                continue;
            }
            waited = Duration::ZERO;
            self.save_agents(on_event);
            self.read_saved_hosts();
            match self.read_sites() {
                Ok(None) => {}
                Ok(Some((hosts, valid_from))) => on_event(&HubLogEvent::PlanChanged { hosts, valid_from }),
                Err(error) => on_event(&HubLogEvent::PlanRefused(error)),
            }
        }
        self.save_agents(on_event);
    }

    fn save_agents(&mut self, on_event: &dyn Fn(&HubLogEvent<'_>)) {
        let saved = self.hub.save_agents();
        let was_failing = std::mem::replace(&mut self.is_save_failing, saved.is_err());
        if let (Err(error), false) = (saved, was_failing) {
            on_event(&HubLogEvent::AgentsNotSaved(error));
        }
    }

    fn read_saved_hosts(&mut self) {
        let modified = saved_hosts_modified();
        if modified != self.hosts_modified {
            self.hosts_modified = modified;
            // A damaged file changes nothing.
            if let Some(tickets) = saved_tickets() {
                self.hub.set_tickets(tickets);
            }
        }
    }

    /// Reads the sites file if it changed. Returns the number of hosts and the time from which the file is valid, or `None` if no
    /// plan is announced.
    fn read_sites(&mut self) -> Result<Option<(usize, Duration)>, MeshError> {
        let modified = modified(&self.sites);
        if modified.is_none() || modified == self.modified {
            return Ok(None);
        }
        if self.hub.is_plan_pending() {
            if modified != self.checked {
                self.checked = modified;
                self.hub.remove_missing_hosts(read_plan(&self.sites)?.sites);
                write_agent_tokens(&self.state, &self.secret, self.hub.agents())?;
            }
            return Ok(None);
        }
        self.modified = modified;
        self.reload()
    }

    /// Announces the sites file if its text changed. Returns the same as [`Self::read_sites`].
    fn reload(&self) -> Result<Option<(usize, Duration)>, MeshError> {
        let plan = read_plan(&self.sites)?;
        let sites = plan.sites.clone();
        if plan.text == self.hub.plan().text {
            self.hub.remove_missing_hosts(sites);
            write_agent_tokens(&self.state, &self.secret, self.hub.agents())?;
            return Ok(None);
        }
        let agents = sites.hosts().filter(|host| host.kind == HostKind::Agent);
        write_agent_tokens(&self.state, &self.secret, agents.map(|host| host.name.clone()))?;
        let announced = self.hub.announce(plan);
        self.hub.set_keep_detail(keep_detail(&sites));
        Ok(announced.map(|valid_from| (sites.hosts().count(), valid_from)))
    }
}
