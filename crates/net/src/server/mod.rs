//! The far end: a listener, sessions put together from their connections, and the limits that keep it honest.
//!
//! One thread a connection. Until a connection has shown a token it holds a thread, a socket and at most one hello's
//! worth of memory, for at most [`Limits::hello_within`]; a watchdog closes those that take longer, however slowly they talk.
//! What a session does once it is open is not decided here: a [`Service`] is handed in ([`crate::service`]).

pub mod access;
pub mod admission;
mod registry;
mod session;
pub mod throttle;

pub use session::ServerSession;

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::session::hello::{self, ClearHello};
use lfn_core::session::{PROTOCOL, SessionId, Ticket, Token};
use lfn_core::wire::{HELLO_LIMIT, Hello, Refusal, RefusalCode, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::session::dial::set_liveness;
use crate::session::identity::Identity;
use crate::session::{Control, DataStream, SessionError};
use crate::session::{TlsStream, server_config};
use registry::{Registry, Watch};

/// [`Limits::hello_within`] if nothing else is said: sixteen round trips of a 600 ms path, so with room for losses.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How often the accept loop looks up from its wait, to stop or to close what is overdue.
const TICK: Duration = Duration::from_millis(200);

/// How long a server that is stopped waits for its sessions to remove what is half-done.
const TIDY_WITHIN: Duration = Duration::from_secs(5);

/// What a server is told at its start.
#[derive(Debug)]
pub struct Config {
    /// Where to listen; port 0 takes any free port.
    pub listen: SocketAddr,
    /// What it is known by.
    pub identity: Identity,
    /// Who may come in; `None` is everybody (`--insecure`), which the caller allows only on loopback or emulated paths.
    pub token: Option<Token>,
    /// When the token ceases to be good.
    pub token_expires: Option<SystemTime>,
    /// The directory copies are confined to; without one only `random:`, `zero:` and `null:` can be copied.
    pub root: Option<PathBuf>,
    /// What it may be made to do.
    pub limits: Limits,
}

/// Bounds on what clients can make a server do; each is a flag of `lfn serve`.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Sessions at once.
    pub sessions: usize,
    /// Connections at once, known and unknown.
    pub connections: usize,
    /// Data streams of one session.
    pub streams: u16,
    /// How long one test may load the path.
    pub test_time: Duration,
    /// How long a connection may take to show who it is.
    pub hello_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            sessions: 16,
            connections: 1024,
            streams: 256,
            test_time: Duration::from_secs(3600),
            hello_within: HELLO_WITHIN,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port is taken or privileged, or the address is not this host's.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was to be listened on.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The identity does not work.
    #[error("the server's certificate cannot be used: {0}")]
    Identity(#[from] rustls::Error),
}

/// What a server tells whoever runs it.
#[derive(Debug)]
pub enum Event<'a> {
    /// A session began.
    Opened(SocketAddr, &'a Request),
    /// A session ended, with the error if it failed.
    Ended(SocketAddr, Option<&'a SessionError>),
    /// A connection was turned away.
    Refused(SocketAddr, &'a str),
}

/// Serves one open session to its end.
pub type Service = fn(&mut ServerSession, &Request) -> Result<(), SessionError>;

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What every connection's thread needs.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    tls: Arc<rustls::ServerConfig>,
    service: Service,
    /// The server is being stopped.
    stopping: AtomicBool,
    /// Sessions that then have something to tidy up.
    tidying: AtomicUsize,
    log: Box<dyn Fn(Event<'_>) + Send + Sync>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds the listener; nothing is answered before [`Server::run`].
    /// `service` does what a session asks for; `log` hears of each.
    pub fn bind(
        config: Config,
        service: Service,
        log: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let address = config.listen;
        let listen = || -> io::Result<TcpListener> {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|source| ServeError::Listen { address, source })?;
        let tls = server_config(&config.identity)?;
        let registry = Registry::new(config.limits);
        let (stopping, tidying) = (AtomicBool::new(false), AtomicUsize::new(0));
        let shared = Shared { config, registry, tls, service, stopping, tidying, log: Box::new(log) };
        Ok(Server { listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The ticket for clients that reach this server as `host`.
    pub fn ticket(&self, host: &str) -> io::Result<Ticket> {
        let token = self.shared.config.token.unwrap_or(Token::from_bytes([0; 16]));
        let fingerprint = self.shared.config.identity.fingerprint();
        Ok(Ticket { host: host.to_owned(), port: self.local_addr()?.port(), token, fingerprint })
    }

    /// Serves until `stop` is set. Sessions under way then end with the process.
    pub fn run(&self, stop: &AtomicBool) {
        accept_until(&self.listener, &self.shared, || stop.load(Ordering::Relaxed));
        self.shared.stopping.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + TIDY_WITHIN;
        while self.shared.tidying.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(TICK / 20);
        }
    }
}

/// Accepts connections until `stop` says so, one thread each.
fn accept_until(listener: &TcpListener, shared: &Arc<Shared>, stop: impl Fn() -> bool) {
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    while !stop() {
        shared.registry.close_overdue();
        // An interrupted wait is as good as one that ended.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
        while let Ok((socket, peer)) = listener.accept() {
            // A dual-stack socket shows IPv4 clients in IPv6 clothes.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            let Some(watch) = shared.registry.watch(&socket) else {
                (shared.log)(Event::Refused(peer, "as many connections as allowed"));
                continue;
            };
            let shared = shared.clone();
            let spawned = thread::Builder::new().name("connection".into()).spawn(move || {
                if let Err(error) = connection(&shared, socket, peer, watch) {
                    (shared.log)(Event::Refused(peer, &error.to_string()));
                }
            });
            // Without a thread the socket is dropped, and the client told so by the close.
            drop(spawned);
        }
    }
}

/// One connection from its first byte: a data stream goes to its session, a control connection becomes one.
fn connection(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr, watch: Watch) -> Result<(), SessionError> {
    let io_error = |source| SessionError::Io { peer: "the client", source };
    socket.set_nonblocking(false).and_then(|()| set_liveness(&socket)).map_err(io_error)?;
    let within = shared.config.limits.hello_within;
    socket.set_read_timeout(Some(within)).map_err(io_error)?;
    let mut first = [0];
    if socket.peek(&mut first).map_err(io_error)? == 1 && first[0] == hello::FIRST_BYTE {
        let stream = clear_stream(shared, socket)?;
        watch.known();
        return shared.registry.deliver(stream.0, stream.1);
    }
    let tls = TlsStream::server(socket, shared.tls.clone())
        .map_err(|source| SessionError::Tls { address: peer.to_string(), source })?;
    let mut control = Control::new(tls, HELLO_LIMIT, "the client");
    let hello: Hello = match control.recv(within, "before its hello") {
        Ok(hello) => hello,
        Err(error) => {
            if let SessionError::Frame(_) = error {
                let _ = control.refuse(&Refusal::from(&error));
            }
            return Err(error);
        }
    };
    if let Err(refusal) = admit(shared, &hello) {
        // The client may be gone already; the refusal is what is reported.
        let _ = control.refuse(&refusal);
        control.close();
        return Err(SessionError::Refused(refusal));
    }
    watch.known();
    control.known();
    match hello {
        Hello::Data { session, stream, .. } => {
            shared.registry.deliver(session, DataStream::tls(stream, control.into_stream()))
        }
        Hello::Control { session, request, .. } => {
            serve_session(shared, control, peer, session, &request);
            Ok(())
        }
    }
}

fn clear_stream(shared: &Shared, mut socket: TcpStream) -> Result<(SessionId, DataStream), SessionError> {
    let mut bytes = [0; hello::LENGTH];
    socket.read_exact(&mut bytes).map_err(|source| SessionError::Io { peer: "the client", source })?;
    let token = shared.config.token.unwrap_or(Token::from_bytes([0; 16]));
    let refused = |e: hello::HelloError| SessionError::Refused(Refusal::new(RefusalCode::WrongToken, e.to_string()));
    let hello = ClearHello::decode(&bytes, &token).map_err(refused)?;
    if shared.expired() {
        return Err(SessionError::Refused(shared.expired_refusal()));
    }
    Ok((hello.session, DataStream::clear(hello.stream, socket)))
}

/// Whether the hello's version and token are good.
fn admit(shared: &Shared, hello: &Hello) -> Result<(), Refusal> {
    let (Hello::Control { protocol, token, .. } | Hello::Data { protocol, token, .. }) = hello;
    if *protocol != PROTOCOL {
        return Err(Refusal::new(
            RefusalCode::Protocol,
            format!("the client speaks version {protocol} of the protocol, this server version {PROTOCOL}"),
        )
        .hint("use the same version of lfn at both ends"));
    }
    let Some(expected) = &shared.config.token else { return Ok(()) };
    if !token.is_some_and(|shown| shown.matches(expected)) {
        return Err(Refusal::new(RefusalCode::WrongToken, "the ticket's token is not this server's")
            .hint("take the ticket that `lfn serve` prints now"));
    }
    if shared.expired() {
        return Err(shared.expired_refusal());
    }
    Ok(())
}

fn serve_session(shared: &Arc<Shared>, mut control: Control, peer: SocketAddr, id: SessionId, request: &Request) {
    let streams = match shared.registry.open(id) {
        Ok(streams) => streams,
        Err(refusal) => {
            let _ = control.refuse(&refusal);
            control.close();
            return (shared.log)(Event::Refused(peer, &refusal.message));
        }
    };
    (shared.log)(Event::Opened(peer, request));
    let mut session = ServerSession::new(control, streams, shared.clone(), peer);
    let result = (shared.service)(&mut session, request);
    if let Err(error) = &result {
        // The client may be gone; if it is not, it is told why.
        let _ = session.control.refuse(&Refusal::from(error));
    }
    (shared.log)(Event::Ended(peer, result.as_ref().err()));
    session.close();
}

impl Shared {
    fn expired(&self) -> bool {
        self.config.token_expires.is_some_and(|expires| SystemTime::now() >= expires)
    }

    fn expired_refusal(&self) -> Refusal {
        Refusal::new(RefusalCode::ExpiredToken, "the ticket has expired").hint("ask for the server's new ticket")
    }

    /// Whether copies may be served from or to a directory.
    pub(crate) fn root(&self) -> Option<&PathBuf> {
        self.config.root.as_ref()
    }
}

/// Whether `address` is one that `--insecure` may listen on without being forced.
pub fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}
