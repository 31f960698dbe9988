//! Digests of existing files at the destination, for comparison with the source or for a manifest.
//!
//! One thread reads and hashes, in parallel to the streams and to the sender's own hashing.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::{Digest, HashTree};
use lfn_core::transfer::entry::{Entry, EntryKind, Name};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{EntryAction, EntryEvent, ReportedKind};
use rustix::fs::{Mode, OFlags, openat};

use super::super::TransferError;
use super::super::stream_set::{Activity, lock};
use super::Receiver;
use super::entry::EntryOutcome;
use super::tree::EntryLocation;

/// Files that wait to be read and hashed.
#[derive(Debug, Default)]
pub(super) struct DigestQueue {
    queue: Mutex<VecDeque<DigestJob>>,
    changed: Condvar,
}

/// An existing file to hash.
#[derive(Debug)]
pub(super) struct DigestJob {
    pub(super) number: u32,
    /// Locating the file is left to the time of reading. One open directory for each waiting file would be thousands of
    /// them.
    pub(super) name: Name,
    pub(super) layout: Layout,
    /// Set if the existing file is accepted already, with its entry and outcome. Only the digest is missing.
    pub(super) existing: Option<(Entry, EntryOutcome)>,
}

impl DigestQueue {
    /// Adds a file to the queue.
    pub(super) fn push(&self, job: DigestJob) {
        lock(&self.queue).push_back(job);
        self.changed.notify_all();
    }

    fn take(&self, is_over: impl Fn() -> bool) -> Option<DigestJob> {
        let mut queue = lock(&self.queue);
        while !is_over() {
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
    /// Hashes existing files until the copy is over.
    pub(super) fn hash_existing_files(&self) {
        let is_over = || self.is_stopped() || lock(&self.result).is_some();
        while let Some(mut job) = self.digest_queue.take(is_over) {
            let digest = self.while_blocked_on_disk(|| self.compute_digest(&job));
            let Some((entry, done)) = job.existing.take() else {
                // A file that cannot be read counts as different.
                self.table.set_existing_digest(job.number, digest.ok());
                continue;
            };
            match digest {
                Ok(digest) => self.report_existing(job.number, &entry, EntryAction::UpToDate, digest),
                Err(error) => self.table.report_failure(&entry.name, &error),
            }
            self.table.settle(job.number, &entry.name, done);
        }
    }

    /// Reports a complete file, or a hard link to it, with its digest.
    pub(super) fn report_existing(&self, number: u32, entry: &Entry, action: EntryAction, digest: Digest) {
        let (kind, bytes) = match entry.kind {
            EntryKind::File { length } => (ReportedKind::File, Some(length)),
            _ => (ReportedKind::Link, None),
        };
        self.table.update_link_info(number, |info| info.digest = Some(digest));
        self.report_event(EntryEvent {
            name: self.name_at_destination(&entry.name),
            kind,
            action,
            bytes,
            digest: Some(digest),
        });
    }

    /// Finishes an existing hard link. If digests are reported, the report carries the digest of its file. If that
    /// digest is not remembered, the file is queued for reading.
    pub(super) fn report_hard_link(
        &self,
        number: u32,
        entry: Entry,
        location: EntryLocation,
        action: EntryAction,
        done: EntryOutcome,
    ) -> Result<Option<EntryOutcome>, TransferError> {
        let EntryKind::HardLink { to } = entry.kind else { return Ok(Some(done)) };
        if !self.options.report_digests {
            return Ok(Some(done));
        }
        if let Some(digest) = self.table.link_info(to).digest {
            self.report_existing(number, &entry, action, digest);
            return Ok(Some(done));
        }
        let length = location.stat()?.map_or(0, |stat| stat.st_size.unsigned_abs());
        let layout = Layout::new(Bytes(length), self.block_size)?;
        self.digest_queue.push(DigestJob { number, name: entry.name.clone(), layout, existing: Some((entry, done)) });
        Ok(None)
    }

    fn compute_digest(&self, job: &DigestJob) -> Result<Digest, TransferError> {
        let DigestJob { name, layout, .. } = job;
        let location = self.tree().ok_or(TransferError::Incomplete)?.locate(name)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&location.directory, &location.name, flags, Mode::empty());
        let file: File = opened.map_err(|e| location.error("read", e))?.into();
        let failed = |source| TransferError::File { doing: "read", path: location.display_path.clone(), source };
        let mut buffer = vec![0; layout.block_size().min(layout.bytes()).0 as usize];
        let mut tree = HashTree::new(*layout);
        for block in (0..layout.blocks()).filter_map(|index| layout.block(index)) {
            if self.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            let bytes = &mut buffer[..block.length as usize];
            self.streams.measure(Activity::Disk, || file.read_exact_at(bytes, block.offset)).map_err(failed)?;
            let hash = self.streams.measure(Activity::Hash, || self.options.verify.hash(layout, block, bytes));
            tree.insert(block.index, hash);
        }
        // The file has grown since the planner looked at it.
        let longer = file.metadata().map_err(failed)?.len() != layout.bytes().0;
        tree.digest()
            .filter(|_| !longer)
            .ok_or_else(|| TransferError::SourceChanged { path: location.display_path.clone() })
    }
}
