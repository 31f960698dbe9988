//! `lfn couple`: two models at two sites, one simulation. One module for each command.

mod events;
mod plan;
mod run;

use clap::Subcommand;

use crate::exit::{Exit, Failure};

/// Couple two models at two sites over a long path, with a lag for each variable
#[derive(clap::Args, Debug)]
pub struct CoupleArgs {
    #[command(subcommand)]
    action: CoupleAction,
}

#[derive(Subcommand, Debug)]
enum CoupleAction {
    Plan(Box<plan::CouplePlanArgs>),
    Run(Box<run::CoupleRunArgs>),
}

/// Runs one command of `lfn couple` and returns its exit code.
pub fn run(args: CoupleArgs) -> Result<Exit, Failure> {
    match args.action {
        CoupleAction::Plan(args) => plan::run(*args),
        CoupleAction::Run(args) => run::run(*args),
    }
}
