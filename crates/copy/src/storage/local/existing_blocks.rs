//! Reads the blocks that are in a file again, and keeps the intact ones.

use std::fs::File;
use std::os::unix::fs::FileExt;

use lfn_session::wire::copy::blocks::{Block, Layout};
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::options::Verify;

use super::journal::BlockRecords;
use crate::TransferError;
use crate::proto::zeros::{hash_zeros, is_fast};
use crate::storage::holes::{hash_blocks, is_zero_range};
use crate::work_meter::{Activity, WorkMeter};

/// A file whose blocks are verified. For a large file this takes hours in total, so each block counts as progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExistingBlocks<'a> {
    pub(super) file: &'a File,
    pub(super) verify: Verify,
    pub(super) meter: &'a WorkMeter,
}

impl ExistingBlocks<'_> {
    /// Keeps only the recorded blocks and holes that match their hashes. A block that cannot be read counts as damaged.
    pub(super) fn retain_intact(
        &self,
        layout: &Layout,
        mut recorded: BlockRecords,
    ) -> Result<BlockRecords, TransferError> {
        let mut buffer = vec![0; layout.block_size().min(layout.bytes()).0 as usize];
        recorded.retain(|(subtree, hash)| {
            let Some(block) = layout.block(subtree.first).filter(|_| !self.meter.is_stopped()) else { return false };
            if subtree.level == 0 {
                return self.hash_block(layout, block, &mut buffer[..block.length as usize]) == Some(*hash);
            }
            let is_known = is_fast(layout, self.verify, *subtree);
            is_known
                && is_zero_range(self.file, block.offset, layout.subtree_bytes(*subtree), self.meter).unwrap_or(false)
                && self.meter.measure(Activity::Hash, || hash_zeros(layout, self.verify, *subtree)) == *hash
        });
        self.check_running().map(|()| recorded)
    }

    /// Returns the complete blocks of a file that an earlier copy divided into blocks of another size.
    pub(super) fn convert(
        &self,
        earlier: &Layout,
        layout: &Layout,
        recorded: BlockRecords,
    ) -> Result<BlockRecords, TransferError> {
        let intact = self.retain_intact(earlier, recorded)?;
        let (mut present, mut kept) = (BlockSet::default(), Vec::new());
        intact.iter().for_each(|(subtree, _)| present.insert_range(subtree.first, subtree.last()));
        for (first, last) in layout.blocks_covered_by(earlier, &present).ranges() {
            let keep = |subtree, hash| kept.push((subtree, hash));
            // The blocks from an unreadable one on are sent again.
            let _ = hash_blocks(self.file, *layout, self.verify, first..=last, self.meter, keep);
            self.check_running()?;
        }
        Ok(kept)
    }

    fn check_running(&self) -> Result<(), TransferError> {
        if self.meter.is_stopped() { Err(TransferError::Interrupted) } else { Ok(()) }
    }

    fn hash_block(&self, layout: &Layout, block: Block, buffer: &mut [u8]) -> Option<BlockHash> {
        self.meter.measure(Activity::Disk, || FileExt::read_exact_at(self.file, buffer, block.offset)).ok()?;
        Some(self.meter.measure(Activity::Hash, || self.verify.hash(layout, block, buffer)))
    }
}
