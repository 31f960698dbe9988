//! `lfn mesh backup`.

use crate::exit::{Exit, Failure};

/// Copy the archive to a file while the hub runs
#[derive(clap::Args, Debug)]
pub struct BackupArgs {}

/// Runs `lfn mesh backup` and returns its exit code.
pub fn run(_args: BackupArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
