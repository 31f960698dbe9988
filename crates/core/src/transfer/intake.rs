//! The receiver's side: what of a file is in, what is on its way, and what a header may claim.
//!
//! Every field of a header comes from a peer. A block is claimed before its payload is read, so that two streams
//! never write one range, and a header that names no block of the announced file is an error before a byte is taken.

use std::collections::HashSet;

use super::blocks::{Block, Layout};
use super::digest::{BlockHash, Digest, HashTree};
use crate::wire::copy::BlockHeader;

/// Why a block was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntakeError {
    /// The header speaks of a file that was not announced.
    #[error("block of file {0}, only file 0 was announced")]
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
    /// The peer sends a block a second time, or on two streams at once.
    #[error("block at offset {0} came twice")]
    Twice(u64),
    /// The payload is not what the sender hashed: damaged in memory, by a network device, or on purpose.
    #[error("block at offset {0} is corrupt: its hash is not the sender's")]
    Corrupt(u64),
}

/// The blocks of one file as they come in.
#[derive(Debug)]
pub struct Intake {
    layout: Layout,
    received: HashTree,
    claimed: HashSet<u64>,
}

impl Intake {
    /// A file of which nothing is in.
    pub fn new(layout: Layout) -> Self {
        Intake { layout, received: HashTree::new(layout), claimed: HashSet::new() }
    }

    /// How the file is cut.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Checks a header, and keeps the block for the stream it came on.
    pub fn claim(&mut self, header: &BlockHeader) -> Result<Block, IntakeError> {
        let BlockHeader { file, offset, length, .. } = *header;
        if file != 0 {
            return Err(IntakeError::File(file));
        }
        let block = self.layout.block_at(offset, length);
        let block = block.ok_or(IntakeError::Range { offset, length, bytes: self.layout.bytes().0 })?;
        if self.received.contains(block.index) || !self.claimed.insert(block.index) {
            return Err(IntakeError::Twice(offset));
        }
        Ok(block)
    }

    /// Takes a claimed block whose payload, hashed here, has the header's hash.
    pub fn take(&mut self, block: Block, announced: BlockHash, computed: BlockHash) -> Result<(), IntakeError> {
        if announced != computed {
            return Err(IntakeError::Corrupt(block.offset));
        }
        if !self.claimed.remove(&block.index) || !self.received.insert(block.index, computed) {
            return Err(IntakeError::Twice(block.offset));
        }
        Ok(())
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

    fn header(block: Block) -> BlockHeader {
        BlockHeader { file: 0, offset: block.offset, length: block.length, hash: BlockHash([0; 32]) }
    }

    proptest! {
        /// Whatever a peer claims, in whatever order, the file is complete exactly when every block was taken once.
        #[test]
        fn hostile_headers_never_pass_for_blocks(
            bytes in 0u64..20_000,
            claims in proptest::collection::vec((0u32..2, 0u64..24, 0u64..3, 0u32..1100, any::<bool>()), 0..120),
        ) {
            let layout = Layout::new(Bytes(bytes), Bytes(1024)).unwrap();
            let data = vec![3; bytes as usize];
            let mut intake = Intake::new(layout);
            let mut taken = HashSet::new();
            for (file, index, shift, length, honest) in claims {
                let length = if honest { layout.block(index).map_or(length, |block| block.length) } else { length };
                let claim = BlockHeader { file, offset: index * 1024 + shift, length, hash: BlockHash([0; 32]) };
                let Ok(block) = intake.claim(&claim) else { continue };
                prop_assert_eq!(file, 0);
                prop_assert!(taken.insert(block.index));
                prop_assert_eq!(intake.claim(&claim), Err(IntakeError::Twice(block.offset)));
                let hash = hash_block(&layout, block, &data[block.offset as usize..][..block.length as usize]);
                intake.take(block, hash, hash).unwrap();
            }
            prop_assert_eq!(intake.is_complete(), taken.len() as u64 == layout.blocks());
            prop_assert_eq!(intake.digest().is_some(), intake.is_complete());
        }
    }

    #[test]
    fn a_corrupt_block_is_not_taken() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let mut intake = Intake::new(layout);
        let block = layout.block(1).unwrap();
        intake.claim(&header(block)).unwrap();
        let error = intake.take(block, BlockHash([0; 32]), BlockHash([1; 32])).unwrap_err();
        assert_eq!(error, IntakeError::Corrupt(1024));
        assert!(!intake.is_complete());
    }
}
