//! Names of servers: a ticket, a saved name, `far` or a bare host becomes a target to dial. A host without a ticket is
//! reached over ssh.
//!
//! `far` is the far side of `lfn emulate` ([`crate::emulator_env`]).

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_session::dial::Target;
use lfn_session::queue::QueueOptions;
use lfn_session::{DEFAULT_PORT, Fingerprint, SessionError, Ticket, Token, split_host_port};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::emulator_env::{self, EmulatorEnvironment};
use crate::hosts::{FAR, HostError, SavedHosts};
use crate::resolve_event::ResolveEvent;
use crate::ssh::{PortRange, Ssh, SshError, SshServer, start_local};

/// Server of a local copy. Users cannot type this name.
pub const LOCAL: &str = "";

/// Program for servers that only this process uses.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Maximum length of a ticket in a file, bytes.
const MAX_TICKET: u64 = 4096;

/// Options for finding, authenticating and starting servers.
#[derive(Clone)]
pub struct ServerResolver {
    /// Do not authenticate the server and send no token. Only on loopback or an emulated path.
    pub insecure: bool,
    /// Allow `insecure` on a real network.
    pub insecure_anywhere: bool,
    /// Wait in the queue of a full server.
    pub queue: QueueOptions,
    /// ssh command, which a shell would split into words.
    pub ssh: String,
    /// Command that starts lfn on the remote host.
    pub remote_lfn: String,
    /// Ports of a server started over ssh; `None` uses any free port.
    pub ssh_ports: Option<PortRange>,
    /// Figures and ticket of the emulated path.
    pub environment: EmulatorEnvironment,
    /// The program lfn on this host. The default is the running program.
    pub program: PathBuf,
    /// Called for each event while a server is found.
    pub on_event: Arc<dyn Fn(&ResolveEvent<'_>) + Send + Sync>,
}

impl std::fmt::Debug for ServerResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerResolver").field("ssh", &self.ssh).field("program", &self.program).finish_non_exhaustive()
    }
}

impl Default for ServerResolver {
    fn default() -> Self {
        ServerResolver {
            insecure: false,
            insecure_anywhere: false,
            queue: QueueOptions::default(),
            ssh: "ssh".to_owned(),
            remote_lfn: "lfn".to_owned(),
            ssh_ports: None,
            environment: EmulatorEnvironment::default(),
            program: OWN_PROGRAM.into(),
            on_event: Arc::new(|_| {}),
        }
    }
}

/// A server to dial, and the handle that keeps it alive.
#[derive(Debug)]
pub struct ReachedServer {
    pub target: Target,
    _link: Option<Arc<Mutex<Option<SshServer>>>>,
}

impl ReachedServer {
    /// Wraps a server that runs without ssh.
    pub fn running(target: Target) -> Self {
        ReachedServer { target, _link: None }
    }
}

impl ServerResolver {
    /// Resolves `name` to a target and decides how the server is authenticated.
    pub fn resolve(&self, name: &str) -> Result<Target, HostError> {
        let mut target = Target::new(self.require_ticket(name)?)?;
        target.queue = self.queue;
        if !self.insecure {
            return Ok(target);
        }
        if !(target.is_loopback() || emulator_env::is_inside() || self.insecure_anywhere) {
            return Err(HostError::InsecureOnNetwork(name.to_owned()));
        }
        Ok(target.insecure())
    }

    /// Returns the ticket for a name that this host knows, and `None` for an unknown name. Never reads a ticket from
    /// standard input or a file.
    pub fn find_ticket(&self, name: &str) -> Result<Option<Ticket>, HostError> {
        if name.starts_with("lfn://") {
            return name.parse().map(Some).map_err(HostError::InvalidTicket);
        }
        if let Some(ticket) = self.environment.far_ticket(name)? {
            return Ok(Some(ticket));
        }
        if let Some(ticket) = SavedHosts::load()?.get(name)? {
            return Ok(Some(ticket));
        }
        if name == FAR {
            return Err(self.far_side_error());
        }
        if self.insecure {
            let (host, port) = split_host_port(name).map_err(HostError::InvalidAddress)?;
            let port = port.unwrap_or(DEFAULT_PORT);
            let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
            return Ok(Some(Ticket { host, port, token, fingerprint }));
        }
        Ok(None)
    }

    /// Reports whether the name can only be a host for ssh.
    pub fn is_over_ssh(&self, name: &str) -> Result<bool, HostError> {
        Ok(name != LOCAL && !is_ticket(name) && self.find_ticket(name)?.is_none())
    }

    /// Starts a server on `host` for a test. Fails if the load would go through ssh: the result would be about ssh and
    /// not about the path.
    pub fn start_for_test(&self, host: &str, interrupted: &AtomicBool) -> Result<ReachedServer, SshError> {
        let link = self.ssh_settings()?.without_forwarding().start(host, interrupted, &*self.on_event)?;
        let mut target = link.target.clone();
        target.queue = self.queue;
        Ok(ReachedServer { target, _link: Some(Arc::new(Mutex::new(Some(link)))) })
    }

