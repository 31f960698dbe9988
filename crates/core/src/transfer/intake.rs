//! The receiver's side of one file: what is in, what is on its way, what an earlier copy left, and what a header may claim.
//!
//! Every field of a header comes from a peer. A block is claimed before its payload is written, so that two streams
//! never write one range, and a header that names no block of the file is an error before a byte is taken. A block that
//! an earlier copy left may still come, because it left the sender before it heard of that: it is dropped. A damaged
//! block may come again, but not for ever; and twice, where the stream breaks that it came damaged over, and it is missed
//! with that stream though it was asked for already.

use std::collections::{HashMap, HashSet};

use super::blocks::{Block, Layout};
use super::blockset::BlockSet;
use super::digest::{BlockHash, Digest, HashTree};

/// How often a block may come damaged before the file is given up.
pub const MOST_TRIES: u8 = 3;

/// Why a block was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    /// The header speaks of a file that was not announced.
    #[error("block of file {0}, which is not listed")]
    File(u32),
    /// The range is not one of the file's blocks.
    #[error("block of {length} B at offset {offset}: no block of a file of {bytes} B")]
    Range {
        /// As the header says.
        offset: u64,
        /// As the header says.
        length: u32,
        /// As announced.
        bytes: u64,
    },
    /// The peer sends a block a second time, or on two streams at once, and was not asked to.
    #[error("block at offset {0} came twice")]
    Twice(u64),
    /// The payload is not what the sender hashed, time after time: damaged in memory, by a network device, or on purpose.
    #[error("block at offset {0} is corrupt: its hash is not the sender's, {MOST_TRIES} times")]
    Corrupt(u64),
}

/// What a header claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A block that is wanted: kept for the stream it came on.
    Wanted(Block),
    /// One that is there, or comes over another stream: to be read and dropped.
    There(Block),
}

/// What became of a claimed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Its payload is the sender's.
    Whole,
    /// It is damaged, and to be sent again.
    Again,
}

/// The blocks of one file as they come in.
#[derive(Debug)]
pub struct Intake {
    layout: Layout,
    received: HashTree,
    claimed: HashSet<u64>,
    /// Left by an earlier copy.
    kept: BlockSet,
    /// How often which block came damaged.
    damaged: HashMap<u64, u8>,
    /// How often any was asked for again and has come no second time for it.
    asked: u64,
}

impl Intake {
    /// A file of which nothing is in.
    pub fn new(layout: Layout) -> Self {
        let received = HashTree::new(layout);
        let (claimed, kept, damaged) = Default::default();
        Intake { layout, received, claimed, kept, damaged, asked: 0 }
    }

    /// How the file is cut.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes the hash of a block that an earlier copy left; false if it is in or on its way, or is no block of the file.
    pub fn keep(&mut self, index: u64, hash: BlockHash) -> bool {
        !self.claimed.contains(&index) && self.received.insert(index, hash) && self.kept.insert(index)
    }

    /// The blocks that an earlier copy left.
    pub fn kept(&self) -> &BlockSet {
        &self.kept
    }

    /// Checks the range a header names, and keeps the block for the stream it came on if it is wanted.
    pub fn claim(&mut self, offset: u64, length: u32) -> Result<Claim, IntakeError> {
        let block = self.layout.block_at(offset, length);
        let block = block.ok_or(IntakeError::Range { offset, length, bytes: self.layout.bytes().0 })?;
        if self.kept.contains(block.index) {
            return Ok(Claim::There(block));
        }
        if !self.received.contains(block.index) && self.claimed.insert(block.index) {
            return Ok(Claim::Wanted(block));
        }
        self.asked = self.asked.checked_sub(1).ok_or(IntakeError::Twice(offset))?;
        Ok(Claim::There(block))
    }

    /// Compares a claimed block's payload, hashed here, with the header's hash. A damaged one can be claimed again.
    pub fn check(&mut self, block: Block, announced: BlockHash, computed: BlockHash) -> Result<Checked, IntakeError> {
        if announced == computed {
            return Ok(Checked::Whole);
        }
        self.claimed.remove(&block.index);
        let times = self.damaged.entry(block.index).or_default();
        *times += 1;
        if *times >= MOST_TRIES {
            return Err(IntakeError::Corrupt(block.offset));
        }
        self.asked += 1;
        Ok(Checked::Again)
    }

    /// Gives up a claim: the stream broke before the block was whole.
    pub fn release(&mut self, block: Block) {
        self.claimed.remove(&block.index);
    }

