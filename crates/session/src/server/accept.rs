//! The accept loop of every server, for TCP ports and Unix sockets.
//!
//! [`AcceptLoop::run`] waits for connections and for the stop. It checks the address of each connection, takes a slot of
//! the [connection table](crate::limits::connection_table), and starts the connection's thread. Without file
//! descriptors or memory, it reports the failed accept(2), closes some idle connections and pauses. A panic in the thread
//! of a connection ends only this connection. A [`ConnectionServer`] has what differs between servers.
//!
//! A server of datagrams has no connections and therefore no accept loop.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::event::{RefusedReason, ServerEvent};
use crate::limits::connection_table::{ConnectionSlot, ConnectionTable};
use crate::transport::tcp::{Listener, TcpConnection};
use crate::transport::{Connection, Handle};

/// Pause after a failed accept(2), in which closed connections free their descriptors.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// Interval at which a full server checks for a free slot, see [`WhenFull::Wait`].
const FULL_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A listening socket that never blocks.
pub trait Listen: AsFd {
    /// A connection that the listener has accepted.
    type Connection: Send + 'static;

    /// Returns the next connection and the address of its peer. The error is `WouldBlock` if none waits. The peers of a
    /// Unix socket have the loopback address, because they are on this host.
    fn accept(&self) -> io::Result<(Self::Connection, SocketAddr)>;

    /// Returns the handle that closes the connection from another thread.
    fn handle(connection: &Self::Connection) -> &Arc<dyn Handle>;
}

impl Listen for Listener {
    type Connection = TcpConnection;

    fn accept(&self) -> io::Result<(TcpConnection, SocketAddr)> {
        self.accept()
    }

    fn handle(connection: &TcpConnection) -> &Arc<dyn Handle> {
        connection.handle()
    }
}

/// An accepted connection with its slot in the connection table.
#[derive(Debug)]
pub struct AcceptedConnection<C> {
    pub connection: C,
    /// Address of the peer. IPv4 clients of a dual-stack socket have an IPv4 address.
    pub peer: SocketAddr,
    pub slot: ConnectionSlot,
}

/// Reason why a server closed a connection, for its log and its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedConnection {
    pub reason: RefusedReason,
    pub text: String,
}

/// The parts of an accept loop that differ between servers. Only [`serve`](Self::serve) has a thread of its own, so the
/// other methods must not block.
pub trait ConnectionServer: Sized + Send + Sync + 'static {
    /// The socket that accepts connections.
    type Listener: Listen;

    /// Serves a connection to its end, on a thread of its own. The loop logs the error.
    fn serve(self: Arc<Self>, accepted: AcceptedConnection<ConnectionOf<Self>>) -> Result<(), RefusedConnection>;

    /// Returns whether the peer may connect.
    fn permits(&self, connection: &ConnectionOf<Self>, peer: SocketAddr) -> bool;

    /// Logs and counts an event.
    fn log(&self, _event: ServerEvent<'_>) {}

    /// Counts an accepted connection before any check.
    fn on_accepted(&self) {}

    /// Closes a connection that does not count as unauthenticated, if it can be spared: all slots are in use.
    fn on_full(&self) {}

    /// Closes some connections that do not count as unauthenticated, if they can be spared: the process has no free file
    /// descriptors.
    fn on_shortage(&self) {}

    /// Closes a connection that got no slot.
    fn refuse(&self, _connection: ConnectionOf<Self>) {}

    /// Does other regular work, once per [`AcceptSettings::poll_interval`].
    fn on_interval(&self) {}
}

/// The connections that a server accepts.
pub type ConnectionOf<S> = <<S as ConnectionServer>::Listener as Listen>::Connection;

/// Settings of an accept loop.
#[derive(Clone, Copy, Debug)]
pub struct AcceptSettings {
    /// Name of each connection's thread.
    pub thread_name: &'static str,
    /// Stack of each connection's thread, bytes.
    pub stack_size: usize,
    /// Maximum time between two checks for the stop.
    pub poll_interval: Duration,
    pub when_full: WhenFull,
}

/// Reaction to a new connection when all slots are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Refuse and close the new connection.
    Refuse,
    /// Let the connection wait in the backlog of its socket.
    Wait,
}

