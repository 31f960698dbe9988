//! Documents of `lfn emulate`: the accuracy report, the list of profiles and the state of a running emulation.

use lfn_base::path::PathProfile;
use lfn_base::units::BitRate;
use lfn_emulate::RunOutcome;
use lfn_emulate::control::RunStatus;
use serde::{Deserialize, Serialize};

use super::schema_name::schema_name;

/// Result of an emulation: the exits of the commands and the accuracy report, schema `lfn.emulate/2`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmulateDocument {
    /// Name and version of the schema.
    pub schema: EmulateSchema,
    #[serde(flatten)]
    pub outcome: RunOutcome,
}

/// Settings and counters of a running emulation, schema `lfn.emulate.show/2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmulateShowDocument {
    /// Name and version of the schema.
    pub schema: EmulateShowSchema,
    #[serde(flatten)]
    pub status: RunStatus,
}

/// Built-in profiles and traces, schema `lfn.emulate.list/1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmulateListDocument {
    /// Name and version of the schema.
    pub schema: EmulateListSchema,
    /// Built-in profiles, values of --profile.
    pub profiles: Vec<BuiltInProfile>,
    /// Traces for --trace and --return-trace.
    pub traces: Vec<BuiltInTraceEntry>,
}

/// A built-in profile with its figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuiltInProfile {
    /// Name as a value of --profile.
    pub name: String,
    /// Description in one line.
    pub title: String,
    /// Report or standard from which the figures come.
    pub source: String,
    /// Limits of the profile, and advice for its use.
    pub notes: String,
    /// Settings of the link, as --link takes them.
    pub settings: String,
    /// Figures of the path.
    pub path: PathProfile,
    /// Capacity from near to far.
    pub near_to_far: DirectionCapacity,
    /// Capacity from far to near.
    pub far_to_near: DirectionCapacity,
}

/// Capacity of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DirectionCapacity {
    /// Nominal capacity of the direction.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: BitRate,
}

/// A built-in trace of a varying rate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BuiltInTraceEntry {
    /// Name as a value of --trace.
    pub name: String,
    /// Description in one line.
    pub title: String,
    /// Measurement from which the trace comes.
    pub source: String,
}

schema_name! {
    /// Name and version of the schema of an emulation's result.
    EmulateSchema = "lfn.emulate/2"
}
schema_name! {
    /// Name and version of the schema of a running emulation.
    EmulateShowSchema = "lfn.emulate.show/2"
}
schema_name! {
    /// Name and version of the schema of the list of profiles.
    EmulateListSchema = "lfn.emulate.list/1"
}
