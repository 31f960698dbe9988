//! Document of `lfn copy --clean`.

use lfn_core::transfer::leftover::{CleanRule, Leftover, LeftoverCounts};
use serde::Serialize;

use super::schema_name::schema_name;

/// Files of interrupted copies, schema `lfn.clean/2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CleanDocument {
    /// Name and version of the schema.
    pub schema: CleanSchema,
    /// Places as typed, without secrets.
    pub places: Vec<String>,
    #[serde(flatten)]
    pub rule: CleanRule,
    /// Files that were found; absent if each one was reported before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FoundLeftover>>,
    /// Numbers of files by their state.
    pub counts: LeftoverCounts,
    /// Hosts and directories that could not be searched.
    pub errors: u64,
}

/// A line of `lfn copy --clean --output ndjson`. The last line is the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CleanLine {
    /// Files of one interrupted copy.
    File(FoundLeftover),
    /// Result of the search, without its files.
    Result(CleanDocument),
}

/// Files of one interrupted copy, with their host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FoundLeftover {
    /// Host as typed; absent for this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(flatten)]
    pub leftover: Leftover,
}

schema_name! {
    /// Name and version of the schema of a search for partial files.
    CleanSchema = "lfn.clean/2"
}
