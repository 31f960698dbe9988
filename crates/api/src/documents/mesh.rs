//! Documents of `lfn mesh hub`, `lfn mesh agent`, `lfn mesh ticket` and `lfn mesh backup`.

use std::net::SocketAddr;

use serde::Serialize;

use super::schema_name::schema_name;

/// A hub that listens, schema `lfn.mesh.hub/1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HubDocument {
    /// Name and version of the schema.
    pub schema: HubSchema,
    /// Address and port for agents.
    pub listen: SocketAddr,
    /// Address of the page.
    pub page: String,
    /// Password of the page; any user name is accepted.
    pub token: String,
}

/// Ticket of an agent, schema `lfn.mesh.ticket/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentTicketDocument {
    /// Name and version of the schema.
    pub schema: AgentTicketSchema,
    /// Name of the host in the sites file.
    pub host: String,
    /// Ticket with which the agent of the host dials the hub.
    pub ticket: String,
}

/// An agent that has stopped, schema `lfn.mesh.agent/1`. The counts include earlier runs with the same spool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AgentDocument {
    /// Name and version of the schema.
    pub schema: AgentSchema,
    /// Entries that the agent has written to its spool.
    pub made: u64,
    /// Entries that the hub has stored.
    pub stored: u64,
    /// Entries that wait for the hub in the spool.
    pub pending: u64,
}

/// Copy of an archive, schema `lfn.mesh.backup/1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BackupDocument {
    /// Name and version of the schema.
    pub schema: BackupSchema,
    /// File of the copy.
    pub file: String,
    /// Length of the copy.
    pub bytes: u64,
}

schema_name!(HubSchema = "lfn.mesh.hub/1");
schema_name!(AgentTicketSchema = "lfn.mesh.ticket/1");
schema_name!(AgentSchema = "lfn.mesh.agent/1");
schema_name!(BackupSchema = "lfn.mesh.backup/1");
