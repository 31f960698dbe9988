//! The verbs of `lfn mesh`.
//!
//! [`hub`] starts the server of the agents, the archive and the page. [`agent`] runs the agent of one host. Both return when
//! they run, and stop when they are dropped. [`check()`] and [`plan()`] read a sites file only.

pub mod agent;
mod check;
mod error;
pub mod hub;
mod import;
mod log;
mod plan;
mod sites_file;

pub use check::{CheckOptions, check};
pub use error::MeshError;
pub use import::{ExportedEntries, ImportError, ImportOptions, export, import};
pub use log::{LogError, LogOptions, SiteNames, check_hosts, log};
pub use plan::{PlanOptions, plan};
pub use sites_file::{load_sites, read_sites};

use std::path::PathBuf;

use crate::serve::{ServeStartError, state_directory};

/// Default TCP port of a hub.
pub const HUB_PORT: u16 = 7324;

/// Name of the file in the state of a hub that has its sites file.
const PLAN_FILE: &str = "plan.json";

/// Returns the default directory of the state of a hub.
pub fn hub_directory() -> Result<PathBuf, ServeStartError> {
    Ok(state_directory()?.join("mesh-hub"))
}

/// Returns the default directory of the state of an agent.
pub fn agent_directory() -> Result<PathBuf, ServeStartError> {
    Ok(state_directory()?.join("mesh-agent"))
}

/// Returns the default path of the archive.
pub fn archive_file() -> Result<PathBuf, ServeStartError> {
    Ok(hub_directory()?.join("archive.sqlite"))
}
