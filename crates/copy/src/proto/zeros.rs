//! Hashes of blocks of zeros, for holes in sparse files. No zeros are hashed one by one if a shorter way exists.
//!
//! BLAKE3 hashes the position of each chunk together with its bytes. So the subtrees of a long hole have different
//! hashes, and nothing but their computation gives them. [`TABLE`] contains them for the first 4 TiB of a file, one for
//! each GiB. XXH3 does not depend on the position: all subtrees of one size have the same hash.

use std::sync::LazyLock;

use blake3::hazmat::HasherExt;
use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::digest::{BlockHash, merge};
use lfn_session::wire::copy::options::Verify;

/// Bytes of one entry of [`TABLE`], and of the longest hole that is hashed at once.
pub const TABLE_STEP: u64 = 1 << 30;

/// Chaining values of zeros: one of 32 bytes for each [`TABLE_STEP`] from the start of a file. `examples/zero_table.rs`
/// computes it.
static TABLE: &[u8] = include_bytes!("zeros.table");

/// Zeros to be hashed. Long enough for all lanes of a processor.
static ZEROS: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; 64 << 10]);

/// Returns whether the hash of zeros in this subtree takes at most one second or so. Only such subtrees are sent as one
/// hole, so that a peer cannot cause more work.
pub fn is_fast(layout: &Layout, verify: Verify, subtree: Subtree) -> bool {
    let bytes = layout.subtree_bytes(subtree);
    verify != Verify::Blake3 || bytes <= TABLE_STEP || offset(layout, subtree) + bytes <= table_end()
}

/// Splits a hole, from block `first` to block `last`, into the largest subtrees whose hash is [fast](is_fast).
pub fn split_hole(layout: Layout, verify: Verify, first: u64, last: u64) -> impl Iterator<Item = Subtree> {
    layout.subtrees(first, last, move |subtree| is_fast(&layout, verify, subtree))
}

/// Returns the hash of a subtree of zeros, which must be one of the file.
pub fn hash_zeros(layout: &Layout, verify: Verify, subtree: Subtree) -> BlockHash {
    let bytes = layout.subtree_bytes(subtree);
    match verify {
        Verify::Blake3 if layout.blocks() == 1 => {
            BlockHash(*update_zeros(blake3::Hasher::new(), bytes).finalize().as_bytes())
        }
        Verify::Blake3 => BlockHash(chaining_value(offset(layout, subtree), bytes)),
        Verify::Xxh3 | Verify::Off => {
            let zeros = vec![0; layout.block_size().0.min(bytes) as usize];
            let hash = layout.block(subtree.first).map(|block| verify.hash(layout, block, &zeros));
            let block = hash.unwrap_or(BlockHash([0; 32]));
            (0..subtree.level).fold(block, |hash, _| BlockHash(merge(&hash.0, &hash.0)))
        }
    }
}

fn offset(layout: &Layout, subtree: Subtree) -> u64 {
    subtree.first * layout.block_size().0
}

fn table_end() -> u64 {
    (TABLE.len() / 32) as u64 * TABLE_STEP
}

