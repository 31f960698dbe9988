//! Listed files, and the trees in which they were found.
//!
//! A file is identified by its storage and its name there. The storage follows no symbolic link below its top. So a
//! directory that is renamed or replaced during the copy leads nowhere else.

use std::sync::Arc;

use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{EntryError, Name};
use parking_lot::Mutex;

use super::file_version::FileVersion;
use super::hard_links::FileIdentity;
use crate::storage::{Metadata, Storage};

/// A storage that is listed, and the place of its entries in the list.
#[derive(Debug)]
pub(crate) struct SourceTree {
    pub(super) storage: Arc<dyn Storage>,
    /// Path of the top in the list; empty if the contents of the top are listed at the top of the list.
    top: Vec<u8>,
}

/// A file on the list, as the sender knows it.
#[derive(Debug)]
pub(crate) struct ListedFile {
    name: Name,
    tree: Arc<SourceTree>,
    pub(super) version: FileVersion,
    /// State since the file was first opened.
    pub(super) opened: Mutex<Option<Box<OpenedFile>>>,
    /// Identity at listing time, if the file has several names.
    linked: Option<FileIdentity>,
}

/// State of a file since the sender first opened the file.
#[derive(Debug)]
pub(super) struct OpenedFile {
    /// Attributes when the file was first opened, or when its content was last compared. The attributes at listing time
    /// would be wrong on some FUSE file systems, which renumber files that are not open.
    pub(super) metadata: Metadata,
    /// Digest of the data that was read, once the file was read to its end.
    pub(super) digest: Option<Digest>,
}

impl SourceTree {
    /// Creates the tree of a storage whose top has this path in the list.
    pub(super) fn new(storage: Arc<dyn Storage>, top: Vec<u8>) -> Arc<Self> {
        Arc::new(SourceTree { storage, top })
    }

    /// Returns the name in the storage of a path in the list.
    pub(super) fn storage_name(&self, path: &[u8]) -> Result<Name, EntryError> {
        let below = if self.top.is_empty() { path } else { path.get(self.top.len() + 1..).unwrap_or_default() };
        Name::new(if below.is_empty() { b"." } else { below })
    }
}

impl ListedFile {
    pub(super) fn new(name: Name, tree: Arc<SourceTree>, metadata: &Metadata) -> Arc<Self> {
        let version = FileVersion::new(metadata);
        let linked = (metadata.links > 1).then_some((metadata.id, version, metadata.changed));
        Arc::new(ListedFile { name, tree, version, opened: Mutex::default(), linked })
    }

    /// Returns the identity under which other names of the file are recognised.
    pub(super) fn identity(&self) -> Option<FileIdentity> {
        self.linked
    }

    /// Returns the digest of the data that was read, once the file was read to its end.
    pub(super) fn sent_digest(&self) -> Option<Digest> {
        self.opened.lock().as_ref()?.digest
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the storage that contains the file.
    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.tree.storage
    }

    /// Returns the name of the file in its storage.
    pub(super) fn storage_name(&self) -> Result<Name, EntryError> {
        self.tree.storage_name(self.name.as_bytes())
    }
}
