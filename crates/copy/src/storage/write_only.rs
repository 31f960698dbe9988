//! A storage for a client that may write but not see: a write-only root, or the area of one copy in a drop box.
//!
//! The client learns only whether a name is in use, which it must know to store files. Objects that this copy wrote are
//! visible, so that a resumed copy skips them. All other objects are hidden: every error about such an object is the
//! same, whatever kind it has, and no size, time or digest is reported.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path};
use std::sync::Arc;

use lfn_session::TokenHash;
use lfn_session::wire::copy::blocks::{Block, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, Modified, Name};
use lfn_session::wire::copy::options::FsyncPolicy;
use lfn_session::wire::copy::overwrite::Conflict;
use lfn_session::wire::copy::preserve::Unpreserved;
use lfn_session::written_files::WrittenFiles;
use rustix::io::Errno;

use super::local::PartialOwner;
use super::{
    Capabilities, Existing, FileId, Metadata, ObjectKind, OpenedPartial, PartialRequest, Removal, RemovalVisitor,
    Storage, SyncScope, TopDirectory, UnpublishedFile,
};
use crate::TransferError;
use crate::base_dir::path_text;

/// A storage whose client may write but not see.
#[derive(Debug)]
pub(crate) struct WriteOnly<S> {
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    inner: S,
    visible: VisibleObjects,
}

/// The objects that the client may know.
#[derive(Clone, Debug)]
pub(crate) enum VisibleObjects {
    /// Everything, because the area contains only objects of this copy.
    All,
    /// The files and links that this copy wrote, in this session and in earlier ones.
    Written(Arc<WrittenFiles>),
}

/// The access of a write-only client to a storage.
#[derive(Debug)]
pub(crate) struct WriteOnlyAccess {
    pub(crate) visible: VisibleObjects,
    /// The owner of the client's partial files.
    pub(crate) partial_owner: PartialOwner,
    /// Incomplete files are removed when the copy ends.
    pub(crate) discards_partial_files: bool,
}

impl WriteOnlyAccess {
    /// Returns the access to an area that contains only objects of one copy.
    pub(crate) fn to_own_area(token: &TokenHash) -> Self {
        WriteOnlyAccess {
            visible: VisibleObjects::All,
            partial_owner: PartialOwner::for_token(token),
            discards_partial_files: true,
        }
    }

    /// Returns the access to a directory that clients share. `written` are the files that earlier sessions of this copy
    /// wrote.
    pub(crate) fn to_shared_root(token: &TokenHash, written: Option<Arc<WrittenFiles>>) -> Self {
        WriteOnlyAccess {
            visible: VisibleObjects::Written(written.unwrap_or_default()),
            partial_owner: PartialOwner::for_token(token),
            discards_partial_files: false,
        }
    }
}

impl<S: Storage> WriteOnly<S> {
    /// Hides the objects of a storage from its client.
    pub(crate) fn new(inner: S, visible: VisibleObjects) -> Self {
        WriteOnly { shared: Arc::new(Shared { inner, visible }) }
    }

    /// Returns the storage inside.
    #[cfg(test)]
    pub(super) fn inner(&self) -> &S {
        &self.shared.inner
    }
}

impl<S: Storage> Shared<S> {
    /// Returns the object under a name if this copy wrote it.
    fn own(&self, name: &Name) -> Option<Metadata> {
        match self.inner.stat(name) {
            Ok(Existing::Object(metadata)) => Some(metadata).filter(|metadata| self.visible.contains(metadata)),
            _ => None,
        }
    }

    /// Records a new file or link as written by this copy. A new hard link changes the file.
    fn record(&self, name: &Name) {
        if let (VisibleObjects::Written(written), Ok(Existing::Object(object))) = (&self.visible, self.inner.stat(name))
        {
            written.add(object.id, object.changed);
        }
    }

