//! `lfn mesh plan`.

use crate::exit::{Exit, Failure};

/// Print the schedule, the load of each host and bottleneck, and the tests that do not fit
#[derive(clap::Args, Debug)]
pub struct PlanArgs {}

/// Runs `lfn mesh plan` and returns its exit code.
pub fn run(_args: PlanArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
