//! Tracks the blocks of one incoming file, and checks the block headers of a peer.
//!
//! Every field of a header comes from a peer. A block is claimed before its payload is written, so that two streams
//! never write the same range. A header that names no block of the file is an error before any payload is read. A block
//! that an earlier copy left may still arrive, because the sender sent it before it received the list of existing
//! blocks: such a block is discarded. A damaged block may arrive again, up to a limit. It may also arrive twice: its
//! stream breaks after the damage was reported, and the block is then requested again as a block of the broken stream.

use std::collections::{BTreeMap, HashSet};

use lfn_session::wire::copy::blocks::{Block, Layout, Subtree};
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::{BlockHash, Digest, HashTree};

/// Attempts to receive a block without damage before the file fails.
pub const MAX_ATTEMPTS: u8 = 3;

/// Reason why a block was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    #[error("block of file {0}, which is not listed")]
    File(u32),
    #[error("block of {length} B at offset {offset}: not a block of a file of {bytes} B")]
    Range { offset: u64, length: u32, bytes: u64 },
    /// The block was neither missing nor requested again.
    #[error("block at offset {0} arrived twice")]
    Duplicate(u64),
    /// Every attempt was damaged: in memory, by a network device, or intentionally.
    #[error("block at offset {0} is corrupt: it differed from the sender's hash {MAX_ATTEMPTS} times")]
    Corrupt(u64),
    #[error("hole at offset {0}: the sender's hash is not that of zeros")]
    Hole(u64),
}

/// Result of checking a block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockClaim {
    /// The block is needed, and reserved for this stream.
    Needed(Block),
    /// The block exists, or arrives over another stream: read and discard the payload.
    NotNeeded(Block),
}

/// Result of checking a block's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockCheck {
    /// The payload matches the sender's hash.
    Intact,
    /// The payload is damaged: request the block again.
    Damaged,
}

/// The received blocks of one file.
#[derive(Debug)]
pub struct FileAssembly {
    layout: Layout,
    received: HashTree,
    claimed: HashSet<Subtree>,
    /// Blocks that are received or claimed.
    taken: BlockSet,
    /// Blocks that an earlier copy left.
    existing: BlockSet,
    /// Damaged arrivals per block.
    damage_counts: BTreeMap<u64, u8>,
    /// Repeated requests whose extra block has not arrived yet.
    pending_resends: u64,
}

impl FileAssembly {
    /// Creates the state of a file without any block.
    pub fn new(layout: Layout) -> Self {
        let received = HashTree::new(layout);
        let (claimed, taken, existing, damage_counts) = Default::default();
        FileAssembly { layout, received, claimed, taken, existing, damage_counts, pending_resends: 0 }
    }

    /// Accepts blocks that arrive twice: two ranks may send a block after one of them was thought to be lost.
    pub fn accept_duplicates(&mut self) {
        self.pending_resends = u64::MAX / 2;
    }

    /// Returns the block layout of the file.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Adds blocks that an earlier copy left. Returns false if one of them is received or claimed, or if the file has
    /// no such blocks.
    pub fn add_existing(&mut self, subtree: Subtree, hash: BlockHash) -> bool {
        let is_new = self.is_missing(subtree) && self.received.insert_subtree(subtree, hash);
        if is_new {
            self.existing.insert_range(subtree.first, subtree.last());
            self.taken.insert_range(subtree.first, subtree.last());
        }
        is_new
    }

    /// Returns the blocks that an earlier copy left.
    pub fn existing(&self) -> &BlockSet {
        &self.existing
    }

    /// Checks the range of a header, and reserves the block for this stream if it is needed.
    pub fn claim(&mut self, offset: u64, length: u32) -> Result<BlockClaim, AssemblyError> {
        let block = self.layout.block_at(offset, length);
        let block = block.ok_or(AssemblyError::Range { offset, length, bytes: self.layout.bytes().0 })?;
        if self.existing.contains(block.index) {
            return Ok(BlockClaim::NotNeeded(block));
        }
        if !self.taken.contains(block.index) {
            self.take(Subtree::of_block(block.index));
            return Ok(BlockClaim::Needed(block));
        }
        self.accept_duplicate(offset)?;
        Ok(BlockClaim::NotNeeded(block))
    }

