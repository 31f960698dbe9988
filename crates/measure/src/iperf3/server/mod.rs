//! A server for stock iperf3 clients: one thread per test, a deadline for each protocol step, a limited number of
//! slots.
//!
//! A stock server runs one test at a time and refuses the others. This server accepts every connection, reads its
//! cookie, and gives it to the test that waits for it. A new cookie starts a test. [`Admission`] decides who may run a
//! test, and at which rate, as for `lfn`'s own sessions. A client that is not admitted at once waits before the server
//! requests its streams; stock clients accept this. After [`IperfTimeouts::queue_timeout`] the server reports that it
//! is busy. iperf3 has no encryption, and without a users file no authentication.

mod arrivals;
mod listener;
mod output;
mod session;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lfn_session::limits::access::Access;
use lfn_session::limits::admission::Admission;
use lfn_session::limits::connection_table::{ConnectionLimits, ConnectionTable};
use lfn_session::server::accept::OpenSessions;
use lfn_session::server::{BACKLOG, ServerEvent};
use lfn_session::transport::tcp::Listener;

use super::rsa::PrivateKey;
use crate::proto::iperf3::auth::Users;
use arrivals::StreamRendezvous;

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
    listener: Listener,
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
    sessions: OpenSessions,
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
        // As for `lfn`'s own port: a flood of SYNs must not displace honest ones.
        let listener = Listener::bind(config.listen, BACKLOG)?;
        let udp = udp::UdpListener::bind(listener.local_address()?)?;
        let shared = IperfServerState {
            connections: ConnectionTable::new(config.connection_limits),
            config,
            arrivals: StreamRendezvous::default(),
            udp: udp::UdpStreamQueue::default(),
            stopping: AtomicBool::new(false),
            sessions: OpenSessions::default(),
            log: Box::new(log),
        };
        Ok(IperfServer { listener, udp, shared: Arc::new(shared) })
    }

    /// Returns the address and port of the listener.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }

    /// Returns the number of clients that request a test, wait in the queue, or run a test.
    pub fn sessions(&self) -> usize {
        self.shared.sessions.count()
    }
}
