//! An incomplete file of several blocks: `.NAME.lfn-partial`, with a journal of the finished blocks.
//!
//! A copy locks the partial file while it writes. Each block is recorded in the journal after it is written. A copy
//! that ends cleanly syncs the file and marks the journal as clean, and the next copy trusts a clean journal. If the
//! journal is not clean, or if the file changed afterwards (its ctime differs from the journal), the next copy reads
//! the recorded blocks again and keeps those with the right hash. A journal of another source, or without its partial
//! file, is rewritten.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Block, Subtree};
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::entry::{Entry, Modified};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FallocateFlags, fallocate, fstat, fstatvfs, fsync, ftruncate, futimens, unlinkat};
use rustix::io::Errno;

use super::attribute_target::{AttributeTarget, modified_timestamps};
use super::attributes::AttributeWriter;
use super::existing_blocks::ExistingBlocks;
use super::foreign_writes::{FileWatch, ForeignAccess, ForeignWrites};
use super::journal::{BlockRecords, Journal, JournalContents, MAX_RESUMED_BLOCKS};
use super::location::{EntryLocation, is_newer};
use super::names::{journal_name, partial_name};
use super::partial_lock::{belongs_to_other_owner, lock_partial_file};
use super::sparse::{write_hole, write_sparse};
use crate::base_dir::{inode, inode_of};
use crate::proto::journal::JournalHeader;
use crate::storage::{FileId, PartialRequest, UnpublishedFile};
use crate::work_meter::{Activity, WorkMeter};
use crate::{ForbiddenReason, TransferError};

/// State that all files of one storage share.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) attributes: AttributeWriter,
    pub(super) foreign_writes: Arc<ForeignWrites>,
    /// Other hosts of this copy write into the partial files too.
    pub(super) has_other_writers: bool,
    /// Incomplete files stay after the copy, so that the next copy resumes them.
    pub(super) keeps_partial_files: bool,
}

/// An open and locked partial file.
#[derive(Debug)]
pub(super) struct PartialFile {
    location: EntryLocation,
    name: OsString,
    file: File,
    shared: Arc<SharedState>,
    /// The source, with the layout and the hash of its blocks.
    source: JournalHeader,
    /// This copy created or emptied the file, so that each part that it did not write contains zeros.
    is_new: bool,
    watch: Option<FileWatch>,
    /// The meter of the copy, which stops a verification of the file.
    meter: Arc<WorkMeter>,
    /// Lock order: `journal` before `state` before `finished`.
    journal: Mutex<Journal>,
    state: Mutex<PartialState>,
    /// Set with the attributes, after the last write of this copy.
    finished: Mutex<Option<FileTimes>>,
}

/// State of a partial file: decides about the file when it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartialState {
    /// The next copy can resume the file. Every partial file starts in this state.
    Resumable,
    /// No copy can use the file: it is removed.
    Useless,
    /// The file has its final name.
    Published,
    /// An earlier copy left the file, and its blocks are not all verified: file and journal stay unchanged.
    Unverified,
}

/// Modification and change time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileTimes {
    modified: Modified,
    changed: Modified,
}

impl PartialFile {
    /// Returns whether an earlier copy left a partial file here.
    pub(super) fn exists(location: &EntryLocation) -> Result<bool, TransferError> {
        Ok(location.sibling(partial_name(&location.name)).stat()?.is_some())
    }

