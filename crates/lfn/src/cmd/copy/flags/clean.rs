//! What `lfn copy --clean` looks for, and what of it goes.

use std::time::Duration;

use lfn_core::units::parse_unit_duration;

/// Instead of a copy.
#[derive(clap::Args, Debug)]
pub struct CleanFlags {
    /// Instead of copying, list what copies that were cut left below each place given (here, if there is none): partial
    /// files with their journals. With --force those that are stale are removed
    #[arg(long, conflicts_with_all = ["update", "checksum", "delete", "verbose", "manifest"])]
    pub clean: bool,
    /// With --clean: what was written to within this time is no more than listed; 0s for none
    #[arg(long, value_name = "DURATION", requires = "clean", default_value = "1d", value_parser = parse_unit_duration)]
    pub older: Duration,
}
