//! `lfn emulate`.

use crate::exit::{Exit, Failure};

/// Run a command over an emulated long link: real kernel traffic, no root needed.
#[derive(clap::Args, Debug)]
pub struct Args {}

pub fn run(_args: Args) -> Result<Exit, Failure> {
    Err(Failure::msg("this build has no such command"))
}
