//! Computes the BLAKE3 digest of a file from block hashes that arrive in any order.
//!
//! BLAKE3 is a binary tree over 1 KiB chunks. The left subtree of a node is the largest power of two of chunks that
//! leaves at least one chunk for the right (BLAKE3 paper, section 2.1). An aligned block of a power-of-two size is a
//! complete subtree, so its chaining value can be computed alone and merged with its neighbours later. [`HashTree`]
//! merges as soon as possible: its memory grows with the gaps between blocks, not with the file.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::wire::copy::blocks::{Block, Layout, Subtree};

/// The BLAKE3 digest of a complete file, as `b3sum` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

/// The hash in a block header: the chaining value of the block in the file's tree, or the digest itself if the file has
/// one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Digest", into = "Digest")]
pub struct BlockHash(pub [u8; 32]);

impl From<Digest> for BlockHash {
    fn from(Digest(bytes): Digest) -> Self {
        BlockHash(bytes)
    }
}

impl From<BlockHash> for Digest {
    fn from(BlockHash(bytes): BlockHash) -> Self {
        Digest(bytes)
    }
}

/// Returns the hash of one block of a file.
pub fn hash_block(layout: &Layout, block: Block, bytes: &[u8]) -> BlockHash {
    if layout.blocks() == 1 {
        return BlockHash(*blake3::hash(bytes).as_bytes());
    }
    BlockHash(blake3::Hasher::new().set_input_offset(block.offset).update(bytes).finalize_non_root())
}

/// Joins block hashes into the digest of the file.
#[derive(Debug)]
pub struct HashTree {
    layout: Layout,
    /// Complete subtrees that wait for their neighbour. They do not overlap.
    nodes: BTreeMap<Subtree, [u8; 32]>,
    block_count: u64,
}

impl HashTree {
    /// Creates the tree of a file without any block hash.
    pub fn new(layout: Layout) -> Self {
        HashTree { layout, nodes: BTreeMap::new(), block_count: 0 }
    }

    /// Reports whether the hash of this block is known.
    pub fn contains(&self, index: u64) -> bool {
        self.node_up_to(index).is_some_and(|node| node.last() >= index)
    }

    /// Adds the hash of a block. Returns false if the hash is known, or if the file has no such block.
    pub fn insert(&mut self, index: u64, hash: BlockHash) -> bool {
        self.insert_subtree(Subtree::of_block(index), hash)
    }

    /// Adds the hash of a subtree. Returns false if the hash of one of its blocks is known, or if the file has no such
    /// subtree.
    pub fn insert_subtree(&mut self, subtree: Subtree, hash: BlockHash) -> bool {
        if !self.layout.has_subtree(subtree) || self.contains(subtree.first) || self.has_nodes_in(subtree) {
            return false;
        }
        self.block_count += subtree.blocks();
        let (Subtree { mut first, mut level }, mut value) = (subtree, hash.0);
        // `digest` computes the root, which needs its own flag.
        while 2u64.checked_shl(level).is_some_and(|width| width < self.layout.blocks()) {
            let Some(sibling) = self.nodes.remove(&Subtree { first: first ^ (1 << level), level }) else { break };
            let is_left = first & (1 << level) == 0;
            value = if is_left { merge(&value, &sibling) } else { merge(&sibling, &value) };
            first &= !(1 << level);
            level += 1;
        }
        self.nodes.insert(Subtree { first, level }, value);
        true
    }

    /// Adds the hashes of those blocks of a subtree that are not known. `hash` computes the hash of a subtree.
    pub fn insert_unknown(&mut self, subtree: Subtree, hash: &impl Fn(Subtree) -> BlockHash) {
        if !self.contains(subtree.first) && !self.has_nodes_in(subtree) {
            self.insert_subtree(subtree, hash(subtree));
        } else if let Some(halves) = subtree.halves().filter(|_| !self.is_known(subtree)) {
            halves.into_iter().for_each(|half| self.insert_unknown(half, hash));
        }
    }

    /// Returns whether the hash of a subtree follows from one node.
    fn is_known(&self, subtree: Subtree) -> bool {
        self.node_up_to(subtree.first).is_some_and(|node| node.last() >= subtree.last())
    }

    /// Returns the last node that begins at this block or before.
    fn node_up_to(&self, index: u64) -> Option<Subtree> {
        let end = Subtree { first: index, level: u32::MAX };
        self.nodes.range(..=end).next_back().map(|(node, _)| *node)
    }

    /// Returns whether a node is inside the subtree, below its top.
    fn has_nodes_in(&self, subtree: Subtree) -> bool {
        let end = Subtree { first: subtree.last(), level: u32::MAX };
        self.nodes
            .range(Subtree::of_block(subtree.first)..=end)
            .next()
            .is_some_and(|(node, _)| node.level < subtree.level)
    }

