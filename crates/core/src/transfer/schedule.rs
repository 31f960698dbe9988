//! The sender's side: deals blocks of many files to whichever stream is free, and joins their hashes.
//!
//! Nothing is split in advance, so a slow stream holds up no more than what it has in hand: one block of a large file,
//! or a pack of small ones. Files go in the order of the list and blocks in the order of the file, which the disks of
//! both ends like best. The receiver corrects what is dealt: what it has need not be sent but only hashed, what came
//! damaged is sent again, and what is settled is forgotten. Every number in its messages is checked against the list.
//!
//! A file's data is done when every block was hashed, sent or not: the digest is always that of the whole source.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::{Block, Layout, LayoutError};
use super::blockset::BlockSet;
use super::digest::{BlockHash, Digest, HashTree};
use super::unsettled::Unsettled;
use crate::units::Bytes;
use crate::wire::copy::BlockHeader;

/// Most blocks in one pack: to read more small files before the first byte leaves would keep the network waiting.
pub const MOST_PACKED: usize = 256;

/// Most files of several blocks that are begun and not settled: the receiver holds each of them open.
pub const MOST_BEGUN: usize = 96;

/// Most ranges of blocks that are remembered over all files because the receiver has them; what it says beyond that is
/// sent to it again, which costs time and not memory.
pub const MOST_RANGES: usize = 1 << 18;

/// How often a receiver may want blocks again in one session: what it misses is remembered.
const MOST_AGAIN: u64 = 1 << 20;

/// Entries that are listed and not settled, and which of their blocks are still to be dealt. `T` is whatever a file is
/// read by.
#[derive(Debug)]
pub struct Deck<T> {
    block: Bytes,
    listed: u32,
    complete: bool,
    /// Files from this number on wait for the receiver's word.
    wanted: u32,
    unsettled: BTreeMap<u32, Option<Work<T>>>,
    account: Unsettled,
    to_send: BTreeSet<u32>,
    /// Of them, those of several blocks that are begun.
    started: BTreeSet<u32>,
    to_hash: BTreeSet<u32>,
    /// How many files of several blocks are begun.
    begun: usize,
    /// How many ranges [`Deck::have`] has made.
    ranges: usize,
    /// Length of all that was listed and turned out not to be wanted.
    passed: u64,
    /// How often [`Deck::again`] was called.
    again: u64,
}

/// What is left of one file.
#[derive(Debug)]
struct Work<T> {
    of: T,
    layout: Layout,
    send: Ranges,
    hash: Ranges,
    /// Until all of it is known; a file of one block needs none.
    tree: Option<HashTree>,
    ranges: usize,
    /// One of its blocks was dealt to be sent.
    begun: bool,
    /// Only its digest is wanted, so far.
    compared: bool,
}

/// One block to be read and hashed, and mostly sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece<T> {
    /// The number of its file.
    pub file: u32,
    /// Which part of it.
    pub block: Block,
    /// How the file is cut.
    pub layout: Layout,
    /// What the file is read by.
    pub of: T,
    /// Otherwise the receiver has it, and only its hash is wanted.
    pub send: bool,
}

/// What the receiver cannot have meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeckError {
    /// Of an entry that was not listed.
    #[error("the receiver speaks of entry {entry}, {listed} are listed")]
    Entry {
        /// As it says.
        entry: u64,
        /// So far.
        listed: u32,
    },
    /// Though entries are still being listed.
    #[error("the receiver says it is done before the list is complete")]
    Early,
    /// Blocks again and again.
    #[error("the receiver wants blocks again more than {MOST_AGAIN} times")]
    Again,
    /// Of a block that the file does not have.
    #[error("the receiver speaks of block {index} of entry {file}, which has {blocks}")]
    Block {
        /// The file.
        file: u32,
        /// As it says.
        index: u64,
        /// How many there are.
        blocks: u64,
    },
}

impl<T: Clone> Deck<T> {
    /// An empty list of files in blocks of `block`.
    pub fn new(block: Bytes) -> Self {
        Deck {
            block,
            listed: 0,
            complete: false,
            wanted: u32::MAX,
            unsettled: BTreeMap::new(),
            account: Unsettled::default(),
            to_send: BTreeSet::new(),
            started: BTreeSet::new(),
            to_hash: BTreeSet::new(),
            begun: 0,
            ranges: 0,
            passed: 0,
            again: 0,
        }
    }

