//! The sender's side: deals blocks on demand to whichever stream is free, and joins their hashes.
//!
//! Nothing is split in advance, so a slow stream holds up no more than its one block. Blocks go out in the order of
//! the file, which the disks of both ends like best.

use super::blocks::{Block, Layout};
use super::digest::{BlockHash, Digest, HashTree};

/// Which blocks of a file have been dealt, and which were sent.
#[derive(Debug)]
pub struct Schedule {
    layout: Layout,
    next: u64,
    sent: HashTree,
}

impl Schedule {
    /// A file of which nothing was sent.
    pub fn new(layout: Layout) -> Self {
        Schedule { layout, next: 0, sent: HashTree::new(layout) }
    }

    /// How the file is cut.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The next block for a stream that is free; `None` once all are dealt.
    pub fn deal(&mut self) -> Option<Block> {
        let block = self.layout.block(self.next)?;
        self.next += 1;
        Some(block)
    }

    /// Notes that a block was sent, with its hash.
    pub fn sent(&mut self, block: Block, hash: BlockHash) {
        self.sent.insert(block.index, hash);
    }

    /// The digest of the file, once every block was sent.
    pub fn digest(&self) -> Option<Digest> {
        self.sent.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::digest::hash_block;
    use crate::units::Bytes;
    use proptest::prelude::*;

    proptest! {
        /// Streams of any relative pace: each block is dealt once, and the digest comes with the last one sent.
        #[test]
        fn every_block_is_dealt_to_one_stream(length in 0u64..200_000, paces in proptest::collection::vec(0usize..8, 1..300)) {
            let layout = Layout::new(Bytes(length), Bytes(1024)).unwrap();
            let data = vec![9; length as usize];
            let mut schedule = Schedule::new(layout);
            let mut streams: Vec<Option<Block>> = vec![None; 8];
            let mut dealt = Vec::new();
            let mut turns = paces.iter().cycle();
            loop {
                let at = *turns.next().unwrap();
                // Whoever is never free in `paces` keeps nothing.
                if let Some(block) = streams[at].take() {
                    let bytes = &data[block.offset as usize..][..block.length as usize];
                    prop_assert_eq!(schedule.digest(), None);
                    schedule.sent(block, hash_block(&layout, block, bytes));
                }
                match schedule.deal() {
                    Some(block) => { dealt.push(block.index); streams[at] = Some(block); }
                    None if streams.iter().all(Option::is_none) => break,
                    None => {}
                }
            }
            prop_assert_eq!(dealt, (0..layout.blocks()).collect::<Vec<_>>());
            prop_assert_eq!(schedule.digest(), Some(Digest(*blake3::hash(&data).as_bytes())));
        }
    }
}