    /// Resolves the server, or starts it over ssh. A started server may send to other servers if `allow_third_party`.
    pub fn find_or_start(
        &self,
        name: &str,
        allow_third_party: bool,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<ReachedServer, SshError> {
        if name != LOCAL && !self.is_over_ssh(name)? {
            self.wait_for_ticket(name, interrupted)?;
            return Ok(ReachedServer::running(self.resolve(name)?));
        }
        let ssh = self.ssh_settings()?.with_third_party(allow_third_party);
        let (program, on_event) = (self.program.clone(), Arc::clone(&self.on_event));
        let start = move |name: &str, interrupted: &AtomicBool| match name {
            LOCAL => start_local(&program, interrupted),
            name => ssh.start(name, interrupted, &*on_event),
        };
        let link = start(name, interrupted)?;
        let mut target = link.target.clone();
        target.queue = self.queue;
        let link = Arc::new(Mutex::new(Some(link)));
        // Threads that still dial after the end of the copy must not keep the server alive.
        let (server, name, interrupted) = (Arc::downgrade(&link), name.to_owned(), interrupted.clone());
        let target = target.with_resolver(move || {
            let server = server.upgrade().ok_or_else(|| session_error("the copy has ended"))?;
            let mut server = server.lock();
            if let Some(link) = server.as_mut()
                && link.is_alive()
            {
                return link.target.resolve_again();
            }
            // The old server ends first, since the new one may need its port.
            drop(server.take());
            let link = start(&name, &interrupted).map_err(|error| session_error(error.to_string()))?;
            Ok(server.insert(link).target.clone())
        });
        Ok(ReachedServer { target, _link: Some(link) })
    }

    /// Returns the settings for servers started over ssh.
    pub fn ssh_settings(&self) -> Result<Ssh, SshError> {
        Ssh::new(&self.ssh, &self.remote_lfn, self.ssh_ports)
    }

    fn require_ticket(&self, name: &str) -> Result<Ticket, HostError> {
        if let Some(ticket) = read_ticket(name)? {
            return Ok(ticket);
        }
        if let Some(ticket) = self.find_ticket(name)? {
            return Ok(ticket);
        }
        let (host, _) = split_host_port(name).map_err(HostError::InvalidAddress)?;
        Err(HostError::UnknownName { name: name.to_owned(), host })
    }

    fn far_side_error(&self) -> HostError {
        match self.environment.side() {
            Some(FAR) => HostError::OnFarSide,
            Some(_) => HostError::FarRunsCommand,
            None => HostError::NoEmulation,
        }
    }

    /// Waits until standard input has data, if the ticket comes from there.
    fn wait_for_ticket(&self, name: &str, interrupted: &AtomicBool) -> Result<(), HostError> {
        if !is_stdin(name) {
            return Ok(());
        }
        let stdin = io::stdin();
        if stdin.is_terminal() {
            (self.on_event)(&ResolveEvent::TicketAwaited);
        }
        let poll_interval = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while !interrupted.load(Ordering::Relaxed) {
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&poll_interval)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(HostError::StandardInput(error.into())),
            }
        }
        Err(HostError::Interrupted)
    }
}

/// Reports whether the name is a ticket or a source of one (`@FILE`, `-`), and so no host name.
pub fn is_ticket(name: &str) -> bool {
    name.starts_with("lfn://") || name.starts_with('@') || name == "-"
}

/// Returns the server as an argument for a command, without the secret of a ticket.
pub fn server_argument(name: &str, insecure: bool) -> String {
    let host = if is_ticket(name) && !name.starts_with('@') { "TICKET" } else { name };
    if insecure { format!("{host} --insecure") } else { host.to_owned() }
}

/// Reads a ticket from standard input (`-`, or `@-` before a path) or from a file (`@FILE`): the first line that is not
/// blank. Every user of this host can read command-line arguments, so a ticket is safer elsewhere.
pub fn read_ticket(name: &str) -> Result<Option<Ticket>, HostError> {
    let (place, mut from): (String, Box<dyn BufRead>) = match name.strip_prefix('@') {
        _ if is_stdin(name) => ("standard input".to_owned(), Box::new(io::stdin().lock())),
        Some(file) => {
            let opened =
                File::open(file).map_err(|source| HostError::OpenTicketFile { place: name.to_owned(), source })?;
            (file.to_owned(), Box::new(BufReader::new(opened)))
        }
        None => return Ok(None),
    };
    let mut text = Vec::new();
    if let Err(source) = read_first_line(&mut from.by_ref().take(MAX_TICKET), &mut text) {
        return Err(HostError::ReadTicket { place, source });
    }
    let text = String::from_utf8_lossy(&text);
    let Some((line, ticket)) = (1..).zip(text.lines()).find(|(_, line)| !line.trim().is_empty()) else {
        return Err(HostError::NoTicket { place });
    };
    ticket.trim().parse().map(Some).map_err(|_| HostError::NotATicket { place, line })
}

/// Reads up to the first line that is not blank. The sender need not close the stream after this line.
fn read_first_line(from: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<()> {
    while text.trim_ascii().is_empty() && from.read_until(b'\n', text)? > 0 {}
    Ok(())
}

fn is_stdin(name: &str) -> bool {
    matches!(name, "-" | "@-")
}

fn session_error(reason: impl Into<String>) -> SessionError {
    SessionError::Io { peer: "ssh", source: io::Error::other(reason.into()) }
}
