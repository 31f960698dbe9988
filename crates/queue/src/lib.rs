//! A queue of entries that many movers share, on NATS JetStream.
//!
//! The manifest lists all entries, in parts. A message in a stream is the right to copy one part: its acknowledgement
//! deadline is the lease. If the lease expires, the server delivers the message to another mover. A record in a key-value bucket marks a part as done.
//! The manifest and the records decide when the copy is complete, not the messages: a missing message is published again.
//!
//! [`proto`] decides, without a clock and without I/O. [`Queue`] is the connection to the server. It blocks the calling
//! thread: the client of NATS and its runtime have a thread of their own, and only this crate uses them.

#![forbid(unsafe_code)]

mod connection;
mod error;
mod lease;
mod listing_claim;
pub mod proto;
mod queue;
mod store;
mod worker;

pub use error::QueueError;
pub use lease::{Lease, LeaseWatch};
pub use listing_claim::ListingClaim;
pub use queue::{Queue, QueueOptions, QueueState};
