//! First output of the server: its ticket on standard output, and its addresses for a human reader.

use std::io::Write;

use lfn_api::serve::ReadyServer;

use crate::exit::Failure;
use crate::print;
use crate::print::output::{OutputFormat, print_document};

/// Prints the document on one line, since the reader waits for it while the server runs.
pub(super) fn print_json(ready: &ReadyServer) -> Result<(), Failure> {
    Ok(print_document(&ready.document(), OutputFormat::Ndjson)?)
}

/// Prints the ticket. With `messages` it also prints the addresses, and the command for the other host: on standard
/// output if this is a terminal. The log then does not contain the secret.
pub(super) fn print_text(ready: &ReadyServer, messages: bool) -> Result<(), Failure> {
    if messages {
        print_addresses(ready);
    }
    let is_terminal = print::terminal::stdout_is_terminal();
    let place = if ready.host.is_local { "on this host" } else { "on the other host" };
    if messages && !is_terminal && !ready.is_insecure {
        print::message(format_args!("lfn: {place} run: lfn test TICKET (with the ticket from standard output)\n"));
    }
    if messages && !is_terminal && ready.is_insecure {
        print::message(format_args!("lfn: {place} run: {}\n", ready.command()));
    }
    let mut out = print::out();
    if messages && is_terminal {
        writeln!(out, "{place} run: {}", ready.command())?
    } else {
        writeln!(out, "{}", ready.ticket)?
    }
    Ok(out.flush()?)
}

fn print_addresses(ready: &ReadyServer) {
    let listen = ready.listen;
    let scope = match listen.ip() {
        address if address.is_loopback() => "only this host can connect",
        address if address.is_unspecified() && address.is_ipv6() => "all IPv4 and IPv6 addresses of this host",
        address if address.is_unspecified() => "all IPv4 addresses of this host",
        _ => "only this address",
    };
    print::message(format_args!("lfn: listening on {listen} ({scope})\n"));
    if let Some(iperf3) = ready.iperf3 {
        print::message(format_args!("lfn: iperf3 clients: iperf3 -c {} -p {}\n", ready.ticket.host, iperf3.port()));
    }
    if ready.host.is_local && !listen.ip().is_loopback() {
        print::message(
            "lfn: this host has no address that other hosts can reach; name one with --ticket-host ADDRESS\n",
        );
    }
    if !ready.host.alternatives.is_empty() {
        let others = ready.host.alternatives.join(", ");
        print::message(format_args!("lfn: other addresses for --ticket-host: {others}\n"));
    }
}
