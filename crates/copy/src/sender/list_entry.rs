//! Builds the entries of a walk from the objects of a storage.

use std::io;
use std::sync::Arc;

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Name};
use lfn_session::wire::copy::filter::Decision;
use lfn_session::wire::copy::preserve::Preserve;
use rustix::io::Errno;

use super::listing::Listing;
use super::read_error::ReadError;
use super::source_file::{ListedFile, SourceTree};
use super::walk_step::WalkStep;
use crate::storage::{Existing, Metadata, ObjectKind, Storage};

/// A listed object: its name in the storage, and its path in the list.
pub(super) struct ListedObject<'a> {
    pub(super) tree: &'a Arc<SourceTree>,
    pub(super) name: &'a Name,
    pub(super) path: &'a [u8],
}

impl Listing {
    /// Returns whether the filter rules exclude the path.
    pub(super) fn excludes(&self, path: &[u8], kind: ObjectKind) -> bool {
        self.rules.decide(path, kind == ObjectKind::Directory) == Decision::Exclude
    }

    /// Returns the step for a path in the list; `None` if the rules exclude it.
    pub(super) fn list_entry(&self, tree: &Arc<SourceTree>, path: &[u8]) -> Result<Option<WalkStep>, ReadError> {
        let name = match tree.storage_name(path) {
            Ok(name) => name,
            Err(_) if [ObjectKind::File, ObjectKind::Directory].iter().all(|kind| self.excludes(path, *kind)) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let object = ListedObject { tree, name: &name, path };
        let metadata = object.metadata()?;
        if self.excludes(path, metadata.kind) {
            return Ok(None);
        }
        Ok(Some(match metadata.kind {
            ObjectKind::File => self.file_step(&object, &metadata)?,
            ObjectKind::Directory => self.directory_step(&object, &metadata)?,
            ObjectKind::Symlink if !self.preserve.links => WalkStep::SkippedLink(path.to_vec()),
            ObjectKind::Symlink => self.symlink_step(&object, &metadata)?,
            ObjectKind::Other(_) => WalkStep::SkippedSpecial(path.to_vec()),
        }))
    }

    /// Lists a parent directory of a name from a list. Filter rules do not apply.
    pub(super) fn list_parent_dir(&self, tree: &Arc<SourceTree>, path: &[u8]) -> Result<WalkStep, ReadError> {
        let object = ListedObject { tree, name: &tree.storage_name(path)?, path };
        let metadata = object.metadata()?;
        if metadata.kind != ObjectKind::Directory {
            return Err(ReadError::Changed);
        }
        self.directory_step(&object, &metadata)
    }

    /// Builds the step of a regular file. No stream opens an empty file, so an empty file is opened here, to check
    /// whether it can be read.
    pub(super) fn file_step(&self, object: &ListedObject<'_>, metadata: &Metadata) -> Result<WalkStep, ReadError> {
        if metadata.length.0 == 0 {
            check_empty(&*object.tree.storage, object.name)?;
        }
        let entry = self.build_entry(object, EntryKind::File { length: metadata.length }, metadata)?;
        let listed_file = ListedFile::new(entry.name.clone(), object.tree.clone(), metadata);
        Ok(WalkStep::Entry(entry, Some(listed_file)))
    }

    fn directory_step(&self, object: &ListedObject<'_>, metadata: &Metadata) -> Result<WalkStep, ReadError> {
        if self.destination.matches(object.file_name(), metadata.id, || object.parent_id()) {
            return Err(ReadError::IsDestination);
        }
        Ok(WalkStep::Entry(self.build_entry(object, EntryKind::Directory, metadata)?, None))
    }

    /// Builds the step of a symbolic link. Only root can set extended attributes of links, so they are not preserved.
    pub(super) fn symlink_step(&self, object: &ListedObject<'_>, metadata: &Metadata) -> Result<WalkStep, ReadError> {
        let target = object.tree.storage.read_link(object.name);
        let target: ByteString = target.map_err(|error| ReadError::of_listed("read the link", error))?;
        Ok(WalkStep::Entry(self.basic_entry(object, EntryKind::Symlink { target }, metadata)?, None))
    }

    /// Builds an entry with its preserved attributes.
    pub(super) fn build_entry(
        &self,
        object: &ListedObject<'_>,
        kind: EntryKind,
        metadata: &Metadata,
    ) -> Result<Entry, ReadError> {
        let mut entry = self.basic_entry(object, kind, metadata)?;
        let storage = &object.tree.storage;
        if (self.preserve.xattrs || self.preserve.acls) && storage.capabilities().attributes {
            // The owner is known already.
            let preserve = Preserve { owners: false, ..self.preserve };
            // The storage knows the object by its own name.
            let listed_name = std::mem::replace(&mut entry.name, object.name.clone());
            let read = storage.read_attributes(&mut entry, preserve);
            read.map_err(|error| ReadError::of_listed("read the extended attributes", error))?;
            entry.name = listed_name;
        }
        Ok(entry)
    }

    /// Builds an entry with the attributes that need no further access.
    fn basic_entry(&self, object: &ListedObject<'_>, kind: EntryKind, metadata: &Metadata) -> Result<Entry, ReadError> {
        let mut entry = Entry::new(Name::new(object.path)?, kind, metadata.mode, metadata.modified)?;
        if self.preserve.owners && object.tree.storage.capabilities().attributes {
            entry.owner = Some(self.accounts.owner(metadata.uid, metadata.gid));
        }
        Ok(entry)
    }
}

impl ListedObject<'_> {
    fn metadata(&self) -> Result<Metadata, ReadError> {
        match self.tree.storage.stat(self.name) {
            Ok(Existing::Object(metadata)) => Ok(metadata),
            Ok(Existing::Nothing | Existing::Hidden) => Err(ReadError::Vanished),
            Err(error) => Err(ReadError::of_listed("read the attributes", error)),
        }
    }

    fn file_name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Returns the identity of the directory that contains the object.
    fn parent_id(&self) -> Option<(u64, u64)> {
        let slash = self.name.as_bytes().iter().rposition(|byte| *byte == b'/');
        let parent = Name::new(slash.map_or(&b"."[..], |slash| &self.name.as_bytes()[..slash])).ok()?;
        match self.tree.storage.stat(&parent) {
            Ok(Existing::Object(metadata)) => Some(metadata.id),
            _ => None,
        }
    }
}

/// Checks that a file of length 0 is empty. Files of /proc have length 0 and contain data, and must not be copied as
/// empty files.
fn check_empty(storage: &dyn Storage, name: &Name) -> Result<(), ReadError> {
    let file = storage.open_file(name).map_err(|error| ReadError::of_listed("open", error))?;
    match file.read_exact_at(&mut [0; 1], 0) {
        // A read would have to wait, so the file contains no data now.
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WouldBlock) => Ok(()),
        // The kernel generates the data, which can only be read from the start to the end.
        Err(error) if error.raw_os_error() == Some(Errno::SPIPE.raw_os_error()) => Err(ReadError::UnknownLength),
        Err(source) => Err(ReadError::Io { doing: "read", source }),
        Ok(()) => {
            let metadata = file.metadata().map_err(|source| ReadError::Io { doing: "read", source })?;
            Err(if metadata.length.0 == 0 { ReadError::UnknownLength } else { ReadError::Changed })
        }
    }
}
