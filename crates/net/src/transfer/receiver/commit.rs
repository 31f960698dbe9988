//! The commit queue: renames complete files to their final names in batches, each after one sync.
//!
//! With [`FsyncPolicy::File`] a file gets its final name only when its data is on disk. A wait for the disk for each of
//! many small files would be the slowest part of a copy. So complete files are collected for some milliseconds, their
//! file system is synced once, and then they get their names. The names themselves are flushed once, at the end of the
//! copy.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{fstat, fstatfs, fsync, syncfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::super::TransferError;
use super::super::stream_set::lock;
use super::entry::NeededFile;
use super::partial_file::PartialFile;
use super::single_block_file::SingleBlockFile;
use super::{FsyncPolicy, Receiver};

/// Number of files that complete a batch.
const BATCH_SIZE: usize = 128;

/// Maximum number of descriptors of files that wait for their names: each file and its directory are open. The limit is
/// lower in a process with a low limit of its own.
const MAX_DESCRIPTORS: usize = 512;

/// Files in the queue may use one part in this many of the process's descriptors.
const DESCRIPTOR_SHARE: u64 = 4;

/// Maximum wait of a file for others of its batch.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// A file with complete data.
#[derive(Debug)]
pub(super) enum CompletedFile {
    SingleBlock(SingleBlockFile),
    MultiBlock(Arc<PartialFile>),
}

/// Complete files that wait for their final names.
#[derive(Debug)]
pub(super) struct CommitQueue {
    waiting: Mutex<QueueState>,
    changed: Condvar,
    max_descriptors: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    files: Vec<(Arc<NeededFile>, CompletedFile)>,
    oldest: Option<Instant>,
    /// Descriptors of the waiting files and of the batch that was taken last.
    descriptors: usize,
    taken_descriptors: usize,
}

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

impl Default for CommitQueue {
    fn default() -> Self {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / DESCRIPTOR_SHARE;
        let max_descriptors = MAX_DESCRIPTORS.min(usize::try_from(allowed).unwrap_or(MAX_DESCRIPTORS));
        CommitQueue { waiting: Mutex::default(), changed: Condvar::new(), max_descriptors }
    }
}

impl CommitQueue {
    /// Adds a complete file. While the queue is full, waits as long as `may_wait` returns true.
    pub(super) fn push(&self, needed: Arc<NeededFile>, completed: CompletedFile, may_wait: impl Fn() -> bool) {
        let mut waiting = lock(&self.waiting);
        while waiting.descriptors >= self.max_descriptors && may_wait() {
            // Start the commit now: no more files can join the batch.
            self.changed.notify_all();
            waiting = self.wait(waiting, BATCH_DELAY);
        }
        waiting.oldest.get_or_insert_with(Instant::now);
        waiting.descriptors += completed.descriptors(waiting.files.last().map(|(_, before)| before));
        waiting.files.push((needed, completed));
        if matches!(waiting.files.len(), 1 | BATCH_SIZE) {
            self.changed.notify_all();
        }
    }

    /// Waits for the next batch, until it is large or old enough. Returns `None` when `stopped`.
    pub(super) fn take_batch(&self, stopped: impl Fn() -> bool) -> Option<Vec<(Arc<NeededFile>, CompletedFile)>> {
        let mut waiting = lock(&self.waiting);
        // The batch that was taken last has its names now.
        waiting.descriptors -= std::mem::take(&mut waiting.taken_descriptors);
        self.changed.notify_all();
        loop {
            if stopped() {
                return None;
            }
            let remaining =
                waiting.oldest.map_or(Duration::from_millis(100), |since| BATCH_DELAY.saturating_sub(since.elapsed()));
            let is_full = waiting.files.len() >= BATCH_SIZE || waiting.descriptors >= self.max_descriptors;
            let is_ready = !waiting.files.is_empty() && (is_full || remaining.is_zero());
            if is_ready {
                waiting.oldest = None;
                waiting.taken_descriptors = waiting.descriptors;
                return Some(std::mem::take(&mut waiting.files));
            }
            waiting = self.wait(waiting, remaining);
        }
    }

    /// Drops the waiting files.
    pub(super) fn clear(&self) {
        let files = std::mem::take(&mut lock(&self.waiting).files);
        drop(files);
    }

    fn wait<'a>(
        &self,
        waiting: std::sync::MutexGuard<'a, QueueState>,
        time: Duration,
    ) -> std::sync::MutexGuard<'a, QueueState> {
        self.changed.wait_timeout(waiting, time).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Flushes the data of the files if `sync` requires this before the rename. Returns one result for each file.
