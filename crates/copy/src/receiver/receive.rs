//! Receives the blocks of one data stream, and verifies each block before anything of it is written.
//!
//! A block waits until the planner has decided about its file. Then the block is claimed for its stream, and its
//! payload is read and hashed. [`BlockReceiver::receive_block`] compares the hash with the sender's. A damaged block is
//! requested again. An intact block goes to the [`Assembler`]. A block that is not needed is read and discarded,
//! because the stream continues behind it. A hole of one or more blocks has no payload: its hash is known without
//! reading zeros.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lfn_base::units::Bytes;
use lfn_session::DataStream;
use lfn_session::wire::copy::blocks::{Block, Subtree};
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::{BlockHeader, ReceiverMessage};

use super::assemble::Assembler;
use super::block_reader::BlockReader;
use super::border::BorderBlocks;
use super::file::NeededFile;
use super::rank_list::RankList;
use super::report::Reports;
use crate::entry_listener::EntryListener;
use crate::proto::file_assembly::{AssemblyError, BlockCheck};
use crate::proto::zeros::{hash_zeros, is_fast};
use crate::stream_set::StreamSet;
use crate::stream_state::StreamState;
use crate::work_meter::Activity;
use crate::{SenderViolation, TransferError};

/// Receives blocks. Each stream's thread has a clone.
#[derive(Clone, Debug)]
pub(super) struct BlockReceiver {
    pub(super) streams: Arc<StreamSet>,
    pub(super) assembler: Arc<Assembler>,
    pub(super) reports: Reports,
    pub(super) listener: EntryListener,
    pub(super) settings: BlockSettings,
    /// The list of a rank. `None` if the sender has the only list.
    pub(super) list: Option<Arc<RankList>>,
    /// Shared by all ranks.
    pub(super) borders: Arc<BorderBlocks>,
    /// Number of blocks that were read, needed or not. A hole counts as its blocks.
    pub(super) read_blocks: Arc<AtomicU64>,
}

/// Agreements about all blocks of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSettings {
    pub(super) block_size: Bytes,
    pub(super) verify: Verify,
    /// Blocks are not hashed and not written.
    pub(super) discards_payload: bool,
    /// The sender may send a hole instead of zeros.
    pub(super) accepts_holes: bool,
}

impl BlockReceiver {
    /// Receives the blocks of a stream until the stream ends.
    pub(super) fn run(&self, stream: DataStream) {
        self.streams.run_stream(stream, |stream, state| {
            let BlockSettings { block_size, discards_payload, .. } = self.settings;
            let mut blocks = BlockReader::new(&self.streams, stream, state, block_size, discards_payload);
            while let Some(header) = blocks.read_header()? {
                // One read can contain thousands of holes, and each of them can cost a hash. So check for the end of
                // the copy before each header.
                if self.streams.is_stopped() || state.is_shut_down() {
                    return Err(self.streams.stream_error(state, io::ErrorKind::ConnectionAborted.into()));
                }
                self.receive_block(&mut blocks, header, state)?;
                let count = 1_u64.checked_shl(header.hole.unwrap_or_default().into()).unwrap_or(u64::MAX);
                self.read_blocks.fetch_add(count, Ordering::Relaxed);
                state.record_received();
            }
            Ok(())
        });
    }

    fn receive_block(
        &self,
        blocks: &mut BlockReader<'_>,
        header: BlockHeader,
        state: &StreamState,
    ) -> Result<(), TransferError> {
        self.check_header(&header)?;
        let header = self.translate(header)?;
        let needed = self.assembler.wait_for_file(header.file, || self.streams.is_stopped() || state.is_shut_down())?;
        match needed {
            Some(needed) if header.hole.is_some() => self.receive_hole(&needed, &header),
            Some(needed) if self.is_border(&needed, &header) => self.receive_border(blocks, &needed, &header),
            Some(needed) => {
                let block = needed.claim(&header)?;
                if block.is_some() {
                    self.listener.notify_started(needed.number, &needed.entry.name);
                }
                let payload = self.read_payload(blocks, &header);
                let Some(block) = block else { return payload.map(drop) };
                let payload = payload.inspect_err(|_| needed.release(Subtree::of_block(block.index)))?;
                self.verify_block(&needed, block, &header, payload)
            }
            None if header.hole.is_some() => Ok(()),
            None => self.read_payload(blocks, &header).map(drop),
        }
    }

    /// Compares the hash of a block with the sender's. Passes on an intact block, and requests a damaged one again.
    fn verify_block(
        &self,
        needed: &Arc<NeededFile>,
        block: Block,
        header: &BlockHeader,
        payload: &[u8],
    ) -> Result<(), TransferError> {
        let verify = self.settings.verify;
        let hash = self.streams.measure(Activity::Hash, || verify.hash(&needed.layout, block, payload));
        match self.assembler.check_block(needed, block, header.hash, hash) {
            Ok(BlockCheck::Intact) => {
                self.assembler.accept_block(needed, block, hash, payload)?;
                self.streams.add_arrived_blocks(1);
            }
            Ok(BlockCheck::Damaged) => {
                self.reports.message(ReceiverMessage::Resend { file: needed.number, index: block.index });
            }
            Err(error) => self.assembler.fail(needed, error),
        }
        Ok(())
    }

