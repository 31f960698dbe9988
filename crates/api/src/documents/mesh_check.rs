//! Document of `lfn mesh check`.

use std::time::Duration;

use lfn_base::path::optional_seconds;
use lfn_base::units::BitRate;
use serde::Serialize;

use super::mesh_plan::UnplannedLoad;
use super::schema_name::schema_name;

/// Problems and contents of a sites file, schema `lfn.mesh.check/1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeshCheckDocument {
    /// Name and version of the schema.
    pub schema: MeshCheckSchema,
    /// Path of the sites file.
    pub file: String,
    /// Problems by position. The other lists are empty if there is a problem.
    pub problems: Vec<ListedProblem>,
    /// Number of further problems, which are not listed.
    pub skipped_problems: usize,
    /// Name of the mesh; null if there is a problem.
    pub mesh: Option<String>,
    /// Numbers of items; null if there is a problem.
    pub counts: Option<MeshCounts>,
    /// Circuits with the contacts of both ends and of the operator.
    pub circuits: Vec<CheckedCircuit>,
    /// Bottlenecks with the contacts of their sites and circuits.
    pub bottlenecks: Vec<CheckedBottleneck>,
    /// Audiences with their members.
    pub audiences: Vec<CheckedAudience>,
    /// Current or next window of each maintenance, by start.
    pub maintenance: Vec<UpcomingWindow>,
    /// Pairs of all tests that cannot be measured.
    pub excluded: Vec<UnplannedLoad>,
}

/// A problem with its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedProblem {
    /// Line, from 1 on.
    pub line: usize,
    /// Column in characters, from 1 on.
    pub column: usize,
    /// Problem in one phrase.
    pub problem: String,
    /// One action that fixes the problem.
    pub hint: String,
}

/// Numbers of items of a sites file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeshCounts {
    /// Number of all sites.
    pub sites: usize,
    /// Number of all hosts.
    pub hosts: usize,
    /// Number of hosts that run an agent.
    pub agents: usize,
    /// Number of all circuits.
    pub circuits: usize,
    /// Number of all bottlenecks.
    pub bottlenecks: usize,
    /// Number of all groups.
    pub groups: usize,
    /// Number of all tests.
    pub tests: usize,
    /// Number of contacts of sites and operators.
    pub contacts: usize,
    /// Number of all audiences.
    pub audiences: usize,
    /// Number of planned maintenance windows, repeated ones once.
    pub maintenance: usize,
}

/// A contact with the site or the operator that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedContact {
    /// Name of the person or of the list.
    pub name: String,
    /// Mail address of the contact.
    pub mail: String,
    /// The word `technical`, `operator` or `security`.
    pub role: String,
    /// Name of the site or of the operator.
    pub of: String,
}

/// A circuit with its contacts.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckedCircuit {
    /// Name of the circuit.
    pub name: String,
    /// Names of both sites.
    pub between: [String; 2],
    /// Name of the operator; null if unknown.
    pub operator: Option<String>,
    /// Capacity; null if unknown.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: Option<BitRate>,
    /// RTT; null if unknown.
    #[serde(rename = "rtt_seconds", with = "optional_seconds")]
    pub rtt: Option<Duration>,
    /// Technical contacts and operators of both sites, and contacts of the operator.
    pub contacts: Vec<ListedContact>,
}

/// A bottleneck with its contacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckedBottleneck {
    /// Name of the bottleneck.
    pub name: String,
    /// Capacity for all pairs together.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: BitRate,
    /// Maximum number of loads at a time.
    pub loads_at_once: u64,
    /// Technical contacts and operators of the sites, and contacts of the operators of its circuits.
    pub contacts: Vec<ListedContact>,
}

/// An audience with its members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckedAudience {
    /// Name of the audience.
    pub name: String,
    /// The word `announce`, `public`, `committee` or `discussion`.
    pub kind: String,
    /// Contacts with the roles and sites of the audience.
    pub members: Vec<ListedContact>,
    /// Mail addresses of other members.
    pub mails: Vec<String>,
}

/// The current or next window of a maintenance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UpcomingWindow {
    /// The word `site`, `circuit` or `pair`.
    pub scope: String,
    /// Names of the site, of the circuit, or of both ends of the pair.
    pub names: Vec<String>,
    /// Start of the window in UTC.
    pub start: String,
    /// End of the window in UTC.
    pub end: String,
    /// True if the maintenance has more windows after this one.
    pub repeats: bool,
    /// Reason; null if the file has none.
    pub reason: Option<String>,
}

schema_name! {
    /// Name and version of the schema of a checked sites file.
    MeshCheckSchema = "lfn.mesh.check/1"
}