    /// Whether an entry of that [`weight`](super::entry::Entry::weight) may be listed now.
    pub fn has_room(&self, weight: usize) -> bool {
        self.account.room(1, weight).is_ok()
    }

    /// How many entries are listed and not settled.
    pub fn unsettled(&self) -> usize {
        self.unsettled.len()
    }

    /// Length of all that was listed and need not be sent: the receiver has it, or can make nothing of it.
    pub fn passed(&self) -> Bytes {
        Bytes(self.passed)
    }

    /// How many entries are listed.
    pub fn listed(&self) -> u32 {
        self.listed
    }

    /// Adds an entry of that weight, a file with what it is read by, and tells its number.
    pub fn list(&mut self, weight: usize, file: Option<(Bytes, T)>) -> Result<u32, LayoutError> {
        let work = match file {
            Some((bytes, of)) => Some(Work::new(Layout::new(bytes, self.block)?, of)),
            None => None,
        };
        let number = self.listed;
        if work.as_ref().is_some_and(|work| !work.send.is_empty()) {
            self.to_send.insert(number);
        }
        self.unsettled.insert(number, work);
        self.account.list(number, weight);
        self.listed += 1;
        Ok(number)
    }

    /// No entry follows.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether the receiver wants to say of each file whether it is to be sent.
    pub fn asks(&mut self, asks: bool) {
        self.wanted = if asks { 0 } else { u32::MAX };
    }

    /// The receiver has looked at the entries before `up_to`.
    pub fn wants(&mut self, up_to: u32) -> Result<(), DeckError> {
        if up_to > self.listed {
            return Err(DeckError::Entry { entry: up_to.into(), listed: self.listed });
        }
        self.wanted = self.wanted.max(up_to);
        Ok(())
    }

    /// The receiver has these blocks: they are hashed and not sent, where they have not left already.
    pub fn have(&mut self, file: u32, blocks: &BlockSet) -> Result<(), DeckError> {
        let Some(work) = work_of(&mut self.unsettled, self.listed, file)? else { return Ok(()) };
        let count = work.layout.blocks();
        if let Some((_, index)) = blocks.ranges().last().filter(|(_, last)| *last >= count) {
            return Err(DeckError::Block { file, index, blocks: count });
        }
        for (first, last) in blocks.ranges() {
            if self.ranges >= MOST_RANGES {
                break;
            }
            for (first, last) in work.send.cut(first, last) {
                work.hash.insert(first, last);
                work.ranges += 1;
                self.ranges += 1;
                self.passed += work.layout.length(first, last);
            }
        }
        self.file_away(file);
        Ok(())
    }

    /// Of these files the digest is wanted before they are sent, if they are sent at all.
    pub fn digests_first(&mut self, files: &BlockSet) -> Result<(), DeckError> {
        for file in self.unsettled_of(files)? {
            let Some(Some(work)) = self.unsettled.get_mut(&file) else { continue };
            let Some(last) = work.layout.blocks().checked_sub(1) else { continue };
            // Whatever of it left already.
            work.send.cut(0, last);
            work.hash.cut(0, last);
            work.hash.insert(0, last);
            work.tree = (last > 0).then(|| HashTree::new(work.layout));
            work.compared = true;
            self.file_away(file);
        }
        Ok(())
    }

    /// Whether only the digest of the file was asked for so far.
    pub fn is_compared(&self, file: u32) -> bool {
        matches!(self.unsettled.get(&file), Some(Some(work)) if work.compared)
    }

    /// These files, whose digests were wanted, are to be sent.
    pub fn send(&mut self, files: &BlockSet) -> Result<(), DeckError> {
        for file in self.unsettled_of(files)? {
            let Some(Some(work)) = self.unsettled.get_mut(&file) else { continue };
            let Some(last) = work.layout.blocks().checked_sub(1).filter(|_| work.compared) else { continue };
            work.compared = false;
            work.hash.cut(0, last);
            work.send.cut(0, last);
            work.send.insert(0, last);
            work.tree = (last > 0).then(|| HashTree::new(work.layout));
            self.file_away(file);
        }
        Ok(())
    }

