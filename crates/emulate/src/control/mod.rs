//! Control of a running emulation: shows its state and changes its settings.
//!
//! Each run listens on Unix sockets with one abstract name ([`ControlAddress`]): in the network namespace where it was
//! started, and on both of its sides, so that the commands on the path can reach it too. Abstract names need no
//! directory and disappear with their sockets, so a killed run leaves nothing behind. [`server`] runs in the emulator,
//! [`client`] sends requests. A request and its response are one line of JSON each. Both sides close a connection to
//! another user. If users cannot be distinguished, in a user namespace that does not map this user, all connections are
//! closed, and the run prints a warning at its start.
//!
//! A process in an attached network namespace is not a child of the emulator, so it does not inherit the variables of
//! the commands. It asks for them ([`attached_environment`]). Only the sockets on the two sides answer this request.

mod client;
mod listener;
mod peer;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use lfn_base::path::PathProfile;
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

pub use client::{ControlError, RunSummary, RunningEmulation, attached_environment, find, send_request};
pub(super) use listener::{ControlSocket, open_socket, open_socket_in};
pub(super) use server::{ControlServer, SideEnvironment};

use super::accuracy::DirectionReport;

/// Environment variable with the control address, set for the commands on a path.
pub const ENV_VARIABLE: &str = "LFN_CONTROL";
/// Maximum size of a request with its line end, bytes. A request needs a few hundred bytes, or more for the text of a
/// long trace.
const MAX_REQUEST: usize = 16 << 20;
/// Maximum size of a response, bytes: 64 paths with a few links each.
const MAX_RESPONSE: usize = 4 << 20;

/// Request to a running emulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Show,
    /// Environment variables of this side. The response is an [`EnvironmentResponse`].
    Environment,
    Set {
        /// Number of the path, from 1.
        path: u32,
        /// Number of the link, from 1 at the near side. `None` stands for all links.
        link: Option<u32>,
        /// Each setting as `KEY=VALUE`.
        settings: Vec<String>,
        /// The text of each trace file in the settings, because the emulator may not see the file.
        traces: BTreeMap<String, String>,
    },
}

/// State of a running emulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunStatus {
    /// Process id of the emulation, as its user sees it.
    pub pid: u32,
    /// States of the parallel paths, in order.
    pub paths: Vec<PathStatus>,
}

/// State of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathStatus {
    /// The path with its current settings.
    pub path: PathProfile,
    /// The settings of the links from near to far, as `--link` takes them.
    pub links: Vec<String>,
    /// Warnings about unusual settings, one sentence each.
    pub warnings: Vec<String>,
    pub near_to_far: DirectionStatus,
    pub far_to_near: DirectionStatus,
}

/// Counters of a direction so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionStatus {
    /// Bytes in the queues now.
    #[serde(rename = "queued_bytes")]
    pub queued: Bytes,
    /// The report as if the run ended now, without the figures that only its end can provide.
    #[serde(flatten)]
    pub report: DirectionReport,
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub message: String,
    pub hint: Option<String>,
    /// True if the request can never succeed, false if it may succeed elsewhere or later.
    pub is_usage: bool,
}

/// Warns that a run cannot be controlled. The run continues.
pub(super) fn warn_unreachable(address: ControlAddress, error: &io::Error) {
    // The run continues if stderr is closed.
    let _ = writeln!(io::stderr(), "lfn: `lfn emulate set` and `show` cannot reach this run: {address}: {error}");
}

/// Response line to a request.
type Response = Result<RunStatus, Refusal>;

/// Response line to [`Request::Environment`].
type EnvironmentResponse = Result<BTreeMap<String, String>, Refusal>;

/// Abstract socket name of a run, made of its user id and process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControlAddress {
    /// The user who started the run, as seen outside its namespaces.
    uid: u32,
    /// Process id, as this user sees it.
    pid: u32,
}

const PREFIX: &str = "lfn-emulate-";

impl ControlAddress {
    /// Returns the address of a run that this process is about to start.
    pub(super) fn own() -> Self {
        ControlAddress { uid: rustix::process::geteuid().as_raw(), pid: std::process::id() }
    }

    /// Returns the process id in the address.
    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// Returns true if root started the run.
    pub(super) fn is_root(self) -> bool {
        self.uid == 0
    }

    /// Returns the name without the leading zero byte.
    fn name(self) -> String {
        format!("{PREFIX}{}-{}", self.uid, self.pid)
    }

    /// Parses a [`name`](Self::name), also with a leading `@`, which stands for the zero byte in text.
    fn parse(text: &str) -> Option<Self> {
        let (uid, pid) = text.strip_prefix('@').unwrap_or(text).strip_prefix(PREFIX)?.split_once('-')?;
        let address = ControlAddress { uid: uid.parse().ok()?, pid: pid.parse().ok()? };
        // A number has several spellings, a name has only one.
        (text.ends_with(&address.name())).then_some(address)
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_names_are_parsed() {
        let address = ControlAddress { uid: 1000, pid: 42 };
        assert_eq!(address.to_string(), "@lfn-emulate-1000-42");
        assert_eq!(ControlAddress::parse("@lfn-emulate-1000-42"), Some(address));
        assert_eq!(ControlAddress::parse("lfn-emulate-1000-42"), Some(address));
        for other in ["", "@", "@lfn-emulate-", "@lfn-emulate-1", "@lfn-emulate-1-", "@lfn-emulate-1-x", "@other-1-2"] {
            assert_eq!(ControlAddress::parse(other), None, "{other}");
        }
        for twin in ["@lfn-emulate-01-2", "@lfn-emulate-1-+2", "@lfn-emulate-1-2-3", "@lfn-emulate-1-99999999999"] {
            assert_eq!(ControlAddress::parse(twin), None, "{twin}");
        }
    }
}
