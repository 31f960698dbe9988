//! `lfn hosts`.

use crate::exit::{Exit, Failure};

/// Save the tickets of servers under short names.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