    /// Takes a claimed block that is where it belongs.
    pub fn take(&mut self, block: Block, hash: BlockHash) -> Result<(), IntakeError> {
        if !self.claimed.remove(&block.index) || !self.received.insert(block.index, hash) {
            return Err(IntakeError::Twice(block.offset));
        }
        self.damaged.remove(&block.index);
        Ok(())
    }

    /// Whether the block is neither in nor on its way.
    pub fn lacks(&self, index: u64) -> bool {
        self.layout.block(index).is_some()
            && !self.claimed.contains(&index)
            && !self.received.contains(index)
            && !self.kept.contains(index)
    }

    /// How much is remembered of single blocks: hashes that wait for their neighbours, and which blocks came damaged.
    /// It grows with the gaps that the sender leaves, some dozens of bytes for each.
    pub fn held(&self) -> usize {
        self.received.held() + self.damaged.len()
    }

    /// Whether every block is in.
    pub fn is_complete(&self) -> bool {
        self.received.is_complete()
    }

    /// The digest of the file, once every block is in.
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
        /// Whatever a peer claims, in whatever order, the file is complete exactly when every block was taken once.
        #[test]
        fn hostile_headers_never_pass_for_blocks(
            bytes in 0u64..20_000,
            left in proptest::collection::hash_set(0u64..24, 0..8),
            claims in proptest::collection::vec((0u64..24, 0u64..3, 0u32..1100, any::<bool>()), 0..120),
        ) {
            let layout = Layout::new(Bytes(bytes), Bytes(1024)).unwrap();
            let data = vec![3; bytes as usize];
            let mut intake = Intake::new(layout);
            let mut taken = HashSet::new();
            let hash = |block: Block| hash_block(&layout, block, &data[block.offset as usize..][..block.length as usize]);
            for index in left {
                let there = layout.block(index);
                prop_assert_eq!(intake.keep(index, there.map_or(RIGHT, hash)), there.is_some());
                taken.extend(there.map(|block| block.index));
            }
            for (index, shift, length, honest) in claims {
                let length = if honest { layout.block(index).map_or(length, |block| block.length) } else { length };
                let offset = index * 1024 + shift;
                let block = match intake.claim(offset, length) {
                    Ok(Claim::Wanted(block)) => block,
                    Ok(Claim::There(block)) => {
                        prop_assert!(intake.kept().contains(block.index) && taken.contains(&block.index));
                        continue;
                    }
                    Err(_) => continue,
                };
                prop_assert!(taken.insert(block.index));
                prop_assert_eq!(intake.claim(offset, length), Err(IntakeError::Twice(block.offset)));
                prop_assert!(!intake.keep(block.index, RIGHT));
                let hash = hash(block);
                prop_assert_eq!(intake.check(block, hash, hash), Ok(Checked::Whole));
                intake.take(block, hash).unwrap();
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
    fn a_block_may_come_once_more_for_each_time_it_was_asked_for_again() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let block = layout.block(1).unwrap();
        for taken_before in [true, false] {
            let mut intake = Intake::new(layout);
            intake.claim(1024, 1024).unwrap();
            assert_eq!(intake.check(block, RIGHT, WRONG), Ok(Checked::Again));
            // The stream it came over breaks, and it is missed with that: two will come, perhaps at once.
            assert!(intake.lacks(1));
            assert_eq!(intake.claim(1024, 1024), Ok(Claim::Wanted(block)));
            if taken_before {
                intake.take(block, RIGHT).unwrap();
            }
            assert_eq!(intake.claim(1024, 1024), Ok(Claim::There(block)));
            assert_eq!(intake.claim(1024, 1024), Err(IntakeError::Twice(1024)));
            if !taken_before {
                intake.take(block, RIGHT).unwrap();
            }
        }
    }

    #[test]
    fn a_damaged_block_comes_again_but_not_for_ever() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let mut intake = Intake::new(layout);
        let block = layout.block(1).unwrap();
        for _ in 1..MOST_TRIES {
            assert_eq!(intake.claim(1024, 1024), Ok(Claim::Wanted(block)));
            assert_eq!(intake.check(block, RIGHT, WRONG), Ok(Checked::Again));
        }
        intake.claim(1024, 1024).unwrap();
        assert_eq!(intake.check(block, RIGHT, WRONG), Err(IntakeError::Corrupt(1024)));
        assert!(!intake.is_complete());
        // A block of one file says nothing of another block.
        let other = layout.block(0).unwrap();
        intake.claim(0, 1024).unwrap();
        assert_eq!(intake.check(other, RIGHT, WRONG), Ok(Checked::Again));
    }
}
