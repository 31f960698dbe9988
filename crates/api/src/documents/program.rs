//! Documents about the program itself: `lfn version` and `lfn defaults`.

use serde::Serialize;

use super::schema_name::schema_name;

/// Version of the program, schema `lfn.version/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VersionDocument {
    /// Name and version of the schema.
    pub schema: VersionSchema,
    /// Version number of the program.
    pub version: String,
    /// Commit and its date; null if they were unknown when the program was built.
    pub build: Option<String>,
}

/// Files, keys and variables that set defaults of flags, schema `lfn.defaults/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DefaultsDocument {
    /// Name and version of the schema.
    pub schema: DefaultsSchema,
    /// Files with defaults; a later file overrides an earlier one.
    pub files: Vec<DefaultsFile>,
    /// Keys of the files, with their variables.
    pub keys: Vec<DefaultKey>,
    /// Defaults that are set.
    pub set: Vec<SetDefault>,
}

/// File with defaults of flags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DefaultsFile {
    /// Path of the file.
    pub path: String,
    /// True if the file exists.
    pub exists: bool,
}

/// Key of a file, which sets the default of a flag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DefaultKey {
    /// Command and subcommand; empty for every command.
    pub command: String,
    /// Name of the flag.
    pub key: String,
    /// Environment variable with the same effect.
    pub variable: String,
    /// Name of the value; null for a flag without a value.
    pub value: Option<String>,
    /// First line of the help.
    pub help: String,
}

/// Default that a file or a variable sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetDefault {
    /// Command and subcommand; empty for every command.
    pub command: String,
    /// Name of the flag.
    pub key: String,
    /// File or variable that sets the default.
    pub origin: String,
}

schema_name! {
    /// Name and version of the schema of the version.
    VersionSchema = "lfn.version/1"
}
schema_name! {
    /// Name and version of the schema of the defaults.
    DefaultsSchema = "lfn.defaults/1"
}
