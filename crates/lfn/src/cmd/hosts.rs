//! `lfn hosts`: saves, lists and removes tickets.

use std::io::Write;

use clap::Subcommand;
use lfn_core::session::Ticket;

use crate::exit::{Exit, Failure};
use crate::print;
use crate::remote::{SavedHosts, read_ticket};

/// Save the tickets of servers under short names
#[derive(clap::Args, Debug)]
pub struct HostsArgs {
    #[command(subcommand)]
    action: HostsAction,
}

#[derive(Subcommand, Debug)]
enum HostsAction {
    /// Save a ticket under a name (- or @FILE reads the ticket from there, so that it does not appear in `ps`)
    Add {
        /// Short name, to be used as NAME or NAME:PATH
        name: String,
        /// Ticket printed by `lfn serve`; - reads standard input, @FILE reads a file
        ticket: String,
    },
    /// List the saved names and their addresses, without tokens
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove a saved name
    Remove {
        /// Name of the ticket to remove
        name: String,
    },
}

/// Runs `lfn hosts` and returns its exit code.
pub fn run(args: HostsArgs) -> Result<Exit, Failure> {
    let mut saved = SavedHosts::load()?;
    match args.action {
        HostsAction::Add { name, ticket } => add_host(&mut saved, &name, &ticket),
        HostsAction::List { json } => list_hosts(&saved, json),
        HostsAction::Remove { name } => {
            if !saved.remove(&name) {
                return Err(Failure::msg(format!("no ticket is saved as '{name}'"))
                    .hint("list the saved names: lfn hosts list"));
            }
            saved.save()?;
            Ok(Exit::Ok)
        }
    }
}

fn add_host(saved: &mut SavedHosts, name: &str, ticket: &str) -> Result<Exit, Failure> {
    let ticket: Ticket = match read_ticket(ticket)? {
        Some(ticket) => ticket,
        None => ticket.parse().map_err(|e| {
            Failure::usage(e).hint("paste the complete ticket printed by `lfn serve`, in quotes because of the #")
        })?,
    };
    let new = saved.add(name, &ticket)?;
    saved.save()?;
    let done = if new { "saved" } else { "replaced" };
    print::message(format_args!("{done} {name}: {}:{}\n", ticket.host, ticket.port));
    Ok(Exit::Ok)
}

fn list_hosts(saved: &SavedHosts, json: bool) -> Result<Exit, Failure> {
    let mut out = if json { print::json() } else { print::out() };
    let entries = saved.iter().map(|(name, ticket)| (name, ticket.parse::<Ticket>().ok()));
    if json {
        let address = |ticket: Option<Ticket>| ticket.map(|t| format!("{}:{}", t.host, t.port));
        let hosts: serde_json::Map<_, _> =
            entries.map(|(name, ticket)| (name.to_owned(), address(ticket).into())).collect();
        writeln!(out, "{}", serde_json::json!({ "schema": "lfn.hosts/1", "hosts": hosts }))?;
        return Ok(Exit::Ok);
    }
    for (name, ticket) in entries {
        match ticket {
            Some(ticket) => writeln!(out, "{name:<16} {}:{}", ticket.host, ticket.port)?,
            None => writeln!(out, "{name:<16} (damaged ticket: save it again)")?,
        }
    }
    Ok(Exit::Ok)
}
