//! The far end: a listener, sessions put together from their connections, and the limits that keep it honest.
//!
//! One thread a connection. Until a connection has shown a token it holds a thread, a socket and at most one hello's
//! worth of memory, for at most [`Connections::hello_within`]; a watchdog closes those that take longer, however slowly
//! they talk, and a crowd of them makes place for newcomers. Who has shown one asks at [`admission`] for a session's
//! place and may have to wait. What a session does once it is open is not decided here: a [`Service`] is handed in
//! ([`crate::service`]).

pub mod access;
pub mod admission;
pub mod audit;
pub mod confine;
mod connection;
mod datagrams;
pub(crate) mod doors;
pub mod event;
mod live;
pub mod metrics;
mod registry;
mod session;
pub mod throttle;
pub mod tokens;
mod turn;
pub(crate) mod written;

pub use datagrams::Datagrams;
pub use event::Event;
pub use session::{Limits, ServerSession};

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::session::{Rights, Ticket, Token};
use lfn_core::stamp::reflector::Tally;
use lfn_core::units::show_duration;
use lfn_core::wire::{Refusal, RefusalCode, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::session::identity::{Identity, IdentityError};
use crate::session::{DEAD_AFTER, SessionError, server_config};
use access::Access;
use admission::{Admission, Quotas};
use audit::{Audit, Unwritten};
use event::Reason;
use live::Lives;
use metrics::{Gauges, Metrics};
use registry::Registry;
use tokens::Tokens;

/// [`Connections::hello_within`] if nothing else is said: sixteen round trips of a 600 ms path, so with room for
/// losses.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How often the accept loop looks up from its wait, to stop or to close what is overdue.
const TICK: Duration = Duration::from_millis(200);

/// How long a server that is stopped waits for its sessions to remove what is half-done.
const TIDY_WITHIN: Duration = Duration::from_secs(5);

/// Connections that may wait to be accepted; the kernel takes no more than `net.core.somaxconn`, 4096.
pub(crate) const BACKLOG: i32 = 4096;

/// Of a connection's thread: a TLS handshake and the loops of a session need a fraction of it. Less than a quarter of the
/// 2 MiB of other threads, so that none of their used stacks becomes that of a session (as in `tester::load`).
const STACK: usize = 400 << 10;

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
    /// The file of tokens that were given out besides, if there is to be one.
    pub tokens: Option<PathBuf>,
    /// What anybody may do here.
    pub rights: Rights,
    /// Where account is kept of every session, if it is.
    pub audit: Option<Audit>,
    /// The directory copies are confined to; without one only `random:`, `zero:` and `null:` can be copied.
    pub root: Option<PathBuf>,
    /// Copies go wherever this process may, relative paths from its directory: its client is its own user, come by ssh.
    pub everywhere: bool,
    /// It dials other servers where a client asks it to send there.
    pub third_party: bool,
    /// What sessions may use, one client's and all together.
    pub quotas: Quotas,
    /// What connections may hold before they are sessions.
    pub connections: Connections,
    /// Which addresses may connect.
    pub access: Access,
    /// How long sessions that run may go on when the server is told to stop.
    pub drain: Duration,
}

/// Bounds on what connections cost, known and unknown; each is a flag of `lfn serve`.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// Connections at once, data streams among them.
    pub most: usize,
    /// Of those, such as have shown no token: beyond it the oldest of the address that has most makes place.
    pub strangers: usize,
    /// How long a connection may take to show who it is.
    pub hello_within: Duration,
    /// How long the client of a session may say nothing.
    pub silence: Duration,
}

impl Default for Connections {
    fn default() -> Self {
        Connections { most: 4096, strangers: 1024, hello_within: HELLO_WITHIN, silence: DEAD_AFTER }
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
    /// The file of tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] IdentityError),
}

/// Serves one open session to its end.
pub type Service = fn(&mut ServerSession, &Request) -> Result<(), SessionError>;

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    datagrams: UdpSocket,
    shared: Arc<Shared>,
}