    /// Checks that a file or link may replace the object under a name.
    fn check_replacement(&self, name: &Name) -> Result<(), TransferError> {
        match self.inner.stat(name) {
            Ok(Existing::Object(Metadata { kind: ObjectKind::Directory | ObjectKind::Other(_), .. })) => {
                Err(self.in_use(name))
            }
            _ => Ok(()),
        }
    }

    fn in_use(&self, name: &Name) -> TransferError {
        TransferError::Conflict { path: self.inner.display_name(name), obstacle: Conflict::NameInUse }
    }

    /// Returns the error that the client may see.
    fn hide<T>(&self, name: &Name, result: Result<T, TransferError>) -> Result<T, TransferError> {
        result.map_err(|error| if reveals_object(name, &error) { self.in_use(name) } else { error })
    }
}

/// Returns the error that a write-only client may see if its destination cannot be opened: nothing about the kind of
/// the objects in the path.
pub(crate) fn hide_destination(path: &Path, error: TransferError) -> TransferError {
    let leaves_root = path.components().any(|component| !matches!(component, Component::Normal(_) | Component::CurDir));
    let name = Name::new("directory/name").ok().filter(|name| !leaves_root && reveals_object(name, &error));
    match name {
        Some(_) => TransferError::Conflict { path: path_text(path), obstacle: Conflict::NameInUse },
        None => error,
    }
}

/// Reports whether an error may depend on the kind of an existing object. Below the top, only an existing directory can
/// refuse access.
fn reveals_object(name: &Name, error: &TransferError) -> bool {
    match error {
        TransferError::Exists { .. }
        | TransferError::Locked { .. }
        | TransferError::NotFound { .. }
        | TransferError::NoSpace { .. }
        | TransferError::Quota { .. }
        | TransferError::Unsupported { .. }
        | TransferError::DestinationRemoved { .. }
        | TransferError::PartialFileChanged { .. }
        | TransferError::Interrupted
        | TransferError::Conflict { obstacle: Conflict::NameInUse, .. } => false,
        TransferError::File { source, .. } => match Errno::from_io_error(source) {
            Some(Errno::PERM | Errno::ACCESS) => name.components().count() > 1,
            Some(
                Errno::NOSPC
                | Errno::DQUOT
                | Errno::FBIG
                | Errno::ROFS
                | Errno::IO
                | Errno::NAMETOOLONG
                | Errno::NOMEM
                | Errno::MFILE
                | Errno::NFILE
                | Errno::NOENT,
            )
            | None => false,
            // Such as ENOTDIR, EISDIR, ELOOP and ENXIO.
            Some(_) => true,
        },
        _ => true,
    }
}

impl VisibleObjects {
    fn contains(&self, object: &Metadata) -> bool {
        match self {
            VisibleObjects::All => true,
            VisibleObjects::Written(written) => written.contains(object.id, object.changed),
        }
    }
}