    /// Opens and locks the partial file, and allocates disk space for the whole file. Blocks from an earlier copy are
    /// verified unless that copy ended cleanly.
    ///
    /// # Errors
    /// [`TransferError::Locked`] if another copy holds the lock, [`TransferError::NoSpace`], or the error of
    /// [`PartialRequest::afford`].
    pub(super) fn open(
        location: EntryLocation,
        shared: Arc<SharedState>,
        request: &PartialRequest<'_>,
    ) -> Result<(Self, BlockRecords), TransferError> {
        let &PartialRequest { entry, layout, verify, afford, meter, .. } = request;
        let name = partial_name(&location.name);
        // The owner must be able to resume the file.
        let file: File = lock_partial_file(&location, &name, entry.mode & 0o777 | 0o600)?.into();
        let watch = if shared.has_other_writers { None } else { shared.foreign_writes.watch(&file) };
        let source = match &location.owner {
            Some(owner) => owner.journal_source(entry),
            None => ByteString::from(entry.name.as_bytes()),
        };
        let source = JournalHeader { layout, modified: entry.modified, source, verify };
        let stat = fstat(&file).map_err(|e| location.error("read", e))?;
        let length = stat.st_size as u64;
        if length > 0 && belongs_to_other_owner(&location) {
            // This copy must not resume or replace the file.
            return Err(TransferError::Locked { path: location.display_path });
        }
        let changed = FileTimes::of(&file).map(|times| times.changed).filter(|_| length == layout.bytes().0);
        let opened = Journal::open(&location, &journal_name(&location.name), &source, changed);
        let (journal, contents) = opened.inspect_err(|_| {
            if length == 0 {
                // No copy could resume the file.
                let _ = unlinkat(&location.directory, &name, AtFlags::empty());
            }
        })?;
        journal.lock();
        let state = if shared.keeps_partial_files { PartialState::Resumable } else { PartialState::Useless };
        let is_new = matches!(contents, JournalContents::Empty);
        let first = if is_new { state } else { PartialState::Unverified };
        let (journal, first) = (Mutex::new(journal), Mutex::new(first));
        let (finished, meter) = (Mutex::default(), meter.clone());
        let partial =
            PartialFile { location, name, file, shared, source, is_new, watch, meter, journal, state: first, finished };
        let kept = match contents {
            JournalContents::Empty => {
                let allocate =
                    || request.meter.measure(Activity::Disk, || partial.allocate(layout.bytes(), request.reserve));
                afford(layout.bytes()).and_then(|()| allocate()).map(|()| Vec::new())
            }
            contents => partial.keep_blocks(contents, request.meter),
        }?;
        *partial.state.lock() = state;
        let present: u64 = kept.iter().map(|(subtree, _)| layout.subtree_bytes(*subtree)).sum();
        afford(Bytes(layout.bytes().0.saturating_sub(present)))?;
        Ok((partial, kept))
    }

    /// Returns the intact blocks of an earlier copy. Rewrites the journal if it records others.
    fn keep_blocks(&self, contents: JournalContents, meter: &WorkMeter) -> Result<BlockRecords, TransferError> {
        let JournalHeader { layout, verify, .. } = self.source;
        let existing = ExistingBlocks { file: &self.file, verify, meter };
        let (recorded, kept) = match contents {
            JournalContents::Empty => return Ok(Vec::new()),
            JournalContents::Synced(blocks) => return Ok(blocks),
            // Without hashes, nothing can show whether the blocks reached the disk.
            JournalContents::Written(_) | JournalContents::Resized { synced: false, .. }
                if !verify.detects_changes() =>
            {
                (None, Vec::new())
            }
            JournalContents::Written(blocks) => (Some(blocks.len()), existing.retain_intact(&layout, blocks)?),
            JournalContents::Resized { earlier, blocks, .. } => (None, existing.convert(&earlier, &layout, blocks)?),
        };
        if recorded != Some(kept.len()) {
            self.journal.lock().rewrite(&kept).map_err(|source| self.journal_error(source))?;
        }
        Ok(kept)
    }

