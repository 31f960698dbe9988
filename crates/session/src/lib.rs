//! Connections between two hosts: messages, tickets, TLS, limits and the server.
//!
//! A session is one control connection and its data streams. A [`Ticket`] contains all that a client needs: the server's
//! address, the [`Token`] that authenticates the client, and the [`Fingerprint`] of the server's key. The client chooses
//! the [`SessionId`], so that all connections can be opened at the same time without an additional RTT. The client calls
//! [`dial::open_control`] and, in parallel from other threads, [`dial::open_data`]. The server gets the same two types,
//! [`Control`] and [`DataStream`], from its listener. Unencrypted data streams start with a [`hello::ClearHello`].
//! `doc/reference/protocol.md` describes the bytes.
//!
//! Each data stream has one thread and blocking sockets. This design is the simplest one and as fast as any other.
//! Every wait has a deadline.
//!
//! - [`wire`] has the messages. It is pure.
//! - [`transport`] has the byte streams between two hosts, over TCP and TLS.
//! - [`server`] accepts connections and starts the service that a session requests.
//! - [`limits`] enforces the limits of clients, sessions and connections.
//! - [`atomic_file`] replaces files as a whole, and [`symlink_guard`] refuses links of other users.
//! - [`clock`] has the current time for pure code, which gets the time as an argument.

#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod clock;
mod control;
mod data;
pub mod datagram;
pub mod dial;
pub mod hello;
pub mod identity;
pub mod limits;
mod pinned_certificate;
pub mod queue;
mod rights;
#[cfg(any(test, feature = "schema"))]
mod schema;
pub mod sender_options;
pub mod server;
pub mod symlink_guard;
mod ticket;
mod ticket_host;
pub mod transport;
pub mod wire;
pub mod written_files;

pub use control::Control;
pub(crate) use control::QueuePoll;
pub use data::DataStream;
pub use datagram::DatagramStream;
pub(crate) use pinned_certificate::server_config;
pub use rights::{Rights, RightsError, WriteAccess};
pub use ticket::{Fingerprint, SessionId, Ticket, TicketError, Token, TokenHash, join_host_port, split_host_port};
pub use ticket_host::TicketHost;

use std::io;
use std::time::Duration;

use lfn_base::units::show_duration;

use crate::limits::QueuePosition;
use crate::wire::{FrameError, Refusal};

pub use crate::transport::DEAD_PEER_TIMEOUT;

/// Default port of `lfn serve`.
pub const DEFAULT_PORT: u16 = 7323;

/// Protocol version of this build. A peer with another version is refused, with both versions in the message.
pub const PROTOCOL: u32 = 3;

/// Protection of a data stream's payload. Both kinds are authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    Tls,
    /// Cleartext. Only a holder of the token can create the hello that opens the stream.
    Clear,
}

