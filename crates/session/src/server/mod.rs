//! The server: a listener, the sessions that it assembles from their connections, and the limits of both.
//!
//! Each connection has a thread. Before authentication a connection holds a thread, a socket and the memory of one
//! hello, for at most [`ConnectionLimits::hello_timeout`](crate::limits::connection_table::ConnectionLimits). A watchdog
//! closes slower connections, even if they send a byte now and then. If there are too many, the oldest ones of the
//! busiest client are closed. An authenticated client requests its session at [`limits`](crate::limits) and may have to
//! wait in the queue. A [`Service`] decides about the contents of a session (`lfn_api::service`).

pub mod accept;
pub mod audit;
pub mod audit_line;
mod config;
mod connection;
mod datagrams;
pub mod event;
mod expected_streams;
pub mod metrics;
mod queue_wait;
mod registry;
mod running_session;
pub mod sandbox;
mod session;
mod state;
pub mod tokens;

pub use config::ServerConfig;
pub use connection::Service;
pub use event::ServerEvent;
pub use expected_streams::DatagramStreams;
pub use session::{ServerSession, SessionLimits};

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use lfn_base::units::show_duration;

use crate::identity::IdentityError;
use crate::limits::admission::Admission;
use crate::server::event::ReflectorTally;
use crate::transport::tcp::Listener;
use crate::wire::{Refusal, RefusalCode};
use crate::written_files::WrittenFilesByCopy;
use crate::{Ticket, Token, server_config};
use accept::{OpenSessions, StopSignal};
use expected_streams::ExpectedStreams;
use metrics::Metrics;
use registry::Registry;
use state::ServerState;
use tokens::TokenSet;

/// Time in which the sessions of a stopped server remove their unfinished state.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that may wait for accept(2). The kernel limits the value to `net.core.somaxconn` (4096).
pub const BACKLOG: i32 = 4096;

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

/// A bound server; [`Server::run`] serves its clients.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    udp_socket: UdpSocket,
    shared: Arc<ServerState>,
}

impl Server {
    /// Binds the TCP listener and the UDP socket; [`Server::run`] then answers clients. `service` serves each session;
    /// `log` receives each event.
    pub fn bind(
        config: ServerConfig,
        service: impl Service,
        log: impl Fn(&ServerEvent<'_>) + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let service: Arc<dyn Service> = Arc::new(service);
        let address = config.listen;
        let (listener, datagrams) =
            listen(address, config.congestion).map_err(|source| ServeError::Listen { address, source })?;
        let shared = ServerState {
            tls: server_config(&config.identity)?,
            registry: Registry::new(config.connection_limits, &config.limits),
            expected_datagrams: ExpectedStreams::default(),
            admission: Admission::new(config.limits),
            tokens: TokenSet::new(&config)?,
            config,
            serve_connection: Box::new(move |shared, connection, peer, slot| {
                connection::serve(&service, shared, connection, peer, slot)
            }),
            running_sessions: Arc::default(),
            written_files: WrittenFilesByCopy::default(),
            metrics: Metrics::default(),
            open_sessions: OpenSessions::default(),
            accept_intervals: AtomicU64::new(0),
            event_log: Box::new(log),
        };
        Ok(Server { listener, udp_socket: datagrams, shared: Arc::new(shared) })
    }

    /// Returns the address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
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
        move || shared.accept_intervals.load(Ordering::Relaxed)
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
        let accept_loop = shared.accept_loop();
        let listeners = std::slice::from_ref(listener);
        accept_loop.run(listeners, StopSignal::When(&|| set(stop)));
        let drain = shared.config.drain;
        shared.log(ServerEvent::Stopping { running: shared.admission.running(), drain });
        shared.admission.stop();
        let deadline = Instant::now() + drain;
        // Running sessions may still open data streams. New clients get the refusal "the server is stopping".
        let is_over = || set(now) || shared.admission.running() == 0 || Instant::now() >= deadline;
        accept_loop.run(listeners, StopSignal::When(&is_over));
        let when =
            if set(now) { "immediately".into() } else { format!("after the drain time of {}", show_duration(drain)) };
        let text = format!("the server was stopped; running sessions were ended {when}");
        let refusal = Refusal::new(RefusalCode::Stopped, text).hint("try again later, or use another server");
        let terminated = shared.running_sessions.end_all(&refusal);
        if terminated > 0 {
            shared.log(ServerEvent::Terminated(terminated));
        }
        shared.open_sessions.join(CLEANUP_TIMEOUT);
    }
}

/// Binds the TCP listener and a UDP socket with the same port number.
fn listen(address: SocketAddr, congestion: Option<&str>) -> io::Result<(Listener, UdpSocket)> {
    /// Maximum number of tries: a free TCP port may be in use for UDP, but hardly 20 times in succession.
    const TRIES: u32 = 20;
    let mut tries = 0;
    loop {
        // With the library's backlog of 128 the kernel drops SYNs under a flood of connections, and honest clients wait
        // a second for their retransmission.
        let listener = match congestion {
            Some(name) => Listener::bind_with_congestion(address, BACKLOG, name)?,
            None => Listener::bind_multipath(address, BACKLOG)?,
        };
        match datagrams::bind(listener.local_address()?) {
            Ok(datagrams) => return Ok((listener, datagrams)),
            Err(error) if address.port() == 0 && error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                tries += 1
            }
            Err(error) => return Err(io::Error::new(error.kind(), format!("UDP: {error}"))),
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