    /// Verifies the hash of a hole, and passes on its needed blocks. They are charged like received bytes.
    fn receive_hole(&self, needed: &Arc<NeededFile>, header: &BlockHeader) -> Result<(), TransferError> {
        let (layout, verify) = (needed.layout, self.settings.verify);
        let &BlockHeader { offset, length, .. } = header;
        let level = header.hole.unwrap_or_default().into();
        let hole = layout.subtree_at(offset, length, level).filter(|hole| is_fast(&layout, verify, *hole));
        let hole = hole.ok_or(AssemblyError::Range { offset, length, bytes: layout.bytes().0 })?;
        let claimed = needed.claim_hole(hole)?;
        if claimed.is_empty() {
            return Ok(());
        }
        self.listener.notify_started(needed.number, &needed.entry.name);
        self.streams.charge(claimed.iter().map(|blocks| layout.subtree_bytes(*blocks)).sum())?;
        let hash_of = |blocks| self.streams.measure(Activity::Hash, || hash_zeros(&layout, verify, blocks));
        let hash = hash_of(hole);
        if hash != header.hash {
            self.assembler.fail(needed, AssemblyError::Hole(offset).into());
            return Ok(());
        }
        for blocks in claimed {
            self.streams.add_not_needed(layout.subtree_bytes(blocks));
            let hash = if blocks == hole { hash } else { hash_of(blocks) };
            self.assembler.accept_hole(needed, blocks, hash)?;
            self.streams.add_arrived_blocks(1);
        }
        Ok(())
    }

    /// Returns whether other ranks hold parts of the block too.
    fn is_border(&self, needed: &NeededFile, header: &BlockHeader) -> bool {
        let held = self.list.as_ref().and_then(|list| list.held());
        let block = needed.layout.block(header.offset / needed.layout.block_size().0);
        held.zip(block).is_some_and(|(held, block)| held.part_of(block).is_some())
    }

    /// Receives the part of a block that this rank holds.
    fn receive_border(
        &self,
        blocks: &mut BlockReader<'_>,
        needed: &Arc<NeededFile>,
        header: &BlockHeader,
    ) -> Result<(), TransferError> {
        let &BlockHeader { offset, length, hash: announced, .. } = header;
        let (size, verify) = (self.settings.block_size, self.settings.verify);
        let range = || AssemblyError::Range { offset, length, bytes: needed.layout.bytes().0 };
        let held = self.list.as_ref().and_then(|list| list.held()).ok_or_else(range)?;
        let own_layout = held.layout(size).ok_or_else(range)?;
        let own_block = own_layout.block_at(offset, length).ok_or_else(range)?;
        let block = needed.layout.block(own_block.index).ok_or_else(range)?;
        let part = held.part_of(block).ok_or_else(range)?;
        let payload = self.read_payload(blocks, header)?;
        let is_missing = |block: Block| {
            let index = BlockSet::from_range(block.index, block.index);
            Ok::<_, TransferError>(!self.assembler.missing_blocks(needed.number, &index)?.is_empty())
        };
        if !is_missing(block)? {
            return Ok(());
        }
        if self.streams.measure(Activity::Hash, || verify.hash(&own_layout, own_block, payload)) != announced {
            self.reports.message(ReceiverMessage::Resend { file: needed.number, index: block.index });
            return Ok(());
        }
        let Some(joined) = self.borders.add(needed.number, block, part, payload) else { return Ok(()) };
        let whole = BlockHeader { offset: block.offset, length: block.length, ..*header };
        let Some(block) = needed.claim(&whole)? else { return Ok(()) };
        let hash = self.streams.measure(Activity::Hash, || verify.hash(&needed.layout, block, &joined));
        self.assembler.accept_block(needed, block, hash, &joined)?;
        self.streams.add_arrived_blocks(1);
        Ok(())
    }

    /// Returns the header with the entry number of the common list.
    fn translate(&self, header: BlockHeader) -> Result<BlockHeader, TransferError> {
        let Some(list) = &self.list else { return Ok(header) };
        let file = list.common(header.file).ok_or(AssemblyError::File(header.file))?;
        Ok(BlockHeader { file, ..header })
    }

    fn check_header(&self, header: &BlockHeader) -> Result<(), TransferError> {
        if header.verify != self.settings.verify {
            return Err(TransferError::SenderViolation(SenderViolation::BlockHash));
        }
        if header.hole.is_some() && !self.settings.accepts_holes {
            return Err(TransferError::SenderViolation(SenderViolation::UnrequestedHole));
        }
        Ok(())
    }

    fn read_payload<'a>(
        &self,
        blocks: &'a mut BlockReader<'_>,
        header: &BlockHeader,
    ) -> Result<&'a [u8], TransferError> {
        if self.settings.discards_payload {
            return blocks.skip_payload(header.length).map(|()| &[][..]);
        }
        blocks.read_payload(header.length)
    }
}
