//! Messages of the control connection: framed JSON, the message types, and the limits of both.
//!
//! A frame is one byte of kind, four bytes of big-endian length, and that many bytes of JSON. JSON is used because
//! control messages are rare and small, are readable in a trace, and let a newer peer add fields that an older peer
//! ignores. Data blocks have a binary header ([`copy::BlockHeader`]). Every length is checked before memory is
//! allocated. The messages of a test are in [`lfn_results::measure`], because a stored result contains them.

pub mod addresses;
mod bounded;
pub mod copy;
pub mod couple;
pub mod disk;
pub mod facts;
mod frame;
pub mod mesh;
pub mod path;
pub mod queue;
mod refusal;
pub mod seal;
pub mod third_party;

pub use frame::{Frame, FrameError, FrameKind, FrameReader, HELLO_LIMIT, MESSAGE_LIMIT, encode};
pub use refusal::{Refusal, RefusalCode};

use lfn_results::measure;
use serde::{Deserialize, Serialize};

use crate::{SessionId, Token};

/// First frame of every TLS connection. The client sends this frame in its first flight.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "connection", rename_all = "snake_case")]
pub enum Hello {
    /// Opens a session and carries its request.
    Control {
        /// [`crate::PROTOCOL`] of the client.
        protocol: u32,
        /// Absent only if the server runs with `--insecure`.
        token: Option<Token>,
        /// Random; chosen by the client.
        session: SessionId,
        request: Box<Request>,
    },
    /// Adds a data stream to a session.
    Data {
        /// [`crate::PROTOCOL`] of the client.
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
    /// [`crate::PROTOCOL`] of the client.
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
    /// Requests a temporary token for an upload by a third party.
    IssueToken(Box<third_party::TokenRequest>),
    /// Uploads from this server to another server, with a temporary token.
    Send(Box<third_party::SendRequest>),
    /// Measures the path without load.
    Path(path::PathRequest),
    /// Requests the facts of the server's host.
    Facts(facts::FactsRequest),
    /// Requests the addresses of the server's host.
    Addresses(addresses::AddressesRequest),
    /// Requests the rates of a disk of the server.
    Disk(disk::DiskRequest),
    /// Exchanges results for the plan of a mesh.
    Mesh(mesh::MeshRequest),
    /// Exchanges the fields of coupled models.
    Couple(couple::CoupleRequest),
}
