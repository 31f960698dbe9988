//! `lfn mesh ticket`: the ticket with which an agent dials the hub.

use std::io::Write as _;
use std::path::PathBuf;

use lfn_api::documents::AgentTicketDocument;
use lfn_api::mesh::hub::agent_ticket;
use lfn_api::mesh::hub_directory;

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// Print the ticket with which the agent of a host dials the hub
///
/// Run this command at the hub, as the user of the hub. The ticket is a secret: a client with the ticket reports as this host.
#[derive(clap::Args, Debug)]
pub struct TicketArgs {
    /// Sites file of the hub
    #[arg(value_name = "SITES")]
    sites: PathBuf,
    /// Name of a host that runs an agent
    #[arg(value_name = "HOST")]
    host: String,
    /// Name or address of the hub in the ticket [default: that of the sites file, or an address of this host]
    #[arg(long, value_name = "ADDRESS")]
    ticket_host: Option<String>,
    /// Directory with the key and the secret of the hub [default: the state directory of the user]
    #[arg(long, value_name = "DIR")]
    hub_state: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Runs `lfn mesh ticket` and returns its exit code.
pub fn run(args: TicketArgs) -> Result<Exit, Failure> {
    let output = args.output.open_private()?;
    let state = args.hub_state.clone().map_or_else(hub_directory, Ok)?;
    let ticket = agent_ticket(&args.sites, &state, &args.host, args.ticket_host.as_deref())?;
    let document =
        AgentTicketDocument { host: args.host, ticket: ticket.to_string(), ..AgentTicketDocument::default() };
    output.finish(&document, || writeln!(print::out(), "{ticket}"))?;
    Ok(Exit::Ok)
}
