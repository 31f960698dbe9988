//! Names for files that are whole: in groups, each after one sync of what is in it.
//!
//! With [`Sync::File`] nothing has its final name before its bytes are on disk. To wait for the disk once for each of many
//! small files would make it the slowest part of the copy, so that they are collected for some milliseconds, their file
//! system is synced once, and then they get their names. That the names are on disk is made sure once, at the end.

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
use super::super::flow::lock;
use super::item::Item;
use super::partial::Partial;
use super::small::Small;
use super::{Receiver, Sync};

/// How many files get their names together, or more.
const MOST: usize = 128;

/// Most descriptors that are held by files that wait for their names or are given them: each is open, and so is the
/// directory that it goes to. Less where this process may have few.
const MOST_HELD: usize = 512;

/// The part of what this process may have open that files in the group may take.
const SHARE: u64 = 4;

/// How long a file waits for others.
const PATIENCE: Duration = Duration::from_millis(20);

/// A file that is whole.
#[derive(Debug)]
pub(super) enum Whole {
    Small(Small),
    Large(Arc<Partial>),
}

/// Files that wait for their names.
#[derive(Debug)]
pub(super) struct Group {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    most_held: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    files: Vec<(Arc<Item>, Whole)>,
    since: Option<Instant>,
    /// Descriptors of these files, and of those that were taken last.
    held: usize,
    taken: usize,
}

/// The file systems that were written to.
#[derive(Debug, Default)]
pub(super) struct Devices(Mutex<BTreeMap<u64, Device>>);

/// A file system, by a file on it that was open before anything was written: so its `syncfs` tells of every error since
/// (syncfs(2)).
#[derive(Debug, Clone)]
pub(super) struct Device {
    file: Arc<File>,
    /// Its `syncfs` puts on disk what was written to it. One in user space is not even asked (`fuse_sync_fs`): it hears of
    /// `fsync` alone, and may keep until then that it could not write.
    pub(super) syncs: bool,
}

/// `FUSE_SUPER_MAGIC`.
const FUSE: u64 = 0x6573_5546;

impl Default for Group {
    fn default() -> Self {
        let may = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / SHARE;
        let most_held = MOST_HELD.min(usize::try_from(may).unwrap_or(MOST_HELD));
        Group { waiting: Mutex::default(), changed: Condvar::new(), most_held }
    }
}

impl Group {
    /// Takes a file that is whole; where too many are waiting, waits as long as `may_wait` says so.
    pub(super) fn push(&self, item: Arc<Item>, whole: Whole, may_wait: impl Fn() -> bool) {
        let mut waiting = lock(&self.waiting);
        while waiting.held >= self.most_held && may_wait() {
            // Nobody is to wait for more of them.
            self.changed.notify_all();
            waiting = self.wait(waiting, PATIENCE);
        }
        waiting.since.get_or_insert_with(Instant::now);
        waiting.held += whole.descriptors(waiting.files.last().map(|(_, before)| before));
        waiting.files.push((item, whole));
        if matches!(waiting.files.len(), 1 | MOST) {
            self.changed.notify_all();
        }
    }

    /// The next group, once it is large or old enough; none once `stopped`.
    pub(super) fn take(&self, stopped: impl Fn() -> bool) -> Option<Vec<(Arc<Item>, Whole)>> {
        let mut waiting = lock(&self.waiting);
        // Those that were taken before have their names.
        waiting.held -= std::mem::take(&mut waiting.taken);
        self.changed.notify_all();
        loop {
            if stopped() {
                return None;
            }
            let left =
                waiting.since.map_or(Duration::from_millis(100), |since| PATIENCE.saturating_sub(since.elapsed()));
            let many = waiting.files.len() >= MOST || waiting.held >= self.most_held;
            let ripe = !waiting.files.is_empty() && (many || left.is_zero());
            if ripe {
                waiting.since = None;
                waiting.taken = waiting.held;
                return Some(std::mem::take(&mut waiting.files));
            }
            waiting = self.wait(waiting, left);
        }
    }

    /// Lets go of what waits.
    pub(super) fn clear(&self) {
        let files = std::mem::take(&mut lock(&self.waiting).files);
        drop(files);
    }

    fn wait<'a>(
        &self,
        waiting: std::sync::MutexGuard<'a, Waiting>,
        time: Duration,
    ) -> std::sync::MutexGuard<'a, Waiting> {
        self.changed.wait_timeout(waiting, time).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Makes sure that the files' bytes are on disk, where `sync` asks for that before they have their names.