fn sync_batch(
    batch: &[(Arc<NeededFile>, CompletedFile)],
    sync: FsyncPolicy,
    file_systems: &FileSystems,
) -> Vec<io::Result<()>> {
    let none = || batch.iter().map(|_| Ok(())).collect();
    match (sync, batch) {
        (FsyncPolicy::None, _) => none(),
        (FsyncPolicy::End, batch) => {
            let unless_later = |completed: &CompletedFile| match file_systems.add(completed.file())?.1.has_syncfs {
                true => Ok(()),
                false => Ok(fsync(completed.file())?),
            };
            batch.iter().map(|(_, completed)| unless_later(completed)).collect()
        }
        // With one file, do not wait for the whole file system.
        (FsyncPolicy::File, [(_, completed)]) => {
            vec![file_systems.add(completed.file()).and_then(|_| Ok(fsync(completed.file())?))]
        }
        (FsyncPolicy::File, batch) => {
            let mut done: BTreeMap<u64, Result<(), Errno>> = BTreeMap::new();
            let mut result = |completed: &CompletedFile| {
                let (file_system, FileSystem { has_syncfs, .. }) = file_systems.add(completed.file())?;
                // A descriptor reports only errors since it was opened. A file that was written for a long time needs
                // its own `fsync`.
                if matches!(completed, CompletedFile::MultiBlock(_)) || !has_syncfs {
                    return Ok(fsync(completed.file())?);
                }
                (*done.entry(file_system).or_insert_with(|| syncfs(completed.file()))).map_err(io::Error::from)
            };
            batch.iter().map(|(_, completed)| result(completed)).collect()
        }
    }
}

impl Receiver {
    /// Runs the commit thread until the copy is over.
    pub(super) fn run_commits(&self) {
        let is_over = || self.is_stopped() || lock(&self.result).is_some();
        while let Some(batch) = self.commits.take_batch(is_over) {
            self.deferred_close.close(self);
            self.while_blocked_on_disk(|| self.commit_batch(batch));
        }
        self.commits.clear();
    }

    fn commit_batch(&self, batch: Vec<(Arc<NeededFile>, CompletedFile)>) {
        let mut applied = Vec::with_capacity(batch.len());
        for (needed, completed) in batch {
            let result = match &completed {
                CompletedFile::SingleBlock(_) => Ok(()),
                CompletedFile::MultiBlock(partial) => partial.apply_attributes(&needed.entry, &self.attributes),
            };
            match result {
                Ok(()) => applied.push((needed, completed)),
                Err(error) => self.settle_file(&needed, Err(error)),
            }
        }
        let synced = sync_batch(&applied, self.options.fsync, &self.file_systems);
        let mut named = Vec::with_capacity(applied.len());
        for ((needed, completed), synced) in applied.into_iter().zip(synced) {
            let path = needed.entry.name.to_string();
            if let (Err(_), CompletedFile::MultiBlock(partial)) = (&synced, &completed) {
                // The kernel reports a write error only once. After this, reads may return data that is only in memory.
                partial.discard_on_close();
            }
            let synced = synced.map_err(|source| TransferError::File { doing: "write", path, source });
            // A copy that was stopped meanwhile must not rename more files.
            let ready = if self.is_stopped() { Err(TransferError::Interrupted) } else { synced };
            let result = ready.and_then(|()| completed.publish(needed.replace));
            named.push((needed, result));
        }
        self.settle_files(named);
    }
}

impl CompletedFile {
    /// Returns the number of descriptors of the file: the file itself, a journal, and the directory if the previous
    /// file has another one.
    fn descriptors(&self, before: Option<&CompletedFile>) -> usize {
        let own = match self {
            CompletedFile::SingleBlock(_) => 1,
            CompletedFile::MultiBlock(_) => 2,
        };
        let shared = before.is_some_and(|before| Arc::ptr_eq(before.directory(), self.directory()));
        own + usize::from(!shared)
    }

    fn directory(&self) -> &Arc<OwnedFd> {
        match self {
            CompletedFile::SingleBlock(file) => file.directory(),
            CompletedFile::MultiBlock(partial) => partial.directory(),
        }
    }

    fn file(&self) -> &File {
        match self {
            CompletedFile::SingleBlock(file) => file.file(),
            CompletedFile::MultiBlock(partial) => partial.file(),
        }
    }

    /// Renames the file to its final name.
    pub(super) fn publish(self, replace: bool) -> Result<(), TransferError> {
        match self {
            CompletedFile::SingleBlock(file) => file.publish(replace),
            CompletedFile::MultiBlock(partial) => partial.publish(replace),
        }
    }
}

impl FileSystems {
    /// Adds the file system of `file`, and returns its device number.
    pub(super) fn add(&self, file: &File) -> io::Result<(u64, FileSystem)> {
        let number = fstat(file)?.st_dev;
        let file_system = match lock(&self.0).entry(number) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                let has_syncfs = fstatfs(file)?.f_type as u64 != FUSE_SUPER_MAGIC;
                unknown.insert(FileSystem { file: Arc::new(file.try_clone()?), has_syncfs }).clone()
            }
        };
        Ok((number, file_system))
    }

    /// Adds the file system of an existing file. If the directory may not be read, flushing is left to the kernel.
    pub(super) fn add_existing(&self, file_system: u64, open: impl FnOnce() -> Result<OwnedFd, Errno>) {
        if lock(&self.0).contains_key(&file_system) {
            return;
        }
        if let Ok(directory) = open() {
            let _ = self.add(&directory.into());
        }
    }

    /// Waits until all data written to these file systems is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let file_systems: Vec<_> = lock(&self.0).values().cloned().collect();
        file_systems.iter().try_for_each(|file_system| Ok(syncfs(&*file_system.file)?))
    }
}
