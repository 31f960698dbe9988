//! Sender's scheduler: assigns the blocks of many files to whichever stream is free, and joins their hashes.
//!
//! Blocks are not assigned in advance, so a slow stream delays only its current work: one block of a large file, or one
//! group of small files. Files are sent in list order and blocks in file order, which suits the disks of both ends. The
//! receiver's messages adjust the schedule: blocks that it has are hashed but not sent, damaged blocks are sent again,
//! and finished entries are removed. Every number in its messages is checked against the list.
//!
//! The data of a file is complete when every block is hashed, whether sent or not. The digest therefore always covers
//! the complete source.

mod filter;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::BlockHeader;
use lfn_session::wire::copy::blocks::{Block, Layout, LayoutError, Subtree};
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::{BlockHash, Digest, HashTree};

pub use self::filter::BlockFilter;
use self::filter::Sharing;
use super::pending_entries::PendingEntries;

/// Maximum small files in one write. Reading more before the first byte leaves would keep the network idle.
pub const MAX_FILES_PER_WRITE: usize = 256;

/// Maximum unfinished files of several blocks: the receiver keeps each of them open.
pub const MAX_OPEN_FILES: usize = 96;

/// Maximum ranges, over all files, of blocks that the receiver has. Further blocks that it has are sent again, which
/// costs time but no memory.
pub const MAX_SKIP_RANGES: usize = 1 << 18;

/// Maximum requests for blocks again in one session, because each request uses memory.
const MAX_RESENDS: u64 = 1 << 20;

/// Listed entries that are not finished, and their blocks that are still to be sent or hashed. `T` reads a file.
#[derive(Debug)]
pub struct BlockScheduler<T> {
    block: Bytes,
    listed: u32,
    list_complete: bool,
    /// Files from this number on wait for the receiver's request.
    requested_up_to: u32,
    /// The receiver assigns each block ([`BlockScheduler::assign`]).
    is_assigned: bool,
    pending: BTreeMap<u32, Option<FileWork<T>>>,
    pending_size: PendingEntries,
    to_send: BTreeSet<u32>,
    /// Files of several blocks that are started and have blocks to send.
    started_to_send: BTreeSet<u32>,
    /// Files that are shared, or requested to be, and have blocks to send ([`BlockScheduler::next_to_share`]).
    sharing_to_send: BTreeSet<u32>,
    to_hash: BTreeSet<u32>,
    /// Count of started files of several blocks.
    open_files: usize,
    /// Count of ranges that [`BlockScheduler::skip_blocks`] added.
    skip_ranges: usize,
    /// Bytes that were listed and are not needed.
    not_needed: u64,
    /// Count of calls of [`BlockScheduler::resend`].
    resends: u64,
}

/// The remaining work of one file.
#[derive(Debug)]
struct FileWork<T> {
    source: T,
    layout: Layout,
    send: BlockSet,
    hash: BlockSet,
    /// Present until all hashes are known; never present for a file of one block.
    tree: Option<HashTree>,
    skip_ranges: usize,
    /// At least one block was assigned for sending.
    started: bool,
    /// The receiver has only requested the digest so far.
    digest_only: bool,
    sharing: Sharing,
}

/// One block to read and hash, and usually to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockTask<T> {
    /// Entry number of the file.
    pub file: u32,
    pub block: Block,
    pub layout: Layout,
    pub source: T,
    /// If false, the receiver has the block and only the hash is needed.
    pub send: bool,
}

/// An invalid message of the receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("the receiver refers to entry {entry}, but only {listed} are listed")]
    Entry { entry: u64, listed: u32 },
    /// Entries are still being listed.
    #[error("the receiver reports the end before the list is complete")]
    DoneBeforeListComplete,
    #[error("the receiver requests blocks again more than {MAX_RESENDS} times")]
    TooManyResends,
    #[error("the receiver refers to block {index} of entry {file}, which has {blocks} blocks")]
    Block { file: u32, index: u64, blocks: u64 },
}

