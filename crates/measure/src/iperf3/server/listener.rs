//! Accept loop: the limits of connections, and the first bytes of each.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use lfn_session::limits::connection_table::ConnectionSlot;
use lfn_session::server::event::RefusedReason;
use lfn_session::server::{BACKLOG, ServerEvent};
use lfn_session::transport::Connection;
use lfn_session::transport::tcp::TcpConnection;

use super::arrivals::ArrivedConnection;
use super::session::IperfSession;
use super::{IperfServer, IperfServerState};
use crate::iperf3::Error;
use crate::iperf3::control::{IperfControl, readable};
use crate::proto::iperf3::{COOKIE_LENGTH, Cookie, TestState};

/// Interval at which the accept loop checks its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time in which a stopped server informs its clients.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

impl IperfServer {
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
                        Ok((connection, peer)) => {
                            number += 1;
                            IperfServerState::accept(&self.shared, connection, peer, number);
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
    fn accept(shared: &Arc<IperfServerState>, connection: TcpConnection, peer: SocketAddr, number: u64) {
        // A dual-stack socket reports IPv4 clients as IPv4-mapped IPv6 addresses.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !shared.config.access.permits(peer.ip()) {
            return (shared.log)(ServerEvent::Refused(
                peer,
                RefusedReason::Access,
                "connections from this address are denied",
            ));
        }
        let Some(slot) = shared.connections.add(connection.handle(), peer.ip()) else {
            // One byte into an empty send buffer does not block.
            let denied = IperfControl::new(connection, "the client")
                .and_then(|mut c| c.send(TestState::AccessDenied, "at its hello"));
            drop(denied);
            return (shared.log)(ServerEvent::Refused(peer, RefusedReason::Connections, "too many connections"));
        };
        let shared = shared.clone();
        let work = move || {
            let closed = slot.closed_flag();
            if let Err(error) = serve_connection(&shared, connection, peer, number, slot) {
                let reason =
                    if closed.load(Ordering::Relaxed) { RefusedReason::Silent } else { refused_reason(&error) };
                (shared.log)(ServerEvent::Refused(peer, reason, &error.to_string()));
            }
        };
        // If the thread does not start, the connection is dropped; the client sees the close.
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
    connection: TcpConnection,
    peer: SocketAddr,
    number: u64,
    slot: ConnectionSlot,
) -> Result<(), Error> {
    let mut control = IperfControl::new(connection, "the client")?;
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
