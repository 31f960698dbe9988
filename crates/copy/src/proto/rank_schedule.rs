//! Assigns the blocks of files to the ranks that hold them.
//!
//! A file has one or more pieces. Each piece has its holders: the ranks that can send it. A block is assigned to one rank
//! at a time. If that rank is lost, its blocks that have not arrived are assigned again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use lfn_session::wire::copy::FileBlocks;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::ranks::BlockAssignment;

/// Maximum number of consecutive blocks of a file that a rank gets at once. Longer runs suit the disks, shorter ones let
/// the ranks end at the same time.
const BLOCKS_PER_RUN: u64 = 8;

/// The files that are not complete, and the shares of the ranks.
#[derive(Debug)]
pub struct RankSchedule {
    assignment: BlockAssignment,
    files: BTreeMap<u32, RankFile>,
    /// Per rank: the files with blocks that the rank may get.
    ready: Vec<BTreeSet<u32>>,
    shares: Vec<Share>,
}

/// The blocks of one rank under [`BlockAssignment::Staggered`].
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// The rank is present, and its list is complete. What it has not listed is free for the others.
    is_listed: bool,
    /// The rank stayed away for too long. Everything is free for the others.
    is_released: bool,
}

#[derive(Debug)]
struct RankFile {
    /// Number of blocks, at least 1.
    blocks: u64,
    pieces: Vec<Piece>,
    /// The blocks that each rank must send, also those that arrived since.
    assigned: BTreeMap<u16, BlockSet>,
}

/// Blocks that the same ranks hold.
#[derive(Debug)]
struct Piece {
    holders: BTreeSet<u16>,
    /// All blocks of the piece.
    first: u64,
    last: u64,
    /// The bytes that identify the piece.
    bytes: Range<u64>,
    unassigned: BlockSet,
    /// The holder that was lost last.
    lost_holder: Option<u16>,
    /// Under [`BlockAssignment::Staggered`], the first block where a rank may find one of its share.
    cursors: BTreeMap<u16, u64>,
}

/// Blocks that one rank must send.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// Files of one block.
    pub files: BlockSet,
    pub blocks: Vec<FileBlocks>,
}

impl Assigned {
    /// Returns the number of blocks.
    pub fn len(&self) -> u64 {
        self.files.len() + self.blocks.iter().map(|part| part.blocks.len()).sum::<u64>()
    }

    /// Returns whether there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl RankSchedule {
    /// Creates a schedule without files.
    pub fn new(ranks: u16, assignment: BlockAssignment) -> Self {
        let count = ranks.into();
        RankSchedule {
            assignment,
            files: BTreeMap::new(),
            ready: vec![BTreeSet::new(); count],
            shares: vec![Share::default(); count],
        }
    }

    /// Adds a file of this many blocks. A file without blocks is complete.
    pub fn add_file(&mut self, file: u32, blocks: u64) {
        if blocks > 0 {
            self.files.insert(file, RankFile { blocks, pieces: Vec::new(), assigned: BTreeMap::new() });
        }
    }

    /// Records that a rank holds the blocks from `first` to `last` of a file. Ranks with the same `bytes` of the file
    /// share them.
    pub fn add_holder(&mut self, rank: u16, file: u32, first: u64, last: u64, bytes: Range<u64>) {
        let Some(known) = self.files.get_mut(&file) else { return };
        match known.pieces.iter_mut().find(|piece| piece.bytes == bytes) {
            Some(piece) => {
                piece.holders.insert(rank);
                piece.cursors.clear();
            }
            None => known.pieces.push(Piece {
                holders: BTreeSet::from([rank]),
                first,
                last,
                bytes,
                unassigned: BlockSet::from_range(first, last),
                lost_holder: None,
                cursors: BTreeMap::new(),
            }),
        }
        self.ready[usize::from(rank)].insert(file);
    }

    /// Records that a rank holds all blocks of a file.
    pub fn add_whole_holder(&mut self, rank: u16, file: u32) {
        if let Some(last) = self.files.get(&file).map(|known| known.blocks - 1) {
            self.add_holder(rank, file, 0, last, 0..u64::MAX);
        }
    }

    /// Returns whether the file is known and not complete.
    pub fn contains(&self, file: u32) -> bool {
        self.files.contains_key(&file)
    }