impl<T: Clone> BlockScheduler<T> {
    /// Creates a scheduler with an empty list, for files in blocks of `block`.
    pub fn new(block: Bytes) -> Self {
        BlockScheduler {
            block,
            listed: 0,
            list_complete: false,
            requested_up_to: u32::MAX,
            is_assigned: false,
            pending: BTreeMap::new(),
            pending_size: PendingEntries::default(),
            to_send: BTreeSet::new(),
            started_to_send: BTreeSet::new(),
            sharing_to_send: BTreeSet::new(),
            to_hash: BTreeSet::new(),
            open_files: 0,
            skip_ranges: 0,
            not_needed: 0,
            resends: 0,
        }
    }

    /// Reports whether an entry of this [`weight`](lfn_session::wire::copy::entry::Entry::weight) may be listed now.
    pub fn has_room(&self, weight: usize) -> bool {
        self.pending_size.room(1, weight).is_ok()
    }

    /// Returns the count of listed entries that are not finished.
    pub fn pending_entries(&self) -> usize {
        self.pending.len()
    }

    /// Returns the bytes that were listed and need not be sent: the receiver has them, or cannot use them.
    pub fn not_needed(&self) -> Bytes {
        Bytes(self.not_needed)
    }

    /// Returns the count of listed entries.
    pub fn listed(&self) -> u32 {
        self.listed
    }

    /// Adds an entry of this weight; for a file, with its length and reader. Returns the entry number.
    pub fn add_entry(&mut self, weight: usize, file: Option<(Bytes, T)>) -> Result<u32, LayoutError> {
        let mut work = match file {
            Some((bytes, of)) => Some(FileWork::new(Layout::new(bytes, self.block)?, of)),
            None => None,
        };
        if let Some(work) = work.as_mut().filter(|_| self.is_assigned) {
            work.send = BlockSet::default();
            work.tree = None;
        }
        let number = self.listed;
        if work.as_ref().is_some_and(|work| !work.send.is_empty()) {
            self.to_send.insert(number);
        }
        self.pending.insert(number, work);
        self.pending_size.list(number, weight);
        self.listed += 1;
        Ok(number)
    }

    /// Marks the list as complete.
    pub fn finish_list(&mut self) {
        self.list_complete = true;
    }

    /// Sets whether each file waits for a request of the receiver.
    pub fn set_wait_for_requests(&mut self, asks: bool) {
        self.requested_up_to = if asks { 0 } else { u32::MAX };
    }

    /// Makes every block wait until the receiver assigns it, because other ranks may send it. This side computes no
    /// digests. Call this before the first entry is listed.
    pub fn wait_for_assignment(&mut self) {
        self.is_assigned = true;
    }

    /// Adds assigned blocks of one file.
    pub fn assign(&mut self, file: u32, blocks: &BlockSet) -> Result<(), ScheduleError> {
        let Some(work) = pending_file(&mut self.pending, self.listed, file)? else { return Ok(()) };
        let count = work.layout.blocks();
        if let Some((_, index)) = blocks.ranges().last().filter(|(_, last)| *last >= count) {
            return Err(ScheduleError::Block { file, index, blocks: count });
        }
        blocks.ranges().for_each(|(first, last)| work.send.insert_range(first, last));
        self.update_queues(file);
        Ok(())
    }

    /// Adds assigned files of one block.
    pub fn assign_files(&mut self, files: &BlockSet) -> Result<(), ScheduleError> {
        for file in self.pending_in(files)? {
            self.assign(file, &BlockSet::from_range(0, 0))?;
        }
        Ok(())
    }

    /// Records that the receiver has decided about the entries before `up_to`.
    pub fn request_up_to(&mut self, up_to: u32) -> Result<(), ScheduleError> {
        if up_to > self.listed {
            return Err(ScheduleError::Entry { entry: up_to.into(), listed: self.listed });
        }
        self.requested_up_to = self.requested_up_to.max(up_to);
        Ok(())
    }

