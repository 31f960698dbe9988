//! A file that needs blocks, with its progress. The planner creates it, the streams fill it, and the commit stage ends
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::BlockHeader;
use lfn_session::wire::copy::blocks::{Block, Layout, Subtree};
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Entry;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use parking_lot::Mutex;

use super::quota::FileReservation;
use super::report::EntryReports;
use crate::TransferError;
use crate::proto::file_assembly::{AssemblyError, BlockClaim, FileAssembly};
use crate::storage::{Storage, UnpublishedFile};

/// Maximum number of block records in memory for all unfinished files ([`FileAssembly::tracked_blocks`]): 25 MiB.
/// Streams leave gaps as wide as the blocks in flight, which are some thousands.
const MAX_TRACKED_BLOCKS: usize = 1 << 18;

/// Number of block records in memory for all unfinished files.
pub(super) type TrackedBlocks = Arc<AtomicUsize>;

/// The destination of all files of a copy.
#[derive(Debug)]
pub(super) struct FileTarget {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) reports: EntryReports,
    pub(super) overwrite: OverwritePolicy,
}

/// A file that needs blocks.
#[derive(Debug)]
pub(super) struct NeededFile {
    pub(super) number: u32,
    pub(super) entry: Entry,
    pub(super) layout: Layout,
    /// The existing file will be replaced.
    pub(super) replace: bool,
    pub(super) target: Arc<FileTarget>,
    /// The file's part of the byte quota.
    pub(super) reservation: FileReservation,
    /// Held while a thread opens the partial file, which can take long. Locked before `state`.
    pub(super) opening: Mutex<()>,
    pub(super) state: Mutex<FileState>,
}

/// The progress of a needed file.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) assembly: FileAssembly,
    /// Set for a file of several blocks, after the first block or if an earlier copy left the file.
    pub(super) partial: Option<Arc<dyn UnpublishedFile>>,
    /// The sender's digest of a file of several blocks.
    pub(super) source_digest: Option<Digest>,
    /// An earlier session of this copy created the partial file.
    pub(super) is_own_partial: bool,
    /// The file needs no more work from the streams: it waits for its final name, or has failed.
    pub(super) is_over: bool,
    /// The source has changed: the blocks of the partial file are of no use to a later copy. Another thread may still be
    /// opening the partial file.
    pub(super) is_discarded: bool,
    /// The file's part of all block records.
    tracked: usize,
    tracked_total: TrackedBlocks,
}

impl NeededFile {
    pub(super) fn new(
        number: u32,
        entry: Entry,
        layout: Layout,
        replace: bool,
        target: Arc<FileTarget>,
        tracked_total: TrackedBlocks,
    ) -> Self {
        let state = FileState {
            assembly: FileAssembly::new(layout),
            partial: None,
            source_digest: None,
            is_own_partial: false,
            is_over: false,
            is_discarded: false,
            tracked: 0,
            tracked_total,
        };
        let (reservation, state) = (FileReservation::default(), Mutex::new(state));
        NeededFile { number, entry, layout, replace, target, reservation, opening: Mutex::default(), state }
    }

    /// Claims the block of the header for one stream. Returns `None` if the block is not needed.
    pub(super) fn claim(&self, header: &BlockHeader) -> Result<Option<Block>, TransferError> {
        self.claim_range(header.offset, header.length)
    }

    /// Claims a block that another rank has stored. Returns `None` if the block is not needed.
    pub(super) fn claim_stored(&self, index: u64) -> Result<Option<Block>, TransferError> {
        let Block { offset, length, .. } = self.layout.block(index).ok_or(AssemblyError::Range {
            offset: index.saturating_mul(self.layout.block_size().0),
            length: 0,
            bytes: self.layout.bytes().0,
        })?;
        self.claim_range(offset, length)
    }

    fn claim_range(&self, offset: u64, length: u32) -> Result<Option<Block>, TransferError> {
        let mut state = self.state.lock();
        if state.is_over {
            return Ok(None);
        }
        match state.assembly.claim(offset, length)? {
            BlockClaim::Needed(block) => Ok(Some(block)),
            BlockClaim::NotNeeded(_) => Ok(None),
        }
    }

    /// Claims those blocks of a hole that are needed, for one stream.
    pub(super) fn claim_hole(&self, hole: Subtree) -> Result<Vec<Subtree>, TransferError> {
        let mut state = self.state.lock();
        if state.is_over {
            return Ok(Vec::new());
        }
        Ok(state.assembly.claim_hole(hole)?)
    }

    /// Gives claimed blocks back, because they did not arrive.
    pub(super) fn release(&self, blocks: Subtree) {
        self.state.lock().assembly.release(blocks);
    }

    /// Returns whether the file still misses blocks or the digest of the sender.
    pub(super) fn is_unfinished(&self) -> bool {
        !self.state.lock().is_over
    }

    /// Returns the length of the blocks that an earlier copy left. An earlier session of the same copy does not count.
    pub(super) fn kept_bytes(&self) -> Bytes {
        let state = self.state.lock();
        if state.is_own_partial {
            return Bytes(0);
        }
        let ranges = state.assembly.existing().ranges();
        Bytes(ranges.map(|(first, last)| self.layout.range_bytes(first, last)).sum())
    }

    /// Returns the digest of a complete file.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.state.lock().assembly.digest()
    }
}

impl FileState {
    /// Updates the number of block records.
    ///
    /// # Errors
    /// [`TransferError::TooManyGaps`] if all files together have too many.
    pub(super) fn update_tracked(&mut self) -> Result<(), TransferError> {
        let tracked = self.assembly.tracked_blocks();
        let before = std::mem::replace(&mut self.tracked, tracked);
        let total = self.tracked_total.fetch_add(tracked, Ordering::Relaxed) + tracked - before;
        self.tracked_total.fetch_sub(before, Ordering::Relaxed);
        if total > MAX_TRACKED_BLOCKS && tracked > before { Err(TransferError::TooManyGaps) } else { Ok(()) }
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        self.tracked_total.fetch_sub(self.tracked, Ordering::Relaxed);
    }
}
