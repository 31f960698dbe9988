//! `lfn couple`: exchanges fields between two models over a long path. One module for each command.

mod events;
mod run;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

/// Couple two models at two sites into one simulation
#[derive(clap::Args, Debug)]
pub struct CoupleArgs {
    #[command(subcommand)]
    action: CoupleAction,
}

#[derive(Subcommand, Debug)]
enum CoupleAction {
    Run(Box<run::CoupleRunArgs>),
}

/// Runs one command of `lfn couple` and returns its exit code.
pub fn run(args: CoupleArgs) -> Result<Exit, Failure> {
    match args.action {
        CoupleAction::Run(args) => run::run(*args),
    }
}
