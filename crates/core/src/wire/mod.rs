//! What goes over the control connection: framed JSON messages, their types, and the limits on both.
//!
//! A frame is one byte of kind, four bytes of big-endian length and that many bytes of JSON. JSON because a control
//! message is rare and small, is readable in a trace, and lets a newer peer add fields an older one ignores; data
//! blocks have a binary form of their own ([`copy::BlockHeader`]). Lengths are bounded before anything is allocated.

pub(crate) mod bounded;
pub mod clean;
pub mod copy;
mod frame;
pub mod path;
pub mod queue;
pub mod seal;
pub mod test;
pub mod third;

pub use frame::{Frame, FrameError, FrameReader, HELLO_LIMIT, Kind, MESSAGE_LIMIT, encode};

use serde::{Deserialize, Serialize};

use crate::session::{SessionId, Token};

/// The first frame of every TLS connection, sent by the client in its first flight.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "connection", rename_all = "snake_case")]
pub enum Hello {
    /// Opens a session and says at once what is wanted.
    Control {
        /// [`crate::session::PROTOCOL`] of the client.
        protocol: u32,
        /// Absent only where the server runs `--insecure`.
        token: Option<Token>,
        /// Chosen by the client at random.
        session: SessionId,
        /// What is wanted.
        request: Request,
    },
    /// Adds a data stream to a session.
    Data {
        /// [`crate::session::PROTOCOL`] of the client.
        protocol: u32,
        /// Absent only where the server runs `--insecure`.
        token: Option<Token>,
        /// The session it belongs to.
        session: SessionId,
        /// Its number in the session, from 0.
        stream: u16,
    },
}

/// What of a [`Hello`] says who it comes from. It is looked at before the rest is read: a request may weigh a hundred
/// times what it is long (patterns become automata), which is not for strangers to ask for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Introduction {
    /// [`crate::session::PROTOCOL`] of the client.
    pub protocol: u32,
    /// Absent only where the server runs `--insecure`.
    #[serde(default)]
    pub token: Option<Token>,
}

/// What a session is for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    /// A timed load.
    Test(Box<test::TestRequest>),
    /// Moving a file.
    Copy(copy::CopyRequest),
    /// Looking for what cut copies left.
    Clean(clean::CleanRequest),
    /// A token for somebody else's upload.
    Lend(Box<third::LendRequest>),
    /// An upload of the server's own, to whom such a token was lent.
    Send(Box<third::SendRequest>),
    /// Looking at the path, without load.
    Path(path::PathRequest),
}

/// Congestion control wished for a sender's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CongestionWish {
    /// The user named it: without it there is no run.
    Asked(String),
    /// The plan prefers it: where the kernel has it not, or not for this user, its own will do.
    Planned(String),
}

impl CongestionWish {
    /// As `TCP_CONGESTION` takes it.
    pub fn name(&self) -> &str {
        let (CongestionWish::Asked(name) | CongestionWish::Planned(name)) = self;
        name
    }

    /// What the user asked for, if it was the user.
    pub fn asked(&self) -> Option<&str> {
        match self {
            CongestionWish::Asked(name) => Some(name),
            CongestionWish::Planned(_) => None,
        }
    }
}

/// A request the other side will not or cannot serve; sent as a frame of its own kind, so that it may stand in the
/// place of any message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: names the thing and the value.
    pub message: String,
    /// What to do about it, if there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The token is not the server's.
    WrongToken,
    /// The token was the server's, but its time is over.
    ExpiredToken,
    /// The server serves as many sessions as it may.
    Full,
    /// The client speaks another version of the protocol.
    Protocol,
    /// Asked for more than the server's limits ever allow.
    Limit,
    /// What is left of a quota is not enough; later there is more.
    Quota,
    /// The path lies outside the served root, is not a regular file, or nothing is served.
    Forbidden,
    /// No such file.
    NotFound,
    /// The destination exists and was not to be replaced.
    Exists,
    /// The destination's file system is full.
    NoSpace,
    /// Any other error of the file system.
    Io,
    /// What arrived is not what was sent.
    Corrupt,
    /// The message makes no sense here.
    BadMessage,
    /// The peer waited for something that did not come.
    Timeout,
    /// The peer was stopped.
    Stopped,
    /// A code of a newer version.
    #[serde(other)]
    Other,
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
