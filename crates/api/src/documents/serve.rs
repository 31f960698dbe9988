//! Document of `lfn serve`.

use std::net::SocketAddr;

use serde::Serialize;

use super::schema_name::schema_name;

/// Addresses of a server that has just started, schema `lfn.serve/1`. Anyone with the ticket can use the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServeDocument {
    /// Name and version of the schema.
    pub schema: ServeSchema,
    /// Ticket for clients: lfn://TOKEN@HOST:PORT#FINGERPRINT.
    #[cfg_attr(test, schemars(regex(pattern = "^lfn://")))]
    pub ticket: String,
    /// Address and port that the server listens on.
    #[cfg_attr(test, schemars(with = "String"))]
    pub listen: SocketAddr,
    /// Fingerprint of the server's key, the last part of the ticket.
    pub fingerprint: String,
    /// Address of the Prometheus metrics; null without --metrics.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub metrics: Option<SocketAddr>,
    /// UDP address of the STAMP reflector; null without --stamp.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub stamp: Option<SocketAddr>,
    /// Address for clients of iperf3; absent without --iperf3.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iperf3: Option<SocketAddr>,
    /// Command that tests the path from another host.
    pub command: String,
    /// Other names and addresses at which clients may reach the server, best first.
    pub other_addresses: Vec<String>,
}

schema_name! {
    /// Name and version of the schema of a started server.
    ServeSchema = "lfn.serve/1"
}
