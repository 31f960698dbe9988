//! The server: a listener, the sessions that it assembles from their connections, and the limits of both.
//!
//! Each connection has a thread. Before authentication a connection holds a thread, a socket and the memory of one
//! hello, for at most [`ConnectionLimits::hello_timeout`]. A watchdog closes slower connections, even if they send a
//! byte now and then. If there are too many, the oldest ones of the busiest client are closed. An authenticated client
//! requests its session at [`limits`](crate::limits) and may have to wait in the queue. A [`Service`] decides about the
//! contents of a session ([`crate::service`]).

pub mod audit;
mod connection;
mod datagrams;
pub mod event;
pub mod metrics;
mod queue_wait;
mod registry;
mod running_session;
pub mod sandbox;
mod session;
pub mod tokens;

pub use datagrams::DatagramStreams;
pub use event::ServerEvent;
pub use session::{ServerSession, SessionLimits};

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::session::{Rights, Ticket, Token};
use lfn_core::stamp::reflector::ReflectorTally;
use lfn_core::units::show_duration;
use lfn_core::wire::{Refusal, RefusalCode, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::limits::access::Access;
use crate::limits::admission::{Admission, ServerLimits};
use crate::limits::connection_table::ConnectionLimits;
use crate::session::identity::{IdentityError, ServerIdentity};
use crate::session::{SessionError, server_config};
use crate::written_files::WrittenFilesByCopy;
use audit::{AuditError, AuditLog};
use event::RefusedReason;
use metrics::{Gauges, Metrics};
use registry::Registry;
use running_session::RunningSessions;
use tokens::TokenSet;

/// Maximum time that the accept loop waits before it checks for a stop and for overdue connections.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Time in which the sessions of a stopped server remove their unfinished state.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that may wait for accept(2). The kernel limits the value to `net.core.somaxconn` (4096).
pub(crate) const BACKLOG: i32 = 4096;

/// Stack of a connection's thread. A TLS handshake and the loops of a session need a fraction of it. The size is less
/// than a quarter of the 2 MiB of other threads, so that a session never inherits the used stack of another thread (as
/// in `tester::load`).
const STACK_SIZE: usize = 400 << 10;

/// Settings of a server, fixed at its start.
#[derive(Debug)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes any free port.
    pub listen: SocketAddr,
    pub identity: ServerIdentity,
    /// Token that clients need. `None` accepts every client (`--insecure`); the caller allows `None` only on loopback
    /// or emulated paths.
    pub token: Option<Token>,
    pub token_expires: Option<SystemTime>,
    /// File of the additional tokens (`lfn token add`).
    pub token_file: Option<PathBuf>,
    /// Maximum rights of a session, for any token.
    pub rights: Rights,
    /// Audit log of all sessions.
    pub audit: Option<AuditLog>,
    /// Directory that confines all copies. Without a directory only `random:`, `zero:` and `null:` can be copied.
    pub root: Option<PathBuf>,
    /// Copies may use every path that this process may use; relative paths start at its working directory. For servers
    /// that ssh started: the client is the user of the process.
    pub unconfined: bool,
    /// A client may ask this server to dial another server and send to it.
    pub allow_third_party: bool,
    /// Limits of one client's sessions and of all sessions.
    pub limits: ServerLimits,
    pub connection_limits: ConnectionLimits,
    pub access: Access,
    /// Time that running sessions may continue after a stop.
    pub drain: Duration,
}

/// Reasons why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("the server's certificate cannot be used: {0}")]
    Identity(#[from] rustls::Error),
    #[error(transparent)]
    TokenSet(#[from] IdentityError),
}

/// Function that serves one open session to its end.
pub type Service = fn(&mut ServerSession, &Request) -> Result<(), SessionError>;

/// A bound server; [`Server::run`] serves its clients.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    udp_socket: UdpSocket,
    shared: Arc<ServerState>,
}

/// State that the threads of all connections share.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) registry: Registry,
    expected_datagrams: datagrams::ExpectedStreams,
    tls: Arc<rustls::ServerConfig>,
    service: Service,
    admission: Admission,
    running_sessions: Arc<RunningSessions>,
    written_files: WrittenFilesByCopy,
    tokens: TokenSet,
    metrics: Metrics,
    /// Sessions that run, wait in the queue, or still send their last message.
    open_sessions: AtomicUsize,
    /// Rounds of the accept loop, for a watchdog.
    accept_rounds: AtomicU64,
    event_log: Box<dyn Fn(&ServerEvent<'_>) + Send + Sync>,
}