/// Reasons why a session did not start, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("unknown host '{host}': {source}")]
    UnknownHost { host: String, source: io::Error },
    /// No server listens there, or a firewall blocks the connection.
    #[error("cannot reach {address}: {source}")]
    Unreachable { address: String, source: io::Error },
    /// The address does not belong to this host, or the interface does not exist.
    #[error("cannot connect from {place}: {source}")]
    Bind { place: String, source: io::Error },
    /// The server's key is not the ticket's key: the server has a new key, or there is a man in the middle.
    #[error("the key of the server at {address} does not match the ticket: its fingerprint is {fingerprint}")]
    WrongFingerprint {
        address: String,
        /// SHA-256 of the server's certificate.
        fingerprint: String,
    },
    /// The handshake failed for another reason: not an `lfn` server, or another version of TLS.
    #[error("TLS handshake with {address} failed: {source}")]
    Tls { address: String, source: rustls::Error },
    #[error("{0}")]
    Refused(Refusal),
    /// The server, or this client's share of it, is in full use, and the client does not wait.
    #[error("{}{}", .0.reason(), queue_text(.0))]
    ServerFull(QueuePosition),
    /// The client's maximum wait passed.
    #[error("{}; gave up after waiting {}{}", .place.reason(), show_duration(*.after), queue_text(.place))]
    QueueTimeout {
        after: Duration,
        /// Place in the queue at the end of the wait.
        place: QueuePosition,
    },
    /// The peer closed the connection without a message: its process was killed, or a middlebox reset the connection.
    #[error("{peer} closed the connection {while_doing}")]
    Closed {
        /// "the server" or "the client".
        peer: &'static str,
        /// Completes "closed the connection …", for example "before the result".
        while_doing: &'static str,
    },
    #[error("no answer from {peer} within {} {while_doing}", show_seconds(*.after))]
    Timeout {
        /// "the server" or "the client".
        peer: &'static str,
        after: Duration,
        /// Completes "no answer …", for example "before the result".
        while_doing: &'static str,
    },
    /// No answer over UDP, while TCP works.
    #[error("no answer over UDP from {address} within {}", show_seconds(*.after))]
    NoDatagrams { address: String, after: Duration },
    /// The peer sent an invalid frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("connection to {peer}: {source}")]
    Io {
        /// "the server", "the client" or "the kernel".
        peer: &'static str,
        source: io::Error,
    },
}

/// Formats a time-out in whole seconds from ten seconds on: the wait is never exact.
fn show_seconds(after: Duration) -> String {
    let seconds = Duration::from_secs(after.as_secs_f64().round() as u64);
    show_duration(if seconds >= Duration::from_secs(10) { seconds } else { after })
}

impl SessionError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            SessionError::UnknownHost { .. } => {
                Some("give a ticket (lfn://…), an address, or a name saved with `lfn hosts add NAME TICKET`".into())
            }
            SessionError::Unreachable { .. } => {
                Some("start `lfn serve` on the server, and open its TCP port in the firewall".into())
            }
            SessionError::Bind { .. } => Some("`ip address` lists the interfaces here and their addresses".into()),
            SessionError::WrongFingerprint { .. } => Some(
                "if the server was reinstalled, use the new ticket from `lfn serve`; otherwise stop: it may be an attack".into(),
            ),
            SessionError::Tls { .. } => Some("check that `lfn serve` listens on this port".into()),
            SessionError::Refused(refusal) => refusal.hint.clone(),
            SessionError::Closed { peer: "the client", .. } | SessionError::Timeout { peer: "the client", .. } => {
                Some("check the path from the client to the server".into())
            }
            SessionError::Closed { .. } | SessionError::Timeout { .. } => {
                Some("check that the server is running and that the path carries traffic".into())
            }
            SessionError::NoDatagrams { .. } => {
                Some("open the server's port for UDP too, in every firewall on the path".into())
            }
            SessionError::ServerFull(place) => Some(format!("wait in the queue: --wait {}s", sufficient_wait(place))),
            SessionError::QueueTimeout { place, .. } => Some(format!("wait longer: --wait {}s", sufficient_wait(place))),
            SessionError::Frame(_) => Some("check that both ends run the same version of lfn: lfn --version".into()),
            SessionError::Io { peer: "the kernel", .. } => None,
            SessionError::Io { .. } => {
                Some("check that the server is running and that the path carries traffic".into())
            }
        }
    }
}

/// Returns the place in the queue, as the end of a sentence.
fn queue_text(place: &QueuePosition) -> String {
    let wait = place.expected_wait().map_or("wait unknown".into(), |wait| format!("about {}", show_duration(wait)));
    format!(": {} ahead in the queue, {wait}", place.ahead)
}

/// Returns a wait in seconds that should be long enough: twice the server's estimate, or 3600 s without one.
fn sufficient_wait(place: &QueuePosition) -> u64 {
    const MAX_WAIT: f64 = 86_400.0;
    let expected = place.expected_wait_seconds;
    expected.map_or(3600, |seconds| 2 * seconds.get().clamp(0.0, MAX_WAIT) as u64 + 10)
}
