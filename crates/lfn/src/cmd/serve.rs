//! `lfn serve`.

use crate::exit::{Exit, Failure};

/// Be the far end of tests and copies.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
