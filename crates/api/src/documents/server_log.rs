//! Lines of the log of a server, `lfn serve --log-format json`, for their schema.
//!
//! [`log_event`](crate::serve::log_event) emits the fields, and the binary prints them. Its tests check the printed lines
//! with the schema.

use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, Bytes};
use lfn_session::SessionId;
use lfn_session::server::event::RefusedReason;
use lfn_session::wire::RefusalCode;
use serde::Serialize;

/// A line of the log of a server.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ServerLogLine {
    /// Time of the event, UTC (RFC 3339).
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// Importance of the event.
    pub level: LogLevel,
    #[serde(flatten)]
    pub event: ServerLogEvent,
    /// Lines of unauthenticated clients that were suppressed before this line; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppressed_lines: Option<u64>,
}

/// Importance of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

/// An event of a server with its figures. Times are exact to the millisecond.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServerLogEvent {
    /// A session must wait.
    Queued {
        #[serde(flatten)]
        session: LoggedSession,
        #[serde(flatten)]
        requested: LoggedRequest,
        /// Sessions that wait before this one.
        ahead: u32,
        /// Estimate of the wait; null if unknown.
        expected_wait_seconds: Option<Figure>,
    },
    /// A waiting client disconnected.
    LeftQueue {
        #[serde(flatten)]
        session: LoggedSession,
        /// Time that the client waited.
        waited_seconds: Figure,
    },
    /// The server started a session.
    Opened {
        #[serde(flatten)]
        session: LoggedSession,
        #[serde(flatten)]
        requested: LoggedRequest,
        /// Time that the client waited.
        waited_seconds: Figure,
        #[serde(flatten)]
        granted: LoggedGrant,
    },
    /// The server ended a session.
    Ended {
        #[serde(flatten)]
        session: LoggedSession,
        /// Payload of the session.
        bytes: Bytes,
        /// Duration of the session.
        seconds: Figure,
        /// Error that ended the session; absent if there was none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A session was not admitted.
    Denied {
        #[serde(flatten)]
        session: LoggedSession,
        #[serde(flatten)]
        requested: LoggedRequest,
        /// Kind of the reason.
        code: RefusalCode,
        /// The reason in words.
        error: String,
    },
    /// A connection was closed before it belonged to a session.
    Refused {
        /// Address of the client.
        client: String,
        /// Kind of the reason.
        reason: RefusedReason,
        /// The reason in words.
        error: String,
    },
    /// No connection can be accepted.
    AcceptFailed {
        /// Error of the system call.
        error: String,
    },
    /// The server accepts no more sessions.
    Stopping {
        /// Number of running sessions.
        running: usize,
        /// Time that the running sessions have.
        drain_seconds: Figure,
    },
    /// The token file or the audit log cannot be used.
    FileError {
        /// Error with the name of the file.
        error: String,
    },
    /// The sandbox of the server is active.
    Sandboxed {
        /// Facilities of the kernel that are used.
        by: String,
    },
    /// The stop of the server ended sessions.
    Terminated {
        /// Number of these sessions.
        sessions: usize,
    },
}

/// Client and purpose of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct LoggedSession {
    /// Address of the client.
    pub client: String,
    /// Identifier of the session; absent for iperf3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Name of the token; absent for the server's own ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Purpose of the session.
    pub verb: String,
}

/// Resources that a client requests. Unlimited resources are absent.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LoggedRequest {
    /// Number of requested streams.
    pub requested_streams: u16,
    /// Duration of the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_seconds: Option<Figure>,
    /// Payload of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<Bytes>,
    /// Rate of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bits_per_second: Option<BitRate>,
}

/// Resources that the server grants. Unlimited resources are absent.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LoggedGrant {
    /// Maximum number of streams.
    pub granted_streams: u16,
    /// Maximum duration of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_seconds: Option<Figure>,
    /// Maximum payload of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_bytes: Option<Bytes>,
    /// Maximum rate of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted_bits_per_second: Option<BitRate>,
}
