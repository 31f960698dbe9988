//! Flags for integrity: hashes, fsync and the manifest.

use std::path::PathBuf;

use lfn_session::wire::copy::Selection;
use lfn_session::wire::copy::options::{FsyncPolicy, TransferOptions, Verify};

use super::overwrite::OverwriteFlags;
use crate::exit::Failure;
use crate::print::settings::{is_verbose, is_very_verbose};

/// Flags for hashes, fsync and the manifest.
#[derive(clap::Args, Debug)]
pub struct IntegrityFlags {
    /// Verify every block with this hash: blake3, xxh3 (fast, no digest is printed) or off (only TCP and TLS protect
    /// the data)
    #[arg(long, value_name = "HASH", default_value_t)]
    pub verify: Verify,
    /// Flush files to disk (fsync): file (each before its rename), end (once, before exit) or none
    #[arg(long, value_name = "WHEN", default_value_t)]
    pub fsync: FsyncPolicy,
    /// Write the BLAKE3 digest of every file at the destination to FILE, in the format of b3sum
    ///
    /// `b3sum --check` and `lfn verify` read FILE at the destination. Files that are up to date are read to compute
    /// their digests.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
}

impl IntegrityFlags {
    /// Returns the options of the copy, and refuses contradictory flags.
    pub fn transfer_options(
        &self,
        overwrite: &OverwriteFlags,
        selection: &Selection,
    ) -> Result<TransferOptions, Failure> {
        overwrite.check(self.verify.detects_changes())?;
        if self.manifest.is_some() && !self.verify.has_digest() {
            let what = format!("--manifest needs --verify blake3, not {}", self.verify);
            return Err(Failure::usage(what).hint("use --manifest without --verify"));
        }
        if self.manifest.is_some() && overwrite.dry_run {
            return Err(
                Failure::usage("--manifest cannot be combined with --dry-run").hint("remove one of the two flags")
            );
        }
        if overwrite.delete && selection.names.is_some() {
            return Err(Failure::usage("--delete cannot be combined with --files-from")
                .hint("select files with --include and --exclude instead of --files-from"));
        }
        let protect = if overwrite.delete { selection.rules.clone().into() } else { Box::default() };
        Ok(TransferOptions {
            protect,
            verify: self.verify,
            fsync: self.fsync,
            dry_run: overwrite.dry_run,
            wait_for_ready: overwrite.checksum,
            delete: overwrite.delete,
            report_entries: overwrite.dry_run || is_verbose(),
            report_unchanged: is_very_verbose(),
            report_digests: self.manifest.is_some(),
            ..TransferOptions::default()
        })
    }
}
