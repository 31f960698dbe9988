//! A server for stock iperf3 clients: many at once, each with a thread, a deadline on every step, and a place to lose.
//!
//! A stock server runs one test at a time and turns the others away. This one takes every connection on its port, reads
//! the cookie each begins with, and gives it to the test that waits for it; a cookie nobody waits for begins a test.
//! Who may run one, and how fast, is [`Admission`]'s to say, as for our own sessions. A client that is not let in at
//! once waits before its streams are asked for, which stock clients do without complaint; after [`Patience::queue`] it
//! is told that the server is busy. iperf3 has no encryption, and no authentication unless users are given.

mod arrivals;
mod output;
mod session;
mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::iperf3::auth::Users;
use lfn_core::iperf3::{COOKIE_LENGTH, Cookie, State};

use super::Error;
use super::control::{Control, readable};
use super::rsa::PrivateKey;
use crate::server::access::Access;
use crate::server::admission::Admission;
use crate::server::doors::{Doors, Watch};
use crate::server::event::Reason;
use crate::server::{BACKLOG, Connections, Event};
use arrivals::{Arrivals, Arrived};
use session::Session;
use std::os::fd::AsFd;

/// How often the accept loop looks whether it should stop.
const TICK: Duration = Duration::from_millis(100);

/// How long a server that is stopped waits for its clients to be told.
const TIDY_WITHIN: Duration = Duration::from_secs(2);

/// What a server is told at its start.
#[derive(Debug)]
pub struct Config {
    /// Where to listen, with TCP and UDP; port 0 takes any free port.
    pub listen: SocketAddr,
    /// Who may connect.
    pub access: Access,
    /// Who may run a test, and how many at once.
    pub admission: Admission,
    /// Who may run a test at all; without it everybody.
    pub users: Option<Authentication>,
    /// Answer `--get-server-output` with JSON instead of text.
    pub json_output: bool,
    /// Connections at once. Strangers are those that have no place yet and do not wait for one in the queue.
    pub connections: Connections,
    /// How long things may take.
    pub patience: Patience,
}

/// Users, and the key their tokens are encrypted for.
#[derive(Debug)]
pub struct Authentication {
    /// Who may.
    pub users: Users,
    /// Decrypts their tokens.
    pub key: PrivateKey,
    /// How far a client's clock may be from ours.
    pub skew: Duration,
    /// Take tokens in the padding of iperf3 before 3.17 too.
    pub also_pkcs1: bool,
}

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// One step of the conversation: cookie, parameters, streams, results.
    pub step: Duration,
    /// Without any data while data should come, as stock servers have it.
    pub silence: Duration,
    /// To end a test after its time is over.
    pub grace: Duration,
    /// In the queue of those that wait for a place.
    pub queue: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            step: Duration::from_secs(15),
            silence: Duration::from_secs(120),
            grace: Duration::from_secs(30),
            queue: Duration::from_secs(60),
        }
    }
}

/// A listening server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    udp: udp::Listener,
    shared: Arc<Shared>,
}

/// What every connection's thread needs.
struct Shared {
    config: Config,
    arrivals: Arrivals,
    udp: udp::Waiting,
    stopping: AtomicBool,
    doors: Doors,
    /// Those of [`Server::sessions`].
    sessions: AtomicUsize,
    log: Box<dyn Fn(Event<'_>) + Send + Sync>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds both sockets; nothing is answered before [`Server::run`].
    pub fn bind(config: Config, log: impl Fn(Event<'_>) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        // As for our own port: a crowd's SYNs are not to push out honest ones.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let udp = udp::Listener::bind(listener.local_addr()?)?;
        let shared = Shared {
            doors: Doors::new(config.connections),
            config,
            arrivals: Arrivals::default(),
            udp: udp::Waiting::default(),
            stopping: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            log: Box::new(log),
        };
        Ok(Server { listener, udp, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Clients that ask for a test, wait for their turn, or run one.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.load(Ordering::SeqCst)
    }

    /// Serves until `stop` is set, and then tells the clients that it ends.
    pub fn run(&self, stop: &AtomicBool) {
        thread::scope(|scope| {
            scope.spawn(|| self.udp.run(&self.shared.udp, stop));
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                if !readable(self.listener.as_fd(), TICK) {
                    continue;
                }
                // Those that keep coming do not keep it from looking whether it should stop.
                for _ in 0..BACKLOG {
                    match self.listener.accept() {
                        Ok((socket, peer)) => {
                            number += 1;
                            Shared::accept(&self.shared, socket, peer, number);
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => {
                            self.shared.starved(&error);
                            break;
                        }
                    }
                }
            }
        });
        self.shared.stopping.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + TIDY_WITHIN;
        while self.sessions() > 0 && Instant::now() < deadline {
            thread::sleep(TICK / 10);
        }
    }
}

/// A session, counted until it is dropped.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn new(sessions: &'a AtomicUsize) -> Self {
        sessions.fetch_add(1, Ordering::SeqCst);
        Running(sessions)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Puts a thread on a connection; `number` is its place in the order they came.
    fn accept(shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr, number: u64) {
        // A dual-stack socket shows IPv4 clients in IPv6 clothes.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !shared.config.access.permits(peer.ip()) {
            return (shared.log)(Event::Refused(peer, Reason::Access, "not allowed from there"));
        }
        let Some(watch) = shared.doors.watch(&socket, peer.ip()) else {
            // One byte into an empty buffer: it does not block.
            let denied =
                Control::new(socket, "the client").and_then(|mut c| c.send(State::AccessDenied, "at its hello"));
            drop(denied);
            return (shared.log)(Event::Refused(peer, Reason::Connections, "as many connections as allowed"));
        };
        let shared = shared.clone();
        let work = move || {
            let closed = watch.closed();
            if let Err(error) = connection(&shared, socket, peer, number, watch) {
                let reason = if closed.load(Ordering::Relaxed) { Reason::Silent } else { reason(&error) };
                (shared.log)(Event::Refused(peer, reason, &error.to_string()));
            }
        };
        // Without a thread the socket is dropped, and the client told so by the close.
        let _ = thread::Builder::new().name("iperf3".into()).spawn(work);
    }

    /// Files or memory are used up: strangers make place, and the loop does not spin on what it cannot accept.
    fn starved(&self, error: &io::Error) {
        // Whoever gave up before it was accepted is no sign of want (accept(2)).
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
            return;
        }
        (self.log)(Event::Starved(error));
        self.doors.make_place();
        thread::sleep(TICK / 2);
    }
}

fn reason(error: &Error) -> Reason {
    match error {
        Error::Timeout { .. } => Reason::Silent,
        Error::Denied(_) => Reason::Token,
        _ => Reason::Hello,
    }
}

/// One connection from its first byte: a stream goes to its test, anything else begins one.
fn connection(
    shared: &Arc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    number: u64,
    watch: Watch,
) -> Result<(), Error> {
    let mut control = Control::new(socket, "the client")?;
    let mut cookie = [0; COOKIE_LENGTH];
    control.read(&mut cookie, shared.config.patience.step, "before its cookie")?;
    watch.spoke();
    let cookie = Cookie::from_wire(cookie);
    let came = Arrived { number, control, watch };
    let Some(Arrived { control, watch, .. }) = shared.arrivals.deliver(&cookie, peer.ip(), came) else { return Ok(()) };
    let _running = Running::new(&shared.sessions);
    Session::new(shared.clone(), control, peer, cookie, watch).run()
}

/// An address as clients of a dual-stack socket have it.
fn canonical(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}
