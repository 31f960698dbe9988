//! `lfn mesh hub`.

use crate::exit::{Exit, Failure};

/// Run the hub: archive and page
#[derive(clap::Args, Debug)]
pub struct HubArgs {}

/// Runs `lfn mesh hub` and returns its exit code.
pub fn run(_args: HubArgs) -> Result<Exit, Failure> {
    Err(Failure::msg("not built yet"))
}
