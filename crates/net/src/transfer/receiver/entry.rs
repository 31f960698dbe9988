//! The states of an entry at the receiver: listed, planned, compared, needed, settled.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, Name};
use lfn_core::transfer::file_assembly::FileAssembly;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::EntryFailure;

use super::super::TransferError;
use super::partial_file::PartialFile;
use super::quota::FileReservation;

/// Maximum number of block records in memory for all unfinished files ([`FileAssembly::tracked_blocks`]): 25 MiB.
/// Streams leave gaps as wide as the blocks in flight, which are some thousands.
const MAX_TRACKED_BLOCKS: usize = 1 << 18;

/// Number of block records in memory for all unfinished files.
pub(super) type TrackedBlocks = Arc<AtomicUsize>;

/// State of an entry in the table.
#[derive(Debug)]
pub(super) enum EntrySlot {
    Listed(Box<Entry>),
    /// The planner works on the entry.
    Planning,
    /// The digest of the existing file is being computed, and the source's digest is requested.
    Comparing {
        entry: Box<Entry>,
        existing: Option<Option<Digest>>,
        source: Option<Digest>,
    },
    Needed(Arc<NeededFile>),
}

/// A file that needs blocks.
#[derive(Debug)]
pub(super) struct NeededFile {
    pub(super) number: u32,
    pub(super) entry: Entry,
    pub(super) layout: Layout,
    /// The existing file will be replaced.
    pub(super) replace: bool,
    /// The file's part of the byte quota.
    pub(super) reservation: FileReservation,
    pub(super) state: Mutex<FileState>,
}

/// The progress of a needed file.
#[derive(Debug)]
pub(super) struct FileState {
    pub(super) assembly: FileAssembly,
    /// Set for a file of several blocks, after the first block or if an earlier copy left the file.
    pub(super) partial: Option<Arc<PartialFile>>,
    /// The sender's digest of a file of several blocks.
    pub(super) source_digest: Option<Digest>,
    /// An earlier session of this copy created the partial file.
    pub(super) is_own_partial: bool,
    /// The file needs no more work from the streams: it waits for its final name, or has failed.
    pub(super) is_over: bool,
    /// The file's part of all block records.
    tracked: usize,
    tracked_total: TrackedBlocks,
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

impl NeededFile {
    pub(super) fn new(number: u32, entry: Entry, layout: Layout, replace: bool, tracked_total: TrackedBlocks) -> Self {
        let assembly = FileAssembly::new(layout);
        let state = FileState {
            assembly,
            partial: None,
            source_digest: None,
            is_own_partial: false,
            is_over: false,
            tracked: 0,
            tracked_total,
        };
        NeededFile { number, entry, layout, replace, reservation: FileReservation::default(), state: Mutex::new(state) }
    }
}

/// An entry for the planner.
#[derive(Debug)]
pub(super) struct NextEntry {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// Result of the comparison with the existing file.
    pub(super) compared: Option<DigestComparison>,
    /// The planner has not seen the entry before.
    pub(super) is_first: bool,
}

/// Result of a comparison of digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DigestComparison {
    pub(super) is_equal: bool,
    /// Digest of the existing file.
    pub(super) existing: Option<Digest>,
}

/// The final outcome of an entry.
#[derive(Debug)]
pub(super) enum EntryOutcome {
    File {
        digest: Digest,
        kept: Bytes,
        bytes: Bytes,
    },
    /// A file that a copy would write (dry run).
    Planned(Bytes),
    Directory,
    Link,
    /// Length of the file; 0 for other entries.
    Skipped(Bytes),
    /// A file that an earlier session of this copy wrote, with its length.
    WrittenEarlier(Bytes),
    Failed(TransferError),
    /// The directory of the entry failed, which is reported already.
    ParentFailed,
    /// The sender reported the failure.
    SourceFailed(EntryFailure),
}

/// The target of a hard link.
#[derive(Debug)]
pub(super) enum LinkTarget {
    Existing(Name, Entry),
    /// A separate file, because a newer file stays in the place of the first name.
    Separate(Entry),
    Pending,
    Missing,
}
