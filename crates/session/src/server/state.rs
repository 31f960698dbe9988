//! State that all threads of a server share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::wire::Refusal;

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
use crate::written_files::WrittenFilesByCopy;

/// Maximum time that the accept loop waits before it checks for a stop and for overdue connections.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(200);

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
    pub(super) open_sessions: AtomicUsize,
    /// Rounds of the accept loop, for a watchdog.
    pub(super) accept_rounds: AtomicU64,
    pub(super) event_log: Box<dyn Fn(&ServerEvent<'_>) + Send + Sync>,
}

/// Counts a session until it is dropped; the stop of the server waits for all of them.
#[derive(Debug)]
pub(crate) struct OpenSessionGuard(Arc<ServerState>);

impl Drop for OpenSessionGuard {
    fn drop(&mut self) {
        self.0.open_sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for ServerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

impl ServerState {
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

    pub(super) fn count_open_session(self: &Arc<Self>) -> OpenSessionGuard {
        self.open_sessions.fetch_add(1, Ordering::SeqCst);
        OpenSessionGuard(self.clone())
    }

    pub(super) fn gauges(&self) -> Gauges {
        let (connections, unauthenticated) = self.registry.counts();
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