impl<S: Storage + 'static> Storage for WriteOnly<S> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { reads: false, reveals_existing: false, ..self.shared.inner.capabilities() }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        self.check_name(name)?;
        match self.shared.hide(name, self.shared.inner.stat(name))? {
            Existing::Object(object) if !name.is_root() && !self.shared.visible.contains(&object) => {
                Ok(Existing::Hidden)
            }
            existing => Ok(existing),
        }
    }

    /// Only links that this copy wrote can be read, so that a resumed copy can compare them.
    fn read_link(&self, name: &Name) -> Result<ByteString, TransferError> {
        match self.shared.own(name) {
            Some(_) => self.shared.inner.read_link(name),
            None => Err(self.unsupported(name, "read links")),
        }
    }

    fn top(&self) -> TopDirectory {
        let top = self.shared.inner.top();
        let is_own_area = matches!(self.shared.visible, VisibleObjects::All);
        TopDirectory {
            // The attributes of an existing directory stay.
            is_shared: top.is_shared || !top.is_new,
            // The answer would reveal whether entries exist.
            has_no_conflicts: is_own_area && top.has_no_conflicts,
            id: None,
            ..top
        }
    }

    fn make_top_directory(&mut self) -> Result<(), TransferError> {
        let root = Name::new(".").map_err(|error| TransferError::InvalidEntry { path: ".".into(), error })?;
        // No file is open yet.
        let made = match Arc::get_mut(&mut self.shared) {
            Some(shared) => shared.inner.make_top_directory(),
            None => Err(self.unsupported(&root, "replace its top directory")),
        };
        self.shared.hide(&root, made)
    }

    fn remove_new_top(&self) {
        self.shared.inner.remove_new_top();
    }

    fn check_name(&self, name: &Name) -> Result<(), TransferError> {
        self.shared.inner.check_name(name)
    }

    fn is_reserved(&self, file_name: &[u8]) -> bool {
        self.shared.inner.is_reserved(file_name)
    }

    fn display_name(&self, name: &Name) -> String {
        self.shared.inner.display_name(name)
    }

    fn was_created_since(&self, name: &Name, _since: Modified) -> bool {
        self.shared.own(name).is_some()
    }

    fn has_partial(&self, name: &Name) -> Result<bool, TransferError> {
        self.check_name(name)?;
        self.shared.hide(name, self.shared.inner.has_partial(name))
    }

    fn is_partial_released(&self, name: &Name) -> bool {
        self.shared.inner.is_partial_released(name)
    }

    fn check_directory(&self, name: &Name) -> Result<(), TransferError> {
        match self.shared.inner.stat(name) {
            Ok(existing) if existing.is_directory() => Ok(()),
            _ => Err(self.shared.in_use(name)),
        }
    }

    fn remove_leftovers(&self, name: &Name) {
        if self.shared.own(name).is_some() {
            self.shared.inner.remove_leftovers(name);
        }
    }

    fn create_directory(&self, entry: &Entry, replace: bool) -> Result<(), TransferError> {
        self.check_name(&entry.name)?;
        if replace && self.shared.own(&entry.name).is_none() {
            return Err(self.shared.in_use(&entry.name));
        }
        self.shared.hide(&entry.name, self.shared.inner.create_directory(entry, replace))
    }

    fn create_symlink(&self, entry: &Entry, target: &ByteString, replace: bool) -> Result<(), TransferError> {
        self.check_name(&entry.name)?;
        if replace {
            self.shared.check_replacement(&entry.name)?;
        }
        self.shared.hide(&entry.name, self.shared.inner.create_symlink(entry, target, replace))?;
        self.shared.record(&entry.name);
        Ok(())
    }

    fn create_hard_link(
        &self,
        entry: &Entry,
        target: &Name,
        expected: Option<FileId>,
        replace: bool,
    ) -> Result<(), TransferError> {
        self.check_name(&entry.name)?;
        if replace {
            self.shared.check_replacement(&entry.name)?;
        }
        // Without an expected file, the link would give a foreign file a second name.
        if expected.is_none() && self.shared.own(target).is_none() {
            return Err(self.shared.in_use(target));
        }
        let created = self.shared.inner.create_hard_link(entry, target, expected, replace);
        self.shared.hide(&entry.name, created)?;
        self.shared.record(&entry.name);
        Ok(())
    }

    fn write_file(&self, entry: &Entry, bytes: &[u8]) -> Result<Arc<dyn UnpublishedFile>, TransferError> {
        self.check_name(&entry.name)?;
        let inner = self.shared.hide(&entry.name, self.shared.inner.write_file(entry, bytes))?;
        Ok(Arc::new(WriteOnlyFile { inner, shared: self.shared.clone(), name: entry.name.clone() }))
    }

    fn open_partial(&self, request: &PartialRequest<'_>) -> Result<OpenedPartial, TransferError> {
        let name = &request.entry.name;
        self.check_name(name)?;
        let OpenedPartial { file: inner, kept } = self.shared.hide(name, self.shared.inner.open_partial(request))?;
        let file = WriteOnlyFile { inner, shared: self.shared.clone(), name: name.clone() };
        Ok(OpenedPartial { file: Arc::new(file), kept })
    }

    fn remove_directory(&self, name: &Name, dry_run: bool) -> Result<bool, TransferError> {
        match self.shared.visible {
            VisibleObjects::All => self.shared.inner.remove_directory(name, dry_run),
            VisibleObjects::Written(_) => Err(self.unsupported(name, "remove entries")),
        }
    }

    fn remove_tree(
        &self,
        name: &Name,
        removal: Removal<'_>,
        visitor: &mut dyn RemovalVisitor,
    ) -> Result<bool, TransferError> {
        match self.shared.visible {
            VisibleObjects::All => self.shared.inner.remove_tree(name, removal, visitor),
            VisibleObjects::Written(_) => Err(self.unsupported(name, "remove entries")),
        }
    }

    fn finish_directory(&self, entry: &Entry, is_new: bool, previous_mode: Option<u32>) -> Result<(), TransferError> {
        // The attributes of an existing directory stay.
        if !is_new {
            return Ok(());
        }
        self.shared.hide(&entry.name, self.shared.inner.finish_directory(entry, is_new, previous_mode))
    }

    /// Existing objects keep their attributes. A change would also make an own file unrecognisable.
    fn update_attributes(&self, _entry: &Entry) -> Result<(), TransferError> {
        Ok(())
    }

    fn set_modified(&self, _entry: &Entry) -> Result<(), TransferError> {
        Ok(())
    }

    fn unpreserved(&self) -> Unpreserved {
        self.shared.inner.unpreserved()
    }

    fn note_up_to_date(&self, name: &Name) {
        self.shared.inner.note_up_to_date(name);
    }

    fn is_synced_later(&self, file: &dyn UnpublishedFile) -> bool {
        self.shared.inner.is_synced_later(file)
    }

    fn sync_files(&self, files: &[Arc<dyn UnpublishedFile>], policy: FsyncPolicy) -> Vec<io::Result<()>> {
        self.shared.inner.sync_files(files, policy)
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<(), TransferError> {
        self.shared.inner.sync(scope)
    }

    fn create_scratch_file(&self, dry_run: bool) -> Option<File> {
        self.shared.inner.create_scratch_file(dry_run)
    }
}

