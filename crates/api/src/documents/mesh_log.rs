//! Documents of `lfn mesh log`, `lfn mesh import` and `lfn mesh export`.

use lfn_mesh::compare::{DayComparison, DayLog};
#[cfg(test)]
use lfn_mesh::entry::Entry;
use serde::Serialize;

use super::schema_name::schema_name;

/// Log of a pair for one day or two, schema `lfn.mesh.log/1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogDocument {
    /// Name and version of the schema.
    pub schema: LogSchema,
    /// First host of the pair.
    pub first: String,
    /// Second host of the pair.
    pub second: String,
    /// Log of the day.
    pub log: DayLog,
    /// Log of the day of `--against`; null without one.
    pub against: Option<DayLog>,
    /// Differences of both days; null for one day.
    pub comparison: Option<DayComparison>,
}

/// Result of an import, schema `lfn.mesh.import/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportDocument {
    /// Name and version of the schema.
    pub schema: ImportSchema,
    /// Entries that are new in the archive.
    pub stored: u64,
    /// Entries that the archive had already.
    pub known: u64,
    /// The same for each file.
    pub files: Vec<ImportedFile>,
}

/// Entries of one imported file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImportedFile {
    /// Name of the file as typed.
    pub file: String,
    /// Entries that are new in the archive.
    pub stored: u64,
    /// Entries that the archive had already.
    pub known: u64,
}

/// Entries of an archive, schema `lfn.mesh.export/1`. The command writes the entries one after the other, so this type
/// only describes the document.
#[cfg(test)]
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct ExportDocument {
    /// Name and version of the schema.
    pub schema: ExportSchema,
    /// Selected entries. Those of one pair and kind come together, in the order of their times.
    pub entries: Vec<Entry>,
}

schema_name!(ExportSchema = "lfn.mesh.export/1");
schema_name!(LogSchema = "lfn.mesh.log/1");
schema_name!(ImportSchema = "lfn.mesh.import/1");
