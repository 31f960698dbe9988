//! The local storage: directories and files of this host.
//!
//! [`LocalStorage`] writes a destination, and [`LocalTree`] reads a source. Module `destination` resolves names,
//! `partial_file` and `single_block_file` write files, and `remove` removes trees.

mod attribute_target;
mod attributes;
mod destination;
mod existing_blocks;
mod file_systems;
mod foreign_writes;
mod journal;
mod location;
pub(super) mod names;
mod partial_file;
mod partial_lock;
mod partial_owner;
mod read_file;
mod remove;
mod shared_partial;
mod single_block_file;
mod source;
mod sparse;
mod stat;
#[cfg(test)]
mod tests;
pub(crate) mod typed_paths;
mod xattrs;

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name};
use lfn_session::wire::copy::options::FsyncPolicy;
use lfn_session::wire::copy::preserve::{Preserve, Unpreserved};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, fsync, mkdirat, openat, readlinkat, statat, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::Errno;

use self::attribute_target::{AttributeTarget, entry_times};
use self::attributes::AttributeWriter;
use self::destination::DestinationTree;
use self::file_systems::FileSystems;
use self::foreign_writes::ForeignWrites;
use self::journal::Journal;
use self::location::{EntryLocation, link_open_file, open_readable};
pub(crate) use self::names::partial_name;
use self::names::{is_reserved_name, journal_name, marker_name};
use self::partial_file::{PartialFile, SharedState};
use self::partial_lock::{belongs_to_other_owner, replace_entry, take_partial_name_soon};
pub(crate) use self::partial_owner::PartialOwner;
use self::read_file::{LocalReadFile, READ_FLAGS, names_in};
use self::remove::{RemovalError, TreeRemoval};
use self::shared_partial::SharedPartialFile;
use self::single_block_file::SingleBlockFile;
pub(crate) use self::source::{LocalTree, OpenDirectories};
use self::stat::metadata_of;
use self::xattrs::read_attributes;
use super::{
    Capabilities, Existing, FileId, Names, ObjectKind, OpenedPartial, PartialRequest, ReadFile, Removal,
    RemovalVisitor, SharedPartial, Storage, SyncScope, TopDirectory, UnpublishedFile,
};
use crate::accounts::Accounts;
use crate::base_dir::{BaseDir, check_regular, inode_of};
use crate::{ForbiddenReason, TransferError};

/// Options for opening a destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DestinationOptions {
    /// The source may be one file, so a path that does not exist is the name of that file.
    pub(crate) single: bool,
    /// Create and change nothing.
    pub(crate) dry_run: bool,
    pub(crate) preserve: Preserve,
    /// The owner of this copy's partial files, if copies of several owners share the directory.
    pub(crate) partial_owner: Option<PartialOwner>,
    /// Remove incomplete files when the copy ends, so that no later copy resumes them.
    pub(crate) discards_partial_files: bool,
    /// Other hosts of this copy write into the partial files too.
    pub(crate) has_other_writers: bool,
}

/// A destination on this host.
#[derive(Debug)]
pub(crate) struct LocalStorage {
    tree: DestinationTree,
    dry_run: bool,
    shared: Arc<SharedState>,
    file_systems: FileSystems,
    accounts: Accounts,
}

impl LocalStorage {
    /// Opens a destination. An existing directory is used as it is; otherwise the path is created, except in a dry run.
    pub(crate) fn open_destination(
        base: &BaseDir,
        path: &Path,
        options: DestinationOptions,
    ) -> Result<Self, TransferError> {
        let DestinationOptions { single, dry_run, preserve, partial_owner, .. } = options;
        let shared = SharedState {
            attributes: AttributeWriter::new(preserve, matches!(base, BaseDir::Local)),
            foreign_writes: Arc::new(ForeignWrites::default()),
            has_other_writers: options.has_other_writers,
            keeps_partial_files: !options.discards_partial_files,
        };
        let storage = LocalStorage {
            tree: DestinationTree::open(base, path, single, dry_run, partial_owner)?,
            dry_run,
            shared: Arc::new(shared),
            file_systems: FileSystems::default(),
            accounts: Accounts::default(),
        };
        storage.add_top_file_system();
        Ok(storage)
    }

    /// Opens a descriptor before the first write, so that `syncfs` reports every error (syncfs(2)).
    fn add_top_file_system(&self) {
        if let Some(top) = Some(&self.tree).filter(|_| !self.dry_run).and_then(|tree| tree.open_readable().ok()) {
            let _ = self.file_systems.add(&top);
        }
    }

    fn open_directory(&self, directory: &Name, doing: &'static str) -> Result<OwnedFd, TransferError> {
        let opened = self.tree.open_entry(directory)?;
        let failed = |error| self.tree.top().file_error(doing, &self.display_name(directory), error);
        open_readable(&opened).map_err(failed)
    }

