//! The commit stage: gives complete files their final names, and reports the outcome of each needed file.
//!
//! With [`FsyncPolicy::File`] a file gets its final name only when its data is on disk. A wait for the disk for each of
//! many small files would be the slowest part of a copy. So complete files are collected for some milliseconds, their
//! file system is synced once, and then they get their names. The names themselves are flushed once, at the end of the
//! copy. Files that need no sync of their own are published on the thread of their stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_session::wire::copy::EntryAction;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::EntryKind;
use lfn_session::wire::copy::options::{FsyncPolicy, TransferOptions, Verify};
use lfn_session::wire::copy::overwrite::{OverwriteDecision, SkipReason, decide};
use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, getrlimit};

use super::existing_digest;
use super::file::NeededFile;
use super::outcome::EntryOutcome;
use super::plan_event::{FileDone, PlanInbox};
use super::report::{Report, Reports};
use crate::TransferError;
use crate::storage::UnpublishedFile;
use crate::work_meter::WorkMeter;

/// Number of files that complete a batch.
const BATCH_SIZE: usize = 128;

/// Maximum number of descriptors of files that wait for their names: each file and its directory are open. The limit is
/// lower in a process with a low limit of its own.
const MAX_DESCRIPTORS: usize = 512;

/// Files in the queue may use one part in this many of the process's descriptors.
const DESCRIPTOR_SHARE: u64 = 4;

/// Maximum wait of a file for others of its batch.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// Interval at which the waiting thread checks whether the copy is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The commit stage. The streams and the control thread add files; the commit thread owns the batches.
#[derive(Debug)]
pub(super) struct CommitStage {
    queue: Mutex<Queue>,
    changed: Condvar,
    max_descriptors: usize,
    fsync: FsyncPolicy,
    verify: Verify,
    reports_digests: bool,
    reports: Reports,
    planner: PlanInbox,
    meter: Arc<WorkMeter>,
}

/// A needed file that is over.
#[derive(Debug)]
struct CommitJob {
    needed: Arc<NeededFile>,
    /// The complete file, or the incomplete file of a failed entry. `None` also if another copy has written the file.
    file: Option<Arc<dyn UnpublishedFile>>,
    error: Option<TransferError>,
}

/// A complete file of the current batch.
type CompleteFile = (Arc<NeededFile>, Arc<dyn UnpublishedFile>);

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<CommitJob>,
    oldest: Option<Instant>,
    /// Descriptors of the waiting files and of the batch that was taken last.
    descriptors: usize,
    taken_descriptors: usize,
    is_closed: bool,
}

/// The fate of a file that was to be published.
#[derive(Debug)]
enum Published {
    /// The file has its final name, and replaced another one or not.
    Written { replaced: bool },
    /// An equal or newer file has appeared under the name meanwhile.
    Skipped(SkipReason),
}

impl CommitStage {
    pub(super) fn new(options: &TransferOptions, reports: Reports, planner: PlanInbox, meter: Arc<WorkMeter>) -> Self {
        let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / DESCRIPTOR_SHARE;
        CommitStage {
            queue: Mutex::default(),
            changed: Condvar::new(),
            max_descriptors: MAX_DESCRIPTORS.min(usize::try_from(allowed).unwrap_or(MAX_DESCRIPTORS)),
            fsync: options.fsync,
            verify: options.verify,
            reports_digests: options.report_digests,
            reports,
            planner,
            meter,
        }
    }

    /// Commits a file of one block: at once if the file needs no sync of its own.
    pub(super) fn commit_single_block(&self, needed: Arc<NeededFile>, file: Arc<dyn UnpublishedFile>) {
        let is_ready = match self.fsync {
            FsyncPolicy::None => true,
            // The whole file system is synced at the end.
            FsyncPolicy::End => needed.target.storage.is_synced_later(file.as_ref()),
            FsyncPolicy::File => false,
        };
        if is_ready {
            let published = self.publish(&needed, file.as_ref());
            self.settle(&needed, Some(file.as_ref()), published);
        } else {
            self.queue(needed, file, true);
        }
    }

    /// Adds a complete file to the queue. While the queue is full, waits if `may_wait`.
    pub(super) fn queue(&self, needed: Arc<NeededFile>, file: Arc<dyn UnpublishedFile>, may_wait: bool) {
        self.push(CommitJob { needed, file: Some(file), error: None }, may_wait);
    }

    /// Adds a failed file to the queue, with its partial file. Closing that file may take a disk's time.
    pub(super) fn fail(&self, needed: Arc<NeededFile>, error: TransferError, file: Option<Arc<dyn UnpublishedFile>>) {
        self.push(CommitJob { needed, file, error: Some(error) }, false);
    }

    /// Ends a file that another copy has written meanwhile.
    pub(super) fn skip(&self, needed: Arc<NeededFile>) {
        self.push(CommitJob { needed, file: None, error: None }, false);
    }

