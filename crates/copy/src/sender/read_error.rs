//! The reasons why an entry cannot be sent.

use std::io;

use lfn_session::wire::copy::blocks::LayoutError;
use lfn_session::wire::copy::entry::EntryError;
use rustix::io::Errno;

use crate::{FileKind, ForbiddenReason, TransferError};

/// The reason why an entry cannot be sent. The text follows the name of the entry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The file was written to, removed or replaced.
    #[error("changed during the copy")]
    Changed,
    /// The entry existed when its directory was read.
    #[error("disappeared during the listing")]
    Vanished,
    /// The path that the user or the client gave does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// A path that the user or the client gave, while links are followed.
    #[error("is a symbolic link to a missing file")]
    DanglingLink,
    /// The kernel generates the data during the read, as in /proc, so the length is not known.
    #[error("size is reported as 0 but reading returns data (a /proc or /sys file?)")]
    UnknownLength,
    /// A directory in the place of a file, a device, a FIFO or a socket.
    #[error("is a {0}, not a regular file")]
    NotRegular(FileKind),
    /// Names from a list need a directory.
    #[error("is not a directory")]
    NotDirectory,
    /// The directory is the destination of the copy, on one host.
    #[error("is the destination of the copy: a directory cannot be copied into itself")]
    IsDestination,
    /// The file is the destination of the copy.
    #[error("source and destination are the same")]
    SameFile,
    /// The path leads out of the root of a server.
    #[error("leads out of the served directory")]
    OutsideRoot,
    /// Any other error of a file system.
    #[error("cannot {doing}: {source}")]
    Io { doing: &'static str, source: io::Error },
    /// The entry is not valid in a list.
    #[error(transparent)]
    InvalidEntry(#[from] EntryError),
    /// The file is too long for the block size.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl ReadError {
    /// Converts an error about a listed entry. `doing` replaces the activity that the storage reports.
    pub(super) fn of_listed(doing: &'static str, error: TransferError) -> Self {
        match error {
            TransferError::NotFound { .. } | TransferError::NotRegular { .. } => ReadError::Changed,
            // A link or a file has replaced a directory.
            TransferError::File { source, .. } if is_replaced(&source) => ReadError::Changed,
            TransferError::File { source, .. } => ReadError::Io { doing, source },
            TransferError::Forbidden { reason: ForbiddenReason::OutsideRoot, .. } => ReadError::OutsideRoot,
            TransferError::InvalidEntry { error, .. } => ReadError::InvalidEntry(error),
            error => ReadError::Io { doing, source: io::Error::other(error) },
        }
    }

    /// Converts an error about a path that the user or the client gave.
    pub(super) fn of_typed(error: TransferError) -> Self {
        match error {
            TransferError::NotFound { .. } => ReadError::NotFound,
            TransferError::NotRegular { kind, .. } => ReadError::NotRegular(kind),
            TransferError::File { source, .. } => ReadError::Io { doing: "open", source },
            error => ReadError::of_listed("open", error),
        }
    }

    /// Converts the reason to the error of a whole copy, if this was the only source.
    pub(crate) fn into_transfer_error(self, path: String) -> TransferError {
        match self {
            ReadError::Changed | ReadError::Vanished => TransferError::SourceChanged { path },
            ReadError::NotFound => TransferError::SourceNotFound { path },
            ReadError::DanglingLink => TransferError::DanglingLink { path },
            ReadError::UnknownLength => TransferError::UnknownLength { path },
            ReadError::NotRegular(kind) => TransferError::NotRegular { path, kind },
            ReadError::NotDirectory => TransferError::Forbidden { path, reason: ForbiddenReason::SourceNotDirectory },
            ReadError::IsDestination | ReadError::SameFile => TransferError::SameFile { path },
            ReadError::OutsideRoot => TransferError::Forbidden { path, reason: ForbiddenReason::OutsideRoot },
            ReadError::Io { doing, source } => TransferError::File { doing, path, source },
            ReadError::Layout(error) => error.into(),
            ReadError::InvalidEntry(error) => TransferError::InvalidEntry { path, error },
        }
    }
}

fn is_replaced(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::LOOP | Errno::NOTDIR))
}
