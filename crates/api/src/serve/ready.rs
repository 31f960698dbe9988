//! Addresses and ticket of a server that listens.

use std::net::SocketAddr;

use lfn_session::{DEFAULT_PORT, Ticket};

use super::TicketHost;
use crate::documents::{ServeDocument, ServeSchema};

/// Addresses and ticket of a server that listens.
#[derive(Debug)]
pub struct ReadyServer {
    pub ticket: Ticket,
    pub host: TicketHost,
    pub listen: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub stamp: Option<SocketAddr>,
    pub iperf3: Option<SocketAddr>,
    /// The server needs no token.
    pub is_insecure: bool,
}

impl ReadyServer {
    /// Returns the document `lfn.serve/1`.
    pub fn document(&self) -> ServeDocument {
        ServeDocument {
            schema: ServeSchema::Current,
            ticket: self.ticket.to_string(),
            listen: self.listen,
            fingerprint: self.ticket.fingerprint.to_string(),
            metrics: self.metrics,
            stamp: self.stamp,
            iperf3: self.iperf3,
            command: self.command(),
            other_addresses: self.host.alternatives.clone(),
        }
    }

    /// Returns the command that tests the path to this server.
    pub fn command(&self) -> String {
        if !self.is_insecure {
            return format!("lfn test '{}'", self.ticket);
        }
        let anywhere = if self.host.is_local { "" } else { " --insecure-anywhere" };
        let Ticket { host, port, .. } = &self.ticket;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port = if *port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        format!("lfn test --insecure{anywhere} {host}{port}")
    }
}
