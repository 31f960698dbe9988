//! Receives the blocks of one data stream, and verifies each block before anything of it is written.
//!
//! A block waits until the planner has decided about its file. Then the block is claimed for its stream, and its payload
//! is read and hashed. [`BlockReceiver::receive_block`] compares the hash with the sender's. A damaged block is requested
//! again. An intact block goes to the [`Assembler`]. A block that is not needed is read and discarded, because the stream
//! continues behind it.

use std::io;
use std::sync::{Arc, OnceLock};

use lfn_core::transfer::file_assembly::BlockCheck;
use lfn_core::transfer::options::Verify;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{BlockHeader, ReceiverMessage};

use super::assemble::{Assembler, BlockPayload};
use super::block_reader::BlockReader;
use super::report::Reports;
use crate::session::DataStream;
use crate::transfer::entry_listener::EntryListener;
use crate::transfer::stream_set::{Activity, StreamSet};
use crate::transfer::stream_state::StreamState;
use crate::transfer::{SenderViolation, TransferError};

/// Receives blocks. Each stream's thread has a clone.
#[derive(Clone, Debug)]
pub(super) struct BlockReceiver {
    pub(super) streams: Arc<StreamSet>,
    pub(super) assembler: Arc<Assembler>,
    pub(super) reports: Reports,
    pub(super) listener: EntryListener,
    pub(super) settings: BlockSettings,
    /// The payload of a hole, shared by all streams. Zero pages that no thread writes to use no memory.
    pub(super) zeros: Arc<OnceLock<Vec<u8>>>,
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
                // One read of holes can contain thousands of blocks, and each of them costs a hash. So check for the
                // end of the copy before each block.
                if self.streams.is_stopped() || state.is_shut_down() {
                    return Err(self.streams.stream_error(state, io::ErrorKind::ConnectionAborted.into()));
                }
                self.receive_block(&mut blocks, header, state)?;
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
        let needed = self.assembler.wait_for_file(header.file, || self.streams.is_stopped() || state.is_shut_down())?;
        let claimed = needed.map(|needed| Ok(needed.claim(&header)?.map(|block| (needed, block)))).transpose();
        let claimed: Option<(Arc<_>, _)> = claimed.map(Option::flatten).map_err(|error: TransferError| error)?;
        if let Some((needed, _)) = &claimed {
            self.listener.notify_started(needed.number, &needed.entry.name);
        }
        let payload = self.read_payload(blocks, &header, claimed.is_some());
        let Some((needed, block)) = claimed else { return payload.map(drop) };
        let payload = payload.inspect_err(|_| needed.release(block))?;
        let verify = self.settings.verify;
        let hash = self.streams.measure(Activity::Hash, || verify.hash(&needed.layout, block, payload));
        match self.assembler.check_block(&needed, block, header.hash, hash) {
            Ok(BlockCheck::Intact) => {
                if header.hole {
                    self.streams.add_not_needed(header.length.into());
                }
                self.assembler.accept_block(&needed, block, hash, BlockPayload { bytes: payload, is_hole: header.hole })
            }
            Ok(BlockCheck::Damaged) => {
                self.reports.message(ReceiverMessage::Resend { file: needed.number, index: block.index });
                Ok(())
            }
            Err(error) => {
                self.assembler.fail(&needed, error);
                Ok(())
            }
        }
    }

    fn check_header(&self, header: &BlockHeader) -> Result<(), TransferError> {
        if header.verify != self.settings.verify {
            return Err(TransferError::SenderViolation(SenderViolation::BlockHash));
        }
        if header.hole && !self.settings.accepts_holes {
            return Err(TransferError::SenderViolation(SenderViolation::UnrequestedHole));
        }
        Ok(())
    }

    /// Reads the payload of a block. The zeros of a needed hole are charged like received bytes.
    fn read_payload<'a>(
        &'a self,
        blocks: &'a mut BlockReader<'_>,
        header: &BlockHeader,
        is_needed: bool,
    ) -> Result<&'a [u8], TransferError> {
        if header.hole {
            if is_needed {
                self.streams.charge(header.length.into())?;
            }
            // The sender cannot send a block longer than the block size of the copy.
            let zeros = self.zeros.get_or_init(|| vec![0; self.settings.block_size.0 as usize]);
            return Ok(&zeros[..header.length as usize]);
        }
        if self.settings.discards_payload {
            return blocks.skip_payload(header.length).map(|()| &[][..]);
        }
        blocks.read_payload(header.length)
    }
}
