//! An incomplete file of several blocks: `.NAME.lfn-partial`, with a journal of the finished blocks.
//!
//! A copy locks the partial file while it writes. Each block is recorded in the journal after it is written. A copy
//! that ends cleanly syncs the file and marks the journal as clean, and the next copy trusts a clean journal. If the
//! journal is not clean, or if the file changed afterwards (its ctime differs from the journal), the next copy reads
//! the recorded blocks again and keeps those with the right hash. A journal of another source, or without its partial
//! file, is rewritten.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use lfn_core::transfer::blocks::{Block, Layout};
use lfn_core::transfer::byte_string::ByteString;
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::entry::{Entry, Modified};
use lfn_core::transfer::journal;
use lfn_core::transfer::options::Verify;
use lfn_core::units::Bytes;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fallocate,
    fchmod, flock, fstat, fstatvfs, fsync, ftruncate, futimens, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::super::base_dir::{inode, inode_of, non_regular_kind};
use super::super::stream_set::{Activity, StreamSet, lock};
use super::super::write_only::WriteOnlyClient;
use super::super::{ForbiddenReason, TransferError};
use super::attributes::{AttributeTarget, AttributeWriter};
use super::journal::{BlockRecords, Journal, JournalContents};
use super::sparse::write_sparse;
use super::tree::{EntryLocation, is_newer, journal_name, partial_name};

/// An open and locked partial file.
#[derive(Debug)]
pub(super) struct PartialFile {
    location: EntryLocation,
    name: OsString,
    file: File,
    options: PartialOptions,
    journal: Mutex<Journal>,
    /// Lock order: `journal` before `state`.
    state: Mutex<PartialState>,
}

/// Options for writing a partial file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialOptions {
    pub(super) verify: Verify,
    pub(super) sparse: bool,
    /// Disk space for the whole file is reserved before the first block arrives.
    pub(super) reserve: bool,
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

/// A partial file, and the blocks that an earlier copy left in it.
pub(super) type OpenedPartial = (PartialFile, BlockRecords);

impl PartialFile {
    /// Returns whether an earlier copy left a partial file here.
    pub(super) fn exists(location: &EntryLocation) -> Result<bool, TransferError> {
        let partial_location = EntryLocation { name: partial_name(&location.name), ..location.clone() };
        Ok(partial_location.stat()?.is_some())
    }