    /// Records that the receiver has these blocks: they are hashed but not sent, unless they were sent already.
    pub fn skip_blocks(&mut self, file: u32, blocks: &BlockSet) -> Result<(), ScheduleError> {
        let Some(work) = pending_file(&mut self.pending, self.listed, file)? else { return Ok(()) };
        let count = work.layout.blocks();
        if let Some((_, index)) = blocks.ranges().last().filter(|(_, last)| *last >= count) {
            return Err(ScheduleError::Block { file, index, blocks: count });
        }
        for (first, last) in blocks.ranges() {
            if self.skip_ranges >= MAX_SKIP_RANGES {
                break;
            }
            for (first, last) in work.send.remove_range(first, last) {
                work.hash.insert_range(first, last);
                work.skip_ranges += 1;
                self.skip_ranges += 1;
                self.not_needed += work.layout.range_bytes(first, last);
            }
        }
        self.update_queues(file);
        Ok(())
    }

    /// Records that the receiver needs the digests of these files before it decides whether they are sent.
    pub fn digests_first(&mut self, files: &BlockSet) -> Result<(), ScheduleError> {
        for file in self.pending_in(files)? {
            let Some(Some(work)) = self.pending.get_mut(&file) else { continue };
            let Some(last) = work.layout.blocks().checked_sub(1) else { continue };
            // Blocks that were sent already are counted again.
            work.send.remove_range(0, last);
            work.hash.remove_range(0, last);
            work.hash.insert_range(0, last);
            work.tree = (last > 0).then(|| HashTree::new(work.layout));
            work.digest_only = true;
            self.update_queues(file);
        }
        Ok(())
    }

    /// Reports whether the receiver has only requested the digest of the file so far.
    pub fn is_digest_only(&self, file: u32) -> bool {
        matches!(self.pending.get(&file), Some(Some(work)) if work.digest_only)
    }

    /// Records that these files are to be sent, after their digests were requested.
    pub fn send_files(&mut self, files: &BlockSet) -> Result<(), ScheduleError> {
        for file in self.pending_in(files)? {
            let Some(Some(work)) = self.pending.get_mut(&file) else { continue };
            let Some(last) = work.layout.blocks().checked_sub(1).filter(|_| work.digest_only) else { continue };
            work.digest_only = false;
            work.hash.remove_range(0, last);
            work.send.remove_range(0, last);
            work.send.insert_range(0, last);
            work.tree = (last > 0).then(|| HashTree::new(work.layout));
            self.update_queues(file);
        }
        Ok(())
    }

    /// Schedules the blocks from `first` to `last` to be sent again: they arrived damaged, or not at all.
    pub fn resend(&mut self, file: u32, first: u64, last: u64) -> Result<(), ScheduleError> {
        let Some(work) = pending_file(&mut self.pending, self.listed, file)? else { return Ok(()) };
        let blocks = work.layout.blocks();
        if last >= blocks {
            return Err(ScheduleError::Block { file, index: last, blocks });
        }
        self.resends += 1;
        if self.resends > MAX_RESENDS {
            return Err(ScheduleError::TooManyResends);
        }
        work.hash.remove_range(first, last);
        work.send.remove_range(first, last);
        work.send.insert_range(first, last);
        self.update_queues(file);
        Ok(())
    }

    /// Removes entries that the receiver has finished.
    pub fn settle(&mut self, files: &BlockSet) -> Result<(), ScheduleError> {
        self.pending_in(files)?.into_iter().for_each(|number| self.remove(number));
        Ok(())
    }

    /// Returns the entries of `files` that are not finished.
    fn pending_in(&self, files: &BlockSet) -> Result<Vec<u32>, ScheduleError> {
        let mut numbers = Vec::new();
        for (first, last) in files.ranges() {
            if last >= self.listed.into() {
                return Err(ScheduleError::Entry { entry: last, listed: self.listed });
            }
            numbers.extend(self.pending.range(first as u32..=last as u32).map(|(number, _)| *number));
        }
        Ok(numbers)
    }

    /// Removes an entry that failed at either end. Returns false if it was finished before.
    pub fn fail(&mut self, entry: u32) -> Result<bool, ScheduleError> {
        if entry >= self.listed {
            return Err(ScheduleError::Entry { entry: entry.into(), listed: self.listed });
        }
        let new = self.pending.contains_key(&entry);
        self.remove(entry);
        Ok(new)
    }