    /// Removes blocks that the receiver has.
    pub fn skip(&mut self, file: u32, blocks: &BlockSet) {
        let Some(known) = self.files.get_mut(&file) else { return };
        for (first, last) in blocks.ranges() {
            known.pieces.iter_mut().for_each(|piece| _ = piece.unassigned.remove_range(first, last));
        }
    }

    /// Removes a file that is complete or has failed.
    pub fn settle(&mut self, file: u32) {
        if let Some(known) = self.files.remove(&file) {
            for rank in known.pieces.iter().flat_map(|piece| &piece.holders) {
                self.ready[usize::from(*rank)].remove(&file);
            }
        }
    }

    /// Schedules a block again: it arrived damaged.
    pub fn repeat(&mut self, file: u32, block: u64) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let touched = known.pieces.iter_mut().filter(|piece| (piece.first..=piece.last).contains(&block));
        for piece in touched {
            piece.insert_range(block, block);
            piece.holders.iter().for_each(|rank| _ = self.ready[usize::from(*rank)].insert(file));
        }
    }

    /// Gives the share of an absent rank to the others.
    pub fn release(&mut self, rank: u16) {
        self.shares[usize::from(rank)].is_released = true;
        self.files.values_mut().flat_map(|known| &mut known.pieces).for_each(|piece| piece.cursors.clear());
        self.mark_all_ready();
    }

    /// Records that the list of a rank is complete.
    pub fn set_listed(&mut self, rank: u16) {
        self.shares[usize::from(rank)] = Share { is_listed: true, is_released: false };
        self.files.values_mut().flat_map(|known| &mut known.pieces).for_each(|piece| piece.cursors.clear());
        self.mark_all_ready();
    }

    /// Removes a rank from the holders of all files. `missing` returns those blocks of a file that have not arrived.
    pub fn lose(&mut self, rank: u16, missing: impl Fn(u32, &BlockSet) -> BlockSet) {
        for (file, known) in &mut self.files {
            let was_assigned = known.assigned.remove(&rank).unwrap_or_default();
            let again = if was_assigned.is_empty() { was_assigned } else { missing(*file, &was_assigned) };
            for piece in known.pieces.iter_mut().filter(|piece| piece.holders.contains(&rank)) {
                piece.remove_holder(rank, &again);
            }
        }
        self.shares[usize::from(rank)] = Share::default();
        self.ready[usize::from(rank)].clear();
        self.mark_all_ready();
    }

    /// Removes a rank from the holders of one file, which the rank cannot read.
    pub fn lose_file(&mut self, rank: u16, file: u32, missing: impl Fn(u32, &BlockSet) -> BlockSet) {
        let Some(mut known) = self.files.remove(&file) else { return };
        let was_assigned = known.assigned.remove(&rank).unwrap_or_default();
        let again = missing(file, &was_assigned);
        for piece in known.pieces.iter_mut().filter(|piece| piece.holders.contains(&rank)) {
            piece.remove_holder(rank, &again);
            piece.holders.iter().for_each(|other| _ = self.ready[usize::from(*other)].insert(file));
        }
        self.files.insert(file, known);
        self.ready[usize::from(rank)].remove(&file);
    }

    /// Returns whether at least one rank holds every piece of the file.
    pub fn is_held(&self, file: u32) -> bool {
        self.files.get(&file).is_none_or(|known| known.pieces.iter().all(|piece| !piece.holders.is_empty()))
    }

    /// Returns a rank that was lost, if it held blocks that are not assigned and that no other rank holds.
    pub fn needed_rank(&self) -> Option<u16> {
        let is_orphan = |piece: &&Piece| piece.holders.is_empty() && !piece.unassigned.is_empty();
        self.files.values().flat_map(|known| &known.pieces).find(is_orphan)?.lost_holder
    }

    /// Returns the number of unassigned blocks, or a number of at least `limit`.
    pub fn unassigned_up_to(&self, limit: u64) -> u64 {
        let mut sum = 0;
        for piece in self.files.values().flat_map(|known| &known.pieces) {
            if sum >= limit {
                break;
            }
            sum += piece.unassigned.len();
        }
        sum
    }

    /// Assigns up to `room` blocks of files before `up_to` to a rank.
    pub fn assign(&mut self, rank: u16, room: u64, up_to: u32) -> Assigned {
        let mut assigned = Assigned::default();
        let mut exhausted = Vec::new();
        let ready: Vec<u32> = self.ready[usize::from(rank)].range(..up_to).copied().collect();
        for file in ready {
            let left = room - assigned.len();
            if left == 0 {
                break;
            }
            let Some(known) = self.files.get_mut(&file) else { continue };
            let staggered = (self.assignment == BlockAssignment::Staggered).then_some(&self.shares[..]);
            let blocks = known.take(rank, file, left, staggered);
            if blocks.len() < left {
                exhausted.push(file);
            }
            if blocks.is_empty() {
                continue;
            }
            known.assigned.entry(rank).or_default().union(&blocks);
            if known.blocks == 1 {
                assigned.files.insert(file.into());
            } else {
                assigned.blocks.push(FileBlocks { file, blocks });
            }
        }
        exhausted.iter().for_each(|file| _ = self.ready[usize::from(rank)].remove(file));
        assigned
    }

    fn mark_all_ready(&mut self) {
        for (file, known) in &self.files {
            for piece in known.pieces.iter().filter(|piece| !piece.unassigned.is_empty()) {
                piece.holders.iter().for_each(|rank| _ = self.ready[usize::from(*rank)].insert(*file));
            }
        }
    }
}

