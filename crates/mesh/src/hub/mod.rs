//! The hub: gives agents the plan and their tickets, and stores their results.
//!
//! [`Hub::serve`] is the service of a mesh session. [`store`] owns the archive on a thread of its own, which stores the entries of
//! all agents that wait in one transaction. `plan` keeps the sites file and the time from which it is valid, `registry` knows the servers of the agents, `access` derives tickets from one
//! secret, `access_list` gives them to an agent, `announce` changes the plan while the hub runs, and `check` decides which entries of an agent are stored.

mod access;
mod access_list;
mod announce;
mod check;
#[cfg(test)]
mod outage_tests;
mod plan;
#[cfg(test)]
mod plan_tests;
mod registry;
mod service;
pub mod store;

pub use access::{MeshSecret, agent_token_name, client_token_name};
pub use plan::{HubPlan, saved_plan};
pub use service::{Hub, HubEvent, HubOptions};

/// Returns a hash by which two values are compared.
fn digest_of(value: &impl serde::Serialize) -> String {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    blake3::hash(&bytes).to_hex().chars().take(16).collect()
}
