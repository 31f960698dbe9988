//! Third-party copies: the data goes directly from one server to another, and the client that started the copy shows
//! its progress.
//!
//! The receiving server runs [`serve_destination()`] besides an ordinary upload. The sending server runs
//! [`serve_source()`], and is the client of that upload. The client runs [`third_party_copy()`] with control
//! connections to both servers. If it loses either connection, it reconnects to both.

mod destination;
mod orchestrator;
mod source;

pub use destination::serve_destination;
pub use orchestrator::third_party_copy;
pub use source::serve_source;
