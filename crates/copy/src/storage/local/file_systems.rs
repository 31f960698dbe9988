//! The file systems that a copy has written to, and how they are flushed to disk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use lfn_session::wire::copy::options::FsyncPolicy;
use parking_lot::Mutex;
use rustix::fs::{fstat, fstatfs, fsync, syncfs};
use rustix::io::Errno;

use crate::storage::UnpublishedFile;

/// The file systems that this copy has written to.
#[derive(Debug, Default)]
pub(super) struct FileSystems(Mutex<BTreeMap<u64, FileSystem>>);

/// A file system, with a file on it that was opened before the first write. A `syncfs` on this file reports every error
/// since then (syncfs(2)).
#[derive(Debug, Clone)]
pub(super) struct FileSystem {
    file: Arc<File>,
    /// Whether `syncfs` flushes this file system. The kernel does not pass `syncfs` on to a file system in user space
    /// (`fuse_sync_fs`). A FUSE file system learns only of `fsync`, and may keep a write error until then.
    pub(super) has_syncfs: bool,
}

const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

impl FileSystems {
    /// Adds the file system of `file`, and returns its device number.
    pub(super) fn add(&self, file: impl AsFd) -> io::Result<(u64, FileSystem)> {
        let number = fstat(&file)?.st_dev;
        let file_system = match self.0.lock().entry(number) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                let has_syncfs = fstatfs(&file)?.f_type as u64 != FUSE_SUPER_MAGIC;
                let file = Arc::new(file.as_fd().try_clone_to_owned()?.into());
                unknown.insert(FileSystem { file, has_syncfs }).clone()
            }
        };
        Ok((number, file_system))
    }

    /// Adds the file system of an existing file. If the directory may not be read, flushing is left to the kernel.
    pub(super) fn add_existing(&self, file_system: u64, open: impl FnOnce() -> Result<OwnedFd, Errno>) {
        if self.0.lock().contains_key(&file_system) {
            return;
        }
        if let Ok(directory) = open() {
            let _ = self.add(&directory);
        }
    }

    /// Waits until all data written to these file systems is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let file_systems: Vec<_> = self.0.lock().values().cloned().collect();
        file_systems.iter().try_for_each(|file_system| Ok(syncfs(&*file_system.file)?))
    }

    /// Flushes the data of complete files if `policy` requires this before they get their names. Returns one result for
    /// each file.
    pub(super) fn sync_files(&self, files: &[Arc<dyn UnpublishedFile>], policy: FsyncPolicy) -> Vec<io::Result<()>> {
        let flush = |file: &Arc<dyn UnpublishedFile>| file.as_fd().map_or(Ok(()), |file| Ok(fsync(file)?));
        match (policy, files) {
            (FsyncPolicy::None, _) => files.iter().map(|_| Ok(())).collect(),
            (FsyncPolicy::End, _) => {
                files.iter().map(|file| if self.has_syncfs(&**file)? { Ok(()) } else { flush(file) }).collect()
            }
            // With one file, do not wait for the whole file system.
            (FsyncPolicy::File, [file]) => vec![self.has_syncfs(&**file).and_then(|_| flush(file))],
            (FsyncPolicy::File, _) => {
                let mut done: BTreeMap<u64, Result<(), Errno>> = BTreeMap::new();
                let mut result = |file: &Arc<dyn UnpublishedFile>| {
                    let Some(descriptor) = file.as_fd() else { return Ok(()) };
                    let (number, FileSystem { has_syncfs, .. }) = self.add(descriptor)?;
                    // A descriptor reports only errors since it was opened. A file with a journal was written for a
                    // long time, so it needs its own `fsync`.
                    if file.descriptors() > 1 || !has_syncfs {
                        return flush(file);
                    }
                    (*done.entry(number).or_insert_with(|| syncfs(descriptor))).map_err(io::Error::from)
                };
                files.iter().map(&mut result).collect()
            }
        }
    }

    /// Returns whether one `syncfs` flushes the file together with all others. Adds its file system.
    pub(super) fn has_syncfs(&self, file: &dyn UnpublishedFile) -> io::Result<bool> {
        file.as_fd().map_or(Ok(true), |file| Ok(self.add(file)?.1.has_syncfs))
    }
}
