//! The accept loop: it checks the address of each connection, and starts its thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::event::{RefusedReason, ServerEvent};
use super::state::{POLL_INTERVAL, ServerState};
use crate::transport::Connection;
use crate::transport::tcp::Listener;

/// Stack of a connection's thread. A TLS handshake and the loops of a session need a fraction of it. The size is less
/// than a quarter of the 2 MiB of other threads, so that a session never inherits the used stack of another thread (as
/// in `tester::load`).
pub(super) const STACK_SIZE: usize = 400 << 10;

/// Accepts connections until `stop` returns true; each one gets a thread.
pub(super) fn accept_until(listener: &Listener, shared: &Arc<ServerState>, stop: impl Fn() -> bool) {
    let tick = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    let mut last_poll = Instant::now();
    while !stop() {
        shared.accept_rounds.fetch_add(1, Ordering::Relaxed);
        // An interrupted wait counts as a finished one.
        let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&tick));
        // A flood of connections must not keep the loop from its other duties.
        while last_poll.elapsed() < POLL_INTERVAL {
            match listener.accept() {
                Ok((connection, peer)) => start_connection(shared, Box::new(connection), peer),
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
fn start_connection(shared: &Arc<ServerState>, connection: Box<dyn Connection>, peer: SocketAddr) {
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
    let Some(slot) = shared.registry.add_connection(connection.handle(), peer.ip()) else {
        return shared.log(ServerEvent::Refused(peer, RefusedReason::Connections, "too many connections"));
    };
    let shared = shared.clone();
    // If the thread does not start, the connection is dropped; the client sees the close.
    let _ = thread::Builder::new().name("connection".into()).stack_size(STACK_SIZE).spawn(move || {
        if let Err((reason, error)) = (shared.serve_connection)(&shared, connection, peer, slot) {
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
