//! Limits of a server's sessions, per client and in total, and the queue of sessions that wait for room.
//!
//! [`SessionQueue`] only counts. Its caller reports requests, use and ended sessions, and the queue decides which
//! session starts. It opens no connection and wakes no thread; `lfn_net::limits::admission` does both. A session waits
//! for resources that are in use at the same time (clients, sessions, streams, rate). Bytes and time are counted over a
//! window, and return only with time. A session that exceeds them is refused, and learns when to try again.

mod denial;
mod queue;
mod quotas;
mod resources;
mod usage;

pub use denial::{Denial, QuotaResource};
pub use queue::{QueueDecision, QueuePosition, SessionQueue};
pub use resources::{Client, LimitScope, ResourceGrant, ResourceLimits, ResourceRequest, ServerLimits};