    fn push(&self, job: CommitJob, may_wait: bool) {
        let mut queue = self.queue.lock();
        while queue.descriptors >= self.max_descriptors && may_wait && !self.meter.is_stopped() {
            // Start the commit now: no more files can join the batch.
            self.changed.notify_all();
            self.changed.wait_for(&mut queue, BATCH_DELAY);
        }
        queue.oldest.get_or_insert_with(Instant::now);
        queue.descriptors += job.descriptors(queue.jobs.last());
        queue.jobs.push(job);
        if matches!(queue.jobs.len(), 1 | BATCH_SIZE) {
            self.changed.notify_all();
        }
    }

    /// Ends the commit thread. Every file has its outcome.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Drops the waiting files.
    pub(super) fn clear(&self) {
        let jobs = std::mem::take(&mut self.queue.lock().jobs);
        drop(jobs);
    }

    /// Runs the commit thread until the copy is over.
    pub(super) fn run(&self) {
        while let Some(batch) = self.take_batch() {
            self.meter.while_blocked(|| self.commit_batch(batch));
        }
        self.clear();
    }

    /// Waits for the next batch, until it is large or old enough. Returns `None` at the end of the copy.
    fn take_batch(&self) -> Option<Vec<CommitJob>> {
        let mut queue = self.queue.lock();
        // The batch that was taken last has its names now.
        queue.descriptors -= std::mem::take(&mut queue.taken_descriptors);
        self.changed.notify_all();
        loop {
            if queue.is_closed || self.meter.is_stopped() {
                return None;
            }
            let remaining = queue.oldest.map_or(POLL_INTERVAL, |since| BATCH_DELAY.saturating_sub(since.elapsed()));
            let is_full = queue.jobs.len() >= BATCH_SIZE || queue.descriptors >= self.max_descriptors;
            if !queue.jobs.is_empty() && (is_full || remaining.is_zero()) {
                queue.oldest = None;
                queue.taken_descriptors = queue.descriptors;
                return Some(std::mem::take(&mut queue.jobs));
            }
            self.changed.wait_for(&mut queue, remaining);
        }
    }

    fn commit_batch(&self, batch: Vec<CommitJob>) {
        let mut ready: Vec<CompleteFile> = Vec::with_capacity(batch.len());
        for CommitJob { needed, file, error } in batch {
            let applied = match (&file, error) {
                (_, Some(error)) => Err(error),
                (Some(file), None) => file.set_attributes(&needed.entry),
                (None, None) => Ok(()),
            };
            match (applied, file) {
                (Ok(()), Some(file)) => ready.push((needed, file)),
                (Ok(()), None) => {
                    let decision = self.decide_again(&needed, needed.digest());
                    let published = decision.and_then(|decision| match decision {
                        OverwriteDecision::Skip(reason) => Ok(Published::Skipped(reason)),
                        _ => Err(TransferError::Incomplete),
                    });
                    self.settle(&needed, None, published);
                }
                (Err(error), file) => {
                    // Closing the file flushes its blocks to disk.
                    drop(file);
                    self.settle(&needed, None, Err(error));
                }
            }
        }
        for ((needed, file), synced) in ready.iter().zip(self.sync(&ready)) {
            let published = match synced {
                // A copy that was stopped meanwhile must not rename more files.
                _ if self.meter.is_stopped() => Err(TransferError::Interrupted),
                Ok(()) => self.publish(needed, file.as_ref()),
                Err(source) => {
                    // The kernel reports a write error only once. After this, reads may return data that is only in
                    // memory.
                    file.discard_on_close();
                    Err(TransferError::File { doing: "write", path: needed.entry.name.to_string(), source })
                }
            };
            self.settle(needed, Some(file.as_ref()), published);
        }
    }

    /// Flushes the data of the files, as the options require this before the rename.
    fn sync(&self, ready: &[CompleteFile]) -> Vec<std::io::Result<()>> {
        let Some((first, _)) = ready.first() else { return Vec::new() };
        let files: Vec<_> = ready.iter().map(|(_, file)| file.clone()).collect();
        first.target.storage.sync_files(&files, self.fsync)
    }

    /// Gives a file its final name. If another file has appeared under a free name meanwhile, decides about it again.
    fn publish(&self, needed: &NeededFile, file: &dyn UnpublishedFile) -> Result<Published, TransferError> {
        match file.publish(needed.replace) {
            Ok(()) => Ok(Published::Written { replaced: needed.replace }),
            Err(TransferError::Exists { .. }) => self.publish_again(needed, file),
            Err(error) => Err(error),
        }
    }

