//! Speaking to an emulated path that runs: asking how it stands, and changing it.
//!
//! Each run listens on Unix sockets with one abstract name ([`Address`]): in the network namespace it was started from,
//! and on both of its sides, so that the commands on the path reach it too. Abstract names are in no directory and go
//! with their sockets: a killed run leaves nothing behind. [`server`] is the run's side, [`client`] the other. One line
//! of JSON asks, one answers. Whoever is not the same user is hung up on, by either side, and so is everybody where users
//! cannot be told apart: in a user namespace that does not map this one, which such a run says when it starts.

mod client;
mod peer;
mod server;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use lfn_core::path::PathProfile;
use lfn_core::units::Bytes;
use serde::{Deserialize, Serialize};

pub use client::{ControlError, Run, ask, find};
pub(super) use server::Control;
pub(super) use server::{Doors, open_door, open_door_in};

use super::ledger::DirectionLedger;

/// The environment variable that tells the commands on a path how to reach its emulator.
pub const VARIABLE: &str = "LFN_CONTROL";
/// The longest request, bytes, its line end included: settings in a few hundred, and the text of a long trace.
const LONGEST_REQUEST: usize = 16 << 20;
/// The longest answer: 64 paths of a few links each.
const LONGEST_ANSWER: usize = 4 << 20;

/// What a run can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// How do you stand?
    Show,
    /// Change a path.
    Set {
        /// Its number, from 1.
        path: u32,
        /// The link's number, from 1 at the near side; all links without one.
        link: Option<u32>,
        /// Settings as `KEY=VALUE`.
        settings: Vec<String>,
        /// The text of each trace among them that is a file: the run may see other files.
        traces: BTreeMap<String, String>,
    },
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Its process, as its user sees it.
    pub pid: u32,
    /// In order.
    pub paths: Vec<PathStanding>,
}

/// How a path stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathStanding {
    /// Its figures as it is set now.
    pub path: PathProfile,
    /// The settings of its links from near to far, each as `--link` takes it.
    pub links: Vec<String>,
    /// What is odd about them, a sentence each.
    pub doubts: Vec<String>,
    /// From the near side to the far side.
    pub near_to_far: DirectionStanding,
    /// And back.
    pub far_to_near: DirectionStanding,
}

/// What a direction has done so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionStanding {
    /// In the queues now.
    #[serde(rename = "queued_bytes")]
    pub queued: Bytes,
    /// As the ledger would have it if the run ended now, but for what only its end can tell.
    #[serde(flatten)]
    pub so_far: DirectionLedger,
}

/// Why a run did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
    /// True if it can never be meant; false if it cannot be done here and now.
    pub is_usage: bool,
}

/// Says that a run cannot be reached: it goes on all the same.
pub(super) fn lament(address: Address, error: &io::Error) {
    // Nobody may be listening.
    let _ = writeln!(io::stderr(), "lfn: lfn emulate set and show will not reach this run: {address}: {error}");
}

/// The line that answers.
type Answer = Result<Standing, Refusal>;

/// The abstract name a run listens on: whose it is, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The user who started it, as seen outside its namespaces.
    uid: u32,
    /// Its process, as that user sees it.
    pid: u32,
}

const PREFIX: &str = "lfn-emulate-";

impl Address {
    /// Of a run that this process is about to start.
    pub(super) fn own() -> Self {
        Address { uid: rustix::process::geteuid().as_raw(), pid: std::process::id() }
    }

    /// The process it names.
    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// The name as bytes, without the zero in front.
    fn name(self) -> String {
        format!("{PREFIX}{}-{}", self.uid, self.pid)
    }

    /// From [`name`](Self::name), or with the `@` that stands for the zero in text.
    fn parse(text: &str) -> Option<Self> {
        let (uid, pid) = text.strip_prefix('@').unwrap_or(text).strip_prefix(PREFIX)?.split_once('-')?;
        let address = Address { uid: uid.parse().ok()?, pid: pid.parse().ok()? };
        // Numbers have more than one spelling, names have not.
        (text.ends_with(&address.name())).then_some(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_others_are_not() {
        let address = Address { uid: 1000, pid: 42 };
        assert_eq!(address.to_string(), "@lfn-emulate-1000-42");
        assert_eq!(Address::parse("@lfn-emulate-1000-42"), Some(address));
        assert_eq!(Address::parse("lfn-emulate-1000-42"), Some(address));
        for other in ["", "@", "@lfn-emulate-", "@lfn-emulate-1", "@lfn-emulate-1-", "@lfn-emulate-1-x", "@other-1-2"] {
            assert_eq!(Address::parse(other), None, "{other}");
        }
        for twin in ["@lfn-emulate-01-2", "@lfn-emulate-1-+2", "@lfn-emulate-1-2-3", "@lfn-emulate-1-99999999999"] {
            assert_eq!(Address::parse(twin), None, "{twin}");
        }
    }
}
