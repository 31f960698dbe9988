//! `lfn hosts`: saves, lists and removes tickets.

use std::io::Write;

use clap::Subcommand;
use lfn_api::documents::{HostAddedDocument, HostRemovedDocument, HostsDocument, HostsSchema};
use lfn_api::hosts::SavedHosts;
use lfn_api::resolve::read_ticket;
use lfn_session::Ticket;

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::Output;

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
        #[command(flatten)]
        output: OutputArgs<TextOrJson>,
    },
    /// List the saved names and their addresses, without tokens
    List {
        #[command(flatten)]
        output: OutputArgs<TextOrJson>,
    },
    /// Remove a saved name
    Remove {
        /// Name of the ticket to remove
        name: String,
        #[command(flatten)]
        output: OutputArgs<TextOrJson>,
    },
}

/// Runs `lfn hosts` and returns its exit code.
pub fn run(args: HostsArgs) -> Result<Exit, Failure> {
    let mut saved = SavedHosts::load()?;
    match args.action {
        HostsAction::Add { name, ticket, output } => add_host(&mut saved, &name, &ticket, output.open()?)?,
        HostsAction::List { output } => list_hosts(&saved, output.open()?)?,
        HostsAction::Remove { name, output } => {
            let output = output.open()?;
            if !saved.remove(&name) {
                return Err(Failure::msg(format!("no ticket is saved as '{name}'"))
                    .hint("list the saved names: lfn hosts list"));
            }
            saved.save()?;
            let document = HostRemovedDocument { name: name.clone(), ..HostRemovedDocument::default() };
            output.finish(&document, || message(format!("removed {name}\n")))?;
        }
    }
    Ok(Exit::Ok)
}

fn add_host(saved: &mut SavedHosts, name: &str, ticket: &str, output: Output) -> Result<(), Failure> {
    let ticket: Ticket = match read_ticket(ticket)? {
        Some(ticket) => ticket,
        None => ticket.parse().map_err(|e| {
            Failure::usage(e).hint("paste the complete ticket printed by `lfn serve`, in quotes because of the #")
        })?,
    };
    let new = saved.add(name, &ticket)?;
    saved.save()?;
    let done = if new { "saved" } else { "replaced" };
    let address = format!("{}:{}", ticket.host, ticket.port);
    let document = HostAddedDocument {
        name: name.to_owned(),
        address: address.clone(),
        replaced: !new,
        ..HostAddedDocument::default()
    };
    output.finish(&document, || message(format!("{done} {name}: {address}\n")))
}

/// Prints a message instead of a result.
fn message(text: String) -> Result<(), Failure> {
    print::message(text);
    Ok(())
}

fn list_hosts(saved: &SavedHosts, output: Output) -> Result<(), Failure> {
    let entries = || saved.iter().map(|(name, ticket)| (name, ticket.parse::<Ticket>().ok()));
    let address = |ticket: Option<Ticket>| ticket.map(|t| format!("{}:{}", t.host, t.port));
    let hosts = entries().map(|(name, ticket)| (name.to_owned(), address(ticket))).collect();
    output.finish(&HostsDocument { schema: HostsSchema::Current, hosts }, || {
        let mut out = print::out();
        for (name, ticket) in entries() {
            match ticket {
                Some(ticket) => writeln!(out, "{name:<16} {}:{}", ticket.host, ticket.port)?,
                None => writeln!(out, "{name:<16} (damaged ticket: save it again)")?,
            }
        }
        Ok::<_, Failure>(())
    })
}
