//! Errors of the spool.

use std::io;
use std::path::PathBuf;

/// Maximum length of the JSON of an entry, bytes.
pub(super) const MAX_FRAME: usize = 2 << 20;

/// Reasons why an entry cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: disk full", .0.display())]
    Full(PathBuf),
    #[error("the spool {} has its maximum size of {max} bytes: the hub has not acknowledged its entries", .path.display())]
    TooLarge { path: PathBuf, max: u64 },
    #[error("{} is in use by another agent", .0.display())]
    InUse(PathBuf),
    #[error("{} is damaged at byte {offset}", .path.display())]
    Damaged { path: PathBuf, offset: u64 },
    #[error("the entry is longer than {max} bytes", max = MAX_FRAME)]
    TooLong,
}