/// Counts a session until it is dropped; the stop of the server waits for all of them.
#[derive(Debug)]
pub(crate) struct OpenSessionGuard(Arc<ServerState>);

impl Drop for OpenSessionGuard {
    fn drop(&mut self) {
        self.0.open_sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the TCP listener and the UDP socket; [`Server::run`] then answers clients. `service` serves each session;
    /// `log` receives each event.
    pub fn bind(
        config: ServerConfig,
        service: Service,
        log: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let address = config.listen;
        let (listener, datagrams) = listen(address).map_err(|source| ServeError::Listen { address, source })?;
        let shared = ServerState {
            tls: server_config(&config.identity)?,
            registry: Registry::new(config.connection_limits, &config.limits),
            expected_datagrams: datagrams::ExpectedStreams::default(),
            admission: Admission::new(config.limits),
            tokens: TokenSet::new(&config)?,
            config,
            service,
            running_sessions: Arc::default(),
            written_files: WrittenFilesByCopy::default(),
            metrics: Metrics::default(),
            open_sessions: AtomicUsize::new(0),
            accept_rounds: AtomicU64::new(0),
            event_log: Box::new(log),
        };
        Ok(Server { listener, udp_socket: datagrams, shared: Arc::new(shared) })
    }

    /// Returns the address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the ticket for clients that reach this server as `host`.
    pub fn ticket(&self, host: &str) -> io::Result<Ticket> {
        let token = self.shared.config.token.unwrap_or(Token::from_bytes([0; 16]));
        let fingerprint = self.shared.config.identity.fingerprint();
        Ok(Ticket { host: host.to_owned(), port: self.local_addr()?.port(), token, fingerprint })
    }

    /// Returns the admission control of all sessions, also for the servers of other protocols on other ports.
    pub fn admission(&self) -> Admission {
        self.shared.admission.clone()
    }

    /// Returns a function that counts and logs the events of another protocol's server, such as iperf3's.
    pub fn event_logger(&self) -> impl Fn(ServerEvent<'_>) + Clone + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |event| shared.log(event)
    }

    /// Returns the page of `/metrics`. `reflected` gives the counts of the STAMP reflector, if there is one.
    pub fn metrics(
        &self,
        reflected: impl Fn() -> Option<ReflectorTally> + Send + Sync + 'static,
    ) -> impl Fn() -> String + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.metrics.page(&shared.gauges(), reflected())
    }

    /// Returns a counter that grows while the server accepts connections. A watchdog polls it.
    pub fn heartbeat(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.accept_rounds.load(Ordering::Relaxed)
    }

    /// Serves until `stop` is set, and then accepts no new session. Running sessions may continue for
    /// [`ServerConfig::drain`], or until `now` is set; then they are ended.
    pub fn run(&self, stop: &AtomicBool, now: &AtomicBool) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| datagrams::listen(&self.udp_socket, &self.shared, || is_over.load(Ordering::Relaxed)));
            self.run_until_stopped(stop, now);
            is_over.store(true, Ordering::Relaxed);
        });
    }

    fn run_until_stopped(&self, stop: &AtomicBool, now: &AtomicBool) {
        let Server { listener, shared, .. } = self;
        let set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        accept_until(listener, shared, || set(stop));
        let drain = shared.config.drain;
        shared.log(ServerEvent::Stopping { running: shared.admission.running(), drain });
        shared.admission.stop();
        let deadline = Instant::now() + drain;
        // Running sessions may still open data streams. New clients get the refusal "the server is stopping".
        let is_over = || set(now) || shared.admission.running() == 0 || Instant::now() >= deadline;
        accept_until(listener, shared, is_over);
        let when =
            if set(now) { "immediately".into() } else { format!("after the drain time of {}", show_duration(drain)) };
        let text = format!("the server was stopped; running sessions were ended {when}");
        let refusal = Refusal::new(RefusalCode::Stopped, text).hint("try again later, or use another server");
        let terminated = shared.running_sessions.end_all(&refusal);
        if terminated > 0 {
            shared.log(ServerEvent::Terminated(terminated));
        }
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        while shared.open_sessions.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL / 20);
        }
    }
}

