//! Command-line parsing. The arguments of each command are defined in the module of the command.

mod explain;
mod global;
pub mod output;
mod requested;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use explain::explain;
pub use global::ColorWhen;
pub use requested::RequestedOutput;

use crate::cmd;
use crate::print::settings::{PrintSettings, configure};

/// Measures, tunes, emulates and fills long fat networks.
#[derive(Parser, Debug)]
#[command(version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    global: global::GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order a newcomer needs them.
#[derive(Subcommand, Debug)]
pub enum Command {
    Plan(Box<cmd::plan::PlanArgs>),
    Emulate(Box<cmd::emulate::EmulateArgs>),
    Serve(Box<cmd::serve::ServeArgs>),
    Test(Box<cmd::measure::TestArgs>),
    Show(cmd::show::ShowArgs),
    Copy(Box<cmd::copy::CopyArgs>),
    Verify(cmd::verify::VerifyArgs),
    Hosts(cmd::hosts::HostsArgs),
    Token(cmd::token::TokenArgs),
    Demo(cmd::demo::DemoArgs),
    #[command(hide = true)]
    Reference(cmd::reference::ReferenceArgs),
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 incomplete but resumable, \
4 finished but the result is not reliable (an inaccurate emulation, or wrong bytes with `lfn test --check-data`), 130 interrupted.";

/// Parses the command line and sets the amount and the colours of all output.
pub fn parse(words: &[OsString]) -> Result<(Command, RequestedOutput), clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    let Cli { global, command } = Cli::from_arg_matches(&matches)?;
    configure(PrintSettings { quiet: global.quiet, verbose: global.verbose, color: global.color });
    Ok((command, RequestedOutput::of_matches(&matches)))
}