    /// Reserves those blocks of a hole that are needed, and returns them.
    ///
    /// # Errors
    /// [`AssemblyError::Duplicate`] if another of its blocks arrived before and was not requested again.
    pub fn claim_hole(&mut self, hole: Subtree) -> Result<Vec<Subtree>, AssemblyError> {
        let missing: Vec<_> = self.taken.gaps_in(hole.first, hole.last()).collect();
        let existing = hole.blocks() - self.existing.count_missing(hole.first, hole.last());
        if existing + self.taken.count_missing(hole.first, hole.last()) < hole.blocks() {
            self.accept_duplicate(hole.first * self.layout.block_size().0)?;
        }
        let layout = self.layout;
        let needed: Vec<Subtree> =
            missing.into_iter().flat_map(|(first, last)| layout.subtrees(first, last, |_| true)).collect();
        needed.iter().for_each(|subtree| self.take(*subtree));
        Ok(needed)
    }

    fn take(&mut self, subtree: Subtree) {
        self.claimed.insert(subtree);
        self.taken.insert_range(subtree.first, subtree.last());
    }

    /// Counts a block that arrived twice.
    fn accept_duplicate(&mut self, offset: u64) -> Result<(), AssemblyError> {
        self.pending_resends = self.pending_resends.checked_sub(1).ok_or(AssemblyError::Duplicate(offset))?;
        Ok(())
    }

    /// Compares the header's hash with the hash of the received payload. A damaged block can be claimed again.
    pub fn check(
        &mut self,
        block: Block,
        announced: BlockHash,
        computed: BlockHash,
    ) -> Result<BlockCheck, AssemblyError> {
        if announced == computed {
            return Ok(BlockCheck::Intact);
        }
        self.release(Subtree::of_block(block.index));
        let times = self.damage_counts.entry(block.index).or_default();
        *times += 1;
        if *times >= MAX_ATTEMPTS {
            return Err(AssemblyError::Corrupt(block.offset));
        }
        self.pending_resends += 1;
        Ok(BlockCheck::Damaged)
    }

    /// Releases a claim because the stream broke before the block was complete.
    pub fn release(&mut self, subtree: Subtree) {
        if self.claimed.remove(&subtree) {
            self.taken.remove_range(subtree.first, subtree.last());
        }
    }

    /// Records claimed blocks that are written.
    pub fn record(&mut self, subtree: Subtree, hash: BlockHash) -> Result<(), AssemblyError> {
        if !self.claimed.remove(&subtree) || !self.received.insert_subtree(subtree, hash) {
            return Err(AssemblyError::Duplicate(subtree.first * self.layout.block_size().0));
        }
        let counted: Vec<u64> =
            self.damage_counts.range(subtree.first..=subtree.last()).map(|(index, _)| *index).collect();
        counted.iter().for_each(|index| _ = self.damage_counts.remove(index));
        Ok(())
    }

    /// Reports whether all blocks of the subtree are neither received nor claimed.
    pub fn is_missing(&self, subtree: Subtree) -> bool {
        self.layout.has_subtree(subtree) && self.taken.count_missing(subtree.first, subtree.last()) == subtree.blocks()
    }

    /// Returns those of `blocks` that are neither received nor claimed.
    pub fn missing(&self, blocks: &BlockSet) -> BlockSet {
        let mut missing = BlockSet::default();
        let end = self.layout.blocks();
        for (first, last) in blocks.ranges().filter(|(first, _)| *first < end) {
            self.taken.gaps_in(first, last.min(end - 1)).for_each(|(first, last)| missing.insert_range(first, last));
        }
        missing
    }

    /// Returns how many single blocks are tracked in memory: hashes that wait for their neighbours, and damaged blocks.
    /// The count grows with the gaps that the sender leaves. Each costs some dozens of bytes.
    pub fn tracked_blocks(&self) -> usize {
        self.received.pending_nodes() + self.damage_counts.len()
    }

