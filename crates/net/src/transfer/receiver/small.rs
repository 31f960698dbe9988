//! A file of at most one block: written whole, then named.
//!
//! It has no name at all until then (`O_TMPFILE`), so that whatever ends this process leaves nothing of it; where the file
//! system knows no such files it stands under a partial name, which is removed again unless the process is killed.

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
use super::attributes::{Body, Dressing};
use super::partial::{keep_time, lock_partial, take_partial_name};
use super::sparse::write_sparse;
use super::tree::{Place, link_open, partial_name};

/// How often, 5 ms apart, a partial name is tried that another copy holds.
const TRIES: usize = 40;

/// A small file that may have no name yet.
#[derive(Debug)]
pub(super) struct Small {
    place: Place,
    file: File,
    /// What it is called meanwhile, if it cannot be without a name.
    beside: Option<OsString>,
}

impl Small {
    /// Writes the file.
    pub(super) fn write(place: Place, entry: &Entry, bytes: &[u8], dressing: &Dressing) -> Result<Self, TransferError> {
        // The kernel takes the umask from it.
        let mode = Mode::from_raw_mode(dressing.first_mode(entry));
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let small = match openat(&place.directory, ".", flags, mode) {
            Ok(file) => Small { file: file.into(), place, beside: None },
            // EISDIR: a kernel, EOPNOTSUPP: a file system that does not know it (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Small::beside(place, mode.as_raw_mode())?,
            Err(error) => return Err(place.error("create", error)),
        };
        let written = if dressing.is_sparse() {
            small.file.set_len(bytes.len() as u64).and_then(|()| write_sparse(&small.file, 0, bytes))
        } else {
            small.file.write_all_at(bytes, 0)
        };
        let failed = |source| TransferError::File { doing: "write", path: small.place.shown.clone(), source };
        written.map_err(failed)?;
        if dressing.is_more() {
            let dressed = dressing.dress(Body::File(&small.file), entry);
            dressed.map_err(|(doing, e)| small.place.error(doing, e))?;
        } else {
            keep_time(&small.file, entry).map_err(|e| small.place.error("set the times of", e))?;
        }
        Ok(small)
    }

    /// One with a partial name.
    pub(super) fn beside(place: Place, mode: u32) -> Result<Self, TransferError> {
        let name = partial_name(&place.name);
        // What an earlier copy left there is not this one's.
        drop(take_partial_name(&place, mode)?);
        let file = File::from(lock_partial(&place, &name, mode)?);
        // Another copy may have come and gone in between.
        file.set_len(0).map_err(|source| TransferError::File { doing: "write", path: place.shown.clone(), source })?;
        Ok(Small { file, place, beside: Some(name) })
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The directory it goes to.
    pub(super) fn directory(&self) -> &Arc<OwnedFd> {
        &self.place.directory
    }

    /// Gives it its name.
    pub(super) fn name(mut self, replace: bool) -> Result<(), TransferError> {
        if let Some(beside) = &self.beside {
            self.place.rename(beside, replace)?;
            self.beside = None;
            return Ok(());
        }
        if !replace || self.place.stat()?.is_none() {
            return self.place.make(false, |name| self.link(name));
        }
        // Both are held, lest another copy takes the one or the other for its own partial file: what was there, and this file
        // while that is its name.
        let stale = take_briefly(&self.place)?;
        self.hold()?;
        let made = self.place.make(true, |name| self.link(name));
        drop(stale);
        made
    }

    fn hold(&self) -> Result<(), TransferError> {
        let locked = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|e| self.place.error("lock the partial file of", e))
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        link_open(&self.file, &self.place.directory, name)
    }
}

/// Another copy of a small file holds the partial name for a moment only.
pub(super) fn take_briefly(place: &Place) -> Result<OwnedFd, TransferError> {
    for _ in 0..TRIES {
        match take_partial_name(place, 0o600) {
            Err(TransferError::Busy { .. }) => thread::sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
    take_partial_name(place, 0o600)
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // Still locked: it is this copy's own.
            let _ = unlinkat(&self.place.directory, beside, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use lfn_core::transfer::entry::{Kind, Modified, Name};
    use lfn_core::transfer::keep::Keep;
    use lfn_core::units::Bytes;
    use rustix::fs::CWD;

    use super::*;

    /// While it replaces another, its name is for a moment that of a partial file.
    #[test]
    fn nobody_takes_it_for_a_partial_file() {
        let home = tempfile::TempDir::new().unwrap();
        let directory = openat(CWD, home.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let place = Place { directory: Arc::new(directory), name: "x".into(), shown: "x".into(), guest: None };
        let (name, kind) = (Name::new("x").unwrap(), Kind::File { length: Bytes(1) });
        let entry = Entry::new(name, kind, 0o644, Modified::new(1, 0).unwrap()).unwrap();
        let small = Small::write(place.clone(), &entry, b"x", &Dressing::new(Keep::default(), true)).unwrap();
        small.hold().unwrap();
        let beside = partial_name(&place.name);
        small.link(&beside).unwrap();
        assert!(matches!(lock_partial(&place, &beside, 0o600), Err(TransferError::Busy { .. })));
        drop(small);
        assert!(lock_partial(&place, &beside, 0o600).is_ok());
    }
}
