//! `lfn mesh log`.

use crate::exit::{Exit, Failure};

/// Print the log of two hosts for a day, or compare two days
#[derive(clap::Args, Debug)]
pub struct LogArgs {}

/// Runs `lfn mesh log` and returns its exit code.
pub fn run(_args: LogArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
