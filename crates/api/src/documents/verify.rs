//! Document of `lfn verify`.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::byte_string::ByteString;
use serde::Serialize;

use super::schema_name::schema_name;

/// Result of a check of files against a manifest, schema `lfn.verify/2`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyDocument {
    /// Name and version of the schema.
    pub schema: VerifySchema,
    #[serde(flatten)]
    pub counts: VerifyCounts,
    /// Files that differ; absent if each one was reported before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differences: Option<Vec<FileDifference>>,
}

/// A line of `lfn verify --output ndjson`. The last line is the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum VerifyLine {
    /// A file that differs.
    Difference(FileDifference),
    /// Result of the check, without its differences.
    Result(VerifyDocument),
}

/// Numbers of checked files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyCounts {
    /// Files with the listed digest.
    pub matching: u64,
    /// Files with another digest.
    pub changed: u64,
    /// Files that do not exist.
    pub missing: u64,
    /// Files that could not be read.
    pub unreadable: u64,
    /// Files in the directory that the manifest does not list.
    pub unlisted: u64,
    /// Lines of the manifest that are not valid.
    pub bad_lines: u64,
    /// Total length of the files that were read.
    pub bytes: Bytes,
}

/// A file that differs from the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileDifference {
    /// Name of the file in the manifest.
    pub name: ByteString,
    /// Kind of the difference.
    pub status: FileStatus,
    /// Reason why the file could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Kind of a difference between a file and the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    Changed,
    Missing,
    Unreadable,
    Unlisted,
}

impl FileStatus {
    /// Returns the status in one word.
    pub fn word(self) -> &'static str {
        match self {
            FileStatus::Changed => "changed",
            FileStatus::Missing => "missing",
            FileStatus::Unreadable => "unreadable",
            FileStatus::Unlisted => "unlisted",
        }
    }
}

schema_name! {
    /// Name and version of the schema of a check against a manifest.
    VerifySchema = "lfn.verify/2"
}
