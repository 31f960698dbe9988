//! The flag `--archive`, the same for all commands that use an archive.

use std::path::PathBuf;

use lfn_api::mesh::archive_file;

use crate::exit::Failure;

/// Flag of the archive.
#[derive(clap::Args, Debug)]
pub(super) struct ArchiveFlag {
    /// Use this archive [default: that of the hub of this user]
    #[arg(long, value_name = "FILE")]
    archive: Option<PathBuf>,
}

impl ArchiveFlag {
    /// Returns the path of the archive.
    pub(super) fn path(self) -> Result<PathBuf, Failure> {
        Ok(self.archive.map_or_else(archive_file, Ok)?)
    }
}
