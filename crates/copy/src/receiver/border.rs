//! Blocks at the border of two pieces: each rank has a part of the block.
//!
//! A rank sends the whole block as far as its file reaches, with zeros before its piece. The parts of all ranks are joined
//! here. A joined block then takes the usual way into its file.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Block, Layout};
use parking_lot::Mutex;

/// The bytes of the complete file that one rank holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldBytes(pub(crate) Range<u64>);

/// Blocks with parts that have arrived, by entry number and block number.
#[derive(Debug, Default)]
pub(super) struct BorderBlocks(Mutex<HashMap<(u32, u64), BorderBlock>>);

#[derive(Debug)]
struct BorderBlock {
    bytes: Vec<u8>,
    /// Start and end of each part that has arrived.
    parts: BTreeMap<u64, u64>,
}

impl HeldBytes {
    /// Returns the part of a block that the rank holds. `None` if the rank holds the whole block.
    pub(super) fn part_of(&self, block: Block) -> Option<Range<u64>> {
        let end = block.offset + u64::from(block.length);
        let part = self.0.start.clamp(block.offset, end)..self.0.end.clamp(block.offset, end);
        (part != (block.offset..end)).then_some(part)
    }

    /// Returns the layout of the file as the rank sees it: up to its own end.
    pub(super) fn layout(&self, block_size: Bytes) -> Option<Layout> {
        Layout::new(Bytes(self.0.end), block_size).ok()
    }
}

impl BorderBlocks {
    /// Adds the part of a block. `payload` starts at the start of the block; it is empty if payload is discarded. Returns
    /// the block once all its parts are there.
    pub(super) fn add(&self, file: u32, block: Block, part: Range<u64>, payload: &[u8]) -> Option<Vec<u8>> {
        let mut blocks = self.0.lock();
        let border = blocks.entry((file, block.index)).or_insert_with(|| BorderBlock {
            bytes: if payload.is_empty() { Vec::new() } else { vec![0; block.length as usize] },
            parts: BTreeMap::new(),
        });
        let (first, last) = ((part.start - block.offset) as usize, (part.end - block.offset) as usize);
        if let (Some(place), Some(bytes)) = (border.bytes.get_mut(first..last), payload.get(first..last)) {
            place.copy_from_slice(bytes);
        }
        border.parts.insert(part.start, part.end);
        let mut end = block.offset;
        for (from, to) in &border.parts {
            if *from > end {
                return None;
            }
            end = end.max(*to);
        }
        let is_complete = end == block.offset + u64::from(block.length);
        let joined = is_complete.then(|| blocks.remove(&(file, block.index)));
        joined.flatten().map(|border| border.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_three_ranks_make_a_block() {
        let layout = Layout::new(Bytes(5000), Bytes(1024)).unwrap();
        let (block, borders) = (layout.block(1).unwrap(), BorderBlocks::default());
        let whole: Vec<u8> = (0..1024).map(|number| number as u8).collect();
        let held = [0..1500, 1500..2000, 2000..5000].map(HeldBytes);
        let payload = |held: &HeldBytes| {
            let part = held.part_of(block).unwrap();
            // What a rank does not have is zero, and its end is the end of its piece.
            let mut sent = vec![0; (part.end - block.offset) as usize];
            let first = (part.start - block.offset) as usize;
            sent[first..].copy_from_slice(&whole[first..(part.end - block.offset) as usize]);
            (part, sent)
        };
        for held in [&held[2], &held[0], &held[2]] {
            let (part, sent) = payload(held);
            assert_eq!(borders.add(0, block, part, &sent), None);
        }
        let (part, sent) = payload(&held[1]);
        assert_eq!(borders.add(0, block, part, &sent), Some(whole));
        assert_eq!(held[0].part_of(layout.block(0).unwrap()), None);
    }
}
