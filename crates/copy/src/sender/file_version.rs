//! The version of a file's content.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::Modified;

use super::read_error::ReadError;
use crate::storage::{Metadata, ReadFile};

/// Length and modification time: the version of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileVersion {
    length: Bytes,
    modified: Modified,
}

impl FileVersion {
    /// Returns the version that the attributes describe.
    pub(super) fn new(metadata: &Metadata) -> Self {
        FileVersion { length: metadata.length, modified: metadata.modified }
    }

    /// Returns an error if the attributes describe another version.
    pub(super) fn check(&self, metadata: &Metadata) -> Result<(), ReadError> {
        if FileVersion::new(metadata) == *self { Ok(()) } else { Err(ReadError::Changed) }
    }

    /// Returns the attributes of the file, if its content still is this version.
    pub(super) fn check_unchanged(&self, file: &dyn ReadFile) -> Result<Metadata, ReadError> {
        let now = file.metadata().map_err(|source| ReadError::Io { doing: "read", source })?;
        self.check(&now)?;
        Ok(now)
    }
}