    /// Empties the file, sets its length and reserves disk space, so that a full disk fails before the first block
    /// arrives.
    fn allocate(&self, bytes: Bytes, reserve: bool) -> Result<(), TransferError> {
        let failed = |e| self.location.error("write", e);
        ftruncate(&self.file, 0).map_err(failed)?;
        if self.shared.attributes.is_sparse() {
            return ftruncate(&self.file, bytes.0).map_err(failed);
        }
        let no_space =
            |available| TransferError::NoSpace { path: self.location.display_path.clone(), needed: bytes, available };
        // Check first: a tmpfs would fill up before it refuses.
        let available = available_space(&self.file);
        if available.is_some_and(|available| available < bytes) {
            return Err(no_space(available.unwrap_or_default()));
        }
        if !reserve {
            return ftruncate(&self.file, bytes.0).map_err(failed);
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes.0) {
            Ok(()) => Ok(()),
            // Set the length: a later copy compares it with the journal.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => ftruncate(&self.file, bytes.0).map_err(failed),
            Err(Errno::NOSPC | Errno::DQUOT) => Err(no_space(available.unwrap_or_default())),
            Err(error) => Err(failed(error)),
        }
    }

    /// Checks that the file contains the blocks of this copy and no others. A file that may have changed is read again.
    fn check_unchanged(&self) -> Result<(), TransferError> {
        let JournalHeader { layout, verify, .. } = self.source;
        let stat = fstat(&self.file).map_err(|e| self.location.error("read", e))?;
        let access = self.watch.as_ref().map(FileWatch::foreign_access).unwrap_or_default();
        let finished = *self.finished.lock();
        let has_other_times = finished.is_some_and(|finished| FileTimes::of(&self.file) != Some(finished));
        let can_compare = verify.detects_changes() && layout.blocks() <= MAX_RESUMED_BLOCKS as u64;
        let is_changed = match (access, can_compare) {
            _ if stat.st_size as u64 != layout.bytes().0 => true,
            (ForeignAccess::None, _) if !has_other_times => false,
            (access, false) => access == ForeignAccess::OpenedForWriting,
            (_, true) => !self.has_recorded_blocks()?,
        };
        if is_changed {
            return Err(TransferError::PartialFileChanged { path: self.location.display_path.clone() });
        }
        if let Some(finished) = finished.filter(|_| has_other_times) {
            let restored = futimens(&self.file, &modified_timestamps(finished.modified));
            restored.map_err(|e| self.location.error("set the times of", e))?;
        }
        Ok(())
    }

    /// Reads the file again. Returns whether it contains every block with the recorded hash.
    fn has_recorded_blocks(&self) -> Result<bool, TransferError> {
        let JournalHeader { layout, verify, .. } = self.source;
        let recorded = self.journal.lock().read_back(&self.source).map_err(|source| self.journal_error(source))?;
        let existing = ExistingBlocks { file: &self.file, verify, meter: &self.meter };
        let intact = existing.retain_intact(&layout, recorded)?;
        Ok(intact.iter().map(|(subtree, _)| subtree.blocks()).sum::<u64>() == layout.blocks())
    }

    fn record(&self, subtree: Subtree, hash: BlockHash) -> Result<(), TransferError> {
        self.journal.lock().record(subtree, hash).map_err(|source| self.journal_error(source))
    }

    fn journal_error(&self, source: std::io::Error) -> TransferError {
        TransferError::File { doing: "write the journal of", path: self.location.display_path.clone(), source }
    }

    fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.location.directory, name, AtFlags::empty());
    }
}

impl UnpublishedFile for PartialFile {
    fn write_block(&self, block: Block, hash: BlockHash, bytes: &[u8]) -> Result<(), TransferError> {
        let failed = |source| TransferError::File { doing: "write", path: self.location.display_path.clone(), source };
        let written = if self.shared.attributes.is_sparse() {
            write_sparse(&self.file, block.offset, bytes)
        } else {
            self.file.write_all_at(bytes, block.offset)
        };
        written.map_err(failed)?;
        self.record(Subtree::of_block(block.index), hash)
    }

    fn record_block(&self, block: Block, hash: BlockHash) -> Result<(), TransferError> {
        self.record(Subtree::of_block(block.index), hash)
    }

