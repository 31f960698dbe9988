//! `lfn`: measures, tunes, emulates and fills long fat networks.
//!
//! The binary is thin. It parses the command line ([`cli`]), runs one command ([`cmd`]), prints the result
//! ([`mod@print`]) and exits with a documented code ([`exit`]).
#![forbid(unsafe_code)]

mod cli;
mod cmd;
#[cfg(test)]
mod doc_examples;
mod emulator_env;
mod exit;
mod prediction;
mod print;
mod remote;
mod ssh;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let parsed = cli::Cli::try_parse();
    // Hiding may fail. `lfn hosts add` and @FILE keep a ticket out of `ps` in any case.
    let _ = lfn_sys::arguments::hide(remote::token_range);
    let done = match parsed {
        Ok(cli) => cmd::run(cli.command),
        Err(error) => cli::explain(&error),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