    /// Returns the count of subtrees that wait for their neighbour.
    pub fn pending_nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Reports whether the hash of every block is known.
    pub fn is_complete(&self) -> bool {
        self.block_count == self.layout.blocks()
    }

    /// Returns the digest once the hash of every block is known.
    pub fn digest(&self) -> Option<Digest> {
        if !self.is_complete() {
            return None;
        }
        let blocks = self.layout.blocks();
        match blocks {
            0 => return Some(Digest(*blake3::hash(&[]).as_bytes())),
            1 => return self.nodes.get(&Subtree::of_block(0)).copied().map(Digest),
            _ => {}
        }
        let left = largest_power_of_two_below(blocks);
        let left_value = self.subtree(0, left)?;
        let right_value = self.subtree(left, blocks - left)?;
        Some(Digest(*merge_subtrees_root(&left_value, &right_value, Mode::Hash).as_bytes()))
    }

    /// Returns the chaining value of `count` blocks from `start`, which must be a node of the tree.
    fn subtree(&self, start: u64, count: u64) -> Option<[u8; 32]> {
        if count.is_power_of_two() {
            let level = count.trailing_zeros();
            return self.nodes.get(&Subtree { first: start, level }).copied();
        }
        let left = largest_power_of_two_below(count);
        let left_value = self.subtree(start, left)?;
        let right_value = self.subtree(start + left, count - left)?;
        Some(merge(&left_value, &right_value))
    }
}

/// Joins the chaining values of two neighbours. The result is not the root.
pub fn merge(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    merge_subtrees_non_root(left, right, Mode::Hash)
}

/// Requires a `count` of 2 or more.
fn largest_power_of_two_below(count: u64) -> u64 {
    1 << (count - 1).ilog2()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = data_encoding::HEXLOWER.decode(text.as_bytes()).ok();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest).ok_or("expected 64 hexadecimal digits")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::random_data;
    use lfn_base::units::Bytes;
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = 1024;

    fn digest_in_order(data: &[u8], block: u64, order: impl Iterator<Item = u64>) -> (Option<Digest>, usize) {
        let layout = Layout::new(Bytes(data.len() as u64), Bytes(block)).unwrap();
        let mut tree = HashTree::new(layout);
        let mut most = 0;
        for index in order {
            let block = layout.block(index).unwrap();
            let bytes = &data[block.offset as usize..][..block.length as usize];
            assert!(!tree.contains(index));
            assert!(tree.insert(index, hash_block(&layout, block, bytes)));
            assert!(tree.contains(index) && !tree.insert(index, BlockHash([0; 32])));
            most = most.max(tree.pending_nodes());
        }
        assert!(!tree.insert(layout.blocks(), BlockHash([0; 32])));
        (tree.digest(), most)
    }

    fn data(length: u64) -> Vec<u8> {
        let mut data = vec![0; length as usize];
        random_data::fill_random(7, 0, &mut data);
        data
    }

    #[test]
    fn every_length_around_block_boundaries_equals_blake3() {
        for blocks in 0..40u64 {
            for extra in [-1i64, 0, 1, 513] {
                let Some(length) = (blocks * BLOCK).checked_add_signed(extra) else { continue };
                let data = data(length);
                let count = length.div_ceil(BLOCK);
                let (digest, held) = digest_in_order(&data, BLOCK, 0..count);
                assert_eq!(digest, Some(Digest(*blake3::hash(&data).as_bytes())), "{length} bytes");
                assert!(held <= 8, "{held} nodes held of {count} blocks in order");
            }
        }
    }

    proptest! {
        #[test]
        fn any_order_gives_the_digest(length in 0u64..300_000, shift in 10u32..15, keys: [u64; 4]) {
            let data = data(length);
            let block = 1u64 << shift;
            let mut order: Vec<u64> = (0..length.div_ceil(block)).collect();
            order.sort_by_key(|i| i.wrapping_mul(keys[0] | 1).wrapping_add(keys[1]).rotate_left(17) ^ keys[2]);
            let (digest, _) = digest_in_order(&data, block, order.into_iter());
            prop_assert_eq!(digest, Some(Digest(*blake3::hash(&data).as_bytes())));
        }
    }

    #[test]
    fn digest_needs_all_blocks() {
        let data = data(5 * BLOCK);
        for missing in 0..5 {
            let (digest, _) = digest_in_order(&data, BLOCK, (0..5).filter(|i| *i != missing));
            assert_eq!(digest, None);
        }
    }

    #[test]
    fn digest_round_trips_through_text() {
        let digest = Digest(*blake3::hash(b"").as_bytes());
        // The digest of empty input, from the BLAKE3 test vectors.
        assert_eq!(digest.to_string(), "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert!("af".parse::<Digest>().is_err() && "é".repeat(32).parse::<Digest>().is_err());
    }
}