/// Returns the chaining value of zeros from `offset`. Longer than [`TABLE_STEP`], they must be a subtree.
fn chaining_value(offset: u64, bytes: u64) -> [u8; 32] {
    if bytes == TABLE_STEP
        && let Some(value) = TABLE.as_chunks::<32>().0.get((offset / TABLE_STEP) as usize)
    {
        return *value;
    }
    if bytes > TABLE_STEP {
        let half = bytes / 2;
        return merge(&chaining_value(offset, half), &chaining_value(offset + half, half));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    update_zeros(hasher, bytes).finalize_non_root()
}

fn update_zeros(mut hasher: blake3::Hasher, bytes: u64) -> blake3::Hasher {
    let mut rest = bytes;
    while rest > 0 {
        let part = rest.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..part as usize]);
        rest -= part;
    }
    hasher
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::wire::copy::digest::{Digest, HashTree, hash_block};
    use proptest::prelude::*;

    use super::*;

    const TIB: u64 = 1 << 40;

    #[test]
    fn table_contains_the_hashes() {
        assert_eq!((TABLE.len() % 32, table_end()), (0, 4 * TIB));
        let (values, _) = TABLE.as_chunks::<32>();
        for number in [0, 1, 1_023, 4_095] {
            let mut hasher = blake3::Hasher::new();
            hasher.set_input_offset(number * TABLE_STEP);
            assert_eq!(values[number as usize], update_zeros(hasher, TABLE_STEP).finalize_non_root(), "{number}");
        }
        // The hash of the table covers the other entries, which take too long to compute here.
        let hash = blake3::hash(TABLE).to_string();
        assert_eq!(hash, "f34b45ba03a64bae3be0cb52174f8f022fee247afa4bb4038b371275d1620cf1");
    }

    /// The table and the hasher give the same hash for a file longer than one entry.
    #[test]
    fn digest_of_a_long_hole_equals_blake3() {
        let bytes = 2 * TABLE_STEP + 12_345;
        let layout = Layout::new(Bytes(bytes), Bytes(1 << 20)).unwrap();
        let mut tree = HashTree::new(layout);
        for subtree in split_hole(layout, Verify::Blake3, 0, layout.blocks() - 1) {
            assert!(tree.insert_subtree(subtree, hash_zeros(&layout, Verify::Blake3, subtree)));
        }
        let digest = update_zeros(blake3::Hasher::new(), bytes).finalize();
        assert_eq!(tree.digest(), Some(Digest(*digest.as_bytes())));
    }

    #[test]
    fn hole_of_four_tebibytes_is_few_records() {
        for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
            let layout = Layout::new(Bytes(4 * TIB + 1), Bytes(1 << 20)).unwrap();
            let split: Vec<Subtree> = split_hole(layout, verify, 1, layout.blocks() - 1).collect();
            assert!(split.len() < 50, "{verify}: {}", split.len());
            assert!(split.iter().all(|subtree| is_fast(&layout, verify, *subtree)));
        }
        let far = Layout::new(Bytes(64 * TIB), Bytes(1 << 20)).unwrap();
        let behind = far.block(32 << 20).unwrap();
        let subtree = far.subtree_at(behind.offset, behind.length, 11).unwrap();
        assert!(!is_fast(&far, Verify::Blake3, subtree) && is_fast(&far, Verify::Xxh3, subtree));
        let longest =
            split_hole(far, Verify::Blake3, 32 << 20, 33 << 20).map(|subtree| far.subtree_bytes(subtree)).max();
        assert_eq!(longest, Some(TABLE_STEP));
    }

    proptest! {
        #[test]
        fn holes_have_the_hashes_of_their_zeros(
            bytes in 1u64..200_000, (first, last) in (0u64..200, 0u64..200), kind in 0usize..3
        ) {
            let verify = [Verify::Blake3, Verify::Xxh3, Verify::Off][kind];
            let layout = Layout::new(Bytes(bytes), Bytes(1024)).unwrap();
            let (first, last) = (first % layout.blocks(), last % layout.blocks());
            let (mut one_by_one, mut at_once) = (HashTree::new(layout), HashTree::new(layout));
            let data = vec![7; bytes as usize];
            for block in (0..layout.blocks()).filter_map(|index| layout.block(index)) {
                let is_hole = (first..=last).contains(&block.index);
                let content = if is_hole { &vec![0; block.length as usize] } else { &data[..block.length as usize] };
                let hash = verify.hash(&layout, block, content);
                one_by_one.insert(block.index, hash);
                if !is_hole {
                    at_once.insert(block.index, hash);
                }
            }
            for subtree in split_hole(layout, verify, first, last) {
                prop_assert!(at_once.insert_subtree(subtree, hash_zeros(&layout, verify, subtree)));
            }
            prop_assert!(one_by_one.digest().is_some());
            prop_assert_eq!(at_once.digest(), one_by_one.digest());
        }

        /// Blocks of one subtree may be hashed twice, one by one and together, in any order.
        #[test]
        fn subtree_fills_up_known_blocks(blocks in 3u64..40, known: u64, before: bool) {
            let layout = Layout::new(Bytes(blocks * 1024), Bytes(1024)).unwrap();
            let hash = |subtree| hash_zeros(&layout, Verify::Blake3, subtree);
            let mut tree = HashTree::new(layout);
            let single = || (0..blocks).filter(|index| known >> index & 1 == 1).map(Subtree::of_block);
            let split = || split_hole(layout, Verify::Blake3, 0, blocks - 1);
            let all: Vec<Subtree> = if before { single().chain(split()).collect() } else { split().chain(single()).collect() };
            all.into_iter().for_each(|subtree| tree.insert_unknown(subtree, &hash));
            let zeros = vec![0; blocks as usize * 1024];
            prop_assert_eq!(tree.digest(), Some(Digest(*blake3::hash(&zeros).as_bytes())));
            let block = layout.block(1).unwrap();
            prop_assert_eq!(hash(Subtree::of_block(1)), hash_block(&layout, block, &zeros[..1024]));
        }
    }
}