    /// Publishes a file whose name came into use during the copy, for example by a second copy of the same source.
    fn publish_again(&self, needed: &NeededFile, file: &dyn UnpublishedFile) -> Result<Published, TransferError> {
        match self.decide_again(needed, needed.digest())? {
            OverwriteDecision::Skip(reason) => {
                file.discard_on_close();
                Ok(Published::Skipped(reason))
            }
            OverwriteDecision::Create => {
                file.publish(false)?;
                Ok(Published::Written { replaced: false })
            }
            OverwriteDecision::Replace | OverwriteDecision::CompareDigests => {
                file.publish(true)?;
                Ok(Published::Written { replaced: true })
            }
            OverwriteDecision::Refuse(obstacle) => {
                let path = needed.target.storage.display_name(&needed.entry.name);
                Err(TransferError::Conflict { path, obstacle })
            }
        }
    }

    /// Decides about an entry from the object that has its name now. `digest` is the digest of the source file, if it
    /// is known.
    fn decide_again(&self, needed: &NeededFile, digest: Option<Digest>) -> Result<OverwriteDecision, TransferError> {
        let (target, entry) = (&needed.target, &needed.entry);
        let existing = target.storage.stat(&entry.name)?.for_decision();
        let decision = decide(entry, existing, None, target.overwrite);
        if decision != OverwriteDecision::CompareDigests {
            return Ok(decision);
        }
        let is_equal = self.verify.detects_changes() && digest.is_some() && self.existing_digest(needed) == digest;
        Ok(decide(entry, existing, Some(is_equal), target.overwrite))
    }

    /// Returns whether an equal or newer file has appeared meanwhile under the name of a file that is not complete.
    /// Returns false if only a comparison of digests can decide this.
    pub(super) fn has_appeared(&self, needed: &NeededFile) -> bool {
        !needed.replace && matches!(self.decide_again(needed, None), Ok(OverwriteDecision::Skip(_)))
    }

    /// Returns the digest of the existing file of this name. `None` if the file cannot be read or has another length.
    fn existing_digest(&self, needed: &NeededFile) -> Option<Digest> {
        let (storage, name) = (needed.target.storage.as_ref(), &needed.entry.name);
        existing_digest::compute(storage, name, needed.layout, self.verify, &self.meter).ok()
    }

    /// Reports the outcome of a needed file: to the user, to the sender, and to the planner.
    fn settle(
        &self,
        needed: &NeededFile,
        file: Option<&dyn UnpublishedFile>,
        published: Result<Published, TransferError>,
    ) {
        let (entry, number) = (&needed.entry, needed.number);
        let digest = needed.digest();
        let outcome = match (published, digest) {
            (Ok(Published::Written { replaced }), Some(digest)) => self.report_written(needed, replaced, digest),
            (Ok(Published::Skipped(reason)), _) => self.report_skipped(needed, reason, digest),
            (Ok(Published::Written { .. }), None) => EntryOutcome::Failed(TransferError::Incomplete),
            (Err(error), _) => EntryOutcome::Failed(error),
        };
        let is_written = matches!(outcome, EntryOutcome::File { .. });
        let done = FileDone {
            number,
            exists: outcome.is_linkable(),
            id: file.filter(|_| entry.linked && is_written).and_then(UnpublishedFile::id),
            digest: digest.filter(|_| self.reports_digests),
        };
        self.reports.send(Report::Settled { number, name: entry.name.clone(), outcome });
        self.planner.file_done(done, entry.linked);
    }

    fn report_written(&self, needed: &NeededFile, replaced: bool, digest: Digest) -> EntryOutcome {
        let (entry, reports) = (&needed.entry, &needed.target.reports);
        if self.reports_digests {
            let action = if replaced { EntryAction::Replace } else { EntryAction::New };
            reports.digest(entry, action, digest);
        }
        reports.written(entry, replaced);
        EntryOutcome::File { digest, kept: needed.kept_bytes(), bytes: needed.layout.bytes() }
    }

    /// Reports a file that stays, because it appeared meanwhile and equals the source's, or is newer.
    fn report_skipped(&self, needed: &NeededFile, reason: SkipReason, digest: Option<Digest>) -> EntryOutcome {
        let (entry, reports) = (&needed.entry, &needed.target.reports);
        let action = match reason {
            SkipReason::UpToDate => EntryAction::UpToDate,
            SkipReason::Newer => EntryAction::Newer,
        };
        reports.unchanged(entry, action);
        if let (EntryKind::File { .. }, Some(digest), SkipReason::UpToDate, true) =
            (&entry.kind, digest, reason, self.reports_digests)
        {
            reports.digest(entry, action, digest);
        }
        EntryOutcome::skipped(entry)
    }
}

impl CommitJob {
    /// Returns the number of descriptors of the file: its own, and the directory if the previous file has another one.
    fn descriptors(&self, before: Option<&CommitJob>) -> usize {
        let Some(file) = &self.file else { return 0 };
        let directory = |job: &CommitJob| job.file.as_ref().map(|file| file.directory_key());
        file.descriptors() + usize::from(before.and_then(directory) != Some(file.directory_key()))
    }
}