    /// Blocks from `first` to `last` came damaged, or not at all: they are sent again.
    pub fn again(&mut self, file: u32, (first, last): (u64, u64)) -> Result<(), DeckError> {
        let Some(work) = work_of(&mut self.unsettled, self.listed, file)? else { return Ok(()) };
        let blocks = work.layout.blocks();
        if last >= blocks {
            return Err(DeckError::Block { file, index: last, blocks });
        }
        self.again += 1;
        if self.again > MOST_AGAIN {
            return Err(DeckError::Again);
        }
        work.hash.cut(first, last);
        work.send.cut(first, last);
        work.send.insert(first, last);
        self.file_away(file);
        Ok(())
    }

    /// The receiver needs nothing of these any more.
    pub fn settle(&mut self, files: &BlockSet) -> Result<(), DeckError> {
        self.unsettled_of(files)?.into_iter().for_each(|number| self.forget(number));
        Ok(())
    }

    /// Those of `files` that are not settled.
    fn unsettled_of(&self, files: &BlockSet) -> Result<Vec<u32>, DeckError> {
        let mut numbers = Vec::new();
        for (first, last) in files.ranges() {
            if last >= self.listed.into() {
                return Err(DeckError::Entry { entry: last, listed: self.listed });
            }
            numbers.extend(self.unsettled.range(first as u32..=last as u32).map(|(number, _)| *number));
        }
        Ok(numbers)
    }

    /// An entry failed at either end. False if it was settled before.
    pub fn fail(&mut self, entry: u32) -> Result<bool, DeckError> {
        if entry >= self.listed {
            return Err(DeckError::Entry { entry: entry.into(), listed: self.listed });
        }
        let new = self.unsettled.contains_key(&entry);
        self.forget(entry);
        Ok(new)
    }

    /// What a free stream is to send next, in at most `room` bytes with their headers: one block of a larger file, or as many
    /// whole files as fit; nothing if there is nothing at present. A single block is dealt whatever the room.
    pub fn deal(&mut self, room: usize) -> Vec<Piece<T>> {
        let (mut pieces, mut left) = (Vec::new(), room);
        while let Some(file) = self.next_to_send() {
            let Some(Some(work)) = self.unsettled.get_mut(&file) else { break };
            let packs = work.layout.blocks() == 1;
            let Some(block) = work.send.first().and_then(|index| work.layout.block(index)) else { break };
            let needed = BlockHeader::LENGTH + block.length as usize;
            if !pieces.is_empty() && (!packs || needed > left || pieces.len() == MOST_PACKED) {
                break;
            }
            if !packs && !work.begun {
                work.begun = true;
                self.begun += 1;
            }
            work.send.cut(block.index, block.index);
            pieces.push(Piece { file, block, layout: work.layout, of: work.of.clone(), send: true });
            self.file_away(file);
            left = left.saturating_sub(needed);
            if !packs {
                break;
            }
        }
        pieces
    }

    /// A block that the receiver has, to be hashed only.
    pub fn deal_hashing(&mut self) -> Option<Piece<T>> {
        let file = *self.to_hash.first()?;
        let work = self.unsettled.get_mut(&file)?.as_mut()?;
        let block = work.layout.block(work.hash.first()?)?;
        work.hash.cut(block.index, block.index);
        let piece = Piece { file, block, layout: work.layout, of: work.of.clone(), send: false };
        self.file_away(file);
        Some(piece)
    }

    /// Notes that a piece was hashed, and sent if it was to be; with the last one comes the digest of the file.
    pub fn done(&mut self, piece: &Piece<T>, hash: BlockHash) -> Option<Digest> {
        let work = self.unsettled.get_mut(&piece.file)?.as_mut()?;
        if work.layout.blocks() == 1 {
            return Some(Digest(hash.0));
        }
        let tree = work.tree.as_mut()?;
        tree.insert(piece.block.index, hash);
        let digest = tree.digest()?;
        work.tree = None;
        Some(digest)
    }

    /// The receiver says that it is done: whatever it did not settle is.
    pub fn close(&mut self) -> Result<(), DeckError> {
        if !self.complete {
            return Err(DeckError::Early);
        }
        let rest: Vec<u32> = self.unsettled.keys().copied().collect();
        rest.into_iter().for_each(|number| self.forget(number));
        Ok(())
    }

