//! `lfn mesh up`.

use crate::exit::{Exit, Failure};

/// Run the hub and the agent of this host in one process
#[derive(clap::Args, Debug)]
pub struct UpArgs {}

/// Runs `lfn mesh up` and returns its exit code.
pub fn run(_args: UpArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