impl RankFile {
    /// Takes up to `room` unassigned blocks for a rank. `staggered` has the shares of the ranks.
    fn take(&mut self, rank: u16, file: u32, room: u64, staggered: Option<&[Share]>) -> BlockSet {
        let mut taken = BlockSet::default();
        let is_single = self.blocks == 1;
        for piece in self.pieces.iter_mut().filter(|piece| piece.holders.contains(&rank)) {
            while taken.len() < room {
                let left = room - taken.len();
                let next = match staggered {
                    None => piece
                        .unassigned
                        .first_range()
                        .map(|(first, last)| (first, last.min(first + left.min(BLOCKS_PER_RUN) - 1))),
                    Some(shares) => {
                        let share = |block: u64| if is_single { u64::from(file) } else { block };
                        piece.next_of_share(rank, shares, share).map(|block| (block, block))
                    }
                };
                let Some((first, last)) = next else { break };
                piece.unassigned.remove_range(first, last);
                taken.insert_range(first, last);
            }
        }
        taken
    }
}

impl Piece {
    fn insert_range(&mut self, first: u64, last: u64) {
        self.unassigned.insert_range(first.max(self.first), last.min(self.last));
        self.cursors.clear();
    }

    fn remove_holder(&mut self, rank: u16, again: &BlockSet) {
        self.holders.remove(&rank);
        self.lost_holder = Some(rank);
        self.cursors.clear();
        again.ranges().for_each(|(first, last)| self.insert_range(first, last));
    }

