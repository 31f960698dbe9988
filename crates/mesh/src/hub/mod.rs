//! The hub: gives agents the plan and their tickets, and stores their results.
//!
//! [`Hub::serve`] is the service of a mesh session. [`store`] owns the archive on a thread of its own, which stores the entries of
//! all agents that wait in one transaction. `registry` knows the servers of the agents, `access` derives tickets from one
//! secret, and `check` decides which entries of an agent are stored.

mod access;
mod check;
mod registry;
mod service;
pub mod store;

pub use access::{MeshSecret, agent_token_name, client_token_name};
pub use service::{Hub, HubEvent, HubOptions, HubPlan};
