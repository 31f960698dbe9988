//! `lfn mesh hub`: the archive, the page, and the server of the agents.

use std::io::Write as _;

use lfn_api::documents::{HubDocument, HubSchema};
use lfn_api::mesh::hub::{self, RunningHub};

use super::hub_flags::HubFlags;
use super::running::{log_hub, wait_for_signal};
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};

/// Run the hub: archive, page and the server of the agents
///
/// The hub stores the results of all agents in one file and shows them on a page. The page needs a token, which the first
/// line of the output contains. The sites file is read again when it changes.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct HubArgs {
    #[command(flatten)]
    hub: HubFlags,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const EXAMPLES: &str = "Examples:
  lfn mesh hub sites.toml
  lfn mesh hub sites.toml --page 0.0.0.0:443 --page-certificate hub.crt --page-key hub.key

Exit codes: 0 stopped by a signal; 1 the hub cannot start; 2 usage, also if the sites file has problems.";

/// Runs `lfn mesh hub` and returns its exit code.
pub fn run(args: HubArgs) -> Result<Exit, Failure> {
    let output = args.output.open_private()?;
    lfn_sys::process::raise_open_file_limit();
    let hub = hub::start(&args.hub.options()?, log_hub)?;
    print_start(&hub, output)?;
    crate::cmd::serve::notify::ready(&hub.listen().to_string());
    let exit = wait_for_signal();
    drop(hub);
    exit
}

/// Prints the address of the page with its token.
pub(super) fn print_start(hub: &RunningHub, mut output: Output) -> Result<(), Failure> {
    let (url, token) = hub.page();
    let document = HubDocument { schema: HubSchema::Current, listen: hub.listen(), page: url, token: token.to_owned() };
    output.write_report(&document)?;
    print::message(format_args!("hub: listening for agents on {}\n", hub.listen()));
    match output.format() {
        OutputFormat::Json => print_document(&document, OutputFormat::Ndjson)?,
        _ => {
            let mut out = print::out();
            writeln!(out, "page: {} (user lfn, password {token})", document.page)?;
            out.flush()?;
        }
    }
    Ok(())
}
