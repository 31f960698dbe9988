//! Digests of what is at the destination already: to compare it with the source, or to list it in a manifest.
//!
//! One thread reads and hashes, beside the streams and at the same time as the sender hashes its own.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::{Digest, HashTree};
use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Fate, Thing, Told};
use rustix::fs::{Mode, OFlags, openat};

use super::super::TransferError;
use super::super::flow::{Activity, lock};
use super::Receiver;
use super::item::Done;
use super::tree::Place;

/// Files that are to be read.
#[derive(Debug, Default)]
pub(super) struct Compare {
    queue: Mutex<VecDeque<Job>>,
    changed: Condvar,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) number: u32,
    /// Its place is looked up when it is read: a directory held open for each that waits would be thousands.
    pub(super) name: Name,
    pub(super) layout: Layout,
    /// What is there is what was listed, and this became of it: only its digest is missing.
    pub(super) there: Option<(Entry, Done)>,
}

impl Compare {
    /// Takes a file to be read.
    pub(super) fn push(&self, job: Job) {
        lock(&self.queue).push_back(job);
        self.changed.notify_all();
    }

    fn take(&self, over: impl Fn() -> bool) -> Option<Job> {
        let mut queue = lock(&self.queue);
        while !over() {
            if let Some(job) = queue.pop_front() {
                return Some(job);
            }
            let waited = self.changed.wait_timeout(queue, Duration::from_millis(50));
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

impl Receiver {
    /// Reads what is there, until the copy is over.
    pub(super) fn hash_there(&self) {
        let over = || self.stopped() || lock(&self.ended).is_some();
        while let Some(mut job) = self.compare.take(over) {
            let digest = self.while_busy(|| self.digest_of(&job));
            let Some((entry, done)) = job.there.take() else {
                // What cannot be read is not the same.
                self.table.ours(job.number, digest.ok());
                continue;
            };
            match digest {
                Ok(digest) => self.tell_there(job.number, &entry, Fate::There, digest),
                Err(error) => self.table.complain(&entry.name, &error),
            }
            self.table.settle(job.number, &entry.name, done);
        }
    }

    /// Tells of a file that is whole there, or of another name of it, with its digest.
    pub(super) fn tell_there(&self, number: u32, entry: &Entry, fate: Fate, digest: Digest) {
        let (kind, bytes) = match entry.kind {
            Kind::File { length } => (Thing::File, Some(length)),
            _ => (Thing::Link, None),
        };
        self.table.note(number, |note| note.digest = Some(digest));
        self.tell(Told { name: self.name_of(&entry.name), kind, fate, bytes, digest: Some(digest) });
    }

    /// Tells of a hard link that is there with the digest of its file, where digests are told. If that is not remembered,
    /// the file is read.
    pub(super) fn link_is_there(
        &self,
        number: u32,
        entry: Entry,
        place: Place,
        (fate, done): (Fate, Done),
    ) -> Result<Option<Done>, TransferError> {
        let Kind::HardLink { to } = entry.kind else { return Ok(Some(done)) };
        if !self.manner.digests {
            return Ok(Some(done));
        }
        if let Some(digest) = self.table.noted(to).digest {
            self.tell_there(number, &entry, fate, digest);
            return Ok(Some(done));
        }
        let length = place.stat()?.map_or(0, |stat| stat.st_size.unsigned_abs());
        let layout = Layout::new(Bytes(length), self.block)?;
        self.compare.push(Job { number, name: entry.name.clone(), layout, there: Some((entry, done)) });
        Ok(None)
    }

    fn digest_of(&self, job: &Job) -> Result<Digest, TransferError> {
        let Job { name, layout, .. } = job;
        let place = self.tree().ok_or(TransferError::Incomplete)?.place(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&place.directory, &place.name, flags, Mode::empty());
        let file: File = opened.map_err(|e| place.error("read", e))?.into();
        let failed = |source| TransferError::File { doing: "read", path: place.shown.clone(), source };
        let mut buffer = vec![0; layout.block_size().min(layout.bytes()).0 as usize];
        let mut tree = HashTree::new(*layout);
        for block in (0..layout.blocks()).filter_map(|index| layout.block(index)) {
            if self.stopped() {
                return Err(TransferError::Interrupted);
            }
            let bytes = &mut buffer[..block.length as usize];
            self.flow.spend(Activity::Disk, || file.read_exact_at(bytes, block.offset)).map_err(failed)?;
            let hash = self.flow.spend(Activity::Hash, || self.manner.verify.hash(layout, block, bytes));
            tree.insert(block.index, hash);
        }
        // Longer than it was when it was looked at.
        let longer = file.metadata().map_err(failed)?.len() != layout.bytes().0;
        tree.digest().filter(|_| !longer).ok_or_else(|| TransferError::SourceChanged { path: place.shown.clone() })
    }
}
