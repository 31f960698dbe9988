//! Who may open a session, and how a session's connections find each other.
//!
//! A [`Ticket`] is all a client needs: where the server is, the [`Token`] that lets it in and the [`Fingerprint`] of
//! the key it must show. A session is one control connection and its data streams; the client picks the
//! [`SessionId`] so that all of them can dial at the same time, with no round trip to agree on it. Data streams in
//! the clear open with a [`hello::ClearHello`]. The bytes are described in `doc/protocol.md`.

pub mod hello;
mod rights;
mod ticket;

pub use rights::{Rights, RightsError, Writing};
pub use ticket::{Fingerprint, SessionId, Ticket, TicketError, Token, TokenHash, split_host_port};

/// The port `lfn serve` listens on if none is given.
pub const DEFAULT_PORT: u16 = 7323;

/// The version of the protocol this build speaks; a peer of another version is refused by name.
pub const PROTOCOL: u32 = 1;
