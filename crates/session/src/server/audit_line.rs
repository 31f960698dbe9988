//! Lines of the audit log.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::Bytes;
use serde::Serialize;

use super::event::{CopySummary, SessionInfo};
use crate::SessionId;
use crate::wire::RefusalCode;
use crate::wire::copy::digest::Digest;

/// A line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditLine {
    /// Time of the event, UTC (RFC 3339).
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date-time")))]
    pub time: String,
    #[serde(flatten)]
    pub event: AuditEvent,
}

/// An event of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AuditEvent {
    /// The server opened the audit log.
    Started,
    /// The server started a session.
    Opened {
        #[serde(flatten)]
        session: AuditedSession,
    },
    /// A session was not admitted, or its token lacks the right.
    Denied {
        #[serde(flatten)]
        session: AuditedSession,
        /// Kind of the reason.
        code: RefusalCode,
        /// The reason in words.
        outcome: String,
    },
    /// The server ended a session.
    Ended {
        #[serde(flatten)]
        session: AuditedSession,
        /// Payload of the session.
        bytes: Bytes,
        /// Duration of the session, to the millisecond.
        #[serde(rename = "seconds", with = "seconds")]
        time: Duration,
        /// The word `ok`, or the error.
        outcome: String,
        #[serde(flatten)]
        copy: Option<AuditedCopy>,
    },
    /// The server accepts no more sessions.
    Stopping {
        /// Number of running sessions.
        running: usize,
    },
}

/// Client and purpose of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditedSession {
    /// Address of the client.
    pub client: String,
    /// Purpose of the session.
    pub verb: String,
    /// Identifier of the session; absent for iperf3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Name of the token; absent for the server's own ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Direction of the payload, seen from the server.
    pub direction: PayloadDirection,
    /// Requested paths, as the client gave them; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Direction of the payload, seen from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PayloadDirection {
    Received,
    Sent,
}

/// Numbers of the entries of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditedCopy {
    /// Files that were written.
    pub files: u64,
    /// Directories that were created.
    pub directories: u64,
    /// Links that were created.
    pub links: u64,
    /// Entries that were up to date.
    pub skipped: u64,
    /// Entries that failed at either end.
    pub failed: u64,
    /// Bytes that an earlier copy had left.
    pub resumed_bytes: Bytes,
    /// Digest of a copied single file.
    #[serde(rename = "blake3", default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Directory below the root that the server chose (`--create-only`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl AuditedSession {
    /// Returns the recorded part of a session's description.
    pub(super) fn new(info: &SessionInfo) -> Self {
        AuditedSession {
            client: info.client.to_string(),
            verb: info.verb.to_owned(),
            session: info.session,
            token: info.token.as_deref().map(str::to_owned),
            direction: if info.sends { PayloadDirection::Sent } else { PayloadDirection::Received },
            paths: info.paths.to_vec(),
        }
    }
}

impl AuditedCopy {
    /// Returns the recorded part of a copy's result.
    pub(super) fn new(summary: &CopySummary) -> Self {
        let tally = &summary.tally;
        AuditedCopy {
            files: tally.files,
            directories: tally.directories,
            links: tally.links,
            skipped: tally.skipped,
            failed: tally.failed,
            resumed_bytes: tally.resumed_bytes,
            digest: summary.digest,
            directory: summary.directory.clone(),
        }
    }
}
