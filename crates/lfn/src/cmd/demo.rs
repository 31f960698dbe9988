//! `lfn demo`.

use crate::exit::{Exit, Failure};

/// Replay the ACTS satellite experiment of 1995 on this machine alone.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
