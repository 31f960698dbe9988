//! A server for stock iperf3 clients: one thread per test, a deadline for each protocol step, a limited number of
//! slots.
//!
//! A stock server runs one test at a time and refuses the others. This server accepts every connection, reads its
//! cookie, and gives it to the test that waits for it. A new cookie starts a test. [`Admission`] decides who may run a
//! test, and at which rate, as for `lfn`'s own sessions. A client that is not admitted at once waits before the server
//! requests its streams; stock clients accept this. After [`IperfTimeouts::queue_timeout`] the server reports that it
//! is busy. iperf3 has no encryption, and without a users file no authentication.

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
use lfn_core::iperf3::{COOKIE_LENGTH, Cookie, TestState};

use super::Error;
use super::control::{IperfControl, readable};
use super::rsa::PrivateKey;
use crate::limits::access::Access;
use crate::limits::admission::Admission;
use crate::limits::connection_table::{ConnectionLimits, ConnectionSlot, ConnectionTable};
use crate::server::event::RefusedReason;
use crate::server::{BACKLOG, ServerEvent};
use arrivals::{ArrivedConnection, StreamRendezvous};
use session::IperfSession;
use std::os::fd::AsFd;

/// Interval at which the accept loop checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time in which a stopped server informs its clients.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of a server, fixed at its start.
#[derive(Debug)]
pub struct IperfServerConfig {
    /// Address for TCP and UDP; port 0 takes any free port.
    pub listen: SocketAddr,
    pub access: Access,
    /// Admission control, shared with `lfn`'s own server.
    pub admission: Admission,
    /// Users and key; without them every client may run tests.
    pub users: Option<Authentication>,
    /// Answer `--get-server-output` with JSON instead of text.
    pub json_output: bool,
    /// Limits of connections. Connections without a slot that do not wait in the queue count as unauthenticated.
    pub connection_limits: ConnectionLimits,
    pub timeouts: IperfTimeouts,
}

/// Users, and the key for the decryption of their tokens.
#[derive(Debug)]
pub struct Authentication {
    pub users: Users,
    pub key: PrivateKey,
    /// Maximum difference between a client's clock and the server's.
    pub skew: Duration,
    /// Also accept tokens with the padding of iperf3 before 3.17.
    pub also_pkcs1: bool,
}

/// Time-outs of a client.
#[derive(Debug, Clone, Copy)]
pub struct IperfTimeouts {
    /// Maximum time of one protocol step: cookie, parameters, streams or results.
    pub step_timeout: Duration,
    /// Maximum time without data during a test, as in stock servers.
    pub silence_timeout: Duration,
    /// Maximum time to end a test after its duration.
    pub end_grace: Duration,
    /// Maximum time in the queue.
    pub queue_timeout: Duration,
}

impl Default for IperfTimeouts {
    fn default() -> Self {
        IperfTimeouts {
            step_timeout: Duration::from_secs(15),
            silence_timeout: Duration::from_secs(120),
            end_grace: Duration::from_secs(30),
            queue_timeout: Duration::from_secs(60),
        }
    }
}

/// A bound server; `run` serves its clients.
#[derive(Debug)]
pub struct IperfServer {
    listener: TcpListener,
    udp: udp::UdpListener,
    shared: Arc<IperfServerState>,
}

/// State that the threads of all connections share.
struct IperfServerState {
    config: IperfServerConfig,
    arrivals: StreamRendezvous,
    udp: udp::UdpStreamQueue,
    stopping: AtomicBool,
    connections: ConnectionTable,
    /// Number of running sessions, see [`IperfServer::sessions`].
    sessions: AtomicUsize,
    log: Box<dyn Fn(ServerEvent<'_>) + Send + Sync>,
}

impl std::fmt::Debug for IperfServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl IperfServer {
    /// Binds the TCP and the UDP socket; [`IperfServer::run`] then answers clients.
    pub fn bind(config: IperfServerConfig, log: impl Fn(ServerEvent<'_>) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(config.listen)?;
        // As for `lfn`'s own port: a flood of SYNs must not displace honest ones.
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let udp = udp::UdpListener::bind(listener.local_addr()?)?;
        let shared = IperfServerState {
            connections: ConnectionTable::new(config.connection_limits),
            config,
            arrivals: StreamRendezvous::default(),
            udp: udp::UdpStreamQueue::default(),
            stopping: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            log: Box::new(log),
        };
        Ok(IperfServer { listener, udp, shared: Arc::new(shared) })
    }

    /// Returns the address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the number of clients that request a test, wait in the queue, or run a test.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.load(Ordering::SeqCst)
    }

