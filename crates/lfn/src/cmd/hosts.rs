//! `lfn hosts`.

use std::io::Write;

use clap::Subcommand;
use lfn_core::session::Ticket;

use crate::exit::{Exit, Failure};
use crate::print;
use crate::remote::{SavedHosts, ticket_elsewhere};

/// Save the tickets of servers under short names
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Save a ticket: lfn hosts add NAME TICKET (or -, or @FILE, to read it from there, out of sight of `ps`)
    Add {
        /// Short name, used as NAME or NAME:PATH afterwards
        name: String,
        /// The line `lfn serve` prints; - is standard input, @FILE a file that holds it
        ticket: String,
    },
    /// List the names and where they lead; tokens stay hidden
    List {
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// Forget a name
    Remove {
        /// The name to forget
        name: String,
    },
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let mut saved = SavedHosts::load()?;
    match args.action {
        Action::Add { name, ticket } => add(&mut saved, &name, &ticket),
        Action::List { json } => list(&saved, json),
        Action::Remove { name } => {
            if !saved.remove(&name) {
                return Err(Failure::msg(format!("no ticket is saved as '{name}'")).hint("lfn hosts list"));
            }
            saved.save()?;
            Ok(Exit::Ok)
        }
    }
}

fn add(saved: &mut SavedHosts, name: &str, ticket: &str) -> Result<Exit, Failure> {
    let ticket: Ticket = match ticket_elsewhere(ticket)? {
        Some(ticket) => ticket,
        None => ticket.parse().map_err(|e| {
            Failure::usage(e).hint("paste the whole line `lfn serve` prints, in quotes because of the #")
        })?,
    };
    let new = saved.add(name, &ticket)?;
    saved.save()?;
    let done = if new { "saved" } else { "replaced" };
    print::talk(format_args!("{done} {name}: {}:{}\n", ticket.host, ticket.port));
    Ok(Exit::Ok)
}

fn list(saved: &SavedHosts, json: bool) -> Result<Exit, Failure> {
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