    /// Returns the next work for a free stream, in at most `room` bytes including headers: one block of a larger file,
    /// or as many complete small files as fit. Returns nothing if nothing is ready. The first block is returned even if
    /// it is larger than `room`.
    pub fn next_blocks(&mut self, room: usize, filter: BlockFilter<'_>) -> Vec<BlockTask<T>> {
        let (mut pieces, mut left) = (Vec::new(), room);
        while let Some(file) = self.next_to_send(filter) {
            let Some(Some(work)) = self.pending.get_mut(&file) else { break };
            let packs = work.layout.blocks() == 1;
            let Some(block) =
                filter.first_block(work.sharing, &work.layout, &work.send).and_then(|index| work.layout.block(index))
            else {
                break;
            };
            let needed = BlockHeader::LENGTH + block.length as usize;
            if !pieces.is_empty() && (!packs || needed > left || pieces.len() == MAX_FILES_PER_WRITE) {
                break;
            }
            if !packs && !work.started {
                work.started = true;
                self.open_files += 1;
            }
            work.send.remove_range(block.index, block.index);
            pieces.push(BlockTask { file, block, layout: work.layout, source: work.source.clone(), send: true });
            self.update_queues(file);
            left = left.saturating_sub(needed);
            if !packs {
                break;
            }
        }
        pieces
    }

    /// Returns a block that only needs to be hashed, because the receiver has it.
    pub fn next_hash_block(&mut self) -> Option<BlockTask<T>> {
        let file = *self.to_hash.first()?;
        let work = self.pending.get_mut(&file)?.as_mut()?;
        let block = work.layout.block(work.hash.first_range()?.0)?;
        work.hash.remove_range(block.index, block.index);
        let piece = BlockTask { file, block, layout: work.layout, source: work.source.clone(), send: false };
        self.update_queues(file);
        Some(piece)
    }

    /// Extends a task by the following blocks up to `last`, as far as they are ready for the same work: to be sent, or
    /// to be hashed. Returns the last block of the extended task.
    pub fn extend(&mut self, task: &BlockTask<T>, last: u64) -> u64 {
        let next = task.block.index + 1;
        let Some(Some(work)) = self.pending.get_mut(&task.file) else { return task.block.index };
        let ready = if task.send { &mut work.send } else { &mut work.hash };
        // The next blocks end where other blocks were taken before.
        let end = ready.gaps_in(next, last).next().map_or(last, |(gap, _)| gap - 1);
        ready.remove_range(next, end);
        self.update_queues(task.file);
        end
    }

    /// Records that a block was hashed, and sent if required. Returns the digest of the file after its last block.
    pub fn record_hash(&mut self, piece: &BlockTask<T>, hash: BlockHash) -> Option<Digest> {
        if piece.layout.blocks() == 1 {
            return self.pending.get(&piece.file)?.as_ref().map(|_| Digest(hash.0));
        }
        self.update_tree(piece.file, |tree| {
            tree.insert(piece.block.index, hash);
        })
    }

    /// Records that a hole was hashed, and sent if required. `hash` computes the hash of zeros. Returns the digest of
    /// the file after its last block.
    pub fn record_hole(&mut self, file: u32, hole: Subtree, hash: &impl Fn(Subtree) -> BlockHash) -> Option<Digest> {
        self.update_tree(file, |tree| tree.insert_unknown(hole, hash))
    }

    fn update_tree(&mut self, file: u32, update: impl FnOnce(&mut HashTree)) -> Option<Digest> {
        let work = self.pending.get_mut(&file)?.as_mut()?;
        let tree = work.tree.as_mut()?;
        update(tree);
        let digest = tree.digest()?;
        work.tree = None;
        Some(digest)
    }

    /// Ends the copy on the receiver's `done`: all remaining entries are finished.
    pub fn finish(&mut self) -> Result<(), ScheduleError> {
        if !self.list_complete {
            return Err(ScheduleError::DoneBeforeListComplete);
        }
        let rest: Vec<u32> = self.pending.keys().copied().collect();
        rest.into_iter().for_each(|number| self.remove(number));
        Ok(())
    }

