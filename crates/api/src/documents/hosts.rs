//! Documents of `lfn hosts`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::schema_name::schema_name;

/// Saved names, schema `lfn.hosts/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostsDocument {
    /// Name and version of the schema.
    pub schema: HostsSchema,
    /// Addresses by name; null for a damaged ticket.
    pub hosts: BTreeMap<String, Option<String>>,
}

/// A saved ticket, schema `lfn.hosts.add/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostAddedDocument {
    /// Name and version of the schema.
    pub schema: HostAddedSchema,
    /// Name under which the ticket is saved.
    pub name: String,
    /// Host and port of the ticket.
    pub address: String,
    /// True if another ticket had this name.
    pub replaced: bool,
}

/// A removed name, schema `lfn.hosts.remove/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostRemovedDocument {
    /// Name and version of the schema.
    pub schema: HostRemovedSchema,
    /// Name that was removed.
    pub name: String,
}

schema_name! {
    /// Name and version of the schema of the saved names.
    HostsSchema = "lfn.hosts/1"
}
schema_name! {
    /// Name and version of the schema of a saved ticket.
    HostAddedSchema = "lfn.hosts.add/1"
}
schema_name! {
    /// Name and version of the schema of a removed name.
    HostRemovedSchema = "lfn.hosts.remove/1"
}