/// Signal that ends an accept loop.
#[derive(Clone, Copy)]
pub enum StopSignal<'a> {
    /// The function returns true. The loop calls it once per [`AcceptSettings::poll_interval`] at least.
    When(&'a dyn Fn() -> bool),
    /// The other end of this file is closed. The loop ends at once.
    Closed(BorrowedFd<'a>),
}

/// An accept loop with the connections that it started.
#[derive(Debug)]
pub struct AcceptLoop<S> {
    pub server: Arc<S>,
    pub connections: ConnectionTable,
    pub settings: AcceptSettings,
}

impl<S: ConnectionServer> AcceptLoop<S> {
    /// Accepts connections until `stop`. Connections that are open then continue.
    pub fn run(&self, listeners: &[S::Listener], stop: StopSignal<'_>) {
        let mut last_interval = Instant::now();
        while !self.wait(listeners, stop) {
            for listener in listeners {
                // A flood of connections must not keep the loop from its other duties.
                while last_interval.elapsed() < self.settings.poll_interval && !self.must_wait() {
                    match listener.accept() {
                        Ok((connection, peer)) => self.start(connection, peer),
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => {
                            self.on_accept_error(&error);
                            break;
                        }
                    }
                }
            }
            if last_interval.elapsed() >= self.settings.poll_interval {
                last_interval = Instant::now();
                self.server.on_interval();
            }
        }
    }

    /// Waits for a connection, for the stop or for the end of the poll interval. Returns whether to stop.
    fn wait(&self, listeners: &[S::Listener], stop: StopSignal<'_>) -> bool {
        let mut files = Vec::with_capacity(listeners.len() + 1);
        match stop {
            StopSignal::When(is_over) if is_over() => return true,
            StopSignal::When(_) => {}
            StopSignal::Closed(file) => files.push(PollFd::from_borrowed_fd(file, PollFlags::IN)),
        }
        let mut timeout = self.settings.poll_interval;
        if self.must_wait() {
            timeout = timeout.min(FULL_POLL_INTERVAL);
        } else {
            files.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        }
        // A time-out or an interruption sets no event.
        let _ = poll(&mut files, Timespec::try_from(timeout).ok().as_ref());
        matches!(stop, StopSignal::Closed(_)) && !files[0].revents().is_empty()
    }

    /// Returns whether new connections must wait for a slot.
    fn must_wait(&self) -> bool {
        self.settings.when_full == WhenFull::Wait && self.connections.is_full()
    }

    /// Starts the thread of an accepted connection, if its address and the limits permit.
    fn start(&self, connection: ConnectionOf<S>, peer: SocketAddr) {
        self.server.on_accepted();
        // A dual-stack socket reports IPv4 clients as IPv4-mapped IPv6 addresses.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if !self.server.permits(&connection, peer) {
            let text = "connections from this address are denied";
            return self.server.log(ServerEvent::Refused(peer, RefusedReason::Access, text));
        }
        if self.connections.is_full() {
            self.server.on_full();
        }
        let Some(slot) = self.connections.add(S::Listener::handle(&connection), peer.ip()) else {
            self.server.refuse(connection);
            return self.server.log(ServerEvent::Refused(peer, RefusedReason::Connections, "too many connections"));
        };
        let server = self.server.clone();
        let work = move || {
            let accepted = AcceptedConnection { connection, peer, slot };
            if let Err(refused) = server.clone().serve(accepted) {
                server.log(ServerEvent::Refused(peer, refused.reason, &refused.text));
            }
        };
        let AcceptSettings { thread_name, stack_size, .. } = self.settings;
        // If the thread does not start, the connection is dropped; the client sees the close.
        let _ = thread::Builder::new().name(thread_name.into()).stack_size(stack_size).spawn(work);
    }

    /// Reacts to a failed accept(2). Without file descriptors or memory, some idle connections are closed, and the loop
    /// pauses.
    fn on_accept_error(&self, error: &io::Error) {
        // A client that gave up before it was accepted is no sign of a shortage (accept(2)).
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) {
            return;
        }
        self.server.log(ServerEvent::AcceptFailed(error));
        self.connections.evict_quarter();
        self.server.on_shortage();
        thread::sleep(SHORTAGE_PAUSE);
    }
}

/// Counts the sessions that a stopped server waits for.
#[derive(Clone, Debug, Default)]
pub struct OpenSessions(Arc<SessionCount>);

#[derive(Debug, Default)]
struct SessionCount {
    open: Mutex<usize>,
    closed: Condvar,
}

/// Counts as an open session until it is dropped.
#[derive(Debug)]
pub struct OpenSession(OpenSessions);

impl OpenSessions {
    /// Returns the number of open sessions.
    pub fn count(&self) -> usize {
        *self.0.open.lock()
    }

    /// Counts a session until the returned value is dropped.
    pub fn open(&self) -> OpenSession {
        *self.0.open.lock() += 1;
        OpenSession(self.clone())
    }

    /// Waits until no session is open, `timeout` at most.
    pub fn join(&self, timeout: Duration) {
        // The caller continues in both cases.
        self.0.closed.wait_while_for(&mut self.0.open.lock(), |open| *open > 0, timeout);
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        *self.0.0.open.lock() -= 1;
        self.0.0.closed.notify_all();
    }
}

#[cfg(test)]
mod tests;