    /// Reports whether a block is ready to be sent.
    pub fn has_blocks_to_send(&self) -> bool {
        self.next_to_send(BlockFilter::ALL).is_some()
    }

    /// Returns the first file that may be sent. If the maximum of started files is reached, a later file that is
    /// started may have blocks to resend: these are sent first, because nothing else finishes that file.
    fn next_to_send(&self, filter: BlockFilter<'_>) -> Option<u32> {
        if !filter.is_all() {
            return self.next_permitted(filter);
        }
        let first = self.to_send.first().copied().filter(|file| self.may_open(*file));
        first.or(self.started_to_send.first().copied()).filter(|file| *file < self.requested_up_to)
    }

    /// Reports whether a file is started, or may start.
    fn may_open(&self, file: u32) -> bool {
        let begun = |work: &FileWork<T>| work.started || work.layout.blocks() == 1;
        self.open_files < MAX_OPEN_FILES || self.pending.get(&file).and_then(Option::as_ref).is_some_and(begun)
    }

    /// Reports whether a block is ready to be hashed.
    pub fn has_blocks_to_hash(&self) -> bool {
        !self.to_hash.is_empty()
    }

    /// Reports whether the list is complete and all entries are finished.
    pub fn is_finished(&self) -> bool {
        self.list_complete && self.pending.is_empty()
    }

    /// Updates the queues of files to send and to hash.
    fn update_queues(&mut self, file: u32) {
        let Some(Some(work)) = self.pending.get(&file) else { return };
        for (ranges, files) in [(&work.send, &mut self.to_send), (&work.hash, &mut self.to_hash)] {
            if ranges.is_empty() {
                files.remove(&file);
            } else {
                files.insert(file);
            }
        }
        if work.started && !work.send.is_empty() {
            self.started_to_send.insert(file);
        } else {
            self.started_to_send.remove(&file);
        }
        if work.sharing != Sharing::No && !work.send.is_empty() {
            self.sharing_to_send.insert(file);
        } else {
            self.sharing_to_send.remove(&file);
        }
    }

    fn remove(&mut self, entry: u32) {
        self.pending_size.settle(entry);
        if let Some(Some(work)) = self.pending.remove(&entry) {
            self.skip_ranges -= work.skip_ranges;
            self.open_files -= usize::from(work.started);
            self.not_needed += work.unsent_bytes();
            self.to_send.remove(&entry);
            self.started_to_send.remove(&entry);
            self.sharing_to_send.remove(&entry);
            self.to_hash.remove(&entry);
        }
    }
}

/// Returns the remaining work of a file in the receiver's message, or `None` if the file is finished.
fn pending_file<T>(
    pending: &mut BTreeMap<u32, Option<FileWork<T>>>,
    listed: u32,
    file: u32,
) -> Result<Option<&mut FileWork<T>>, ScheduleError> {
    if file >= listed {
        return Err(ScheduleError::Entry { entry: file.into(), listed });
    }
    match pending.get_mut(&file) {
        None => Ok(None),
        Some(Some(work)) => Ok(Some(work)),
        // A directory or a link.
        Some(None) => Err(ScheduleError::Block { file, index: 0, blocks: 0 }),
    }
}

impl<T> FileWork<T> {
    /// Returns the bytes that were never sent.
    fn unsent_bytes(&self) -> u64 {
        if self.digest_only {
            return self.layout.bytes().0;
        }
        self.send.ranges().map(|(first, last)| self.layout.range_bytes(first, last)).sum()
    }

    fn new(layout: Layout, of: T) -> Self {
        let mut send = BlockSet::default();
        if let Some(last) = layout.blocks().checked_sub(1) {
            send.insert_range(0, last);
        }
        let tree = (layout.blocks() > 1).then(|| HashTree::new(layout));
        FileWork {
            source: of,
            layout,
            send,
            hash: BlockSet::default(),
            tree,
            skip_ranges: 0,
            started: false,
            digest_only: false,
            sharing: Sharing::No,
        }
    }
}

#[cfg(test)]
mod tests;
