//! How sure the copy is to be: what checks it, what is on disk when, and what is written down about it.

use std::path::PathBuf;

use lfn_core::transfer::manner::{Manner, Sync, Verify};
use lfn_core::wire::copy::Pick;

use super::there::ThereFlags;
use crate::exit::Failure;

/// How everything is kept whole.
#[derive(clap::Args, Debug)]
pub struct WholeFlags {
    /// What every block is checked by: blake3, xxh3 (against errors only, no digest is printed) or off (TCP and TLS alone)
    #[arg(long, value_name = "HASH", default_value_t)]
    pub verify: Verify,
    /// What is on disk when: file (before it gets its name), end (before the copy says that it is done) or none
    #[arg(long, value_name = "WHEN", default_value_t)]
    pub fsync: Sync,
    /// Write the digest of every file that is whole at the destination to FILE, as b3sum does: `b3sum --check` and `lfn
    /// verify` read it there. What was there already is read for that
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
}

impl WholeFlags {
    /// As both ends understand it.
    pub fn manner(&self, there: &ThereFlags, pick: &Pick) -> Result<Manner, Failure> {
        there.check(self.verify.tells_apart())?;
        if self.manifest.is_some() && !self.verify.has_digest() {
            let what = format!("--manifest with --verify {}: a manifest holds BLAKE3 digests", self.verify);
            return Err(Failure::usage(what).hint("leave out --verify"));
        }
        if self.manifest.is_some() && there.dry_run {
            return Err(Failure::usage("--manifest with --dry-run: nothing is copied that could be listed")
                .hint("leave out one of them"));
        }
        if there.delete && pick.names.is_some() {
            return Err(Failure::usage(
                "--delete with --files-from: a list of names says nothing of what else is there",
            )
            .hint("--include and --exclude choose what is copied, and --delete heeds them"));
        }
        let protect = if there.delete { pick.rules.clone().into() } else { Box::default() };
        Ok(Manner {
            protect,
            verify: self.verify,
            fsync: self.fsync,
            dry_run: there.dry_run,
            wait: there.checksum,
            delete: there.delete,
            tell: there.dry_run || (there.verbose && there.delete),
            digests: self.manifest.is_some(),
            ..Manner::default()
        })
    }
}
