//! `lfn copy`.

use crate::exit::{Exit, Failure};

/// Move a file over parallel streams, verified end to end.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
