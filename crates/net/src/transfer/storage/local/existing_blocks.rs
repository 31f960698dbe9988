//! Reads the blocks that are in a file again, and keeps the intact ones.

use std::fs::File;
use std::os::unix::fs::FileExt;

use lfn_core::transfer::blocks::{Block, Layout};
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::options::Verify;

use super::journal::BlockRecords;
use crate::transfer::TransferError;
use crate::transfer::work_meter::{Activity, WorkMeter};

/// A file whose blocks are verified. For a large file this takes hours in total, so each block counts as progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExistingBlocks<'a> {
    pub(super) file: &'a File,
    pub(super) verify: Verify,
    pub(super) meter: &'a WorkMeter,
}

impl ExistingBlocks<'_> {
    /// Keeps only the recorded blocks that match their hashes. A block that cannot be read counts as damaged.
    pub(super) fn retain_intact(
        &self,
        layout: &Layout,
        mut recorded: BlockRecords,
    ) -> Result<BlockRecords, TransferError> {
        let mut buffer = vec![0; layout.block_size().min(layout.bytes()).0 as usize];
        recorded.retain(|(index, hash)| {
            let Some(block) = layout.block(*index).filter(|_| !self.meter.is_stopped()) else { return false };
            self.hash_block(layout, block, &mut buffer[..block.length as usize]) == Some(*hash)
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
        let (mut kept, mut buffer) = (Vec::new(), Vec::new());
        for block in layout.blocks_covered_by(earlier, intact.iter().map(|(index, _)| *index)) {
            self.check_running()?;
            buffer.resize(block.length as usize, 0);
            kept.extend(self.hash_block(layout, block, &mut buffer).map(|hash| (block.index, hash)));
        }
        Ok(kept)
    }

    fn check_running(&self) -> Result<(), TransferError> {
        if self.meter.is_stopped() { Err(TransferError::Interrupted) } else { Ok(()) }
    }

    fn hash_block(&self, layout: &Layout, block: Block, buffer: &mut [u8]) -> Option<BlockHash> {
        self.meter.measure(Activity::Disk, || self.file.read_exact_at(buffer, block.offset)).ok()?;
        Some(self.meter.measure(Activity::Hash, || self.verify.hash(layout, block, buffer)))
    }
}
