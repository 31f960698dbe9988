//! Document of `lfn copy --clean`.

use lfn_copy::proto::leftover::{CleanRule, Leftover, LeftoverCounts};
use serde::Serialize;

use super::schema_name::schema_name;

/// Files of interrupted copies, schema `lfn.clean/3`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CleanDocument {
    /// Name and version of the schema.
    pub schema: CleanSchema,
    /// Places as the user typed them.
    pub places: Vec<String>,
    #[serde(flatten)]
    pub rule: CleanRule,
    /// Files that were found; absent if each one was reported before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<Leftover>>,
    /// Numbers of files by their state.
    pub counts: LeftoverCounts,
    /// Places and directories that could not be searched.
    pub errors: u64,
}

/// A line of `lfn copy --clean --output ndjson`. The last line is the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CleanLine {
    /// Partial file and journal of one interrupted copy.
    File(Leftover),
    /// Result of the search, without its files.
    Result(CleanDocument),
}

schema_name! {
    /// Name and version of the schema of a search for partial files.
    CleanSchema = "lfn.clean/3"
}
