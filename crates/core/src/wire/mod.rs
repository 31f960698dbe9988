//! Messages of the control connection: framed JSON, the message types, and the limits of both.
//!
//! A frame is one byte of kind, four bytes of big-endian length, and that many bytes of JSON. JSON is used because
//! control messages are rare and small, are readable in a trace, and let a newer peer add fields that an older peer
//! ignores. Data blocks have a binary header ([`copy::BlockHeader`]). Every length is checked before memory is
//! allocated.

pub(crate) mod bounded;
pub mod clean;
pub mod copy;
mod frame;
pub mod measure;
pub mod path;
pub mod queue;
pub mod seal;
pub mod third_party;

pub use frame::{Frame, FrameError, FrameKind, FrameReader, HELLO_LIMIT, MESSAGE_LIMIT, encode};

use serde::{Deserialize, Serialize};

use crate::session::{SessionId, Token};

/// First frame of every TLS connection. The client sends this frame in its first flight.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "connection", rename_all = "snake_case")]
pub enum Hello {
    /// Opens a session and carries its request.
    Control {
        /// [`crate::session::PROTOCOL`] of the client.
        protocol: u32,
        /// Absent only if the server runs with `--insecure`.
        token: Option<Token>,
        /// Random; chosen by the client.
        session: SessionId,
        request: Request,
    },
    /// Adds a data stream to a session.
    Data {
        /// [`crate::session::PROTOCOL`] of the client.
        protocol: u32,
        /// Absent only if the server runs with `--insecure`.
        token: Option<Token>,
        session: SessionId,
        /// Stream number in the session, from 0.
        stream: u16,
    },
}

/// Part of a [`Hello`] that identifies the client. The server checks this part before it parses the rest. A parsed
/// request may need a hundred times its encoded size (patterns become automata), and unauthenticated clients must not
/// cause this.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Credentials {
    /// [`crate::session::PROTOCOL`] of the client.
    pub protocol: u32,
    /// Absent only if the server runs with `--insecure`.
    #[serde(default)]
    pub token: Option<Token>,
}

/// Purpose of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    Test(Box<measure::TestRequest>),
    /// A copy of files.
    Copy(copy::CopyRequest),
    /// Lists or deletes files of interrupted copies.
    Clean(clean::CleanRequest),
    /// Requests a temporary token for an upload by a third party.
    IssueToken(Box<third_party::TokenRequest>),
    /// Uploads from this server to another server, with a temporary token.
    Send(Box<third_party::SendRequest>),
    /// Measures the path without load.
    Path(path::PathRequest),
}

/// Congestion control requested for a sender's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CongestionRequest {
    /// Requested by the user: if the kernel does not have it, the test fails.
    Requested(String),
    /// Preferred by the plan: if the kernel does not have it, or the user may not use it, the kernel's default is used.
    Planned(String),
}

impl CongestionRequest {
    /// Returns the name for `TCP_CONGESTION`.
    pub fn name(&self) -> &str {
        let (CongestionRequest::Requested(name) | CongestionRequest::Planned(name)) = self;
        name
    }

    /// Returns the name if the user requested it.
    pub fn requested(&self) -> Option<&str> {
        match self {
            CongestionRequest::Requested(name) => Some(name),
            CongestionRequest::Planned(_) => None,
        }
    }
}

/// Refusal of a request. A refusal has its own frame kind and may replace any message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: RefusalCode,
    /// For people; contains the object and the value.
    pub message: String,
    /// Action for the user, if one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The server does not know the token.
    WrongToken,
    ExpiredToken,
    /// The server has its maximum of sessions.
    Full,
    /// The client's protocol version is not supported.
    Protocol,
    /// The request exceeds a fixed limit of the server.
    Limit,
    /// The request exceeds the rest of a quota; later more is available.
    Quota,
    /// The path is outside the served root, is not a regular file, or no root is served.
    Forbidden,
    NotFound,
    /// The destination exists and may not be replaced.
    Exists,
    /// The destination's file system is full.
    NoSpace,
    /// Any other error of the file system.
    Io,
    /// Received data differs from the sent data.
    Corrupt,
    /// The message is invalid at this point.
    BadMessage,
    /// A message did not arrive in time.
    Timeout,
    Stopped,
    /// An error code of a newer version.
    #[serde(other)]
    Other,
}

impl Refusal {
    /// Creates a refusal without a hint.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into(), hint: None }
    }

    /// Adds a hint: the action for the user.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