    fn write_hole(&self, hole: Subtree, hash: BlockHash) -> Result<(), TransferError> {
        let failed = |source| TransferError::File { doing: "write", path: self.location.display_path.clone(), source };
        let layout = self.source.layout;
        let offset = hole.first * layout.block_size().0;
        write_hole(&self.file, offset, layout.subtree_bytes(hole), self.is_new, &self.meter).map_err(failed)?;
        self.record(hole, hash)
    }

    fn set_attributes(&self, entry: &Entry) -> Result<(), TransferError> {
        let applied = self.shared.attributes.apply(AttributeTarget::NewFile(&self.file), entry);
        applied.map_err(|(doing, e)| self.location.error(doing, e))?;
        *self.finished.lock() = FileTimes::of(&self.file);
        Ok(())
    }

    fn publish(&self, replace: bool) -> Result<(), TransferError> {
        let named = self.location.sibling(self.name.clone()).stat()?;
        if named.as_ref().map(inode) != inode_of(&self.file) {
            // The other file does not belong to this copy, so it must not be removed.
            *self.state.lock() = PartialState::Unverified;
            let reason =
                if named.is_none() { ForbiddenReason::PartialRemoved } else { ForbiddenReason::PartialReplaced };
            return Err(TransferError::Forbidden { path: self.location.display_path.clone(), reason });
        }
        self.check_unchanged().inspect_err(|_| self.discard_on_close())?;
        if let Err(error) = self.location.rename_from(&self.name, replace) {
            if matches!(error, TransferError::Exists { .. }) {
                // Another copy was first and finished the file.
                self.discard_on_close();
            }
            return Err(error);
        }
        *self.state.lock() = PartialState::Published;
        self.remove(&journal_name(&self.location.name));
        Ok(())
    }

    fn discard_on_close(&self) {
        *self.state.lock() = PartialState::Useless;
    }

    fn id(&self) -> Option<FileId> {
        inode_of(&self.file)
    }

    fn was_created_since(&self, since: Modified) -> bool {
        is_newer(&self.file, OsStr::new(""), AtFlags::EMPTY_PATH, since)
    }

    /// The file and its journal.
    fn descriptors(&self) -> usize {
        2
    }

    fn directory_key(&self) -> usize {
        Arc::as_ptr(&self.location.directory).addr()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl Drop for PartialFile {
    /// Closes the file. Every thread that wrote to it has finished, so each recorded block is written.
    fn drop(&mut self) {
        // From the unlock on, other copies open the file to lock it.
        let is_foreign = self.watch.as_ref().is_some_and(|watch| watch.foreign_access() != ForeignAccess::None);
        let times = FileTimes::of(&self.file).filter(|_| !is_foreign);
        let mut journal = self.journal.lock();
        journal.unlock();
        let state = *self.state.lock();
        match state {
            PartialState::Published | PartialState::Unverified => {}
            // The kernel reports a failed write only once, and still returns the data from memory. After an ignored
            // error, this copy would trust the data for ever.
            PartialState::Resumable if journal.record_count() > 0 && fsync(&self.file).is_ok() => {
                // If marking fails, the next copy verifies the blocks. It also verifies them if another process may
                // have written to the file.
                if let Some(times) = times {
                    let _ = journal.mark_clean(times.changed);
                }
            }
            _ => {
                // The lock is still held, so both files belong to this copy. The journal belongs to the name of the
                // partial file.
                self.remove(&journal_name(&self.location.name));
                self.remove(&self.name);
            }
        }
    }
}

impl FileTimes {
    fn of(file: &File) -> Option<Self> {
        let stat = fstat(file).ok()?;
        let modified = Modified::new(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).ok()?).ok()?;
        let changed = Modified::new(stat.st_ctime, u32::try_from(stat.st_ctime_nsec).ok()?).ok()?;
        Some(FileTimes { modified, changed })
    }
}

/// Returns the free space for an ordinary user. `None` if the file system does not report it.
fn available_space(file: impl AsFd) -> Option<Bytes> {
    let stat = fstatvfs(file).ok()?;
    (stat.f_blocks > 0).then(|| Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}