fn settle_bytes(group: &[(Arc<Item>, Whole)], sync: Sync, devices: &Devices) -> Vec<io::Result<()>> {
    let none = || group.iter().map(|_| Ok(())).collect();
    match (sync, group) {
        (Sync::None, _) => none(),
        (Sync::End, group) => {
            let unless_later = |whole: &Whole| match devices.note(whole.file())?.1.syncs {
                true => Ok(()),
                false => Ok(fsync(whole.file())?),
            };
            group.iter().map(|(_, whole)| unless_later(whole)).collect()
        }
        // One file alone does not make the whole file system wait.
        (Sync::File, [(_, whole)]) => {
            vec![devices.note(whole.file()).and_then(|_| Ok(fsync(whole.file())?))]
        }
        (Sync::File, group) => {
            let mut done: BTreeMap<u64, Result<(), Errno>> = BTreeMap::new();
            let mut result = |whole: &Whole| {
                let (device, Device { syncs, .. }) = devices.note(whole.file())?;
                // The kernel tells a descriptor of errors since it was opened: one opened late does not answer for a
                // file that was long under way.
                if matches!(whole, Whole::Large(_)) || !syncs {
                    return Ok(fsync(whole.file())?);
                }
                (*done.entry(device).or_insert_with(|| syncfs(whole.file()))).map_err(io::Error::from)
            };
            group.iter().map(|(_, whole)| result(whole)).collect()
        }
    }
}

impl Receiver {
    /// Gives names to files that are whole, until the copy is over.
    pub(super) fn give_names(&self) {
        let over = || self.stopped() || lock(&self.ended).is_some();
        while let Some(group) = self.group.take(over) {
            self.graves.close(self);
            self.while_busy(|| self.name_all(group));
        }
        self.group.clear();
    }

    fn name_all(&self, group: Vec<(Arc<Item>, Whole)>) {
        let mut dressed = Vec::with_capacity(group.len());
        for (item, whole) in group {
            let result = match &whole {
                Whole::Small(_) => Ok(()),
                Whole::Large(partial) => partial.dress(&item.entry, &self.dressing),
            };
            match result {
                Ok(()) => dressed.push((item, whole)),
                Err(error) => self.settle(&item, Err(error)),
            }
        }
        let synced = settle_bytes(&dressed, self.manner.fsync, &self.devices);
        let mut named = Vec::with_capacity(dressed.len());
        for ((item, whole), synced) in dressed.into_iter().zip(synced) {
            let path = item.entry.name.to_string();
            if let (Err(_), Whole::Large(partial)) = (&synced, &whole) {
                // What is missing on disk, nobody can tell any more: what is read is what the kernel still holds.
                partial.condemn();
            }
            let synced = synced.map_err(|source| TransferError::File { doing: "write", path, source });
            // Whoever ended the copy meanwhile wants no more names.
            let wanted = if self.stopped() { Err(TransferError::Interrupted) } else { synced };
            let result = wanted.and_then(|()| whole.name(item.replace));
            named.push((item, result));
        }
        self.settle_all(named);
    }
}

impl Whole {
    /// How many are open for it: the file, a journal, and its directory, if that is not the one of the file before it.
    fn descriptors(&self, before: Option<&Whole>) -> usize {
        let own = match self {
            Whole::Small(_) => 1,
            Whole::Large(_) => 2,
        };
        let shared = before.is_some_and(|before| Arc::ptr_eq(before.directory(), self.directory()));
        own + usize::from(!shared)
    }

    fn directory(&self) -> &Arc<OwnedFd> {
        match self {
            Whole::Small(small) => small.directory(),
            Whole::Large(partial) => partial.directory(),
        }
    }

    fn file(&self) -> &File {
        match self {
            Whole::Small(small) => small.file(),
            Whole::Large(partial) => partial.file(),
        }
    }

    /// Gives the file its name.
    pub(super) fn name(self, replace: bool) -> Result<(), TransferError> {
        match self {
            Whole::Small(small) => small.name(replace),
            Whole::Large(partial) => partial.publish(replace),
        }
    }
}

impl Devices {
    /// Notes that something is written to the file system of `file`, and says which that is.
    pub(super) fn note(&self, file: &File) -> io::Result<(u64, Device)> {
        let number = fstat(file)?.st_dev;
        let device = match lock(&self.0).entry(number) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(unknown) => {
                let syncs = fstatfs(file)?.f_type as u64 != FUSE;
                unknown.insert(Device { file: Arc::new(file.try_clone()?), syncs }).clone()
            }
        };
        Ok((number, device))
    }

    /// Notes a file system by what is there already; a directory that may not be read is left to the kernel.
    pub(super) fn note_there(&self, device: u64, open: impl FnOnce() -> Result<OwnedFd, Errno>) {
        if lock(&self.0).contains_key(&device) {
            return;
        }
        if let Ok(directory) = open() {
            let _ = self.note(&directory.into());
        }
    }

    /// Waits until everything written to them is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let devices: Vec<_> = lock(&self.0).values().cloned().collect();
        devices.iter().try_for_each(|device| Ok(syncfs(&*device.file)?))
    }
}
