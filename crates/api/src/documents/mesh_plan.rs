//! Document of `lfn mesh plan`.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::Bytes;
use serde::Serialize;

use super::schema_name::schema_name;

/// The schedule of one day, schema `lfn.mesh.plan/1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeshPlanDocument {
    /// Name and version of the schema.
    pub schema: MeshPlanSchema,
    /// Name of the mesh.
    pub mesh: String,
    /// Day in UTC, such as `2026-12-01`.
    pub day: String,
    /// Host whose loads the document has; null for all hosts.
    pub host: Option<String>,
    /// Slots of the day by start.
    pub slots: Vec<ListedSlot>,
    /// Use of hosts, interfaces and bottlenecks.
    pub resources: Vec<ResourceUse>,
    /// Use of the budgets of the sites that have one.
    pub budgets: Vec<SiteBudget>,
    /// Time that the loads of each interval need, the shortest interval first.
    pub intervals: Vec<PackedInterval>,
    /// Tests that run always, without slots.
    pub without_slots: Vec<TestWithoutSlots>,
    /// Loads that have no slot on this day.
    pub not_fitting: Vec<UnplannedLoad>,
    /// Pairs that cannot be measured on any day, because neither host can be the client.
    pub excluded: Vec<UnplannedLoad>,
}

/// One load at a fixed time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListedSlot {
    /// Start of the slot in UTC.
    pub start: String,
    /// Name of the test.
    pub test: String,
    /// Host that sends the data.
    pub from: String,
    /// Host that receives the data.
    pub to: String,
    /// Host that runs the test; the other one serves.
    pub client: String,
    /// Length with the time for set-up and close.
    #[serde(rename = "length_seconds", with = "seconds")]
    pub length: Duration,
    /// Maximum bytes of the load; null if no rate and no number of bytes limits them.
    #[serde(rename = "max_bytes")]
    pub bytes: Option<Bytes>,
}

/// Use of a host, an interface or a bottleneck on this day.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResourceUse {
    /// The word `host`, `interface` or `bottleneck`.
    pub kind: String,
    /// Name; the name of an interface has its site in front.
    pub name: String,
    /// Maximum number of loads at a time.
    pub loads_at_once: u64,
    /// Number of slots of the day.
    pub slots: u64,
    /// Sum of the slots with the pauses after them, divided by the loads at a time.
    #[serde(rename = "busy_seconds", with = "seconds")]
    pub busy: Duration,
    /// Maximum bytes of all slots; null if a load has no limit.
    #[serde(rename = "max_bytes")]
    pub bytes: Option<Bytes>,
}

/// Use of the budget of a site on this day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SiteBudget {
    /// Name of the site.
    pub site: String,
    /// Maximum bytes that the planned loads of the site send and receive.
    pub used_bytes: Bytes,
    /// Budget of the site.
    pub permitted_bytes: Bytes,
}

/// Time that the loads of one interval need.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PackedInterval {
    /// Interval of the tests.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Number of loads in one interval.
    pub loads: usize,
    /// Time from the start of the first load to the end of the last one, if they run as early as possible.
    #[serde(rename = "makespan_seconds", with = "seconds")]
    pub makespan: Duration,
    /// Time that no schedule of these loads can beat.
    #[serde(rename = "bound_seconds", with = "seconds")]
    pub bound: Duration,
    /// Resource that decides about the bound; null if the number of hosts decides.
    pub bound_by: Option<String>,
}

/// A test that runs always.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TestWithoutSlots {
    /// Name of the test.
    pub test: String,
    /// Kind of the test: `latency`, `path` or `counters`.
    pub kind: String,
    /// Time between two measurements of a pair or of a host.
    #[serde(rename = "interval_seconds", with = "seconds")]
    pub interval: Duration,
    /// Number of measurements in one interval.
    pub measurements: usize,
}

/// A load without a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnplannedLoad {
    /// Name of the test.
    pub test: String,
    /// Host that sends the data.
    pub from: String,
    /// Host that receives the data.
    pub to: String,
    /// Reason in one phrase.
    pub reason: String,
}

schema_name! {
    /// Name and version of the schema of a schedule.
    MeshPlanSchema = "lfn.mesh.plan/1"
}