    /// Opens and locks the partial file, and allocates disk space for the whole file. Blocks from an earlier copy are
    /// verified unless that copy ended cleanly. The verification counts as work of `streams`, and stops with them.
    /// `afford` decides whether the quota allows the missing bytes, before the file grows.
    ///
    /// # Errors
    /// [`TransferError::Locked`] if another copy holds the lock, [`TransferError::NoSpace`], or the error of `afford`.
    pub(super) fn open(
        location: EntryLocation,
        entry: &Entry,
        layout: Layout,
        options: PartialOptions,
        afford: &dyn Fn(Bytes) -> Result<(), TransferError>,
        streams: &StreamSet,
    ) -> Result<OpenedPartial, TransferError> {
        let (name, verify) = (partial_name(&location.name), options.verify);
        // The owner must be able to resume the file.
        let file: File = lock_partial_file(&location, &name, entry.mode & 0o777 | 0o600)?.into();
        let source = location
            .write_only
            .map_or_else(|| ByteString::from(entry.name.as_bytes()), |write_only| write_only.journal_source(entry));
        let expected = journal::JournalHeader { layout, modified: entry.modified, source, verify };
        let stat = fstat(&file).map_err(|e| location.error("read", e))?;
        let length = stat.st_size as u64;
        if length > 0 && belongs_to_other_token(&location) {
            // This token must not resume or replace the file.
            return Err(TransferError::Locked { path: location.display_path });
        }
        let changed = change_time(&stat).filter(|_| length == layout.bytes().0);
        let opened = Journal::open(&location, &journal_name(&location.name), &expected, changed);
        let (journal, contents) = opened.inspect_err(|_| {
            if length == 0 {
                // No copy could resume the file.
                let _ = unlinkat(&location.directory, &name, AtFlags::empty());
            }
        })?;
        journal.lock();
        let state = if location.write_only.is_some_and(|write_only| !write_only.keeps_partial_files) {
            PartialState::Useless
        } else {
            PartialState::Resumable
        };
        let first = if matches!(contents, JournalContents::Empty) { state } else { PartialState::Unverified };
        let partial =
            PartialFile { location, name, file, options, journal: Mutex::new(journal), state: Mutex::new(first) };
        let kept = match contents {
            JournalContents::Empty => {
                let allocate = || streams.measure(Activity::Disk, || partial.allocate(layout.bytes()));
                afford(layout.bytes()).and_then(|()| allocate()).map(|()| Vec::new())
            }
            JournalContents::Synced(blocks) => Ok(blocks),
            // Without hashes, nothing can show whether the blocks reached the disk.
            JournalContents::Written(_) | JournalContents::Resized { synced: false, .. }
                if !verify.detects_changes() =>
            {
                partial.rewrite_journal(&[]).map(|()| Vec::new())
            }
            JournalContents::Written(blocks) => partial.verify_blocks(&layout, verify, blocks, streams),
            JournalContents::Resized { earlier, blocks, .. } => {
                partial.convert_blocks(&earlier, &layout, verify, blocks, streams)
            }
        };
        let kept = kept?;
        *lock(&partial.state) = state;
        let present: u64 = kept.iter().filter_map(|(index, _)| layout.block(*index)).map(|b| u64::from(b.length)).sum();
        afford(Bytes(layout.bytes().0.saturating_sub(present)))?;
        Ok((partial, kept))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the directory of the file.
    pub(super) fn directory(&self) -> &Arc<OwnedFd> {
        &self.location.directory
    }

    /// Returns whether the file was created at `since` or later.
    pub(super) fn is_newer(&self, since: Modified) -> bool {
        is_newer(&self.file, OsStr::new(""), AtFlags::EMPTY_PATH, since)
    }

    /// Writes a block, and records it in the journal.
    pub(super) fn write_block(&self, block: Block, hash: BlockHash, bytes: &[u8]) -> Result<(), TransferError> {
        let failed = |source| TransferError::File { doing: "write", path: self.location.display_path.clone(), source };
        let written = match self.options.sparse {
            true => write_sparse(&self.file, block.offset, bytes),
            false => self.file.write_all_at(bytes, block.offset),
        };
        written.map_err(failed)?;
        let recorded = lock(&self.journal).record(block.index, hash);
        recorded.map_err(|source| TransferError::File {
            doing: "write the journal of",
            path: self.location.display_path.clone(),
            source,
        })
    }

    /// Sets the preserved attributes, before the file is synced.
    pub(super) fn apply_attributes(&self, entry: &Entry, attributes: &AttributeWriter) -> Result<(), TransferError> {
        attributes
            .apply(AttributeTarget::NewFile(&self.file), entry)
            .map_err(|(doing, e)| self.location.error(doing, e))
    }

    /// Renames the file to its final name, and removes the journal.
    pub(super) fn publish(&self, replace: bool) -> Result<(), TransferError> {
        let partial_location = EntryLocation { name: self.name.clone(), ..self.location.clone() };
        if partial_location.stat()?.as_ref().map(inode) != inode_of(&self.file) {
            // The other file does not belong to this copy, so it must not be removed.
            *lock(&self.state) = PartialState::Unverified;
            let (path, reason) = (self.location.display_path.clone(), ForbiddenReason::PartialReplaced);
            return Err(TransferError::Forbidden { path, reason });
        }
        if let Err(error) = self.location.rename_from(&self.name, replace) {
            if matches!(error, TransferError::Exists { .. }) {
                // Another copy was first and finished the file.
                self.discard_on_close();
            }
            return Err(error);
        }
        *lock(&self.state) = PartialState::Published;
        self.remove(&journal_name(&self.location.name));
        Ok(())
    }

    /// Marks the file as useless, so that closing removes it.
    pub(super) fn discard_on_close(&self) {
        *lock(&self.state) = PartialState::Useless;
    }

    /// Verifies the recorded blocks. Rewrites the journal if one of them does not match its hash.
    fn verify_blocks(
        &self,
        layout: &Layout,
        verify: Verify,
        recorded: BlockRecords,
        streams: &StreamSet,
    ) -> Result<BlockRecords, TransferError> {
        let before = recorded.len();
        let mut kept = recorded;
        self.retain_intact(layout, verify, &mut kept, streams)?;
        if kept.len() != before {
            self.rewrite_journal(&kept)?;
        }
        Ok(kept)
    }

    /// Returns the complete blocks of a file that an earlier copy divided into blocks of another size. Rewrites the
    /// journal with them.
    fn convert_blocks(
        &self,
        earlier: &Layout,
        layout: &Layout,
        verify: Verify,
        recorded: BlockRecords,
        streams: &StreamSet,
    ) -> Result<BlockRecords, TransferError> {
        let mut sound = recorded;
        self.retain_intact(earlier, verify, &mut sound, streams)?;
        let (mut kept, mut buffer) = (Vec::new(), Vec::new());
        for block in layout.blocks_covered_by(earlier, sound.iter().map(|(index, _)| *index)) {
            if streams.is_stopped() {
                return Err(TransferError::Interrupted);
            }
            buffer.resize(block.length as usize, 0);
            kept.extend(self.hash_block(streams, layout, block, verify, &mut buffer).map(|hash| (block.index, hash)));
        }
        self.rewrite_journal(&kept)?;
        Ok(kept)
    }

    /// Keeps only the recorded blocks that match their hashes. A block that cannot be read counts as damaged.
    fn retain_intact(
        &self,
        layout: &Layout,
        verify: Verify,
        recorded: &mut BlockRecords,
        streams: &StreamSet,
    ) -> Result<(), TransferError> {
        let mut buffer = vec![0; layout.block_size().min(layout.bytes()).0 as usize];
        recorded.retain(|(index, hash)| {
            let Some(block) = layout.block(*index).filter(|_| !streams.is_stopped()) else { return false };
            self.hash_block(streams, layout, block, verify, &mut buffer[..block.length as usize]) == Some(*hash)
        });
        if streams.is_stopped() { Err(TransferError::Interrupted) } else { Ok(()) }
    }

    /// Reads a block and hashes it. `None` if the block cannot be read. For a large file this takes hours in total, so
    /// each block counts as progress.
    fn hash_block(
        &self,
        streams: &StreamSet,
        layout: &Layout,
        block: Block,
        verify: Verify,
        buffer: &mut [u8],
    ) -> Option<BlockHash> {
        streams.measure(Activity::Disk, || self.file.read_exact_at(buffer, block.offset)).ok()?;
        Some(streams.measure(Activity::Hash, || verify.hash(layout, block, buffer)))
    }

    /// Rewrites the journal with these blocks.
    fn rewrite_journal(&self, kept: &[(u64, BlockHash)]) -> Result<(), TransferError> {
        let rewritten = lock(&self.journal).rewrite(kept);
        let path = || self.location.display_path.clone();
        rewritten.map_err(|source| TransferError::File { doing: "write the journal of", path: path(), source })
    }

    /// Empties the file, sets its length and reserves disk space, so that a full disk fails before the first block
    /// arrives.
    fn allocate(&self, bytes: Bytes) -> Result<(), TransferError> {
        let failed = |e| self.location.error("write", e);
        ftruncate(&self.file, 0).map_err(failed)?;
        if self.options.sparse {
            return ftruncate(&self.file, bytes.0).map_err(failed);
        }
        let no_space =
            |available| TransferError::NoSpace { path: self.location.display_path.clone(), needed: bytes, available };
        // Check first: a tmpfs would fill up before it refuses.
        let available = available_space(&self.file);
        if available.is_some_and(|available| available < bytes) {
            return Err(no_space(available.unwrap_or_default()));
        }
        if !self.options.reserve {
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

    fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.location.directory, name, AtFlags::empty());
    }
}

impl Drop for PartialFile {
    /// Closes the file. Every thread that wrote to it has finished, so each recorded block is written.
    fn drop(&mut self) {
        let mut journal = lock(&self.journal);
        journal.unlock();
        let state = *lock(&self.state);
        match state {
            PartialState::Published | PartialState::Unverified => {}
            // The kernel reports a failed write only once, and still returns the data from memory. After an ignored
            // error, this copy would trust the data for ever.
            PartialState::Resumable if journal.block_count() > 0 && fsync(&self.file).is_ok() => {
                // If marking fails, the next copy verifies the blocks.
                if let Some(changed) = fstat(&self.file).ok().as_ref().and_then(change_time) {
                    let _ = journal.mark_clean(changed);
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

/// Returns whether the copy that holds the partial file is over, and only waits for the disk.
pub(super) fn is_released(location: &EntryLocation) -> bool {
    Journal::is_unlocked(location, &journal_name(&location.name))
}

/// Returns whether a partial file belongs to another token, if this client is write-only. After a crash the journal may
/// name no owner. Then no token can resume the file, and any may replace it.
pub(super) fn belongs_to_other_token(location: &EntryLocation) -> bool {
    let owns = |write_only: &WriteOnlyClient| match Journal::read_source(location, &journal_name(&location.name)) {
        Ok(source) => source.is_none_or(|source| write_only.owns(&source)),
        Err(_) => false,
    };
    location.write_only.as_ref().is_some_and(|write_only| !owns(write_only))
}

/// Locks the partial name, which a single-block file needs for a moment. Removes the file that an earlier copy left.
pub(super) fn take_partial_name(location: &EntryLocation, mode: u32) -> Result<OwnedFd, TransferError> {
    let name = partial_name(&location.name);
    let stale = lock_partial_file(location, &name, mode)?;
    let length = fstat(&stale).map_err(|e| location.error("read", e))?.st_size;
    if length > 0 && belongs_to_other_token(location) {
        return Err(TransferError::Locked { path: location.display_path.clone() });
    }
    unlinkat(&location.directory, &name, AtFlags::empty()).map_err(|e| location.error("create", e))?;
    let _ = unlinkat(&location.directory, journal_name(&location.name), AtFlags::empty());
    Ok(stale)
}

/// Sets the time of change, and leaves the time of the last access.
pub(super) fn set_modified(file: impl AsFd, entry: &Entry) -> Result<(), Errno> {
    futimens(file, &entry_times(entry))
}

/// Returns the times of an entry for the kernel.
pub(super) fn entry_times(entry: &Entry) -> Timestamps {
    modified_timestamps(entry.modified)
}

/// Returns a time of change for the kernel. The time of the last access stays.
pub(super) fn modified_timestamps(modified: Modified) -> Timestamps {
    let modified = Timespec { tv_sec: modified.seconds(), tv_nsec: i64::from(modified.nanoseconds()) };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: modified }
}

/// Returns the ctime: the last change of the data or the attributes.
fn change_time(stat: &Stat) -> Option<Modified> {
    Modified::new(stat.st_ctime, u32::try_from(stat.st_ctime_nsec).ok()?).ok()
}

/// Opens or creates the partial file and locks it.
pub(super) fn lock_partial_file(location: &EntryLocation, name: &OsStr, mode: u32) -> Result<OwnedFd, TransferError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o777);
    // Between open and lock, another copy may publish or remove the file. Then the name leads to another file.
    for _ in 0..16 {
        let file = match openat(&location.directory, name, flags, mode) {
            Err(Errno::ACCESS) if restore_owner_access(location, name)? => continue,
            // A copy was killed before it could rename the link.
            Err(Errno::LOOP) if is_symlink(location, name) => {
                unlinkat(&location.directory, name, AtFlags::empty()).map_err(|e| location.error("create", e))?;
                continue;
            }
            opened => opened.map_err(|e| location.error("create", e))?,
        };
        lock_file(&file, location)?;
        let opened = fstat(&file).map_err(|e| location.error("create", e))?;
        match statat(&location.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if inode(&named) == inode(&opened) => {
                if named.st_nlink > 1 && !has_journal(location) {
                    // Same situation for a hard link. The data stays under the other name.
                    unlinkat(&location.directory, name, AtFlags::empty()).map_err(|e| location.error("create", e))?;
                    continue;
                }
                require_one_name(&file, location)?;
                return Ok(file);
            }
            _ => continue,
        }
    }
    Err(TransferError::Locked { path: location.display_path.clone() })
}

fn is_symlink(location: &EntryLocation, name: &OsStr) -> bool {
    statat(&location.directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn has_journal(location: &EntryLocation) -> bool {
    statat(&location.directory, journal_name(&location.name), AtFlags::SYMLINK_NOFOLLOW).err() != Some(Errno::NOENT)
}

fn lock_file(file: &OwnedFd, location: &EntryLocation) -> Result<(), TransferError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(TransferError::Locked { path: location.display_path.clone() }),
        Err(error) => Err(location.error("lock the partial file of", error)),
    }
}

/// Gives the owner write access to a partial file that has its final mode already: the copy was interrupted during its
/// sync. Returns false if the mode is not the problem.
fn restore_owner_access(location: &EntryLocation, name: &OsStr) -> Result<bool, TransferError> {
    const OWNER_RW: u32 = 0o600;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(&location.directory, name, flags, Mode::empty()) else { return Ok(false) };
    // The lock fails if a copy is about to rename the file.
    lock_file(&file, location)?;
    require_one_name(&file, location)?;
    let mode = fstat(&file).map_err(|e| location.error("create", e))?.st_mode & 0o777;
    Ok(mode & OWNER_RW != OWNER_RW && fchmod(&file, Mode::from_raw_mode(mode | OWNER_RW)).is_ok())
}

/// Refuses a file with several names. A partial file must not change data under another name.
pub(super) fn require_one_name(file: &OwnedFd, location: &EntryLocation) -> Result<(), TransferError> {
    let stat = fstat(file).map_err(|e| location.error("create", e))?;
    let reason = match non_regular_kind(&stat) {
        Some(kind) => ForbiddenReason::PartialNotRegular(kind),
        None if stat.st_nlink == 1 => return Ok(()),
        None => ForbiddenReason::PartialHasTwoNames,
    };
    Err(TransferError::Forbidden { path: location.display_path.clone(), reason })
}

/// Returns the free space for an ordinary user. `None` if the file system does not report it.
fn available_space(file: impl AsFd) -> Option<Bytes> {
    let stat = fstatvfs(file).ok()?;
    (stat.f_blocks > 0).then(|| Bytes(stat.f_bavail.saturating_mul(stat.f_frsize)))
}
