//! Document of a command that failed before it had a result.

use serde::{Deserialize, Serialize};

/// Document that a failed command prints under JSON output, schema `lfn.error/1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ErrorDocument {
    /// Name and version of the schema.
    pub schema: ErrorSchema,
    /// Command and subcommand without arguments, empty if none was recognised.
    pub command: String,
    /// Error in one line.
    pub error: String,
    /// Action that fixes the cause, if one is known.
    pub hint: Option<String>,
    /// Exit code of the command.
    pub exit_code: u8,
}

/// Name and version of the schema of an error document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum ErrorSchema {
    #[default]
    #[serde(rename = "lfn.error/1")]
    V1,
}
