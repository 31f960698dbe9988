//! A file of at most one block: written as a whole, then given its name.
//!
//! The file has no name until then (`O_TMPFILE`), so nothing is left of it if the process ends. On a file system
//! without support for these files, the file has a partial name meanwhile. This name is removed again unless the
//! process is killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lfn_session::wire::copy::blocks::{Block, Subtree};
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, Modified};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;

use super::attribute_target::{AttributeTarget, set_modified};
use super::attributes::AttributeWriter;
use super::location::{EntryLocation, is_newer, link_open_file};
use super::names::partial_name;
use super::partial_lock::{lock_partial_file, replace_entry, take_partial_name};
use super::sparse::write_sparse;
use crate::TransferError;
use crate::base_dir::inode_of;
use crate::storage::{FileId, UnpublishedFile};

/// A single-block file that may not have a name yet.
#[derive(Debug)]
pub(super) struct SingleBlockFile {
    location: EntryLocation,
    file: File,
    /// The partial name, on a file system that needs one.
    temporary_name: Mutex<Option<OsString>>,
}

impl SingleBlockFile {
    /// Creates and writes the file.
    pub(super) fn write(
        location: EntryLocation,
        entry: &Entry,
        bytes: &[u8],
        attributes: &AttributeWriter,
    ) -> Result<Self, TransferError> {
        // The kernel applies the umask.
        let mode = Mode::from_raw_mode(attributes.creation_mode(entry));
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let small = match openat(&location.directory, ".", flags, mode) {
            Ok(file) => SingleBlockFile { file: file.into(), location, temporary_name: Mutex::default() },
            // EISDIR: the kernel does not support this flag. EOPNOTSUPP: the file system does not (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                SingleBlockFile::with_partial_name(location, mode.as_raw_mode())?
            }
            Err(error) => return Err(location.error("create", error)),
        };
        let written = if attributes.is_sparse() {
            small.file.set_len(bytes.len() as u64).and_then(|()| write_sparse(&small.file, 0, bytes))
        } else {
            small.file.write_all_at(bytes, 0)
        };
        let failed = |source| TransferError::File { doing: "write", path: small.location.display_path.clone(), source };
        written.map_err(failed)?;
        if attributes.preserves_metadata() {
            let applied = attributes.apply(AttributeTarget::NewFile(&small.file), entry);
            applied.map_err(|(doing, e)| small.location.error(doing, e))?;
        } else {
            set_modified(&small.file, entry).map_err(|e| small.location.error("set the times of", e))?;
        }
        Ok(small)
    }

    /// Creates the file under its partial name.
    pub(super) fn with_partial_name(location: EntryLocation, mode: u32) -> Result<Self, TransferError> {
        let name = partial_name(&location.name);
        // Remove the file that an earlier copy left.
        drop(take_partial_name(&location, mode)?);
        let file = File::from(lock_partial_file(&location, &name, mode)?);
        // Another copy may have created and left a file in between.
        file.set_len(0).map_err(|source| TransferError::File {
            doing: "write",
            path: location.display_path.clone(),
            source,
        })?;
        Ok(SingleBlockFile { file, location, temporary_name: Mutex::new(Some(name)) })
    }

    fn lock(&self) -> Result<(), TransferError> {
        let locked = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|e| self.location.error("lock the partial file of", e))
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        link_open_file(&self.file, &self.location.directory, name)
    }
}

impl UnpublishedFile for SingleBlockFile {
    fn write_block(&self, _block: Block, _hash: BlockHash, _bytes: &[u8]) -> Result<(), TransferError> {
        Err(TransferError::Unsupported { path: self.location.display_path.clone(), what: "write a second block" })
    }

    fn record_block(&self, _block: Block, _hash: BlockHash) -> Result<(), TransferError> {
        Err(TransferError::Unsupported { path: self.location.display_path.clone(), what: "write a second block" })
    }

    fn write_hole(&self, _hole: Subtree, _hash: BlockHash) -> Result<(), TransferError> {
        Err(TransferError::Unsupported { path: self.location.display_path.clone(), what: "write a second block" })
    }

    fn set_attributes(&self, _entry: &Entry) -> Result<(), TransferError> {
        Ok(())
    }

    fn publish(&self, replace: bool) -> Result<(), TransferError> {
        let mut temporary_name = self.temporary_name.lock();
        if let Some(name) = temporary_name.as_deref() {
            self.location.rename_from(name, replace)?;
            *temporary_name = None;
            return Ok(());
        }
        match self.location.create(|name| self.link(name)) {
            Err(TransferError::Exists { .. }) if replace => {}
            created => return created,
        }
        // Lock this file, so that no other copy takes it as its own partial file while it has this name.
        self.lock()?;
        replace_entry(&self.location, |name| self.link(name))
    }

    fn discard_on_close(&self) {}

    fn id(&self) -> Option<FileId> {
        inode_of(&self.file)
    }

    fn was_created_since(&self, since: Modified) -> bool {
        is_newer(&self.file, OsStr::new(""), AtFlags::EMPTY_PATH, since)
    }

    fn descriptors(&self) -> usize {
        1
    }

    fn directory_key(&self) -> usize {
        Arc::as_ptr(&self.location.directory).addr()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl Drop for SingleBlockFile {
    fn drop(&mut self) {
        if let Some(temporary_name) = self.temporary_name.lock().as_ref() {
            // The lock is still held, so the file belongs to this copy.
            let _ = unlinkat(&self.location.directory, temporary_name, AtFlags::empty());
        }
    }
}
