//! `lfn`: measures, tunes, emulates and fills long fat networks.
//!
//! The binary is thin: it reads what was typed ([`cli`]), runs one command ([`cmd`]), prints its result ([`mod@print`])
//! and ends with a documented exit code ([`exit`]).
#![forbid(unsafe_code)]

mod cli;
mod cmd;
mod emulated;
mod exit;
mod forecast;
mod print;
mod remote;
mod ssh;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let parsed = cli::Cli::try_parse();
    // Where it cannot be done, `lfn hosts add` and @FILE keep a ticket from `ps` all the same.
    let _ = lfn_sys::arguments::hide(remote::token_in);
    let done = match parsed {
        Ok(cli) => cmd::run(cli.command),
        Err(error) => cli::explain(&error),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(),
    }
}
