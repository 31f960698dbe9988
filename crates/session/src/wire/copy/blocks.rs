//! Splits a file into blocks of one power-of-two size. The last block may be shorter.
//!
//! BLAKE3 hashes a file as a binary tree. Aligned blocks of a power-of-two size are complete subtrees, so each block
//! can be hashed alone and the digest is joined afterwards ([`crate::wire::copy::digest`]).

use lfn_base::units::Bytes;

use crate::wire::copy::blockset::BlockSet;

/// Default block size. Large enough that headers and system calls cost little, small enough that a few streams share a
/// file of some megabytes.
pub const DEFAULT_BLOCK: Bytes = Bytes(1 << 20);

/// Minimum block size: one BLAKE3 chunk.
pub const MIN_BLOCK: Bytes = Bytes(1 << 10);

/// Maximum block size. Each stream of a receiver holds one block in memory.
pub const MAX_BLOCK: Bytes = Bytes(16 << 20);

/// Maximum file size: a signed 64-bit file offset.
pub const MAX_FILE: Bytes = Bytes(i64::MAX as u64);

/// Reason why a file cannot be split as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Other sizes are not complete subtrees of the hash.
    #[error("block size {} B: must be a power of two from {MIN_BLOCK} to {MAX_BLOCK}", .0.0)]
    Block(Bytes),
    #[error("file of {} B: at most {} B can be addressed", .0.0, MAX_FILE.0)]
    File(Bytes),
}

/// The length of a file and its block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    bytes: u64,
    block: u64,
}

/// One block: a byte range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub index: u64,
    /// In bytes from the start of the file.
    pub offset: u64,
    /// In bytes, never 0.
    pub length: u32,
}

/// An aligned group of 2^`level` blocks: a complete subtree of the hash tree of a file. A block is a subtree of level 0.
/// The last block of a file, which may be shorter, is only in subtrees of level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subtree {
    /// Number of the first block, a multiple of 2^`level`.
    pub first: u64,
    pub level: u32,
}

/// Level above all subtrees: no file has 2^53 blocks or more.
pub const MAX_LEVEL: u32 = 53;

impl Subtree {
    /// Returns the subtree of one block.
    pub fn of_block(index: u64) -> Self {
        Subtree { first: index, level: 0 }
    }

    /// Returns the number of its blocks.
    pub fn blocks(&self) -> u64 {
        1 << self.level
    }

    /// Returns the number of its last block.
    pub fn last(&self) -> u64 {
        self.first + (self.blocks() - 1)
    }

    /// Returns its two halves, or `None` for one block.
    pub fn halves(&self) -> Option<[Subtree; 2]> {
        let level = self.level.checked_sub(1)?;
        Some([Subtree { first: self.first, level }, Subtree { first: self.first + (1 << level), level }])
    }
}

impl Layout {
    /// Creates the layout of a file of `bytes` in blocks of `block`.
    pub fn new(bytes: Bytes, block: Bytes) -> Result<Self, LayoutError> {
        if !block.0.is_power_of_two() || block < MIN_BLOCK || block > MAX_BLOCK {
            return Err(LayoutError::Block(block));
        }
        if bytes > MAX_FILE {
            return Err(LayoutError::File(bytes));
        }
        Ok(Layout { bytes: bytes.0, block: block.0 })
    }

    /// Returns the length of the file.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// Returns the length of every block except the last.
    pub fn block_size(&self) -> Bytes {
        Bytes(self.block)
    }