/// Binds the TCP listener and a UDP socket with the same port number.
fn listen(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    /// Maximum number of tries: a free TCP port may be in use for UDP, but hardly 20 times in succession.
    const TRIES: u32 = 20;
    let mut tries = 0;
    loop {
        let listener = TcpListener::bind(address)?;
        // A second listen(2) only changes the backlog. With the library's 128 the kernel drops SYNs under a flood of
        // connections, and honest clients wait a second for their retransmission.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        match datagrams::bind(listener.local_addr()?) {
            Ok(datagrams) => return Ok((listener, datagrams)),
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                tries += 1
            }
            Err(error) => return Err(io::Error::new(error.kind(), format!("UDP: {error}"))),
        }
    }
}

/// Accepts connections until `stop` returns true; each one gets a thread.
fn accept_until(listener: &TcpListener, shared: &Arc<ServerState>, stop: impl Fn() -> bool) {
    let tick = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    let mut last_poll = Instant::now();
    while !stop() {
        shared.accept_rounds.fetch_add(1, Ordering::Relaxed);
        // An interrupted wait counts as a finished one.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
        // A flood of connections must not keep the loop from its other duties.
        while last_poll.elapsed() < POLL_INTERVAL {
            match listener.accept() {
                Ok((socket, peer)) => start_connection(shared, socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    on_accept_error(shared, &error);
                    break;
                }
            }
        }
        if last_poll.elapsed() >= POLL_INTERVAL {
            last_poll = Instant::now();
            shared.registry.close_overdue();
            shared.reload_tokens();
            shared.running_sessions.end_invalid(&shared.tokens);
        }
    }
}

/// Starts the thread of an accepted connection, if its address and the limits permit.
fn start_connection(shared: &Arc<ServerState>, socket: TcpStream, peer: SocketAddr) {
    shared.metrics.count_connection();
    // A dual-stack socket reports IPv4 clients as IPv4-mapped IPv6 addresses.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    if !shared.config.access.permits(peer.ip()) {
        return shared.log(ServerEvent::Refused(
            peer,
            RefusedReason::Access,
            "connections from this address are denied",
        ));
    }
    let Some(slot) = shared.registry.add_connection(&socket, peer.ip()) else {
        return shared.log(ServerEvent::Refused(peer, RefusedReason::Connections, "too many connections"));
    };
    let shared = shared.clone();
    // If the thread does not start, the socket is dropped; the client sees the close.
    let _ = thread::Builder::new().name("connection".into()).stack_size(STACK_SIZE).spawn(move || {
        if let Err((reason, error)) = connection::serve(&shared, socket, peer, slot) {
            shared.log(ServerEvent::Refused(peer, reason, &error.to_string()));
        }
    });
}

/// Reacts to a failed accept(2). Without file descriptors or memory, some unauthenticated connections are closed, and
/// the loop pauses.
fn on_accept_error(shared: &ServerState, error: &io::Error) {
    // A client that gave up before it was accepted is no sign of a shortage (accept(2)).
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
        return;
    }
    shared.log(ServerEvent::AcceptFailed(error));
    shared.registry.evict_quarter();
    thread::sleep(POLL_INTERVAL / 4);
}

impl ServerState {
    fn log(&self, event: ServerEvent<'_>) {
        // Callers that must not continue without the audit log use `record` instead.
        let _ = self.record(event);
    }

    /// Logs the event and counts it. Returns a refusal if the event belongs in the audit log and cannot be written.
    fn record(&self, event: ServerEvent<'_>) -> Result<(), Refusal> {
        let recorded = self.config.audit.as_ref().map_or(Ok(()), |audit| audit.record(&event));
        let file_error = recorded.as_ref().err().and_then(|AuditError(text)| text.as_deref());
        for event in [Some(event), file_error.map(ServerEvent::FileError)].into_iter().flatten() {
            self.metrics.count(&event);
            (self.event_log)(&event);
        }
        recorded.map_err(|_| AuditError::refusal())
    }

    fn count_open_session(self: &Arc<Self>) -> OpenSessionGuard {
        self.open_sessions.fetch_add(1, Ordering::SeqCst);
        OpenSessionGuard(self.clone())
    }

    fn gauges(&self) -> Gauges {
        let (connections, unauthenticated) = self.registry.counts();
        Gauges {
            running: self.admission.running(),
            waiting: self.admission.waiting(),
            connections,
            unauthenticated,
            payload_bytes: self.running_sessions.payload_bytes(),
        }
    }

    /// Reads the token file again if it changed, and logs an error in it once.
    fn reload_tokens(&self) {
        if let Some(error) = self.tokens.reload(&self.config) {
            self.log(ServerEvent::FileError(&format!("only the server's own ticket is accepted: {error}")));
        }
    }
}

/// Returns whether `--insecure` may listen on `address` without being forced.
pub fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}
