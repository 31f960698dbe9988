//! Assembles files from their blocks: the files that need blocks, and the way of an intact block into its file.
//!
//! The planner adds each file that needs blocks, or marks an entry as decided. A stream waits here until its block's
//! entry is decided. A single-block file is written as a whole. A larger file goes into its partial file, and at most
//! [`MAX_PARTIALS`] of these are open at once. The thread that finds a file complete or failed sets `is_over`, so that no
//! other thread ends the file again, and hands the file to the commit stage.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Block, Subtree};
use lfn_session::wire::copy::blockset::{BlockSet, MAX_RANGES};
use lfn_session::wire::copy::digest::{BlockHash, Digest};
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::{MAX_PENDING_ENTRIES, ReceiverMessage};
use parking_lot::{Condvar, Mutex};

use super::commit::CommitStage;
use super::file::{FileState, NeededFile, TrackedBlocks};
use super::inbox::POLL_INTERVAL;
use super::quota::QuotaReservation;
use super::report::Reports;
use super::timeouts::ReceiverTimeouts;
use crate::proto::file_assembly::{AssemblyError, BlockCheck};
use crate::storage::{OpenedPartial, PartialRequest, UnpublishedFile};
use crate::stream_set::StreamSet;
use crate::work_meter::Activity;
use crate::{ForbiddenReason, TransferError};

/// Maximum time until another copy has closed a partial file that it writes no more. Closing can flush much data.
const MAX_RELEASE_TIME: Duration = Duration::from_secs(15 * 60);

/// Maximum number of open partial files. Each of them holds two descriptors open. The sender starts at most
/// [`MAX_OPEN_FILES`] files; the others are interrupted files that the planner finds.
///
/// [`MAX_OPEN_FILES`]: crate::proto::schedule::MAX_OPEN_FILES
const MAX_PARTIALS: usize = 128;

/// The files that need blocks. The planner, the streams and the control thread share it.
#[derive(Debug)]
pub(super) struct Assembler {
    files: Mutex<Files>,
    changed: Condvar,
    /// Number of entries that the planner has looked at.
    planned: AtomicU32,
    /// The sender must wait for a request before it sends a file.
    requests_blocks: AtomicBool,
    /// A copy of one file gives the file the name of the destination.
    takes_single_name: AtomicBool,
    open_partials: AtomicUsize,
    /// The time when this copy first waited for a partial file that another copy has locked.
    lock_wait_started: Mutex<Option<Instant>>,
    tracked: TrackedBlocks,
    pub(super) quota: QuotaReservation,
    commits: Arc<CommitStage>,
    reports: Reports,
    streams: Arc<StreamSet>,
    settings: AssemblySettings,
}

/// Fixed settings of the assembly.
#[derive(Clone, Copy, Debug)]
pub(super) struct AssemblySettings {
    pub(super) verify: Verify,
    /// Start of the copy, and whether an earlier session began it.
    pub(super) started_at: Modified,
    pub(super) is_resumed: bool,
    pub(super) timeouts: ReceiverTimeouts,
    /// A file of several blocks is complete only with the digest of its sender. Each of several ranks reads only a part
    /// of the file, so it has none.
    pub(super) needs_source_digest: bool,
}

#[derive(Debug, Default)]
struct Files {
    needed: HashMap<u32, Arc<NeededFile>>,
    /// Entries whose fate is decided. A decided entry without a needed file needs no blocks.
    decided: BlockSet,
    /// Number of entries that the sender has listed.
    listed: u32,
    is_list_complete: bool,
    /// Entries that streams wait for with a received block. Waking every stream for each entry of a large tree would
    /// cost more than the entries themselves.
    awaited: Vec<u32>,
}

impl Assembler {
    pub(super) fn new(
        settings: AssemblySettings,
        commits: Arc<CommitStage>,
        reports: Reports,
        streams: Arc<StreamSet>,
    ) -> Self {
        Assembler {
            files: Mutex::default(),
            changed: Condvar::new(),
            planned: AtomicU32::new(0),
            requests_blocks: AtomicBool::new(false),
            takes_single_name: AtomicBool::new(false),
            open_partials: AtomicUsize::new(0),
            lock_wait_started: Mutex::default(),
            tracked: TrackedBlocks::default(),
            quota: QuotaReservation::new(streams.has_byte_quota()),
            commits,
            reports,
            streams,
            settings,
        }
    }

    /// Returns the counter of block records for a new file.
    pub(super) fn tracked(&self) -> TrackedBlocks {
        self.tracked.clone()
    }

