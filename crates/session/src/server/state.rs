//! State that all threads of a server share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::accept::{
    AcceptLoop, AcceptSettings, AcceptedConnection, ConnectionServer, OpenSessions, RefusedConnection, WhenFull,
};
use super::audit::AuditError;
use super::config::ServerConfig;
use super::event::{RefusedReason, ServerEvent};
use super::expected_streams::ExpectedStreams;
use super::metrics::{Gauges, Metrics};
use super::registry::Registry;
use super::running_session::RunningSessions;
use super::tokens::TokenSet;
use crate::SessionError;
use crate::limits::admission::Admission;
use crate::limits::connection_table::ConnectionSlot;
use crate::transport::Connection;
use crate::transport::tcp::{Listener, TcpConnection};
use crate::wire::Refusal;
use crate::written_files::WrittenFilesByCopy;

/// Maximum time that the accept loop waits before it checks for a stop and for overdue connections.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Stack of a connection's thread. A TLS handshake and the loops of a session need a fraction of it. The size is less
/// than a quarter of the 2 MiB of other threads, so that a session never inherits the used stack of another thread (as
/// in `lfn_measure::load`).
pub(super) const STACK_SIZE: usize = 400 << 10;

/// Serves a connection to its end. An error belongs to a connection that did not join a session.
pub(super) type ConnectionHandler = Box<
    dyn Fn(
            &Arc<ServerState>,
            Box<dyn Connection>,
            SocketAddr,
            ConnectionSlot,
        ) -> Result<(), (RefusedReason, SessionError)>
        + Send
        + Sync,
>;

/// State that the threads of all connections share.
pub(crate) struct ServerState {
    pub(crate) config: ServerConfig,
    pub(crate) registry: Registry,
    pub(super) expected_datagrams: ExpectedStreams,
    pub(super) tls: Arc<rustls::ServerConfig>,
    /// Serves one accepted connection to its end.
    pub(super) serve_connection: ConnectionHandler,
    pub(super) admission: Admission,
    pub(super) running_sessions: Arc<RunningSessions>,
    pub(super) written_files: WrittenFilesByCopy,
    pub(super) tokens: TokenSet,
    pub(super) metrics: Metrics,
    /// Sessions that run, wait in the queue, or still send their last message.
    pub(super) open_sessions: OpenSessions,
    /// Intervals of the accept loop, for a watchdog.
    pub(super) accept_intervals: AtomicU64,
    pub(super) event_log: Box<dyn Fn(&ServerEvent<'_>) + Send + Sync>,
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerState").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ServerState {
    /// Returns an accept loop for the connections of this server.
    pub(super) fn accept_loop(self: &Arc<Self>) -> AcceptLoop<ServerState> {
        AcceptLoop {
            server: self.clone(),
            connections: self.registry.connections().clone(),
            settings: AcceptSettings {
                thread_name: "connection",
                stack_size: STACK_SIZE,
                poll_interval: POLL_INTERVAL,
                when_full: WhenFull::Refuse,
            },
        }
    }

    pub(super) fn log(&self, event: ServerEvent<'_>) {
        // Callers that must not continue without the audit log use `record` instead.
        let _ = self.record(event);
    }

    /// Logs the event and counts it. Returns a refusal if the event belongs in the audit log and cannot be written.
    pub(super) fn record(&self, event: ServerEvent<'_>) -> Result<(), Refusal> {
        let recorded = self.config.audit.as_ref().map_or(Ok(()), |audit| audit.record(&event));
        let file_error = recorded.as_ref().err().and_then(|AuditError(text)| text.as_deref());
        for event in [Some(event), file_error.map(ServerEvent::FileError)].into_iter().flatten() {
            self.metrics.count(&event);
            (self.event_log)(&event);
        }
        recorded.map_err(|_| AuditError::refusal())
    }

    pub(super) fn gauges(&self) -> Gauges {
        let (connections, unauthenticated) = self.registry.connections().counts();
        Gauges {
            running: self.admission.running(),
            waiting: self.admission.waiting(),
            connections,
            unauthenticated,
            payload_bytes: self.running_sessions.payload_bytes(),
        }
    }

    /// Reads the token file again if it changed, and logs an error in it once.
    pub(super) fn reload_tokens(&self) {
        if let Some(error) = self.tokens.reload(&self.config) {
            self.log(ServerEvent::FileError(&format!("only the server's own ticket is accepted: {error}")));
        }
    }
}

impl ConnectionServer for ServerState {
    type Listener = Listener;

    fn serve(self: Arc<Self>, accepted: AcceptedConnection<TcpConnection>) -> Result<(), RefusedConnection> {
        let AcceptedConnection { connection, peer, slot } = accepted;
        (self.serve_connection)(&self, Box::new(connection), peer, slot)
            .map_err(|(reason, error)| RefusedConnection { reason, text: error.to_string() })
    }

    fn permits(&self, _connection: &TcpConnection, peer: SocketAddr) -> bool {
        self.config.access.permits(peer.ip())
    }

    fn log(&self, event: ServerEvent<'_>) {
        self.log(event);
    }

    fn on_accepted(&self) {
        self.metrics.count_connection();
    }

    fn on_full(&self) {
        self.registry.evict_parked();
    }

    fn on_shortage(&self) {
        self.registry.evict_parked_quarter();
    }

    fn on_interval(&self) {
        self.accept_intervals.fetch_add(1, Ordering::Relaxed);
        self.registry.close_overdue();
        self.reload_tokens();
        self.running_sessions.end_invalid(&self.tokens);
    }
}
