//! `lfn mesh import`.

use crate::exit::{Exit, Failure};

/// Import results: iperf3 JSON, results of lfn, or an exported log
#[derive(clap::Args, Debug)]
pub struct ImportArgs {}

/// Runs `lfn mesh import` and returns its exit code.
pub fn run(_args: ImportArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
