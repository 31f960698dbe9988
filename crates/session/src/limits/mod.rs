//! Limits of clients, for the servers of all protocols: sessions, queue, bytes, rates, connections and addresses.
//!
//! [`SessionQueue`] only counts. Its caller reports requests, use and ended sessions, and the queue decides which
//! session starts. It opens no connection and wakes no thread; [`admission`] does both. A session waits
//! for resources that are in use at the same time (clients, sessions, streams, rate). Bytes and time are counted over a
//! window, and return only with time. A session that exceeds them is refused, and learns when to try again.
//!
//! [`rate_limiter`] enforces the rate and the bytes of a session, at both ends. [`connection_table`] limits the
//! connections of a port, and [`access`] their addresses.

pub mod access;
pub mod admission;
pub mod connection_table;
mod denial;
mod queue;
mod quotas;
pub mod rate_limiter;
mod resources;
mod usage;

pub use denial::{Denial, QuotaResource};
pub use queue::{QueueDecision, QueuePosition, SessionQueue};
pub use resources::{Client, LimitScope, ResourceGrant, ResourceLimits, ResourceRequest, ServerLimits};
