//! Authentication of sessions, and the assignment of connections to a session.
//!
//! A [`Ticket`] contains all that a client needs: the server's address, the [`Token`] that authenticates the client,
//! and the [`Fingerprint`] of the server's key. A session is one control connection and its data streams. The client
//! chooses the [`SessionId`], so that all connections can be opened at the same time without an additional RTT.
//! Unencrypted data streams start with a [`hello::ClearHello`]. `doc/reference/protocol.md` describes the bytes.

pub mod hello;
mod rights;
mod ticket;

pub use rights::{Rights, RightsError, WriteAccess};
pub use ticket::{Fingerprint, SessionId, Ticket, TicketError, Token, TokenHash, split_host_port};

/// Default port of `lfn serve`.
pub const DEFAULT_PORT: u16 = 7323;

/// Protocol version of this build. A peer with another version is refused, with both versions in the message.
pub const PROTOCOL: u32 = 3;
