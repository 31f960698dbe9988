//! The verb `serve`: a server for tests and copies on its own threads.
//!
//! [`serve()`] returns when the server listens. The [`RunningServer`] stops when it is dropped. [`bind`] and
//! [`restrict_process`] are the parts for a program that runs more servers in the same process, as `lfn serve` does.

mod error;
mod identity;
mod options;
mod ticket_host;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use lfn_core::session::{DEFAULT_PORT, Rights, Ticket, WriteAccess};
use lfn_net::server::audit::AuditLog;
use lfn_net::server::sandbox::{SandboxStatus, restrict};
use lfn_net::server::tokens::file::TokenFile;
use lfn_net::server::{Server, ServerConfig, ServerEvent, is_loopback};
use lfn_net::service;
use lfn_net::tester::emulated_path_sysctls;

use crate::documents::{ServeDocument, ServeSchema};
use crate::emulator_env;
pub use error::ServeStartError;
use identity::identity_and_token;
pub use identity::{state_directory, token_file};
pub use options::{KeyStorage, ServeOptions};
pub use ticket_host::TicketHost;

/// A server on its own threads. Stops when it is dropped.
#[derive(Debug)]
pub struct RunningServer {
    document: ServeDocument,
    stop: Arc<AtomicBool>,
    immediate: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// Returns the addresses and the ticket of the server.
    pub fn document(&self) -> &ServeDocument {
        &self.document
    }

    /// Stops the server. Waits for running sessions, up to the time of [`ServeOptions::drain`].
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the server has been printed, and the server has ended.
            let _ = thread.join();
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.immediate.store(true, Ordering::Relaxed);
        self.end();
    }
}

/// Starts a server, and returns when the server listens. `on_event` is called on the threads of the server. The sandbox
/// holds for these threads, not for the caller.
pub fn serve(
    options: &ServeOptions,
    on_event: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
) -> Result<RunningServer, ServeStartError> {
    let tokens = token_file_of(options)?;
    check_write_only(options, tokens.as_deref())?;
    let server = bind(options, on_event)?;
    let host = match &options.ticket_host {
        Some(host) => TicketHost::chosen(host),
        None => TicketHost::find(options.bind),
    };
    let ready = ReadyServer {
        ticket: server.ticket(&host.host)?,
        host,
        listen: server.local_addr()?,
        metrics: None,
        stamp: None,
        iperf3: None,
        is_insecure: options.insecure,
    };
    let root = options.root.as_deref().map(root_directory).transpose()?;
    let (stop, immediate) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (sender, started) = mpsc::channel();
    let (stop_thread, immediate_thread, is_unconfined) = (stop.clone(), immediate.clone(), options.unconfined);
    let thread = thread::Builder::new().name("serve".into()).spawn(move || {
        let sandbox =
            if is_unconfined { Ok(None) } else { restrict_process(root.as_deref(), tokens.as_deref()).map(Some) };
        let is_started = sandbox.is_ok();
        if let Ok(Some(status)) = &sandbox {
            server.event_logger()(ServerEvent::Sandboxed(status.description()));
        }
        // The caller waits for this message.
        let _ = sender.send(sandbox.map(drop));
        if is_started {
            server.run(&stop_thread, &immediate_thread);
        }
    })?;
    started.recv().unwrap_or(Err(ServeStartError::NoAddress))?;
    Ok(RunningServer { document: ready.document(), stop, immediate, thread: Some(thread) })
}

/// Returns the file of the additional tokens; an ephemeral server has none.
pub fn token_file_of(options: &ServeOptions) -> Result<Option<PathBuf>, ServeStartError> {
    match options.key {
        KeyStorage::Ephemeral => Ok(None),
        KeyStorage::Saved { .. } => token_file().map(Some),
    }
}

/// Addresses and ticket of a server that listens.
#[derive(Debug)]
pub struct ReadyServer {
    pub ticket: Ticket,
    pub host: TicketHost,
    pub listen: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub stamp: Option<SocketAddr>,
    pub iperf3: Option<SocketAddr>,
    /// The server needs no token.
    pub is_insecure: bool,
}