/// A file that is recorded as written when it gets its name.
#[derive(Debug)]
struct WriteOnlyFile<S> {
    inner: Arc<dyn UnpublishedFile>,
    shared: Arc<Shared<S>>,
    name: Name,
}

impl<S: Storage> UnpublishedFile for WriteOnlyFile<S> {
    fn write_block(&self, block: Block, hash: BlockHash, bytes: &[u8]) -> Result<(), TransferError> {
        self.inner.write_block(block, hash, bytes)
    }

    fn record_block(&self, block: Block, hash: BlockHash) -> Result<(), TransferError> {
        self.inner.record_block(block, hash)
    }

    fn write_hole(&self, hole: Subtree, hash: BlockHash) -> Result<(), TransferError> {
        self.inner.write_hole(hole, hash)
    }

    fn set_attributes(&self, entry: &Entry) -> Result<(), TransferError> {
        self.inner.set_attributes(entry)
    }

    fn publish(&self, replace: bool) -> Result<(), TransferError> {
        if replace {
            self.shared.check_replacement(&self.name)?;
        }
        self.shared.hide(&self.name, self.inner.publish(replace))?;
        self.shared.record(&self.name);
        Ok(())
    }

    fn discard_on_close(&self) {
        self.inner.discard_on_close();
    }

    fn id(&self) -> Option<FileId> {
        self.inner.id()
    }

    fn was_created_since(&self, since: Modified) -> bool {
        self.inner.was_created_since(since)
    }

    fn descriptors(&self) -> usize {
        self.inner.descriptors()
    }

    fn directory_key(&self) -> usize {
        self.inner.directory_key()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.as_fd()
    }
}