    /// Returns the number of blocks, 0 for an empty file.
    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(self.block)
    }

    /// Returns the block with this number, if the file has it.
    pub fn block(&self, index: u64) -> Option<Block> {
        let offset = index.checked_mul(self.block).filter(|offset| *offset < self.bytes)?;
        // At most MAX_BLOCK, which fits.
        let length = (self.bytes - offset).min(self.block) as u32;
        Some(Block { index, offset, length })
    }

    /// Returns the bytes of the blocks from `first` to `last`.
    pub fn range_bytes(&self, first: u64, last: u64) -> u64 {
        let end = last.saturating_add(1).saturating_mul(self.block).min(self.bytes);
        end.saturating_sub(first.saturating_mul(self.block))
    }

    /// Returns the bytes of a subtree.
    pub fn subtree_bytes(&self, subtree: Subtree) -> u64 {
        self.range_bytes(subtree.first, subtree.last())
    }

    /// Returns the subtree of this level at `offset`, with blocks of `length` bytes, if there is one. The tree of the
    /// whole file is not one of its subtrees.
    pub fn subtree_at(&self, offset: u64, length: u32, level: u32) -> Option<Subtree> {
        let first = self.block_at(offset, length)?.index;
        Some(Subtree { first, level }).filter(|subtree| self.has_subtree(*subtree))
    }

    /// Returns whether the file has this subtree.
    pub fn has_subtree(&self, Subtree { first, level }: Subtree) -> bool {
        if level == 0 {
            return first < self.blocks();
        }
        let full_blocks = self.bytes / self.block;
        let width = 1u64.checked_shl(level).filter(|width| level < MAX_LEVEL && *width < self.blocks());
        width.is_some_and(|width| first % width == 0 && first.checked_add(width).is_some_and(|end| end <= full_blocks))
    }

    /// Splits the blocks from `first` to `last` into the largest subtrees that `accept` accepts. Single blocks need not be
    /// accepted.
    pub fn subtrees<F>(&self, first: u64, last: u64, accept: F) -> impl Iterator<Item = Subtree> + use<F>
    where
        F: Fn(Subtree) -> bool,
    {
        let (layout, mut next) = (*self, first);
        std::iter::from_fn(move || {
            let count = (last + 1).checked_sub(next).filter(|count| *count > 0)?;
            let highest = next.trailing_zeros().min(count.ilog2());
            let candidates = (1..=highest).rev().map(|level| Subtree { first: next, level });
            let subtree = candidates
                .filter(|subtree| layout.has_subtree(*subtree))
                .find(|subtree| accept(*subtree))
                .unwrap_or(Subtree::of_block(next));
            next = subtree.last() + 1;
            Some(subtree)
        })
    }

    /// Returns the block that is exactly this range, if there is one.
    pub fn block_at(&self, offset: u64, length: u32) -> Option<Block> {
        let block = self.block(offset / self.block)?;
        (block.offset == offset && block.length == length).then_some(block)
    }

    /// Returns the blocks that are completely covered by blocks of another layout of the same file.
    pub fn blocks_covered_by(&self, other: &Layout, blocks: &BlockSet) -> BlockSet {
        let mut covered = BlockSet::default();
        for (first, last) in blocks.ranges() {
            let start = first.saturating_mul(other.block);
            let end = start.saturating_add(other.range_bytes(first, last));
            // The last block may be shorter.
            let behind = if end == self.bytes { self.blocks() } else { end / self.block };
            if let Some(last) = behind.checked_sub(1) {
                covered.insert_range(start.div_ceil(self.block), last);
            }
        }
        covered
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_cover_a_file_exactly_once(bytes in 0u64..100_000, shift in 10u32..14) {
            let layout = Layout::new(Bytes(bytes), Bytes(1 << shift)).unwrap();
            let mut next = 0;
            for index in 0..layout.blocks() {
                let block = layout.block(index).unwrap();
                prop_assert_eq!(block.offset, next);
                prop_assert_eq!(layout.block_at(block.offset, block.length), Some(block));
                next += u64::from(block.length);
            }
            prop_assert_eq!(next, bytes);
            prop_assert_eq!(layout.block(layout.blocks()), None);
        }

        #[test]
        fn blocks_covered_by_other_layout_match_model(
            bytes in 1u64..100_000, (ours, theirs) in (10u32..14, 10u32..14), there: u64
        ) {
            let [ours, theirs] = [ours, theirs].map(|shift| Layout::new(Bytes(bytes), Bytes(1 << shift)).unwrap());
            let there: BlockSet = (0..theirs.blocks()).filter(|index| there >> (index % 64) & 1 == 1).collect();
            let has = |byte: u64| there.contains(byte / theirs.block_size().0);
            let whole = |block: &Block| (block.offset..block.offset + u64::from(block.length)).all(has);
            let blocks = (0..ours.blocks()).filter_map(|index| ours.block(index)).filter(whole);
            let wanted: BlockSet = blocks.map(|block| block.index).collect();
            prop_assert_eq!(ours.blocks_covered_by(&theirs, &there), wanted);
        }

        #[test]
        fn subtrees_cover_a_range_exactly_once(
            bytes in 1u64..1 << 40, (first, last) in (0u64..1 << 30, 0u64..1 << 30), most in 0u32..40
        ) {
            let layout = Layout::new(Bytes(bytes), MIN_BLOCK).unwrap();
            // A long range of small subtrees only takes time.
            let (first, last) = (first % layout.blocks(), last % layout.blocks());
            let last = last.min(first + (4096_u64 << most));
            let mut next = first;
            for subtree in layout.subtrees(first, last, |subtree| subtree.level <= most) {
                prop_assert_eq!(subtree.first, next);
                prop_assert!(subtree.level <= most && subtree.blocks() < layout.blocks().max(2));
                let block = layout.block(subtree.first).unwrap();
                prop_assert_eq!(layout.subtree_at(block.offset, block.length, subtree.level), Some(subtree));
                let halves = subtree.halves().map(|[left, right]| (left.first, left.last() + 1, right.last()));
                let middle = subtree.first + subtree.blocks() / 2;
                prop_assert_eq!(halves, (subtree.level > 0).then(|| (subtree.first, middle, subtree.last())));
                next = subtree.last() + 1;
            }
            prop_assert_eq!(next, first.max(last + 1));
        }

        #[test]
        fn subtrees_of_a_peer_are_inside_the_file(bytes: u64, offset: u64, level: u32, shift in 10u32..25) {
            if let Ok(layout) = Layout::new(Bytes(bytes), Bytes(1 << shift))
                && let Some(subtree) = layout.subtree_at(offset >> shift << shift, 1 << shift, level % 70)
            {
                prop_assert!(subtree.last() < layout.blocks());
                prop_assert!(subtree.level == 0 || layout.subtree_bytes(subtree) == subtree.blocks() << shift);
            }
        }

        #[test]
        fn ranges_that_are_no_blocks_are_rejected(
            bytes: u64, offset: u64, length: u32, shift in 0u32..30
        ) {
            if let Ok(layout) = Layout::new(Bytes(bytes), Bytes(1 << shift))
                && let Some(block) = layout.block_at(offset, length)
            {
                prop_assert!(block.offset + u64::from(block.length) <= bytes);
                prop_assert_eq!(block.offset % layout.block_size().0, 0);
            }
        }
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        for block in [0, 1, 512, 3 << 10, 32 << 20, u64::MAX] {
            assert_eq!(Layout::new(Bytes(1), Bytes(block)), Err(LayoutError::Block(Bytes(block))));
        }
        assert!(Layout::new(Bytes(u64::MAX), DEFAULT_BLOCK).is_err());
        assert!(Layout::new(MAX_FILE, MIN_BLOCK).is_ok());
    }
}
