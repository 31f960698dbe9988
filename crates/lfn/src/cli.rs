//! What was typed: the command line, one `Args` per command beside its code.

use clap::{Parser, Subcommand};

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
    Plan(Box<cmd::plan::Args>),
    Emulate(cmd::emulate::Args),
    Serve(cmd::serve::Args),
    Test(cmd::test::Args),
    Copy(cmd::copy::Args),
    Hosts(cmd::hosts::Args),
    Demo(cmd::demo::Args),
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 incomplete but resumable, \
4 done but not to be trusted (an emulation that was not faithful), 130 interrupted.";
