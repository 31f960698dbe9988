//! `lfn plan`.

use crate::exit::{Exit, Failure};

/// Say what a path can carry and what it needs: RTT, capacity, BDP, buffers, goodput.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