    /// Reports whether every block is received.
    pub fn is_complete(&self) -> bool {
        self.received.is_complete()
    }

    /// Returns the digest of the file once every block is received.
    pub fn digest(&self) -> Option<Digest> {
        self.received.digest()
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::wire::copy::digest::hash_block;
    use lfn_session::wire::copy::options::Verify;
    use proptest::prelude::*;

    use super::*;
    use crate::proto::zeros::hash_zeros;

    const RIGHT: BlockHash = BlockHash([0; 32]);
    const WRONG: BlockHash = BlockHash([1; 32]);

    proptest! {
        /// The file is complete exactly if every block was recorded once, whatever a peer claims in whatever order.
        #[test]
        fn hostile_headers_are_rejected(
            bytes in 0u64..20_000,
            left in proptest::collection::hash_set(0u64..24, 0..8),
            claims in proptest::collection::vec((0u64..24, 0u64..3, 0u32..1100, any::<bool>()), 0..120),
        ) {
            let layout = Layout::new(Bytes(bytes), Bytes(1024)).unwrap();
            let data = vec![3; bytes as usize];
            let mut intake = FileAssembly::new(layout);
            let mut taken = HashSet::new();
            let hash = |block: Block| hash_block(&layout, block, &data[block.offset as usize..][..block.length as usize]);
            for index in left {
                let there = layout.block(index);
                prop_assert_eq!(intake.add_existing(Subtree::of_block(index), there.map_or(RIGHT, hash)), there.is_some());
                taken.extend(there.map(|block| block.index));
            }
            for (index, shift, length, honest) in claims {
                let length = if honest { layout.block(index).map_or(length, |block| block.length) } else { length };
                let offset = index * 1024 + shift;
                let block = match intake.claim(offset, length) {
                    Ok(BlockClaim::Needed(block)) => block,
                    Ok(BlockClaim::NotNeeded(block)) => {
                        prop_assert!(intake.existing().contains(block.index) && taken.contains(&block.index));
                        continue;
                    }
                    Err(_) => continue,
                };
                prop_assert!(taken.insert(block.index));
                prop_assert_eq!(intake.claim(offset, length), Err(AssemblyError::Duplicate(block.offset)));
                prop_assert!(!intake.add_existing(Subtree::of_block(block.index), RIGHT));
                let hash = hash(block);
                prop_assert_eq!(intake.check(block, hash, hash), Ok(BlockCheck::Intact));
                intake.record(Subtree::of_block(block.index), hash).unwrap();
                prop_assert!(intake.claim(offset, length).is_err());
            }
            prop_assert_eq!(intake.is_complete(), taken.len() as u64 == layout.blocks());
            prop_assert_eq!(intake.digest().is_some(), intake.is_complete());
            if intake.is_complete() {
                prop_assert_eq!(intake.digest(), Some(Digest(*blake3::hash(&data).as_bytes())));
            }
        }
    }

    proptest! {
        /// Holes take exactly the blocks that are missing, whatever arrived before.
        #[test]
        fn hole_claims_its_missing_blocks(
            taken: u32, existing: u32, holes in proptest::collection::vec((0u64..32, 0u32..5), 1..6), resends in 0u64..3,
        ) {
            let layout = Layout::new(Bytes(33 * 1024), Bytes(1024)).unwrap();
            let hash = |subtree| hash_zeros(&layout, Verify::Blake3, subtree);
            let mut intake = FileAssembly::new(layout);
            let (mut known, mut left) = (HashSet::new(), HashSet::new());
            for index in (0..32).filter(|index| existing >> index & 1 == 1) {
                let block = Subtree::of_block(index);
                prop_assert!(intake.add_existing(block, hash(block)) && left.insert(index) && known.insert(index));
            }
            for index in (0..32).filter(|index| taken >> index & 1 == 1) {
                let claim = intake.claim(index * 1024, 1024).unwrap();
                prop_assert_eq!(matches!(claim, BlockClaim::Needed(_)), known.insert(index));
            }
            intake.pending_resends = resends;
            for (first, level) in holes {
                let hole = Subtree { first: first >> level << level, level };
                let range: HashSet<u64> = (hole.first..=hole.last()).collect();
                let all: BlockSet = range.iter().copied().collect();
                let missing: BlockSet = range.difference(&known).copied().collect();
                prop_assert_eq!(intake.missing(&all), missing.clone());
                let has_duplicate = range.iter().any(|index| known.contains(index) && !left.contains(index));
                let allowed = !has_duplicate || intake.pending_resends > 0;
                let claimed = intake.claim_hole(hole);
                prop_assert_eq!(claimed.is_ok(), allowed);
                for subtree in claimed.unwrap_or_default() {
                    prop_assert!(!intake.is_missing(subtree) && intake.record(subtree, hash(subtree)).is_ok());
                    prop_assert!(intake.record(subtree, hash(subtree)).is_err());
                    known.extend(subtree.first..=subtree.last());
                }
                if allowed {
                    prop_assert_eq!(intake.missing(&all), BlockSet::default());
                } else {
                    prop_assert_eq!(intake.missing(&all), missing);
                }
            }
        }
    }

    #[test]
    fn lost_hole_is_missing_again() {
        let layout = Layout::new(Bytes(40 * 1024), Bytes(1024)).unwrap();
        let mut intake = FileAssembly::new(layout);
        let hole = Subtree { first: 8, level: 3 };
        assert_eq!(intake.claim_hole(hole), Ok(vec![hole]));
        assert_eq!(intake.claim_hole(hole), Err(AssemblyError::Duplicate(8 * 1024)));
        intake.release(Subtree::of_block(8));
        assert!(!intake.is_missing(Subtree::of_block(8)), "another claim");
        intake.release(hole);
        assert!(intake.is_missing(hole) && !intake.is_missing(Subtree { first: 32, level: 4 }));
        assert_eq!(intake.missing(&BlockSet::from_range(38, 90)), BlockSet::from_range(38, 39));
    }

    #[test]
    fn each_resend_permits_one_extra_block() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let block = layout.block(1).unwrap();
        for taken_before in [true, false] {
            let mut intake = FileAssembly::new(layout);
            intake.claim(1024, 1024).unwrap();
            assert_eq!(intake.check(block, RIGHT, WRONG), Ok(BlockCheck::Damaged));
            // The stream of the damaged block breaks, so the block counts as missing twice: two copies arrive, perhaps
            // at the same time.
            assert!(intake.is_missing(Subtree::of_block(1)));
            assert_eq!(intake.claim(1024, 1024), Ok(BlockClaim::Needed(block)));
            if taken_before {
                intake.record(Subtree::of_block(1), RIGHT).unwrap();
            }
            assert_eq!(intake.claim(1024, 1024), Ok(BlockClaim::NotNeeded(block)));
            assert_eq!(intake.claim(1024, 1024), Err(AssemblyError::Duplicate(1024)));
            if !taken_before {
                intake.record(Subtree::of_block(1), RIGHT).unwrap();
            }
        }
    }

    #[test]
    fn damaged_block_is_retried_up_to_limit() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let mut intake = FileAssembly::new(layout);
        let block = layout.block(1).unwrap();
        for _ in 1..MAX_ATTEMPTS {
            assert_eq!(intake.claim(1024, 1024), Ok(BlockClaim::Needed(block)));
            assert_eq!(intake.check(block, RIGHT, WRONG), Ok(BlockCheck::Damaged));
        }
        intake.claim(1024, 1024).unwrap();
        assert_eq!(intake.check(block, RIGHT, WRONG), Err(AssemblyError::Corrupt(1024)));
        assert!(!intake.is_complete());
        // Damage of one block does not count for another block.
        let other = layout.block(0).unwrap();
        intake.claim(0, 1024).unwrap();
        assert_eq!(intake.check(other, RIGHT, WRONG), Ok(BlockCheck::Damaged));
    }
}
