//! Splits a file into blocks of one power-of-two size. The last block may be shorter.
//!
//! BLAKE3 hashes a file as a binary tree. Aligned blocks of a power-of-two size are complete subtrees, so each block
//! can be hashed alone and the digest is joined afterwards ([`super::digest`]).

use crate::units::Bytes;

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

    /// Returns the block that is exactly this range, if there is one.
    pub fn block_at(&self, offset: u64, length: u32) -> Option<Block> {
        let block = self.block(offset / self.block)?;
        (block.offset == offset && block.length == length).then_some(block)
    }

    /// Returns the blocks that are completely covered by blocks of another layout of the same file. `of` holds the
    /// numbers of those blocks in ascending order.
    pub fn blocks_covered_by(&self, other: &Layout, of: impl IntoIterator<Item = u64>) -> impl Iterator<Item = Block> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for Block { offset, length, .. } in of.into_iter().filter_map(|index| other.block(index)) {
            let end = offset + u64::from(length);
            match runs.last_mut() {
                Some(last) if last.1 == offset => last.1 = end,
                _ => runs.push((offset, end)),
            }
        }
        let layout = *self;
        runs.into_iter().flat_map(move |(start, end)| {
            let blocks = (start.div_ceil(layout.block)..).map_while(move |index| layout.block(index));
            blocks.take_while(move |block| block.offset + u64::from(block.length) <= end)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            let there: Vec<u64> = (0..theirs.blocks()).filter(|index| there >> (index % 64) & 1 == 1).collect();
            let has = |byte: u64| there.binary_search(&(byte / theirs.block_size().0)).is_ok();
            let whole = |block: &Block| (block.offset..block.offset + u64::from(block.length)).all(has);
            let wanted: Vec<Block> = (0..ours.blocks()).filter_map(|index| ours.block(index)).filter(whole).collect();
            prop_assert_eq!(ours.blocks_covered_by(&theirs, there.iter().copied()).collect::<Vec<_>>(), wanted);
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
