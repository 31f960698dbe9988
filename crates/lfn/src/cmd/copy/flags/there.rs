//! What may happen to what is at the destination already.

use lfn_core::transfer::verdict::Allowed;

use crate::exit::Failure;

/// What may give way.
#[derive(clap::Args, Debug)]
pub struct ThereFlags {
    /// Replace a file that exists; it stays whole until the new one is
    #[arg(long)]
    force: bool,
    /// Replace a file that is older, and leave one that is newer
    #[arg(short, long)]
    update: bool,
    /// Compare files of the same length by their digests, whatever their times, and replace those that differ
    #[arg(short, long)]
    pub checksum: bool,
    /// Delete at the destination, in the directories that are copied, what the source does not have, after everything
    /// was copied; nothing if anything at the source failed. What differs is replaced
    #[arg(long)]
    pub delete: bool,
    /// Write nothing: tell what would be copied, replaced, deleted or refused, one line each
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Tell what is deleted, one line each
    #[arg(short, long)]
    pub verbose: bool,
}

impl ThereFlags {
    /// As both ends understand it.
    pub fn allowed(&self) -> Allowed {
        Allowed { force: self.force, update: self.update, checksum: self.checksum, delete: self.delete }
    }

    /// What has no meaning together.
    pub fn check(&self, hashes: bool) -> Result<(), Failure> {
        if self.checksum && !hashes {
            let what = "--checksum with --verify off: without hashes nothing can be compared";
            return Err(Failure::usage(what).hint("--verify xxh3 is the cheapest hash"));
        }
        Ok(())
    }
}