    /// Whether something could be dealt to be sent.
    pub fn has_more(&self) -> bool {
        self.next_to_send().is_some()
    }

    /// The first of the files that may be sent of. Where as many are begun as may be, one behind the first may be begun and
    /// have blocks to be sent again: it is settled by nothing else.
    fn next_to_send(&self) -> Option<u32> {
        let first = self.to_send.first().copied().filter(|file| self.may_begin(*file));
        first.or(self.started.first().copied()).filter(|file| *file < self.wanted)
    }

    /// Whether a file is begun, or may be.
    fn may_begin(&self, file: u32) -> bool {
        let begun = |work: &Work<T>| work.begun || work.layout.blocks() == 1;
        self.begun < MOST_BEGUN || self.unsettled.get(&file).and_then(Option::as_ref).is_some_and(begun)
    }

    /// Whether something could be dealt to be hashed.
    pub fn has_hashing(&self) -> bool {
        !self.to_hash.is_empty()
    }

    /// Whether the list is complete and all of it is settled.
    pub fn is_over(&self) -> bool {
        self.complete && self.unsettled.is_empty()
    }

    /// Notes whether the file has something to be sent and to be hashed.
    fn file_away(&mut self, file: u32) {
        let Some(Some(work)) = self.unsettled.get(&file) else { return };
        for (ranges, files) in [(&work.send, &mut self.to_send), (&work.hash, &mut self.to_hash)] {
            if ranges.is_empty() {
                files.remove(&file);
            } else {
                files.insert(file);
            }
        }
        if work.begun && !work.send.is_empty() {
            self.started.insert(file);
        } else {
            self.started.remove(&file);
        }
    }

    fn forget(&mut self, entry: u32) {
        self.account.settle(entry);
        if let Some(Some(work)) = self.unsettled.remove(&entry) {
            self.ranges -= work.ranges;
            self.begun -= usize::from(work.begun);
            self.passed += work.unsent();
            self.to_send.remove(&entry);
            self.started.remove(&entry);
            self.to_hash.remove(&entry);
        }
    }
}

/// What is left of a file that the receiver speaks of; nothing if it is settled.
fn work_of<T>(
    unsettled: &mut BTreeMap<u32, Option<Work<T>>>,
    listed: u32,
    file: u32,
) -> Result<Option<&mut Work<T>>, DeckError> {
    if file >= listed {
        return Err(DeckError::Entry { entry: file.into(), listed });
    }
    match unsettled.get_mut(&file) {
        None => Ok(None),
        Some(Some(work)) => Ok(Some(work)),
        // A directory or a link.
        Some(None) => Err(DeckError::Block { file, index: 0, blocks: 0 }),
    }
}

impl<T> Work<T> {
    /// Length of what never left.
    fn unsent(&self) -> u64 {
        if self.compared {
            return self.layout.bytes().0;
        }
        self.send.0.iter().map(|(first, last)| self.layout.length(*first, *last)).sum()
    }

    fn new(layout: Layout, of: T) -> Self {
        let mut send = Ranges::default();
        if let Some(last) = layout.blocks().checked_sub(1) {
            send.insert(0, last);
        }
        let tree = (layout.blocks() > 1).then(|| HashTree::new(layout));
        Work { of, layout, send, hash: Ranges::default(), tree, ranges: 0, begun: false, compared: false }
    }
}

/// Block numbers still to be dealt, lowest first: first of a range to its last; no two overlap.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn first(&self) -> Option<u64> {
        self.0.keys().next().copied()
    }

    /// Adds what is not in.
    fn insert(&mut self, first: u64, last: u64) {
        self.0.insert(first, last);
    }

    /// Takes out what is in of these, and tells what that was.
    fn cut(&mut self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let before = self.0.range(..first).next_back().filter(|(_, end)| **end >= first).map(|(start, _)| *start);
        let starts: Vec<u64> = before.into_iter().chain(self.0.range(first..=last).map(|(start, _)| *start)).collect();
        let mut cut = Vec::new();
        for start in starts {
            let Some(end) = self.0.remove(&start) else { continue };
            if start < first {
                self.0.insert(start, first - 1);
            }
            if end > last {
                self.0.insert(last + 1, end);
            }
            cut.push((start.max(first), end.min(last)));
        }
        cut
    }
}

#[cfg(test)]
mod tests;
