//! First output of the server: its ticket on standard output, and its addresses for a human reader.

use std::io::Write;
use std::net::SocketAddr;

use lfn_core::session::{DEFAULT_PORT, Ticket};
use serde_json::Value;

use super::ticket_host::TicketHost;
use crate::exit::Failure;
use crate::print;
use crate::print::output::{OutputFormat, print_document};

/// Addresses and ticket of a server that has just started.
#[derive(Debug)]
pub(super) struct ReadyServer<'a> {
    pub ticket: Ticket,
    pub host: &'a TicketHost,
    pub listen: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub stamp: Option<SocketAddr>,
    pub iperf3: Option<SocketAddr>,
    /// The server needs no token.
    pub is_insecure: bool,
}

impl ReadyServer<'_> {
    /// Prints the document on one line, since the reader waits for it while the server runs.
    pub fn json(&self) -> Result<(), Failure> {
        Ok(print_document(&self.document(), OutputFormat::Ndjson)?)
    }

    /// Returns the document `lfn.serve/1`.
    pub fn document(&self) -> Value {
        let mut object = serde_json::json!({
            "schema": "lfn.serve/1", "ticket": self.ticket.to_string(), "listen": self.listen,
            "fingerprint": self.ticket.fingerprint.to_string(), "metrics": self.metrics, "stamp": self.stamp,
            "command": self.command(), "other_addresses": self.host.alternatives,
        });
        if let Some(iperf3) = self.iperf3 {
            object["iperf3"] = Value::from(iperf3.to_string());
        }
        object
    }

    /// Prints the ticket. With `messages` it also prints the addresses, and the command for the other host: on standard
    /// output if this is a terminal. The log then does not contain the secret.
    pub fn text(&self, messages: bool) -> Result<(), Failure> {
        if messages {
            self.print_addresses();
        }
        let is_terminal = print::terminal::stdout_is_terminal();
        let place = if self.host.is_local { "on this host" } else { "on the other host" };
        if messages && !is_terminal && !self.is_insecure {
            print::message(format_args!("lfn: {place} run: lfn test TICKET (with the ticket from standard output)\n"));
        }
        if messages && !is_terminal && self.is_insecure {
            print::message(format_args!("lfn: {place} run: {}\n", self.command()));
        }
        let mut out = print::out();
        match messages && is_terminal {
            true => writeln!(out, "{place} run: {}", self.command())?,
            false => writeln!(out, "{}", self.ticket)?,
        }
        Ok(out.flush()?)
    }

    /// Returns the command that tests the path to this server.
    fn command(&self) -> String {
        if !self.is_insecure {
            return format!("lfn test '{}'", self.ticket);
        }
        let anywhere = if self.host.is_local { "" } else { " --insecure-anywhere" };
        let Ticket { host, port, .. } = &self.ticket;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let port = if *port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        format!("lfn test --insecure{anywhere} {host}{port}")
    }

    fn print_addresses(&self) {
        let listen = self.listen;
        let scope = match listen.ip() {
            address if address.is_loopback() => "only this host can connect",
            address if address.is_unspecified() && address.is_ipv6() => "all IPv4 and IPv6 addresses of this host",
            address if address.is_unspecified() => "all IPv4 addresses of this host",
            _ => "only this address",
        };
        print::message(format_args!("lfn: listening on {listen} ({scope})\n"));
        if let Some(iperf3) = self.iperf3 {
            print::message(format_args!("lfn: iperf3 clients: iperf3 -c {} -p {}\n", self.ticket.host, iperf3.port()));
        }
        if self.host.is_local && !listen.ip().is_loopback() {
            print::message(
                "lfn: this host has no address that other hosts can reach; name one with --ticket-host ADDRESS\n",
            );
        }
        if !self.host.alternatives.is_empty() {
            let others = self.host.alternatives.join(", ");
            print::message(format_args!("lfn: other addresses for --ticket-host: {others}\n"));
        }
    }
}