impl ReadyServer {
    /// Returns the document `lfn.serve/1`.
    pub fn document(&self) -> ServeDocument {
        ServeDocument {
            schema: ServeSchema::Current,
            ticket: self.ticket.to_string(),
            listen: self.listen,
            fingerprint: self.ticket.fingerprint.to_string(),
            metrics: self.metrics,
            stamp: self.stamp,
            iperf3: self.iperf3,
            command: self.command(),
            other_addresses: self.host.alternatives.clone(),
        }
    }

    /// Returns the command that tests the path to this server.
    pub fn command(&self) -> String {
        if !self.is_insecure {
            return format!("lfn test '{}'", self.ticket);
        }
        let anywhere = if self.host.is_local { "" } else { " --insecure-anywhere" };
        let Ticket { host, port, .. } = &self.ticket;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port = if *port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        format!("lfn test --insecure{anywhere} {host}{port}")
    }
}

/// Binds the server to the address of the options, or to all addresses: IPv6 and IPv4, if the host has IPv6.
pub fn bind(
    options: &ServeOptions,
    on_event: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
) -> Result<Server, ServeStartError> {
    let on_event = Arc::new(on_event);
    let wildcards = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let mut last = None;
    for address in options.bind.map_or(wildcards.to_vec(), |address| vec![address]) {
        let config = config(options, SocketAddr::new(address, options.port))?;
        let log = Arc::clone(&on_event);
        match Server::bind(config, service::serve, move |event: &ServerEvent<'_>| log(event)) {
            Ok(server) => return Ok(server),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(ServeStartError::NoAddress, ServeStartError::Serve))
}

fn config(options: &ServeOptions, listen: SocketAddr) -> Result<ServerConfig, ServeStartError> {
    if options.insecure && !(is_loopback(&listen) || emulator_env::is_inside() || options.insecure_anywhere) {
        return Err(ServeStartError::InsecureOnNetwork(listen));
    }
    let root = options.root.as_deref().map(root_directory).transpose()?;
    let (identity, saved) = identity_and_token(options)?;
    let expires = saved.expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let open_audit =
        |file: &PathBuf| AuditLog::open(file).map_err(|source| ServeStartError::Audit { file: file.clone(), source });
    Ok(ServerConfig {
        listen,
        identity,
        token: (!options.insecure).then_some(saved.token),
        token_expires: expires,
        token_file: token_file_of(options)?,
        rights: options.rights,
        audit: options.audit.as_ref().map(open_audit).transpose()?,
        root,
        unconfined: options.unconfined,
        allow_third_party: options.third_party,
        limits: options.limits,
        connection_limits: options.connections,
        access: options.access.clone(),
        drain: options.drain,
    })
}

/// Refuses write-only access if no directory is served.
pub fn check_write_only(options: &ServeOptions, tokens: Option<&Path>) -> Result<(), ServeStartError> {
    let flag = match options.rights {
        Rights { read: false, write: WriteAccess::Yes, .. } => "--write-only",
        Rights { read: false, write: WriteAccess::CreateOnly, .. } => "--create-only",
        _ => return Ok(()),
    };
    let token_list = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
    if options.root.is_some() || token_list.tokens.values().any(|kept| kept.root.is_some()) {
        return Ok(());
    }
    Err(ServeStartError::WriteWithoutRoot(flag))
}

/// Restricts this thread, and the threads that it starts, to the root, the roots of the tokens and the file of tokens.
/// Returns the active restrictions.
pub fn restrict_process(root: Option<&Path>, tokens: Option<&Path>) -> Result<SandboxStatus, ServeStartError> {
    // An invalid file of tokens has been reported before.
    let token_list = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
    let roots: Vec<&Path> =
        root.into_iter().chain(token_list.tokens.values().filter_map(|kept| kept.root.as_deref())).collect();
    // The file of tokens is replaced on each change, so access to its directory is needed.
    let state: Vec<&Path> = tokens.and_then(Path::parent).into_iter().collect();
    let tuned = if emulator_env::is_inside() { emulated_path_sysctls() } else { Vec::new() };
    restrict(&roots, &state, &tuned).map_err(|error| ServeStartError::Sandbox(error.to_string()))
}

/// Returns the canonical path of the directory to serve.
pub fn root_directory(root: &Path) -> Result<PathBuf, ServeStartError> {
    let wrong = |source| ServeStartError::Root { root: root.to_owned(), source };
    let canonical = root.canonicalize().map_err(wrong)?;
    std::fs::read_dir(&canonical).map_err(wrong)?;
    Ok(canonical)
}