    /// Sets the length of the list so far.
    pub(super) fn set_listed(&self, listed: u32, is_complete: bool) {
        let mut files = self.files.lock();
        files.listed = listed;
        files.is_list_complete = is_complete;
        if is_complete {
            self.changed.notify_all();
        }
    }

    /// Records that the planner has decided about an entry: the file needs blocks, or the entry needs none.
    pub(super) fn decide(&self, number: u32, needed: Option<Arc<NeededFile>>) {
        let mut files = self.files.lock();
        if let Some(needed) = needed {
            files.needed.insert(number, needed);
        }
        files.decided.insert(number.into());
        if files.awaited.contains(&number) {
            self.changed.notify_all();
        }
    }

    /// Records that the planner has looked at the entries before this number.
    pub(super) fn set_planned(&self, planned: u32) {
        self.planned.store(planned, Ordering::SeqCst);
    }

    /// Returns the number of entries that the planner has looked at.
    pub(super) fn planned(&self) -> u32 {
        self.planned.load(Ordering::SeqCst)
    }

    /// Sets whether the sender must wait for a request before it sends a file.
    pub(super) fn set_requests_blocks(&self, requests_blocks: bool) {
        self.requests_blocks.store(requests_blocks, Ordering::SeqCst);
    }

    pub(super) fn set_takes_single_name(&self, takes_single_name: bool) {
        self.takes_single_name.store(takes_single_name, Ordering::SeqCst);
    }

    pub(super) fn takes_single_name(&self) -> bool {
        self.takes_single_name.load(Ordering::SeqCst)
    }

    pub(super) fn requests_blocks(&self) -> bool {
        self.requests_blocks.load(Ordering::SeqCst)
    }

    /// Forgets a file that has its outcome.
    pub(super) fn forget(&self, number: u32) {
        self.files.lock().needed.remove(&number);
    }

    /// Forgets all files and returns them.
    pub(super) fn take_all(&self) -> Vec<Arc<NeededFile>> {
        self.files.lock().needed.drain().map(|(_, needed)| needed).collect()
    }

