//! `lfn mesh export`.

use crate::exit::{Exit, Failure};

/// Export the archive as CSV or NDJSON
#[derive(clap::Args, Debug)]
pub struct ExportArgs {}

/// Runs `lfn mesh export` and returns its exit code.
pub fn run(_args: ExportArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