/// What every connection's thread needs.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) registry: Registry,
    datagrams: datagrams::Meeting,
    tls: Arc<rustls::ServerConfig>,
    service: Service,
    admission: Admission,
    lives: Arc<Lives>,
    written: written::AllWritten,
    tokens: Tokens,
    metrics: Metrics,
    /// Sessions that run, wait, or have a last word to say.
    alive: AtomicUsize,
    /// Turns of the accept loop.
    turns: AtomicU64,
    sink: Box<dyn Fn(&Event<'_>) + Send + Sync>,
}

/// A session that the end of the server waits for.
#[derive(Debug)]
pub(crate) struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
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
        log: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let address = config.listen;
        let (listener, datagrams) = listen(address).map_err(|source| ServeError::Listen { address, source })?;
        let shared = Shared {
            tls: server_config(&config.identity)?,
            registry: Registry::new(config.connections, &config.quotas),
            datagrams: datagrams::Meeting::default(),
            admission: Admission::new(config.quotas),
            tokens: Tokens::new(&config)?,
            config,
            service,
            lives: Arc::default(),
            written: written::AllWritten::default(),
            metrics: Metrics::default(),
            alive: AtomicUsize::new(0),
            turns: AtomicU64::new(0),
            sink: Box::new(log),
        };
        Ok(Server { listener, datagrams, shared: Arc::new(shared) })
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

    /// The door every session goes through, also those of other protocols on other ports.
    pub fn admission(&self) -> Admission {
        self.shared.admission.clone()
    }

    /// Counts and logs what another protocol's server beside this one has to tell.
    pub fn teller(&self) -> impl Fn(Event<'_>) + Clone + Send + Sync + 'static {
        let shared = self.shared.clone();
        move |event| shared.log(event)
    }

    /// What `/metrics` shows; `reflected` tells what a STAMP reflector beside the server has done, if there is one.
    pub fn metrics(
        &self,
        reflected: impl Fn() -> Option<Tally> + Send + Sync + 'static,
    ) -> impl Fn() -> String + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.metrics.page(&shared.gauges(), reflected())
    }

    /// A number that grows as long as the server accepts connections: a watchdog looks at it.
    pub fn heartbeat(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.turns.load(Ordering::Relaxed)
    }

    /// Serves until `stop` is set. Nobody is let in then; sessions under way may go on for [`Config::drain`], or until
    /// `now` is set, and are then ended.
    pub fn run(&self, stop: &AtomicBool, now: &AtomicBool) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| datagrams::listen(&self.datagrams, &self.shared, || over.load(Ordering::Relaxed)));
            self.run_until(stop, now);
            over.store(true, Ordering::Relaxed);
        });
    }

    fn run_until(&self, stop: &AtomicBool, now: &AtomicBool) {
        let Server { listener, shared, .. } = self;
        let set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        accept_until(listener, shared, || set(stop));
        let drain = shared.config.drain;
        shared.log(Event::Stopping { running: shared.admission.running(), drain });
        shared.admission.stop();
        let deadline = Instant::now() + drain;
        // Those that run may still open data streams; newcomers are told that the server stops.
        let over = || set(now) || shared.admission.running() == 0 || Instant::now() >= deadline;
        accept_until(listener, shared, over);
        let after = if set(now) { "at once".into() } else { format!("after the {} they had", show_duration(drain)) };
        let text = format!("the server was stopped: sessions under way were ended {after}");
        let why = Refusal::new(RefusalCode::Stopped, text).hint("try again when it runs again, or use another server");
        let cut = shared.lives.end_all(&why);
        if cut > 0 {
            shared.log(Event::Cut(cut));
        }
        let deadline = Instant::now() + TIDY_WITHIN;
        while shared.alive.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(TICK / 20);
        }
    }
}

