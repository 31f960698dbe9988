//! The final outcome of an entry.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::EntryFailure;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{Entry, EntryKind};

use crate::TransferError;

/// The final outcome of an entry.
#[derive(Debug)]
pub(super) enum EntryOutcome {
    /// A file that this copy wrote. `kept` bytes of it are from an earlier copy.
    File {
        digest: Digest,
        kept: Bytes,
        bytes: Bytes,
    },
    /// A file that a copy would write (dry run).
    Planned(Bytes),
    Directory,
    Link,
    /// Length of the file; 0 for other entries.
    Skipped(Bytes),
    /// A file that an earlier session of this copy wrote, with its length.
    WrittenEarlier(Bytes),
    Failed(TransferError),
    /// The directory of the entry failed, which is reported already.
    ParentFailed,
    /// The sender reported the failure.
    SourceFailed(EntryFailure),
}

impl EntryOutcome {
    /// Returns the outcome of an existing entry that stays.
    pub(super) fn skipped(entry: &Entry) -> Self {
        match entry.kind {
            EntryKind::File { length } => EntryOutcome::Skipped(length),
            _ => EntryOutcome::Skipped(Bytes(0)),
        }
    }

    /// Returns the outcome of an entry in a dry run that a copy would create or replace.
    pub(super) fn planned(entry: &Entry) -> Self {
        match entry.kind {
            EntryKind::File { length } => EntryOutcome::Planned(length),
            EntryKind::Directory => EntryOutcome::Directory,
            EntryKind::Symlink { .. } | EntryKind::HardLink { .. } => EntryOutcome::Link,
        }
    }

    /// Returns whether a hard link can name the file now.
    pub(super) fn is_linkable(&self) -> bool {
        matches!(
            self,
            EntryOutcome::File { .. }
                | EntryOutcome::Planned(_)
                | EntryOutcome::Skipped(_)
                | EntryOutcome::WrittenEarlier(_)
        )
    }

    /// Returns whether the entry exists at the destination now.
    pub(super) fn exists(&self) -> bool {
        self.is_linkable() || matches!(self, EntryOutcome::Directory | EntryOutcome::Link)
    }
}
