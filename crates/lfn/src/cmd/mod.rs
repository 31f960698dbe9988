//! The commands, one module each: arguments and the code that runs them.

pub mod completions;
pub mod copy;
pub mod couple;
pub mod defaults;
pub mod demo;
pub mod doctor;
pub mod emulate;
pub mod emulate_request;
pub mod hosts;
mod interrupt;
pub mod man;
pub mod mesh;
pub mod plan;
pub mod reference;
pub mod serve;
pub mod show;
pub mod sweep;
pub mod test;
pub mod token;
pub mod trace;
mod values;
pub mod verify;
pub mod version;

use clap::CommandFactory;

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};

/// Runs one command to its end.
pub fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Plan(args) => plan::run(*args),
        Command::Emulate(args) => emulate::run(*args, &Cli::command()),
        Command::Serve(args) => serve::run(*args, &Cli::command()),
        Command::Test(args) => test::run(*args),
        Command::Sweep(args) => sweep::run(*args),
        Command::Doctor(args) => doctor::run(*args),
        Command::Trace(args) => trace::run(*args),
        Command::Show(args) => show::run(args),
        Command::Copy(args) => copy::run(*args),
        Command::Couple(args) => couple::run(args),
        Command::Mesh(args) => mesh::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Hosts(args) => hosts::run(args),
        Command::Token(args) => token::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Defaults(args) => defaults::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Version(args) => version::run(&args),
        Command::Reference(args) => reference::run(&args, Cli::command()),
    }
}
