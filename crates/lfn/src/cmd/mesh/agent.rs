//! `lfn mesh agent`.

use crate::exit::{Exit, Failure};

/// Run the agent of this host: test other hosts by the schedule, and send the results to the hub
#[derive(clap::Args, Debug)]
pub struct AgentArgs {}

/// Runs `lfn mesh agent` and returns its exit code.
pub fn run(_args: AgentArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
