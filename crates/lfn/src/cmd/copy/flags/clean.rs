//! Flags of `lfn copy --clean`.

use std::time::Duration;

use lfn_base::units::parse_unit_duration;

/// Flags that replace the copy by a clean-up.
#[derive(clap::Args, Debug)]
pub struct CleanFlags {
    /// List the partial files of interrupted copies below each DIRECTORY of this host, instead of copying
    ///
    /// The default is the current directory. With --force, stale partial files and their journals are deleted.
    #[arg(long, conflicts_with_all = ["update", "checksum", "delete", "progress", "manifest"])]
    pub clean: bool,
    /// With --clean: never delete files modified more recently than this; 0s deletes all
    #[arg(long, value_name = "DURATION", requires = "clean", default_value = "1d", value_parser = parse_unit_duration)]
    pub older_than: Duration,
}
