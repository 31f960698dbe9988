//! Verifies and writes the blocks of a rank, and reports those that are on disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Block;
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::{BlockHeader, MAX_STORED_BLOCKS, ReceiverMessage, StoredBlock};
use lfn_session::{DataStream, SessionError};
use parking_lot::{Condvar, Mutex};

use super::shared_files::{LeadFile, SharedFiles};
use crate::proto::file_assembly::{AssemblyError, MAX_ATTEMPTS};
use crate::receiver::block_reader::BlockReader;
use crate::receiver::inbox::POLL_INTERVAL;
use crate::storage::SharedPartial;
use crate::stream_set::StreamSet;
use crate::work_meter::Activity;
use crate::{SenderViolation, TransferError};

/// Minimum time between two syncs of a file. Each sync reports all blocks that were written meanwhile.
const SYNC_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time for which this process may have been stopped before it writes a block. The server waits longer before other
/// ranks complete the file without this rank.
const MAX_STOP: Duration = Duration::from_secs(2);

/// Returns the error of a process that was stopped. Another session can continue.
fn stopped_process() -> TransferError {
    SessionError::Timeout { peer: "this process", after: MAX_STOP, while_doing: "while copying" }.into()
}

/// Writes blocks on the threads of the streams.
#[derive(Debug)]
pub(super) struct BlockWriter {
    pub(super) files: SharedFiles,
    pub(super) streams: StreamSet,
    verify: Verify,
    block_size: Bytes,
    state: Mutex<WriterState>,
    written: Condvar,
}

#[derive(Debug)]
struct WriterState {
    /// Written blocks that are not synced, by file.
    unsynced: BTreeMap<u32, WrittenBlocks>,
    messages: Vec<ReceiverMessage>,
    /// Damaged arrivals per file and block.
    damage_counts: HashMap<(u32, u64), u8>,
    /// Last time at which the control thread ran.
    last_tick: Instant,
    /// The process was stopped for longer than [`MAX_STOP`].
    was_stopped: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct WrittenBlocks {
    partial: Arc<dyn SharedPartial>,
    blocks: Vec<StoredBlock>,
}

impl BlockWriter {
    pub(super) fn new(files: SharedFiles, streams: StreamSet, verify: Verify, block_size: Bytes) -> Self {
        let state = WriterState {
            unsynced: BTreeMap::new(),
            messages: Vec::new(),
            damage_counts: HashMap::new(),
            last_tick: Instant::now(),
            was_stopped: false,
            is_closed: false,
        };
        BlockWriter { files, streams, verify, block_size, state: Mutex::new(state), written: Condvar::new() }
    }

    /// Records that the control thread runs. If it has not run for too long, this rank writes no more blocks in this session.
    pub(super) fn tick(&self, now: Instant) {
        let mut state = self.state.lock();
        state.was_stopped |= now.saturating_duration_since(state.last_tick) > MAX_STOP;
        state.last_tick = now;
        let was_stopped = state.was_stopped;
        drop(state);
        if was_stopped {
            self.streams.fail(stopped_process());
        }
    }

    /// Returns the messages for the server.
    pub(super) fn take_messages(&self) -> Vec<ReceiverMessage> {
        std::mem::take(&mut self.state.lock().messages)
    }

    /// Ends the thread of [`BlockWriter::sync_until_closed`].
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.written.notify_all();
    }

    /// Receives the blocks of a stream until the stream ends.
    pub(super) fn run(&self, stream: DataStream) {
        self.streams.run_stream(stream, |stream, stream_state| {
            let mut blocks = BlockReader::new(&self.streams, stream, stream_state, self.block_size, false);
            while let Some(header) = blocks.read_header()? {
                let is_stopped = || self.streams.is_stopped() || stream_state.is_shut_down();
                if is_stopped() {
                    return Err(self.streams.stream_error(stream_state, io::ErrorKind::ConnectionAborted.into()));
                }
                self.receive_block(&mut blocks, &header, is_stopped)?;
                stream_state.record_received();
            }
            Ok(())
        });
    }

    fn receive_block(
        &self,
        blocks: &mut BlockReader<'_>,
        header: &BlockHeader,
        is_stopped: impl Fn() -> bool,
    ) -> Result<(), TransferError> {
        if header.verify != self.verify {
            return Err(TransferError::SenderViolation(SenderViolation::BlockHash));
        }
        if header.hole.is_some() {
            return Err(TransferError::SenderViolation(SenderViolation::UnrequestedHole));
        }
        let Some(file) = self.files.wait_for(header.file, &is_stopped)? else {
            return blocks.read_payload(header.length).map(drop);
        };
        let &BlockHeader { offset, length, .. } = header;
        let bytes = file.layout.bytes().0;
        let block = file.layout.block_at(offset, length).ok_or(AssemblyError::Range { offset, length, bytes })?;
        let payload = blocks.read_payload(length)?;
        let hash = self.streams.measure(Activity::Hash, || self.verify.hash(&file.layout, block, payload));
        if hash != header.hash {
            return self.request_again(&file, block);
        }
        let partial = self.files.partial(&file, &is_stopped)?;
        // While this process was stopped, other ranks may have completed the file, and a user may have changed it.
        let state = self.state.lock();
        if state.was_stopped || state.last_tick.elapsed() > MAX_STOP {
            return Err(stopped_process());
        }
        drop(state);
        self.streams.measure(Activity::Disk, || partial.write_block(block, payload))?;
        let mut state = self.state.lock();
        state.damage_counts.remove(&(file.number, block.index));
        let written =
            state.unsynced.entry(file.number).or_insert_with(|| WrittenBlocks { partial, blocks: Vec::new() });
        written.blocks.push(StoredBlock { index: block.index, hash });
        drop(state);
        self.written.notify_all();
        self.streams.add_arrived_blocks(1);
        Ok(())
    }

    /// Requests a damaged block again.
    ///
    /// # Errors
    /// [`AssemblyError::Corrupt`] if the block was damaged too often.
    fn request_again(&self, file: &LeadFile, block: Block) -> Result<(), TransferError> {
        let mut state = self.state.lock();
        let count = state.damage_counts.entry((file.number, block.index)).or_default();
        *count += 1;
        if *count >= MAX_ATTEMPTS {
            return Err(AssemblyError::Corrupt(block.offset).into());
        }
        state.messages.push(ReceiverMessage::Resend { file: file.number, index: block.index });
        Ok(())
    }

    /// Syncs written blocks and reports them, until [`BlockWriter::close`].
    pub(super) fn sync_until_closed(&self, syncs: bool) {
        loop {
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            if state.unsynced.is_empty() {
                self.written.wait_for(&mut state, POLL_INTERVAL);
            }
            let unsynced = std::mem::take(&mut state.unsynced);
            drop(state);
            for (file, WrittenBlocks { partial, blocks }) in unsynced {
                let synced = if syncs { self.streams.measure(Activity::Disk, || partial.sync()) } else { Ok(()) };
                if let Err(error) = synced {
                    return self.streams.fail(error);
                }
                let stored = blocks.chunks(MAX_STORED_BLOCKS);
                let messages = stored.map(|blocks| ReceiverMessage::Stored { file, blocks: blocks.to_vec() });
                self.state.lock().messages.extend(messages);
            }
            std::thread::sleep(SYNC_INTERVAL);
        }
    }
}