    /// Serves until `stop` is set, and then informs the clients of the stop.
    pub fn run(&self, stop: &AtomicBool) {
        thread::scope(|scope| {
            scope.spawn(|| self.udp.run(&self.shared.udp, stop));
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                if !readable(self.listener.as_fd(), POLL_INTERVAL) {
                    continue;
                }
                // A flood of connections must not keep the loop from its stop flag.
                for _ in 0..BACKLOG {
                    match self.listener.accept() {
                        Ok((socket, peer)) => {
                            number += 1;
                            IperfServerState::accept(&self.shared, socket, peer, number);
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => {
                            self.shared.on_accept_error(&error);
                            break;
                        }
                    }
                }
            }
        });
        self.shared.stopping.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        while self.sessions() > 0 && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL / 10);
        }
    }
}

/// Counts a session until it is dropped.
struct RunningGuard<'a>(&'a AtomicUsize);

impl<'a> RunningGuard<'a> {
    fn new(sessions: &'a AtomicUsize) -> Self {
        sessions.fetch_add(1, Ordering::SeqCst);
        RunningGuard(sessions)
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl IperfServerState {
    /// Starts the thread of a connection; `number` is its position in the order of arrival.
    fn accept(shared: &Arc<IperfServerState>, socket: TcpStream, peer: SocketAddr, number: u64) {
        // A dual-stack socket reports IPv4 clients as IPv4-mapped IPv6 addresses.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !shared.config.access.permits(peer.ip()) {
            return (shared.log)(ServerEvent::Refused(
                peer,
                RefusedReason::Access,
                "connections from this address are denied",
            ));
        }
        let Some(slot) = shared.connections.add(&socket, peer.ip()) else {
            // One byte into an empty send buffer does not block.
            let denied = IperfControl::new(socket, "the client")
                .and_then(|mut c| c.send(TestState::AccessDenied, "at its hello"));
            drop(denied);
            return (shared.log)(ServerEvent::Refused(peer, RefusedReason::Connections, "too many connections"));
        };
        let shared = shared.clone();
        let work = move || {
            let closed = slot.closed_flag();
            if let Err(error) = serve_connection(&shared, socket, peer, number, slot) {
                let reason =
                    if closed.load(Ordering::Relaxed) { RefusedReason::Silent } else { refused_reason(&error) };
                (shared.log)(ServerEvent::Refused(peer, reason, &error.to_string()));
            }
        };
        // If the thread does not start, the socket is dropped; the client sees the close.
        let _ = thread::Builder::new().name("iperf3".into()).spawn(work);
    }

    /// Reacts to a failed accept(2). Without file descriptors or memory, some unauthenticated connections are closed,
    /// and the loop pauses.
    fn on_accept_error(&self, error: &io::Error) {
        // A client that gave up before it was accepted is no sign of a shortage (accept(2)).
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
            return;
        }
        (self.log)(ServerEvent::AcceptFailed(error));
        self.connections.evict_quarter();
        thread::sleep(POLL_INTERVAL / 2);
    }
}

fn refused_reason(error: &Error) -> RefusedReason {
    match error {
        Error::Timeout { .. } => RefusedReason::Silent,
        Error::Denied(_) => RefusedReason::Token,
        _ => RefusedReason::Hello,
    }
}

/// Serves one connection from its first byte: a stream goes to its test, any other connection starts one.
fn serve_connection(
    shared: &Arc<IperfServerState>,
    socket: TcpStream,
    peer: SocketAddr,
    number: u64,
    slot: ConnectionSlot,
) -> Result<(), Error> {
    let mut control = IperfControl::new(socket, "the client")?;
    let mut cookie = [0; COOKIE_LENGTH];
    control.read(&mut cookie, shared.config.timeouts.step_timeout, "before its cookie")?;
    slot.note_data();
    let cookie = Cookie::from_wire(cookie);
    let arrived = ArrivedConnection { number, control, slot };
    let Some(ArrivedConnection { control, slot, .. }) = shared.arrivals.deliver(&cookie, peer.ip(), arrived) else {
        return Ok(());
    };
    let _running = RunningGuard::new(&shared.sessions);
    IperfSession::new(shared.clone(), control, peer, cookie, slot).run()
}

/// Returns the address of a dual-stack client in its IPv4 form.
fn canonical(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}