    fn create_link(
        &self,
        location: &EntryLocation,
        replace: bool,
        link: impl Fn(&OsStr) -> Result<(), Errno>,
    ) -> Result<(), TransferError> {
        if replace { replace_entry(location, link) } else { location.create(link) }
    }

    /// Flushes one entry without the rest of its file system. Returns false if that is impossible. Syncing the
    /// directory flushes the name; a directory that this user may not read is left to the kernel.
    fn sync_one(&self, existing: Option<&Name>) -> Result<bool, Errno> {
        if let Some(location) = existing.and_then(|name| self.tree.locate(name).ok()) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match openat(&location.directory, &location.name, flags, Mode::empty()) {
                Ok(file) => fsync(&file)?,
                Err(_) => return Ok(false),
            }
        }
        let directories = [self.tree.open_readable().ok(), self.tree.open_readable_parent()];
        directories.into_iter().flatten().try_for_each(fsync)?;
        Ok(true)
    }

    /// Runs `remove` in the directory of an entry. The directory keeps its times and mode, except the top directory,
    /// which gets its attributes later.
    fn remove_in_directory<T>(&self, location: &EntryLocation, name: &Name, remove: impl FnOnce() -> T) -> T {
        let is_in_top = name.split().0.is_empty();
        let removed = if self.dry_run || is_in_top {
            remove()
        } else {
            self.shared.attributes.with_attributes_restored(location.directory.as_fd(), remove)
        };
        self.tree.forget_directories(name);
        removed
    }
}

