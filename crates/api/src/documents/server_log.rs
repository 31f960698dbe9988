//! Lines of the log of a server: `lfn serve --log-format json`.

use std::time::{Duration, SystemTime};

use lfn_base::date::rfc3339;
use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, Bytes};
use lfn_session::SessionId;
use lfn_session::limits::{ResourceGrant, ResourceRequest};
use lfn_session::server::ServerEvent;
use lfn_session::server::event::{RefusedReason, SessionInfo};
use lfn_session::wire::RefusalCode;
use serde::Serialize;

/// A line of the log of a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerLogLine {
    /// Time of the event, UTC (RFC 3339).
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Info,
    Warn,
    Error,
}

/// An event of a server with its figures. Times are exact to the millisecond.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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

impl ServerLogLine {
    /// Creates the line of an event at this time.
    pub fn new(event: &ServerEvent<'_>, time: SystemTime) -> Self {
        let time = rfc3339(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        ServerLogLine { time, level: level(event), event: ServerLogEvent::new(event), suppressed_lines: None }
    }
}

fn level(event: &ServerEvent<'_>) -> LogLevel {
    match event {
        ServerEvent::Queued(..)
        | ServerEvent::LeftQueue(..)
        | ServerEvent::Opened(..)
        | ServerEvent::Ended { error: None, .. }
        // A port scan or a health check. No client was refused.
        | ServerEvent::Refused(_, RefusedReason::Gone, _)
        | ServerEvent::Stopping { .. }
        | ServerEvent::Sandboxed(_) => LogLevel::Info,
        ServerEvent::Ended { .. }
        | ServerEvent::Denied(..)
        | ServerEvent::Refused(..)
        | ServerEvent::Terminated(_) => LogLevel::Warn,
        ServerEvent::AcceptFailed(_) | ServerEvent::FileError(_) => LogLevel::Error,
    }
}

impl ServerLogEvent {
    fn new(event: &ServerEvent<'_>) -> Self {
        match event {
            ServerEvent::Queued(info, position) => ServerLogEvent::Queued {
                session: LoggedSession::new(info),
                requested: LoggedRequest::new(&info.requested),
                ahead: position.ahead,
                expected_wait_seconds: position.expected_wait().map(milliseconds),
            },
            ServerEvent::LeftQueue(info, waited) => {
                ServerLogEvent::LeftQueue { session: LoggedSession::new(info), waited_seconds: milliseconds(*waited) }
            }
            ServerEvent::Opened(info, granted, waited) => ServerLogEvent::Opened {
                session: LoggedSession::new(info),
                requested: LoggedRequest::new(&info.requested),
                waited_seconds: milliseconds(*waited),
                granted: LoggedGrant::new(granted),
            },
            ServerEvent::Ended { info, bytes, time, error, .. } => ServerLogEvent::Ended {
                session: LoggedSession::new(info),
                bytes: *bytes,
                seconds: milliseconds(*time),
                error: error.map(ToString::to_string),
            },
            ServerEvent::Denied(info, refusal) => ServerLogEvent::Denied {
                session: LoggedSession::new(info),
                requested: LoggedRequest::new(&info.requested),
                code: refusal.code,
                error: refusal.message.clone(),
            },
            ServerEvent::Refused(client, reason, error) => {
                ServerLogEvent::Refused { client: client.to_string(), reason: *reason, error: (*error).to_owned() }
            }
            ServerEvent::AcceptFailed(error) => ServerLogEvent::AcceptFailed { error: error.to_string() },
            ServerEvent::Stopping { running, drain } => {
                ServerLogEvent::Stopping { running: *running, drain_seconds: milliseconds(*drain) }
            }
            ServerEvent::FileError(error) => ServerLogEvent::FileError { error: (*error).to_owned() },
            ServerEvent::Sandboxed(by) => ServerLogEvent::Sandboxed { by: (*by).to_owned() },
            ServerEvent::Terminated(sessions) => ServerLogEvent::Terminated { sessions: *sessions },
        }
    }
}

impl LoggedSession {
    fn new(info: &SessionInfo) -> Self {
        LoggedSession {
            client: info.client.to_string(),
            session: info.session,
            token: info.token.as_deref().map(str::to_owned),
            verb: info.verb.to_owned(),
        }
    }
}

impl LoggedRequest {
    fn new(request: &ResourceRequest) -> Self {
        LoggedRequest {
            requested_streams: request.streams,
            requested_seconds: request.time.map(milliseconds),
            requested_bytes: request.bytes,
            requested_bits_per_second: request.rate,
        }
    }
}

impl LoggedGrant {
    fn new(grant: &ResourceGrant) -> Self {
        LoggedGrant {
            granted_streams: grant.streams,
            granted_seconds: grant.time.map(milliseconds),
            granted_bytes: grant.bytes,
            granted_bits_per_second: grant.rate,
        }
    }
}

/// Returns seconds, cut to milliseconds, which suffice for a log.
fn milliseconds(time: Duration) -> Figure {
    Figure::new(time.as_millis() as f64 / 1e3).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::path::Path;

    use lfn_base::figure::Figure;
    use lfn_session::SessionError;
    use lfn_session::limits::QueuePosition;
    use lfn_session::wire::Refusal;
    use serde_json::Value;

    use super::*;

    fn session() -> SessionInfo {
        let second = Duration::from_secs(1);
        SessionInfo {
            client: "192.0.2.1:7".parse().unwrap(),
            session: Some(SessionId([5; 16])),
            token: Some("field".into()),
            verb: "copy",
            paths: ["a".to_owned()].into(),
            requested: ResourceRequest {
                streams: 4,
                time: Some(second),
                bytes: Some(Bytes(3)),
                rate: Some(BitRate(8)),
                ..ResourceRequest::default()
            },
            sends: false,
        }
    }

    #[test]
    fn line_of_every_event_matches_the_schema() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doc/schema/lfn.serve.log.1.schema.json");
        let text: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
        compiler.add_resource("http://schema/log.json", text).unwrap();
        let schema = compiler.compile("http://schema/log.json", &mut schemas).unwrap();
        let (info, second) = (session(), Duration::from_millis(1500));
        let anonymous = SessionInfo { session: None, token: None, ..session() };
        let refusal = Refusal::new(RefusalCode::Full, "the server is full");
        let error = SessionError::Refused(refusal.clone());
        let broken = std::io::Error::other("no memory");
        let grant = ResourceGrant { streams: 4, rate: Some(BitRate(8)), bytes: Some(Bytes(3)), time: Some(second) };
        let waits = |wait: Option<f64>| QueuePosition {
            ahead: 2,
            expected_wait_seconds: wait.and_then(Figure::new),
            own_limit: false,
        };
        let ended =
            |error| ServerEvent::Ended { info: &info, bytes: Bytes(3), time: second, error, copy_summary: None };
        for (event, name) in [
            (ServerEvent::Queued(&info, waits(Some(1.0))), "queued"),
            (ServerEvent::Queued(&anonymous, waits(None)), "queued"),
            (ServerEvent::LeftQueue(&info, second), "left_queue"),
            (ServerEvent::Opened(&info, grant, second), "opened"),
            (ended(None), "ended"),
            (ended(Some(&error)), "ended"),
            (ServerEvent::Denied(&info, &refusal), "denied"),
            (ServerEvent::Refused(info.client, RefusedReason::Gone, "closed"), "refused"),
            (ServerEvent::AcceptFailed(&broken), "accept_failed"),
            (ServerEvent::Stopping { running: 1, drain: second }, "stopping"),
            (ServerEvent::Terminated(1), "terminated"),
            (ServerEvent::FileError("tokens: no such file"), "file_error"),
            (ServerEvent::Sandboxed("landlock"), "sandboxed"),
        ] {
            let line =
                ServerLogLine { suppressed_lines: Some(7), ..ServerLogLine::new(&event, SystemTime::UNIX_EPOCH) };
            let line = serde_json::to_value(&line).unwrap();
            assert_eq!((&line["event"], &line["suppressed_lines"]), (&name.into(), &7.into()), "{line}");
            schemas.validate(&line, schema).unwrap_or_else(|fault| panic!("{line}: {fault:#}"));
        }
    }
}
