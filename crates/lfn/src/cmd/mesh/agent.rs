//! `lfn mesh agent`: measures from one host.

use std::net::IpAddr;
use std::path::PathBuf;

use lfn_api::documents::AgentDocument;
use lfn_api::mesh::agent::{self, AgentStart, MAX_SPOOL};
use lfn_api::mesh::agent_directory;
use lfn_api::resolve::read_ticket;
use lfn_base::units::Bytes;
use lfn_session::Ticket;

use super::running::{listen_for_signals, log_agent, stop_agent, wait_for};
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::cmd::values::read;
use crate::exit::{Exit, Failure};

/// Run the agent of this host: test other hosts by the schedule, and send the results to the hub
///
/// The agent dials the hub, so it works behind NAT. The results stay on the disk of this host until the hub has stored them. The
/// ticket is needed once: later starts use the saved ticket. With --json, the result has the counts of the entries at the end.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AgentArgs {
    /// Ticket of this agent, printed by `lfn mesh ticket` at the hub; - reads standard input, @FILE reads a file
    #[arg(value_name = "TICKET")]
    hub: Option<String>,
    #[command(flatten)]
    flags: AgentFlags,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Flags of the agent, which `lfn mesh agent` and `lfn mesh up` share.
#[derive(clap::Args, Debug)]
pub(super) struct AgentFlags {
    /// Keep the key, the plan and the results in DIR [default: the state directory of the user]
    #[arg(long, value_name = "DIR", help_heading = "Agent")]
    state: Option<PathBuf>,
    /// Listen for tests of other agents on this address only
    #[arg(long, value_name = "ADDRESS", help_heading = "Agent")]
    test_bind: Option<IpAddr>,
    /// Listen for tests of other agents on this port; 0 uses any free port [default: that of the sites file, or 7323]
    #[arg(long, value_name = "PORT", help_heading = "Agent")]
    test_port: Option<u16>,
    /// Stop measuring while results of this size wait for the hub [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Agent")]
    max_spool: Option<String>,
}

const EXAMPLES: &str = "Examples:
  lfn mesh ticket sites.toml far1 > far1.ticket        (at the hub)
  lfn mesh agent @far1.ticket                          (on far1, once)
  lfn mesh agent                                       (later starts)

Exit codes: 0 stopped by a signal; 1 the agent cannot start; 2 usage.";

impl AgentFlags {
    /// Returns the options of the agent.
    pub(super) fn options(&self, hub: Option<Ticket>) -> Result<AgentStart, Failure> {
        let max_spool: Option<Bytes> = read("max-spool", &self.max_spool, "--max-spool 1GiB")?;
        Ok(AgentStart {
            hub,
            state: self.state.clone().map_or_else(agent_directory, Ok)?,
            bind: self.test_bind,
            port: self.test_port,
            max_spool: max_spool.map_or(MAX_SPOOL, |bytes| bytes.0),
        })
    }
}

/// Runs `lfn mesh agent` and returns its exit code.
pub fn run(args: AgentArgs) -> Result<Exit, Failure> {
    let hub = args.hub.as_deref().map(ticket).transpose()?;
    let output = args.output.open()?;
    lfn_sys::process::raise_open_file_limit();
    // A signal during the start also ends with the counts.
    let interrupt = listen_for_signals()?;
    let agent = agent::start(&args.flags.options(hub)?, log_agent)?;
    crate::cmd::serve::notify::ready("measuring");
    let exit = wait_for(&interrupt);
    let counts = stop_agent(agent);
    let (made, stored) = (counts.made, counts.acknowledged);
    let document = AgentDocument { made, stored, pending: made - stored, ..AgentDocument::default() };
    output.finish(&document, || Ok::<_, Failure>(()))?;
    exit
}

/// Reads a ticket from the command line, a file or standard input.
fn ticket(typed: &str) -> Result<Ticket, Failure> {
    match read_ticket(typed)? {
        Some(ticket) => Ok(ticket),
        None => typed.parse().map_err(|error| {
            Failure::usage(error)
                .hint("paste the complete ticket printed by `lfn mesh ticket`, in quotes because of the #")
        }),
    }
}
