//! `lfn`: measures, tunes, emulates and fills long fat networks.
//!
//! The binary is thin. It parses the command line ([`cli`]), runs one command ([`cmd`]), prints the result
//! ([`mod@print`]) and exits with a documented code ([`exit`]).
#![forbid(unsafe_code)]

mod cli;
mod cmd;
#[cfg(test)]
mod doc_examples;
mod exit;
mod foreign_flags;
mod print;
mod repeat;
mod server_flags;
mod suggest;
mod typed;

use clap::CommandFactory;

use crate::exit::{Exit, Failure};

fn main() {
    run().end_process()
}

fn run() -> Exit {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(pipe) = cmd::emulate_request::requested_pipe(&words) {
        return cmd::emulate_request::run(pipe).unwrap_or_else(Failure::report);
    }
    let mut ignored = Vec::new();
    let mut parsed = cli::parse(&words, &ignored);
    // Hiding may fail. `lfn hosts add` and @FILE keep a ticket out of `ps` in any case.
    let _ = lfn_sys::arguments::hide(typed::token_range);
    loop {
        let (done, requested) = match parsed {
            Ok((command, requested)) => (cmd::run(command), requested),
            Err(done) => (done, cli::RequestedOutput::of_words(cli::Cli::command(), &words)),
        };
        let failure = match done {
            Ok(exit) => return exit,
            Err(failure) => failure,
        };
        // A command checks some combinations itself, before its work. The flag of the user counts, not the default.
        let Some(default) = requested.conflicting_default(&failure) else { return requested.report(failure) };
        ignored.push(default);
        parsed = cli::parse(&words, &ignored);
    }
}