    /// Waits until the planner has decided about the entry of a block. Returns `None` if the entry needs no more
    /// blocks.
    ///
    /// # Errors
    /// [`AssemblyError::File`] if the sender does not list the entry, and [`TransferError::Interrupted`] if `is_stopped`.
    pub(super) fn wait_for_file(
        &self,
        number: u32,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<Arc<NeededFile>>, TransferError> {
        let deadline = Instant::now() + self.settings.timeouts.unlisted_file;
        let mut files = self.files.lock();
        loop {
            if let Some(needed) = files.needed.get(&number) {
                return Ok(Some(needed.clone()));
            }
            if files.decided.contains(number.into()) {
                return Ok(None);
            }
            if number >= files.listed {
                let is_too_far = number - files.listed > MAX_PENDING_ENTRIES;
                if files.is_list_complete || is_too_far || Instant::now() > deadline {
                    return Err(AssemblyError::File(number).into());
                }
            }
            if is_stopped() {
                return Err(TransferError::Interrupted);
            }
            files.awaited.push(number);
            self.changed.wait_for(&mut files, POLL_INTERVAL);
            if let Some(at) = files.awaited.iter().position(|awaited| *awaited == number) {
                files.awaited.swap_remove(at);
            }
        }
    }

    /// Returns the file of this number, if it needs blocks.
    pub(super) fn needed_file(&self, number: u32) -> Option<Arc<NeededFile>> {
        self.files.lock().needed.get(&number).cloned()
    }

    /// Returns those of `blocks` that are still missing. All of them are missing if the planner has not decided about
    /// the entry.
    ///
    /// # Errors
    /// [`AssemblyError::File`] if the entry is not listed.
    pub(super) fn missing_blocks(&self, number: u32, blocks: &BlockSet) -> Result<BlockSet, TransferError> {
        let needed = {
            let files = self.files.lock();
            if number >= files.listed {
                return Err(AssemblyError::File(number).into());
            }
            match files.needed.get(&number) {
                Some(needed) => needed.clone(),
                None if files.decided.contains(number.into()) => return Ok(BlockSet::default()),
                None => return Ok(blocks.clone()),
            }
        };
        let state = needed.state.lock();
        if state.is_over {
            return Ok(BlockSet::default());
        }
        Ok(state.assembly.missing(blocks))
    }

    /// Returns whether at least one file still misses blocks.
    pub(super) fn is_waiting_for_blocks(&self) -> bool {
        let needed: Vec<_> = self.files.lock().needed.values().cloned().collect();
        needed.iter().any(|needed| needed.is_unfinished())
    }

    /// Compares the hash of an arrived block with the sender's. Only an intact block may be written.
    pub(super) fn check_block(
        &self,
        needed: &NeededFile,
        block: Block,
        sent: BlockHash,
        received: BlockHash,
    ) -> Result<BlockCheck, TransferError> {
        let mut state = needed.state.lock();
        let checked = state.assembly.check(block, sent, received)?;
        state.update_tracked()?;
        Ok(checked)
    }

    /// Writes an intact block. The last block of a file completes the file.
    pub(super) fn accept_block(
        &self,
        needed: &Arc<NeededFile>,
        block: Block,
        hash: BlockHash,
        payload: &[u8],
    ) -> Result<(), TransferError> {
        let blocks = Subtree::of_block(block.index);
        if needed.layout.blocks() == 1 {
            return self.accept_single_block(needed, hash, payload);
        }
        let write = |partial: &dyn UnpublishedFile| partial.write_block(block, hash, payload);
        self.accept_written(needed, blocks, hash, write)
    }

    /// Records a block that another rank has written. The last block of a file completes the file.
    pub(super) fn accept_stored(
        &self,
        needed: &Arc<NeededFile>,
        block: Block,
        hash: BlockHash,
    ) -> Result<(), TransferError> {
        let record = |partial: &dyn UnpublishedFile| partial.record_block(block, hash);
        self.accept_written(needed, Subtree::of_block(block.index), hash, record)
    }

    /// Opens the partial file of `needed` for other ranks. Returns `None` if the file is over, or has failed now.
    pub(super) fn open_for_ranks(&self, needed: &Arc<NeededFile>) -> Option<Arc<dyn UnpublishedFile>> {
        self.partial_of(needed).unwrap_or_else(|error| {
            self.fail(needed, error);
            None
        })
    }

    /// Writes a hole. The last block of a file completes the file.
    pub(super) fn accept_hole(
        &self,
        needed: &Arc<NeededFile>,
        hole: Subtree,
        hash: BlockHash,
    ) -> Result<(), TransferError> {
        if needed.layout.blocks() == 1 {
            return self.accept_single_block(needed, hash, &vec![0; needed.layout.bytes().0 as usize]);
        }
        self.accept_written(needed, hole, hash, |partial| partial.write_hole(hole, hash))
    }

    /// Writes a file of one block.
    fn accept_single_block(
        &self,
        needed: &Arc<NeededFile>,
        hash: BlockHash,
        payload: &[u8],
    ) -> Result<(), TransferError> {
        let write = || needed.target.storage.write_file(&needed.entry, payload);
        match self.streams.measure(Activity::Disk, write) {
            Ok(file) => {
                if self.record(needed, Subtree::of_block(0), hash)? {
                    self.complete_single_block(needed, file);
                }
            }
            Err(error) => self.fail(needed, error),
        }
        Ok(())
    }

    /// Writes blocks into the partial file.
    fn accept_written(
        &self,
        needed: &Arc<NeededFile>,
        blocks: Subtree,
        hash: BlockHash,
        write: impl FnOnce(&dyn UnpublishedFile) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let written = self.partial_of(needed).and_then(|partial| match partial {
            Some(partial) => self.streams.measure(Activity::Disk, || write(&*partial)),
            None => Ok(()),
        });
        match written {
            Ok(()) => {
                if self.record(needed, blocks, hash)? {
                    self.try_complete(needed);
                }
            }
            Err(error) => self.fail(needed, error),
        }
        Ok(())
    }

    /// Records written blocks. Returns false if this fails the file.
    fn record(&self, needed: &Arc<NeededFile>, blocks: Subtree, hash: BlockHash) -> Result<bool, TransferError> {
        let mut state = needed.state.lock();
        state.assembly.record(blocks, hash)?;
        let accounted = state.update_tracked();
        drop(state);
        self.quota.release_arrived(&needed.reservation, Bytes(needed.layout.subtree_bytes(blocks)));
        if let Err(error) = accounted {
            self.fail(needed, error);
            return Ok(false);
        }
        Ok(true)
    }

    /// Returns the partial file of `needed`, and opens it if necessary. Returns `None` if the file is over meanwhile.
    fn partial_of(&self, needed: &Arc<NeededFile>) -> Result<Option<Arc<dyn UnpublishedFile>>, TransferError> {
        let opened = || {
            let state = needed.state.lock();
            (state.is_over || state.partial.is_some()).then(|| state.partial.clone())
        };
        if let Some(partial) = opened() {
            return Ok(partial);
        }
        if self.has_too_many_partials() {
            self.wait_for_free_partial(self.settings.timeouts.free_partial, || thread::sleep(Duration::from_millis(2)));
        }
        let opening = needed.opening.lock();
        if let Some(partial) = opened() {
            return Ok(partial);
        }
        let have = match self.open_partial(needed) {
            Err(TransferError::Exists { .. }) => {
                needed.state.lock().is_over = true;
                self.quota.release(&needed.reservation);
                self.commits.skip(needed.clone());
                return Ok(None);
            }
            have => have?,
        };
        drop(opening);
        // The partial file appeared after the planner looked at the entry.
        if !have.is_empty() {
            self.reports.message(ReceiverMessage::Have { file: needed.number, blocks: have });
        }
        Ok(opened().flatten())
    }

    /// Opens the partial file that an earlier copy left, before the sender learns that blocks are needed. Returns the
    /// blocks that the sender can skip.
    pub(super) fn resume(&self, needed: &NeededFile) -> Result<BlockSet, TransferError> {
        let _opening = needed.opening.lock();
        self.open_partial(needed).inspect_err(|_| self.quota.release(&needed.reservation))
    }

    /// Opens the partial file. Returns the blocks from an earlier copy that the sender can skip.
    fn open_partial(&self, needed: &NeededFile) -> Result<BlockSet, TransferError> {
        // Several streams that waited at the same time can exceed the limit together.
        if self.open_partials.fetch_add(1, Ordering::SeqCst) >= 2 * MAX_PARTIALS {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
            let path = needed.entry.name.to_string();
            return Err(TransferError::Forbidden { path, reason: ForbiddenReason::TooManyPartials });
        }
        let opened = self.streams.meter().while_blocked(|| self.open_partial_when_free(needed));
        let used = opened.and_then(|opened| self.use_partial(needed, opened));
        used.inspect_err(|_| {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
        })
    }

    /// Adds an opened partial file to the state of its file.
    fn use_partial(&self, needed: &NeededFile, opened: OpenedPartial) -> Result<BlockSet, TransferError> {
        let OpenedPartial { file, kept } = opened;
        let is_ours = file.was_created_since(self.settings.started_at);
        let mut state = needed.state.lock();
        if state.is_over {
            if state.is_discarded {
                file.discard_on_close();
            }
            drop(state);
            drop(file);
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
            return Ok(BlockSet::default());
        }
        let mut have = BlockSet::default();
        for (blocks, hash) in kept {
            if state.assembly.add_existing(blocks, hash) {
                have.insert_range(blocks.first, blocks.last());
            }
        }
        state.update_tracked()?;
        state.partial = Some(file);
        state.is_own_partial = self.settings.is_resumed && is_ours;
        drop(state);
        let have = have.first_ranges(MAX_RANGES);
        self.streams.add_not_needed(have.ranges().map(|(first, last)| needed.layout.range_bytes(first, last)).sum());
        Ok(have)
    }

    /// Returns whether no more files of several blocks may start now.
    pub(super) fn has_too_many_partials(&self) -> bool {
        self.open_partials.load(Ordering::SeqCst) >= MAX_PARTIALS
    }

    /// Waits, for at most `timeout`, until one more file of several blocks may start. The limit avoids a deadlock: the
    /// open files may need blocks behind this one on the stream. Calls `idle` repeatedly.
    pub(super) fn wait_for_free_partial(&self, timeout: Duration, mut idle: impl FnMut()) {
        let started = Instant::now();
        while self.has_too_many_partials() && !self.streams.is_stopped() && started.elapsed() < timeout {
            idle();
        }
    }

    /// Opens a partial file. If another copy holds the lock, waits for some seconds: that copy may be interrupted
    /// without its server having noticed. If the server has noticed, waits as long as the disk takes.
    ///
    /// # Errors
    /// [`TransferError::Exists`] if the other copy has written an equal file.
    fn open_partial_when_free(&self, needed: &NeededFile) -> Result<OpenedPartial, TransferError> {
        let storage = &needed.target.storage;
        let afford =
            |lacking: Bytes| self.quota.reserve(&needed.reservation, &needed.entry.name, lacking, &self.streams);
        let request = PartialRequest {
            entry: &needed.entry,
            layout: needed.layout,
            verify: self.settings.verify,
            reserve: !self.quota.is_enabled(),
            afford: &afford,
            meter: self.streams.meter(),
        };
        let mut has_waited = false;
        loop {
            if has_waited && self.commits.has_appeared(needed) {
                return Err(TransferError::Exists { path: storage.display_name(&needed.entry.name) });
            }
            match storage.open_partial(&request) {
                Err(TransferError::Locked { .. }) if self.may_wait_for_lock(needed) => {
                    has_waited = true;
                    thread::sleep(Duration::from_millis(20));
                }
                opened => return opened,
            }
        }
    }

    fn may_wait_for_lock(&self, needed: &NeededFile) -> bool {
        let since = *self.lock_wait_started.lock().get_or_insert_with(Instant::now);
        let waited = since.elapsed();
        !self.streams.is_stopped()
            && (waited < self.settings.timeouts.other_copy
                || (waited < MAX_RELEASE_TIME && needed.target.storage.is_partial_released(&needed.entry.name)))
    }

    /// Sets the sender's digest of a file. Returns false if the file does not need blocks (yet). Never waits for
    /// room in a queue, because the control thread calls it.
    pub(super) fn set_source_digest(&self, number: u32, digest: Digest) -> bool {
        let Some(needed) = self.needed_file(number) else { return false };
        needed.state.lock().source_digest = Some(digest);
        self.end_if_complete(&needed, false);
        true
    }

    /// Ends a file that misses no blocks. A file of several blocks also needs the sender's digest.
    pub(super) fn try_complete(&self, needed: &Arc<NeededFile>) {
        self.end_if_complete(needed, true);
    }

    fn end_if_complete(&self, needed: &Arc<NeededFile>, may_wait: bool) {
        let mut state = needed.state.lock();
        let Some(digest) = state.assembly.digest().filter(|_| !state.is_over) else { return };
        let error = match state.source_digest {
            None if needed.layout.blocks() > 1 && self.settings.needs_source_digest => return,
            Some(sent) if sent != digest => {
                if let Some(partial) = &state.partial {
                    partial.discard_on_close();
                }
                // The sender's digest covers all its data, and each block that arrived matched its hash. So if blocks
                // were kept from an earlier copy, those blocks are the wrong ones.
                Some(if state.assembly.existing().is_empty() {
                    TransferError::Digest { sent, received: digest }
                } else {
                    TransferError::SourceReplaced
                })
            }
            _ => None,
        };
        state.is_over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        match (error, partial) {
            (Some(error), partial) => {
                self.quota.release(&needed.reservation);
                self.commits.fail(needed.clone(), error, partial);
            }
            (None, Some(partial)) => self.commits.queue(needed.clone(), partial, may_wait),
            (None, None) => self.commits.fail(needed.clone(), TransferError::Incomplete, None),
        }
    }

    /// Ends a file of at most one block, which is written.
    pub(super) fn complete_single_block(&self, needed: &Arc<NeededFile>, file: Arc<dyn UnpublishedFile>) {
        needed.state.lock().is_over = true;
        self.streams.measure(Activity::Disk, || self.commits.commit_single_block(needed.clone(), file));
    }

    /// Fails one file. The copy continues with the other files.
    pub(super) fn fail(&self, needed: &Arc<NeededFile>, error: TransferError) {
        self.end(needed, |partial| self.commits.fail(needed.clone(), error, partial));
    }

    /// Ends a file that the sender cannot send. Keeps its blocks for the next copy, unless `discard`. Returns false if
    /// the file was over before. The caller settles the entry.
    pub(super) fn cancel(&self, needed: &Arc<NeededFile>, discard: bool) -> bool {
        needed.state.lock().is_discarded |= discard;
        let ended = self.end(needed, |partial| {
            partial.iter().filter(|_| discard).for_each(|partial| partial.discard_on_close());
            // Closing the file flushes its blocks to disk.
            self.streams.meter().while_blocked(|| self.streams.measure(Activity::Disk, || drop(partial)));
        });
        if ended {
            self.forget(needed.number);
        }
        ended
    }

    /// Marks a file as over, and gives its partial file to `release`. Returns false if the file was over before.
    fn end(&self, needed: &NeededFile, release: impl FnOnce(Option<Arc<dyn UnpublishedFile>>)) -> bool {
        let mut state = needed.state.lock();
        if state.is_over {
            return false;
        }
        state.is_over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        self.quota.release(&needed.reservation);
        release(partial);
        true
    }

    fn take_partial(&self, state: &mut FileState) -> Option<Arc<dyn UnpublishedFile>> {
        let partial = state.partial.take();
        if partial.is_some() {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
        }
        partial
    }
}
