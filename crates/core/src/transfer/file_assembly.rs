//! Tracks the blocks of one incoming file, and checks the block headers of a peer.
//!
//! Every field of a header comes from a peer. A block is claimed before its payload is written, so that two streams
//! never write the same range. A header that names no block of the file is an error before any payload is read. A block
//! that an earlier copy left may still arrive, because the sender sent it before it received the list of existing
//! blocks: such a block is discarded. A damaged block may arrive again, up to a limit. It may also arrive twice: its
//! stream breaks after the damage was reported, and the block is then requested again as a block of the broken stream.

use std::collections::{HashMap, HashSet};

use super::blocks::{Block, Layout};
use super::blockset::BlockSet;
use super::digest::{BlockHash, Digest, HashTree};

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
    claimed: HashSet<u64>,
    /// Blocks that an earlier copy left.
    existing: BlockSet,
    /// Damaged arrivals per block.
    damage_counts: HashMap<u64, u8>,
    /// Repeated requests whose extra block has not arrived yet.
    pending_resends: u64,
}

impl FileAssembly {
    /// Creates the state of a file without any block.
    pub fn new(layout: Layout) -> Self {
        let received = HashTree::new(layout);
        let (claimed, existing, damaged) = Default::default();
        FileAssembly { layout, received, claimed, existing, damage_counts: damaged, pending_resends: 0 }
    }

    /// Returns the block layout of the file.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Adds a block that an earlier copy left. Returns false if the block is received or claimed, or if the file has no
    /// such block.
    pub fn add_existing(&mut self, index: u64, hash: BlockHash) -> bool {
        !self.claimed.contains(&index) && self.received.insert(index, hash) && self.existing.insert(index)
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
        if !self.received.contains(block.index) && self.claimed.insert(block.index) {
            return Ok(BlockClaim::Needed(block));
        }
        self.pending_resends = self.pending_resends.checked_sub(1).ok_or(AssemblyError::Duplicate(offset))?;
        Ok(BlockClaim::NotNeeded(block))
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
        self.claimed.remove(&block.index);
        let times = self.damage_counts.entry(block.index).or_default();
        *times += 1;
        if *times >= MAX_ATTEMPTS {
            return Err(AssemblyError::Corrupt(block.offset));
        }
        self.pending_resends += 1;
        Ok(BlockCheck::Damaged)
    }

    /// Releases a claim because the stream broke before the block was complete.
    pub fn release(&mut self, block: Block) {
        self.claimed.remove(&block.index);
    }

    /// Records a claimed block whose payload is written.
    pub fn record(&mut self, block: Block, hash: BlockHash) -> Result<(), AssemblyError> {
        if !self.claimed.remove(&block.index) || !self.received.insert(block.index, hash) {
            return Err(AssemblyError::Duplicate(block.offset));
        }
        self.damage_counts.remove(&block.index);
        Ok(())
    }

    /// Reports whether the block is neither received nor claimed.
    pub fn is_missing(&self, index: u64) -> bool {
        self.layout.block(index).is_some()
            && !self.claimed.contains(&index)
            && !self.received.contains(index)
            && !self.existing.contains(index)
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
    use super::*;
    use crate::transfer::digest::hash_block;
    use crate::units::Bytes;
    use proptest::prelude::*;

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
                prop_assert_eq!(intake.add_existing(index, there.map_or(RIGHT, hash)), there.is_some());
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
                prop_assert!(!intake.add_existing(block.index, RIGHT));
                let hash = hash(block);
                prop_assert_eq!(intake.check(block, hash, hash), Ok(BlockCheck::Intact));
                intake.record(block, hash).unwrap();
                prop_assert!(intake.claim(offset, length).is_err());
            }
            prop_assert_eq!(intake.is_complete(), taken.len() as u64 == layout.blocks());
            prop_assert_eq!(intake.digest().is_some(), intake.is_complete());
            if intake.is_complete() {
                prop_assert_eq!(intake.digest(), Some(Digest(*blake3::hash(&data).as_bytes())));
            }
        }
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
            assert!(intake.is_missing(1));
            assert_eq!(intake.claim(1024, 1024), Ok(BlockClaim::Needed(block)));
            if taken_before {
                intake.record(block, RIGHT).unwrap();
            }
            assert_eq!(intake.claim(1024, 1024), Ok(BlockClaim::NotNeeded(block)));
            assert_eq!(intake.claim(1024, 1024), Err(AssemblyError::Duplicate(1024)));
            if !taken_before {
                intake.record(block, RIGHT).unwrap();
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