impl Storage for LocalStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            reads: true,
            writes: true,
            keeps_data: true,
            resumes: self.shared.keeps_partial_files,
            links: true,
            holes: true,
            attributes: true,
            reveals_existing: true,
        }
    }

    fn stat(&self, name: &Name) -> Result<Existing, TransferError> {
        if self.tree.is_missing {
            return Ok(Existing::Nothing);
        }
        if name.is_root() {
            let stat = fstat(&self.tree.top().directory);
            let failed = |error| self.tree.top().file_error("open", &self.display_name(name), error);
            return Ok(Existing::Object(metadata_of(&stat.map_err(failed)?)));
        }
        let stat = self.tree.locate(name)?.stat()?;
        Ok(stat.as_ref().map_or(Existing::Nothing, |stat| Existing::Object(metadata_of(stat))))
    }

    fn list(&self, directory: &Name) -> Result<Names, TransferError> {
        let opened = self.open_directory(directory, "list")?;
        Ok(Box::new(names_in(opened, self.display_name(directory))?))
    }

    fn read_link(&self, name: &Name) -> Result<ByteString, TransferError> {
        let location = self.tree.locate(name)?;
        let target = readlinkat(&location.directory, &location.name, Vec::new());
        Ok(ByteString::from(target.map_err(|e| location.error("read the link", e))?.to_bytes()))
    }

    fn open_file(&self, name: &Name) -> Result<Box<dyn ReadFile>, TransferError> {
        let location = self.tree.locate(name)?;
        let opened = openat(&location.directory, &location.name, READ_FLAGS | OFlags::NOFOLLOW, Mode::empty());
        let opened = opened.map_err(|e| location.error("read", e))?;
        Ok(Box::new(LocalReadFile::new(opened, || location.display_path.clone())?))
    }

    fn read_attributes(&self, entry: &mut Entry, preserve: Preserve) -> Result<(), TransferError> {
        let location = self.tree.locate(&entry.name)?;
        read_attributes(entry, location.open_path()?, preserve, &self.accounts, &location.display_path)
    }

    fn top(&self) -> TopDirectory {
        TopDirectory {
            display_path: Some(self.tree.top().display_path.clone()),
            is_new: self.tree.is_created(),
            is_missing: self.tree.is_missing,
            is_shared: self.tree.is_served_root,
            has_no_conflicts: self.tree.has_no_conflicts(),
            id: self.tree.destination_id(),
            single_name: self.tree.single_name().map(|name| ByteString::from(name.as_bytes())),
        }
    }

    fn make_top_directory(&mut self) -> Result<(), TransferError> {
        self.tree.make_directory(self.dry_run)?;
        self.add_top_file_system();
        Ok(())
    }

    fn remove_new_top(&self) {
        self.tree.remove_created();
    }

    fn check_name(&self, name: &Name) -> Result<(), TransferError> {
        self.tree.check_name(name)
    }

    fn is_reserved(&self, file_name: &[u8]) -> bool {
        is_reserved_name(file_name)
    }

    fn display_name(&self, name: &Name) -> String {
        self.tree.display_name(name)
    }

    fn was_created_since(&self, name: &Name, since: Modified) -> bool {
        self.tree.locate(name).is_ok_and(|location| location.is_newer(since))
    }

    fn has_partial(&self, name: &Name) -> Result<bool, TransferError> {
        PartialFile::exists(&self.tree.locate(name)?)
    }

    fn is_partial_released(&self, name: &Name) -> bool {
        self.tree.locate(name).is_ok_and(|location| {
            Journal::is_unlocked(&location, &journal_name(&location.name)) && !belongs_to_other_owner(&location)
        })
    }

    fn remove_leftovers(&self, name: &Name) {
        let Ok(location) = self.tree.locate(name) else { return };
        match location.stat().map(|stat| stat.map(|stat| metadata_of(&stat).kind)) {
            Ok(Some(ObjectKind::Directory)) => location.remove_replaced(),
            Ok(Some(_)) if PartialFile::exists(&location).is_ok_and(|exists| !exists) => location.remove_journal(),
            _ => {}
        }
    }

    fn create_directory(&self, entry: &Entry, replace: bool) -> Result<(), TransferError> {
        let location = self.tree.locate(&entry.name)?;
        // The owner must be able to write into the directory before the directory gets its own mode.
        let mode = Mode::from_raw_mode(entry.mode & 0o777 | 0o700);
        self.tree.forget_directories(&entry.name);
        if !replace {
            let made = mkdirat(&location.directory, &location.name, mode);
            return made.map_err(|error| location.name_error("create", error));
        }
        // Remove the stale partial file that an interrupted copy left under this name.
        let stale = take_partial_name_soon(&location)?;
        let created = location.replace_with_directory(mode);
        drop(stale);
        created
    }

    fn create_symlink(&self, entry: &Entry, target: &ByteString, replace: bool) -> Result<(), TransferError> {
        let location = self.tree.locate(&entry.name)?;
        self.create_link(&location, replace, |name| symlinkat(target.as_bytes(), &location.directory, name))?;
        self.shared.attributes.apply_to_symlink(&location, entry);
        Ok(())
    }

    fn create_hard_link(
        &self,
        entry: &Entry,
        target: &Name,
        expected: Option<FileId>,
        replace: bool,
    ) -> Result<(), TransferError> {
        let target = self.tree.locate(target)?;
        let file = target.open_path()?;
        if expected.is_some() && inode_of(&file) != expected {
            let reason = ForbiddenReason::LinkTargetReplaced;
            return Err(TransferError::Forbidden { path: target.display_path, reason });
        }
        let location = self.tree.locate(&entry.name)?;
        self.create_link(&location, replace, |name| link_open_file(&file, &location.directory, name))
    }

    fn write_file(&self, entry: &Entry, bytes: &[u8]) -> Result<Arc<dyn UnpublishedFile>, TransferError> {
        let location = self.tree.locate(&entry.name)?;
        Ok(Arc::new(SingleBlockFile::write(location, entry, bytes, &self.shared.attributes)?))
    }

    fn open_partial(&self, request: &PartialRequest<'_>) -> Result<OpenedPartial, TransferError> {
        let location = self.tree.locate(&request.entry.name)?;
        let (file, kept) = PartialFile::open(location, self.shared.clone(), request)?;
        Ok(OpenedPartial { file: Arc::new(file), kept })
    }

    fn create_marker(&self, marker: &str) -> Result<(), TransferError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let created = openat(&self.tree.top().directory, marker_name(marker), flags, Mode::from_raw_mode(0o600));
        let display_path = &self.tree.top().display_path;
        created.map(drop).map_err(|error| self.tree.top().file_error("create a file in", display_path, error))
    }

    fn has_marker(&self, marker: &str) -> bool {
        let is_valid = !marker.is_empty() && marker.len() <= 64 && marker.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_valid
            && statat(&self.tree.top().directory, marker_name(marker), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    fn remove_marker(&self, marker: &str) {
        let _ = unlinkat(&self.tree.top().directory, marker_name(marker), AtFlags::empty());
    }

    fn open_shared(&self, name: &Name) -> Result<Box<dyn SharedPartial>, TransferError> {
        if self.tree.is_missing {
            return Err(TransferError::NotFound { path: self.display_name(name) });
        }
        let location = self.tree.locate(name)?;
        Ok(Box::new(SharedPartialFile::open(&location, self.shared.attributes.is_sparse())?))
    }

    fn remove_directory(&self, name: &Name, dry_run: bool) -> Result<bool, TransferError> {
        let location = self.tree.locate(name)?;
        if dry_run {
            return Ok(is_empty_directory(&location));
        }
        self.tree.forget_directories(name);
        match unlinkat(&location.directory, &location.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(location.error("delete", error)),
        }
    }

    fn remove_tree(
        &self,
        name: &Name,
        removal: Removal<'_>,
        visitor: &mut dyn RemovalVisitor,
    ) -> Result<bool, TransferError> {
        let location = self.tree.locate(name)?;
        let last = CString::new(location.name.as_bytes()).map_err(|_| location.error("delete", Errno::INVAL))?;
        let tree = TreeRemoval::new(&self.shared.attributes, removal, visitor, name.as_bytes());
        let removed = self.remove_in_directory(&location, name, || tree.run(&location.directory, &last));
        removed.map_err(|error| match error {
            RemovalError::Errno(error) => location.error("delete", error),
            RemovalError::Moved => TransferError::Forbidden {
                path: location.display_path.clone(),
                reason: ForbiddenReason::MovedWhileDeleting,
            },
        })
    }

    fn make_directory_writable(&self, entry: &Entry) -> Option<u32> {
        // The entries in the directory will report errors.
        let directory = self.tree.open_entry(&entry.name).ok()?;
        self.shared.attributes.make_writable(directory.as_fd(), entry).map(|mode| mode.as_raw_mode())
    }

    fn finish_directory(&self, entry: &Entry, is_new: bool, previous_mode: Option<u32>) -> Result<(), TransferError> {
        let directory = self.tree.open_entry(&entry.name)?;
        let attributes = &self.shared.attributes;
        let applied = attributes.apply(AttributeTarget::Directory(directory.as_fd(), is_new), entry);
        let restored =
            previous_mode.map_or(Ok(()), |mode| attributes.restore_mode(directory.as_fd(), Mode::from_raw_mode(mode)));
        applied
            .and(restored)
            .map_err(|(doing, error)| self.tree.top().file_error(doing, &self.display_name(&entry.name), error))
    }

    fn update_attributes(&self, entry: &Entry) -> Result<(), TransferError> {
        let location = self.tree.locate(&entry.name)?;
        let attributes = &self.shared.attributes;
        if matches!(entry.kind, EntryKind::Symlink { .. }) {
            attributes.apply_to_symlink(&location, entry);
            return Ok(());
        }
        if !attributes.preserves_metadata() {
            return Ok(());
        }
        let existing = location.open_path()?;
        check_regular(&fstat(&existing).map_err(|e| location.error("open", e))?, &location.display_path)?;
        let applied = attributes.apply(AttributeTarget::ExistingFile(existing.as_fd()), entry);
        applied.map_err(|(doing, e)| location.error(doing, e))
    }

    fn set_modified(&self, entry: &Entry) -> Result<(), TransferError> {
        let location = self.tree.locate(&entry.name)?;
        let set = utimensat(&location.directory, &location.name, &entry_times(entry), AtFlags::SYMLINK_NOFOLLOW);
        match set {
            // For a file of another user, accept the error if the time is correct already.
            Err(Errno::PERM | Errno::ACCESS)
                if location.stat()?.is_some_and(|stat| metadata_of(&stat).modified == entry.modified) =>
            {
                Ok(())
            }
            set => set.map_err(|e| location.error("set the times of", e)),
        }
    }

    fn unpreserved(&self) -> Unpreserved {
        self.shared.attributes.unpreserved()
    }

    fn note_up_to_date(&self, name: &Name) {
        let Ok(location) = self.tree.locate(name) else { return };
        if let Ok(Some(stat)) = location.stat() {
            self.file_systems.add_existing(stat.st_dev, || location.open_readable());
        }
    }

    fn is_synced_later(&self, file: &dyn UnpublishedFile) -> bool {
        self.file_systems.has_syncfs(file).unwrap_or(false)
    }

    fn sync_files(&self, files: &[Arc<dyn UnpublishedFile>], policy: FsyncPolicy) -> Vec<io::Result<()>> {
        self.file_systems.sync_files(files, policy)
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<(), TransferError> {
        let path = &self.tree.top().display_path;
        let failed = |source| TransferError::File { doing: "write", path: path.clone(), source };
        match scope {
            SyncScope::OneEntry { existing } if self.sync_one(existing).map_err(|e| failed(e.into()))? => Ok(()),
            SyncScope::OneEntry { .. } | SyncScope::Everything => {
                if let Ok(directory) = self.tree.open_readable() {
                    self.file_systems.add(&directory).map_err(failed)?;
                }
                self.file_systems.sync().map_err(failed)
            }
        }
    }

    fn create_scratch_file(&self, dry_run: bool) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o600);
        let opened = if dry_run {
            openat(CWD, std::env::temp_dir(), flags, mode)
        } else {
            self.tree.open_readable().and_then(|top| openat(&top, ".", flags, mode))
        };
        opened.ok().map(File::from)
    }
}

fn is_empty_directory(location: &EntryLocation) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let entries = openat(&location.directory, &location.name, flags, Mode::empty()).and_then(Dir::new);
    entries.is_ok_and(|mut entries| {
        entries.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
    })
}
