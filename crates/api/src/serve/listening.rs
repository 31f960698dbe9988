//! A server with its sockets, before it accepts connections.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

use lfn_measure::iperf3::server::IperfServer;
use lfn_measure::stamp::StampReflector;
use lfn_measure::tester::emulated_path_sysctls;
use lfn_session::server::metrics::MetricsServer;
use lfn_session::server::sandbox::restrict;
use lfn_session::server::tokens::file::TokenFile;
use lfn_session::server::{Server, ServerEvent};

use super::identity::token_file_of;
use super::{ReadyServer, ServeOptions, ServeStartError, TicketHost, bind, iperf3, stamp};
use crate::emulator_env;

/// A server whose sockets are open. The next step is [`ListeningServer::confine`], then [`ListeningServer::run`].
#[derive(Debug)]
pub struct ListeningServer {
    server: Server,
    iperf3: Option<IperfServer>,
    stamp: Option<StampReflector>,
    metrics: Option<MetricsServer>,
    ready: ReadyServer,
    root: Option<PathBuf>,
    tokens: Option<PathBuf>,
    is_unconfined: bool,
}

/// Opens the sockets of a server. `on_event` is called on the threads of the server.
pub fn listen(
    options: &ServeOptions,
    on_event: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
) -> Result<ListeningServer, ServeStartError> {
    let tokens = token_file_of(options)?;
    bind::check_write_only(options, tokens.as_deref())?;
    let root = options.root.as_deref().map(bind::root_directory).transpose()?;
    let server = bind::bind(options, root.as_deref(), on_event)?;
    let iperf3 = options.iperf3.as_ref().map(|iperf3| iperf3::bind(iperf3, &server, options)).transpose()?;
    let stamp = options.stamp.as_ref().map(|stamp| stamp::bind(stamp, options)).transpose()?;
    let metrics = options.metrics.map(MetricsServer::bind).transpose()?;
    let host = match &options.ticket_host {
        Some(host) => TicketHost::chosen(host),
        None => TicketHost::find(options.bind),
    };
    let ready = ReadyServer {
        ticket: server.ticket(&host.host)?,
        host,
        listen: server.local_addr()?,
        metrics: metrics.as_ref().map(MetricsServer::local_addr).transpose()?,
        stamp: stamp.as_ref().map(StampReflector::local_addr).transpose()?,
        iperf3: iperf3.as_ref().map(IperfServer::local_addr).transpose()?,
        is_insecure: options.insecure,
    };
    Ok(ListeningServer { server, iperf3, stamp, metrics, ready, root, tokens, is_unconfined: options.unconfined })
}

impl ListeningServer {
    /// Returns the addresses and the ticket of the server.
    pub fn ready(&self) -> &ReadyServer {
        &self.ready
    }

    /// Returns a counter that grows while the server accepts connections. A watchdog polls it.
    pub fn heartbeat(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        self.server.heartbeat()
    }

    /// Returns a function that reports whether a session runs.
    pub fn has_sessions(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let admission = self.server.admission();
        move || admission.running() > 0
    }

    /// Restricts this thread, and the threads that it starts, to the root, the roots of the tokens and the file of
    /// tokens, and logs the active restrictions. An unconfined server is not restricted.
    pub fn confine(&self) -> Result<(), ServeStartError> {
        if self.is_unconfined {
            return Ok(());
        }
        let tokens = self.tokens.as_deref();
        // An invalid file of tokens has been reported before.
        let token_list = tokens.and_then(|path| TokenFile::read(path).ok()).unwrap_or_default();
        let token_roots = token_list.tokens.values().filter_map(|kept| kept.root.as_deref());
        let roots: Vec<&Path> = self.root.as_deref().into_iter().chain(token_roots).collect();
        // The file of tokens is replaced on each change, so access to its directory is needed.
        let state: Vec<&Path> = tokens.and_then(Path::parent).into_iter().collect();
        let tuned = if emulator_env::is_inside() { emulated_path_sysctls() } else { Vec::new() };
        let status = restrict(&roots, &state, &tuned).map_err(|error| ServeStartError::Sandbox(error.to_string()))?;
        self.server.event_logger()(ServerEvent::Sandboxed(status.description()));
        Ok(())
    }

    /// Serves until `stop` is set, and then until the running sessions end, at most for [`ServeOptions::drain`] or
    /// until `immediate` is set.
    pub fn run(&self, stop: &AtomicBool, immediate: &AtomicBool) -> io::Result<()> {
        let is_finished = AtomicBool::new(false);
        thread::scope(|scope| {
            let started = self.start_others(scope, &is_finished);
            if started.is_ok() {
                self.server.run(stop, immediate);
            }
            is_finished.store(true, Ordering::Relaxed);
            started
        })
    }

    /// Starts the other servers. They end when `is_finished` is set: sessions of iperf3 share the admission, so the
    /// main server waits for them.
    fn start_others<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        is_finished: &'scope AtomicBool,
    ) -> io::Result<()> {
        let thread = |name: &str| thread::Builder::new().name(name.into());
        if let Some(iperf3) = &self.iperf3 {
            thread("iperf3").spawn_scoped(scope, || iperf3.run(is_finished))?;
        }
        if let Some(stamp) = &self.stamp {
            thread("STAMP reflector").spawn_scoped(scope, || stamp.run(is_finished))?;
        }
        if let Some(metrics) = &self.metrics {
            let reflected = self.stamp.as_ref().map(StampReflector::tally);
            let page = self.server.metrics(move || reflected.as_ref().map(|tally| tally()));
            thread("metrics").spawn_scoped(scope, move || metrics.run(page, is_finished))?;
        }
        Ok(())
    }
}
