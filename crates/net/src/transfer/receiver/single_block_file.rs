//! A file of at most one block: written as a whole, then given its name.
//!
//! The file has no name until then (`O_TMPFILE`), so nothing is left of it if the process ends. On a file system
//! without support for these files, the file has a partial name meanwhile. This name is removed again unless the
//! process is killed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lfn_core::transfer::entry::Entry;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;

use super::super::TransferError;
use super::attributes::{AttributeTarget, AttributeWriter};
use super::partial_file::{lock_partial_file, set_modified, take_partial_name};
use super::sparse::write_sparse;
use super::tree::{EntryLocation, link_open_file, partial_name};

/// Maximum number of attempts, 5 ms apart, to lock a partial name that another copy holds.
const MAX_TRIES: usize = 40;

/// A single-block file that may not have a name yet.
#[derive(Debug)]
pub(super) struct SingleBlockFile {
    location: EntryLocation,
    file: File,
    /// The partial name, on a file system that needs one.
    temporary_name: Option<OsString>,
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
            Ok(file) => SingleBlockFile { file: file.into(), location, temporary_name: None },
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
        Ok(SingleBlockFile { file, location, temporary_name: Some(name) })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the directory of the final name.
    pub(super) fn directory(&self) -> &Arc<OwnedFd> {
        &self.location.directory
    }

    /// Gives the file its final name.
    pub(super) fn publish(mut self, replace: bool) -> Result<(), TransferError> {
        if let Some(temporary_name) = &self.temporary_name {
            self.location.rename_from(temporary_name, replace)?;
            self.temporary_name = None;
            return Ok(());
        }
        if !replace || self.location.stat()?.is_none() {
            return self.location.create(false, |name| self.link(name));
        }
        // Lock both files, so that no other copy takes one of them as its own partial file: the old one of this name,
        // and this file while it has this name.
        let stale = take_partial_name_soon(&self.location)?;
        self.lock()?;
        let created = self.location.create(true, |name| self.link(name));
        drop(stale);
        created
    }

    fn lock(&self) -> Result<(), TransferError> {
        let locked = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|e| self.location.error("lock the partial file of", e))
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        link_open_file(&self.file, &self.location.directory, name)
    }
}

/// Takes the partial name. Waits up to 200 ms, because another copy of a small file holds the name only briefly.
pub(super) fn take_partial_name_soon(location: &EntryLocation) -> Result<OwnedFd, TransferError> {
    for _ in 0..MAX_TRIES {
        match take_partial_name(location, 0o600) {
            Err(TransferError::Locked { .. }) => thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    take_partial_name(location, 0o600)
}

impl Drop for SingleBlockFile {
    fn drop(&mut self) {
        if let Some(temporary_name) = &self.temporary_name {
            // The lock is still held, so the file belongs to this copy.
            let _ = unlinkat(&self.location.directory, temporary_name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use lfn_core::transfer::entry::{EntryKind, Modified, Name};
    use lfn_core::transfer::preserve::Preserve;
    use lfn_core::units::Bytes;
    use rustix::fs::CWD;

    use super::*;

    /// During a replacement the file has the name of a partial file for a moment.
    #[test]
    fn other_copies_cannot_lock_the_file() {
        let home = tempfile::TempDir::new().unwrap();
        let directory = openat(CWD, home.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let location = EntryLocation {
            directory: Arc::new(directory),
            name: "x".into(),
            display_path: "x".into(),
            write_only: None,
        };
        let (name, kind) = (Name::new("x").unwrap(), EntryKind::File { length: Bytes(1) });
        let entry = Entry::new(name, kind, 0o644, Modified::new(1, 0).unwrap()).unwrap();
        let small =
            SingleBlockFile::write(location.clone(), &entry, b"x", &AttributeWriter::new(Preserve::default(), true))
                .unwrap();
        small.lock().unwrap();
        let temporary_name = partial_name(&location.name);
        small.link(&temporary_name).unwrap();
        assert!(matches!(lock_partial_file(&location, &temporary_name, 0o600), Err(TransferError::Locked { .. })));
        drop(small);
        assert!(lock_partial_file(&location, &temporary_name, 0o600).is_ok());
    }
}
