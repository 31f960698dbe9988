//! Command-line parsing. The arguments of each command are defined in the module of the command.

mod explain;

use clap::{Parser, Subcommand};

pub use explain::explain;

use crate::cmd;

/// Measures, tunes, emulates and fills long fat networks.
#[derive(Parser, Debug)]
#[command(version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
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
