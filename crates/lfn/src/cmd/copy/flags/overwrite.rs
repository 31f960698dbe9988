//! Flags for existing files at the destination.

use lfn_session::wire::copy::overwrite::OverwritePolicy;

use crate::exit::Failure;

/// Rules for existing files.
#[derive(clap::Args, Debug)]
pub struct OverwriteFlags {
    /// Replace existing files; the old file stays complete until the new one is
    ///
    /// With --clean: delete stale partial files.
    #[arg(long)]
    force: bool,
    /// Skip files that are newer at the destination, and replace older ones
    #[arg(short, long)]
    update: bool,
    /// Compare files of equal size by checksum instead of modification time, and replace those that differ
    #[arg(short, long)]
    pub checksum: bool,
    /// Delete files at the destination that the source does not have, after the copy
    ///
    /// Only directories that are copied are affected. Nothing is deleted if the source could not be read completely.
    /// Files that differ are replaced.
    #[arg(long)]
    pub delete: bool,
    /// Perform a trial run: print each copy, replacement, deletion and refusal, and change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

impl OverwriteFlags {
    /// Returns the rules in the form of the protocol.
    pub fn allowed(&self) -> OverwritePolicy {
        OverwritePolicy { force: self.force, update: self.update, checksum: self.checksum, delete: self.delete }
    }

    /// Refuses flags that contradict each other.
    pub fn check(&self, hashes: bool) -> Result<(), Failure> {
        if self.checksum && !hashes {
            let what = "--checksum needs hashes, and --verify is off";
            return Err(Failure::usage(what).hint("use the fastest hash: --verify xxh3"));
        }
        Ok(())
    }
}