/// The TCP listener, and the UDP socket of the same port number.
fn listen(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    /// A free TCP port may be taken for UDP, but hardly this often in a row.
    const TRIES: u32 = 20;
    let mut tries = 0;
    loop {
        let listener = TcpListener::bind(address)?;
        // Listening again only changes the backlog (listen(2)): with the 128 of the library a crowd's SYNs are dropped,
        // and honest ones among them wait a second for the next.
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

/// Accepts connections until `stop` says so, one thread each.
fn accept_until(listener: &TcpListener, shared: &Arc<Shared>, stop: impl Fn() -> bool) {
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    let mut looked = Instant::now();
    while !stop() {
        shared.turns.fetch_add(1, Ordering::Relaxed);
        // An interrupted wait is as good as one that ended.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
        // A crowd that comes without a pause does not keep the loop from looking up.
        while looked.elapsed() < TICK {
            match listener.accept() {
                Ok((socket, peer)) => take(shared, socket, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    starved(shared, &error);
                    break;
                }
            }
        }
        if looked.elapsed() >= TICK {
            looked = Instant::now();
            shared.registry.close_overdue();
            shared.look_at_tokens();
            shared.lives.check(&shared.tokens);
        }
    }
}

/// A connection that was accepted gets its thread, if it may have one.
fn take(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) {
    shared.metrics.connected();
    // A dual-stack socket shows IPv4 clients in IPv6 clothes.
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    if !shared.config.access.permits(peer.ip()) {
        return shared.log(Event::Refused(peer, Reason::Access, "its address may not connect"));
    }
    let Some(watch) = shared.registry.watch(&socket, peer.ip()) else {
        return shared.log(Event::Refused(peer, Reason::Connections, "as many connections as allowed"));
    };
    let shared = shared.clone();
    // Without a thread the socket is dropped, and the client told so by the close.
    let _ = thread::Builder::new().name("connection".into()).stack_size(STACK).spawn(move || {
        if let Err((reason, error)) = connection::serve(&shared, socket, peer, watch) {
            shared.log(Event::Refused(peer, reason, &error.to_string()));
        }
    });
}

/// Files or memory are used up: strangers make place, and the loop does not spin on what it cannot accept.
fn starved(shared: &Shared, error: &io::Error) {
    // Whoever gave up before it was accepted is no sign of want (accept(2)).
    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
        return;
    }
    shared.log(Event::Starved(error));
    shared.registry.make_place();
    thread::sleep(TICK / 4);
}

impl Shared {
    fn log(&self, event: Event<'_>) {
        // What must not happen without account asks for it.
        let _ = self.account(event);
    }

    /// The same; a refusal if account is to be kept of it and cannot be.
    fn account(&self, event: Event<'_>) -> Result<(), Refusal> {
        let noted = self.config.audit.as_ref().map_or(Ok(()), |audit| audit.note(&event));
        let trouble = noted.as_ref().err().and_then(|Unwritten(trouble)| trouble.as_deref());
        for event in [Some(event), trouble.map(Event::Trouble)].into_iter().flatten() {
            self.metrics.count(&event);
            (self.sink)(&event);
        }
        noted.map_err(|_| Unwritten::refusal())
    }

    fn alive(self: &Arc<Self>) -> Alive {
        self.alive.fetch_add(1, Ordering::SeqCst);
        Alive(self.clone())
    }

    fn gauges(&self) -> Gauges {
        let (connections, strangers) = self.registry.counts();
        Gauges {
            running: self.admission.running(),
            waiting: self.admission.waiting(),
            connections,
            strangers,
            moved: self.lives.moved(),
        }
    }

    /// Tokens that were given out or revoked meanwhile are good or bad from now on.
    fn look_at_tokens(&self) {
        if let Some(trouble) = self.tokens.look(&self.config) {
            self.log(Event::Trouble(&format!("no token but the server's own is taken: {trouble}")));
        }
    }
}

/// Whether `address` is one that `--insecure` may listen on without being forced.
pub fn is_loopback(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}
