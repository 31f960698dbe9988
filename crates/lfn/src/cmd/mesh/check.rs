//! `lfn mesh check`.

use crate::exit::{Exit, Failure};

/// Check a sites file
#[derive(clap::Args, Debug)]
pub struct CheckArgs {}

/// Runs `lfn mesh check` and returns its exit code.
pub fn run(_args: CheckArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