    /// Returns the first unassigned block in the share of a rank. A share is also free if its rank stays
    /// away, or does not hold the piece.
    fn next_of_share(&mut self, rank: u16, shares: &[Share], share: impl Fn(u64) -> u64) -> Option<u64> {
        let ranks = shares.len() as u64;
        let may_take = |block: u64| {
            // Less than the number of ranks.
            let owner = (share(block) % ranks) as u16;
            let Share { is_listed, is_released } = shares[usize::from(owner)];
            owner == rank || is_released || (is_listed && !self.holders.contains(&owner))
        };
        let start = self.cursors.get(&rank).copied().unwrap_or(self.first);
        // The shares repeat after one block of each rank.
        let found = self
            .unassigned
            .ranges_from(start)
            .find_map(|(first, last)| (first..=last.min(first + ranks)).find(|block| may_take(*block)));
        self.cursors.insert(rank, found.map_or(self.last + 1, |block| block + 1));
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one_file(ranks: u16, blocks: u64, assignment: BlockAssignment) -> RankSchedule {
        let mut schedule = RankSchedule::new(ranks, assignment);
        schedule.add_file(0, blocks);
        (0..ranks).for_each(|rank| schedule.add_whole_holder(rank, 0));
        schedule
    }

    fn blocks_of(assigned: &Assigned) -> Vec<u64> {
        let ranges = assigned.blocks.iter().flat_map(|part| part.blocks.ranges());
        ranges.flat_map(|(first, last)| first..=last).collect()
    }

    #[test]
    fn staggered_ranks_get_every_nth_block() {
        let mut schedule = one_file(4, 14, BlockAssignment::Staggered);
        assert_eq!(blocks_of(&schedule.assign(1, 2, 1)), [1, 5]);
        assert_eq!(blocks_of(&schedule.assign(3, 100, 1)), [3, 7, 11]);
        assert_eq!(blocks_of(&schedule.assign(1, 100, 1)), [9, 13]);
        assert!(schedule.assign(1, 100, 1).is_empty());
        // The share of an absent rank is free after its release.
        schedule.lose(0, |_, _| BlockSet::default());
        schedule.release(0);
        assert_eq!(blocks_of(&schedule.assign(3, 100, 1)), [0, 4, 8, 12]);
    }

    #[test]
    fn lost_rank_leaves_its_missing_blocks() {
        let mut schedule = one_file(2, 10, BlockAssignment::OnDemand);
        assert_eq!(blocks_of(&schedule.assign(0, 6, 1)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(blocks_of(&schedule.assign(1, 99, 1)), [6, 7, 8, 9]);
        // Blocks 0 to 2 have arrived.
        schedule.lose(0, |_, was| {
            let mut missing = was.clone();
            missing.remove_range(0, 2);
            missing
        });
        assert_eq!(blocks_of(&schedule.assign(1, 99, 1)), [3, 4, 5]);
        assert_eq!(schedule.needed_rank(), None);
        schedule.lose(1, |_, was| was.clone());
        assert_eq!(schedule.needed_rank(), Some(1));
        schedule.add_whole_holder(0, 0);
        assert_eq!(schedule.assign(0, 99, 1).len(), 7);
    }

    #[test]
    fn files_of_one_block_are_assigned_by_number() {
        let mut schedule = RankSchedule::new(2, BlockAssignment::Staggered);
        for file in 0..6 {
            schedule.add_file(file, 1);
            (0..2).for_each(|rank| schedule.add_whole_holder(rank, file));
        }
        assert_eq!(schedule.assign(1, 2, 6).files, [1, 3].into_iter().collect());
        // Later files wait until the receiver has decided about them.
        assert_eq!(schedule.assign(0, 9, 3).files, [0, 2].into_iter().collect());
        schedule.settle(4);
        assert!(schedule.assign(0, 9, 9).is_empty());
    }

    proptest! {
        /// Whatever ranks come, get lost and come back: no block has two ranks, and every block has one in the end.
        #[test]
        fn every_block_is_assigned_once(
            ranks in 1u16..5, blocks in 2u64..60, staggered: bool,
            steps in proptest::collection::vec((0u16..5, 0u64..9, 0u8..10), 0..60),
        ) {
            let assignment = if staggered { BlockAssignment::Staggered } else { BlockAssignment::OnDemand };
            let mut schedule = one_file(ranks, blocks, assignment);
            let mut owners: Vec<Option<u16>> = vec![None; blocks as usize];
            let mut present = vec![true; usize::from(ranks)];
            let rest = (0..ranks).map(|rank| (rank, 1000, 9));
            let returns = (0..ranks).map(|rank| (rank, 0, 1));
            for (rank, room, action) in steps.into_iter().chain(returns).chain(rest) {
                let rank = rank % ranks;
                let is_present = &mut present[usize::from(rank)];
                match action {
                    0 if *is_present => {
                        // Nothing has arrived.
                        schedule.lose(rank, |_, was| was.clone());
                        *is_present = false;
                        owners.iter_mut().filter(|owner| **owner == Some(rank)).for_each(|owner| *owner = None);
                    }
                    1 if !*is_present => {
                        schedule.add_whole_holder(rank, 0);
                        *is_present = true;
                    }
                    _ if *is_present => {
                        for block in blocks_of(&schedule.assign(rank, room, 1)) {
                            prop_assert_eq!(owners[block as usize].replace(rank), None);
                        }
                    }
                    _ => {}
                }
            }
            prop_assert!(owners.iter().all(Option::is_some), "{owners:?}");
        }
    }
}
