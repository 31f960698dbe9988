//! `lfn test`.

use crate::exit::{Exit, Failure};

/// Measure a path under load, and say what limits it.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
