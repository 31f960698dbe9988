//! The path of a block from its stream to its file.
//!
//! A block waits until the planner has looked at its file. Then the block is claimed for its stream, checked and
//! written. A single-block file is written as a whole. A larger file goes into its partial file, and at most
//! [`MAX_PARTIALS`] of these are open at once. A block that is not needed is read and discarded, because the stream
//! continues behind it. Module `finish_file` ends a file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Block;
use lfn_core::transfer::blockset::{BlockSet, MAX_RANGES};
use lfn_core::transfer::digest::BlockHash;
use lfn_core::transfer::file_assembly::{BlockCheck, BlockClaim};
use lfn_core::wire::copy::{BlockHeader, ReceiverMessage};

use super::super::stream_set::{Activity, lock};
use super::super::{ForbiddenReason, SenderViolation, TransferError};
use super::Receiver;
use super::block_reader::BlockReader;
use super::entry::{FileState, NeededFile};
use super::partial_file::{self, PartialFile, PartialOptions, belongs_to_other_token};
use super::single_block_file::SingleBlockFile;
use super::tree::{DestinationTree, EntryLocation};
use crate::session::DEAD_PEER_TIMEOUT;

/// Maximum number of open partial files. Each of them holds two descriptors open. The sender starts at most
/// [`MAX_OPEN_FILES`] files; the others are interrupted files that the planner finds.
///
/// [`MAX_OPEN_FILES`]: lfn_core::transfer::schedule::MAX_OPEN_FILES
const MAX_PARTIALS: usize = 128;

/// Maximum wait of a stream for a partial file to finish. A sender that exceeds the wait has started more files than it
/// may.
const PARTIALS_TIMEOUT: Duration = DEAD_PEER_TIMEOUT;

/// Maximum wait, for all files together, until another copy unlocks its partial files.
pub(super) const OTHER_COPY_TIMEOUT: Duration = Duration::from_secs(5);

impl Receiver {
    pub(super) fn receive_block(&self, blocks: &mut BlockReader<'_>, header: BlockHeader) -> Result<(), TransferError> {
        if header.verify != self.options.verify {
            return Err(TransferError::SenderViolation(SenderViolation::BlockHash));
        }
        if header.hole && !self.discards_payload && !self.attributes.is_sparse() {
            return Err(TransferError::SenderViolation(SenderViolation::UnrequestedHole));
        }
        let stream = blocks.state();
        let found = self.table.wait_for_file(header.file, || self.is_stopped() || stream.is_shut_down())?;
        let claimed = match &found {
            Some(needed) => claim_block(needed, &header)?,
            None => None,
        };
        if let (Some(needed), Some(_)) = (&found, &claimed) {
            self.listener.notify_started(needed.number, &needed.entry.name);
        }
        let payload = match header.hole {
            true => {
                let paid = if claimed.is_some() { self.streams.charge(header.length.into()) } else { Ok(()) };
                paid.map(|()| self.zeros(header.length))
            }
            false if self.discards_payload => blocks.skip_payload(header.length).map(|()| &[][..]),
            false => blocks.read_payload(header.length),
        };
        let (Some(needed), Some(block)) = (found, claimed) else { return payload.map(drop) };
        let payload = payload.inspect_err(|_| lock(&needed.state).assembly.release(block))?;
        let hash = self.streams.measure(Activity::Hash, || self.options.verify.hash(&needed.layout, block, payload));
        let mut state = lock(&needed.state);
        let checked = state.assembly.check(block, header.hash, hash).map_err(TransferError::from);
        let checked = checked.and_then(|checked| state.update_tracked().map(|()| checked));
        drop(state);
        match checked {
            Ok(BlockCheck::Intact) => {
                if header.hole {
                    self.streams.add_not_needed(header.length.into());
                }
                self.accept_block(&needed, block, hash, payload)
            }
            Ok(BlockCheck::Damaged) => {
                self.table.queue_message(ReceiverMessage::Resend { file: needed.number, index: block.index });
                Ok(())
            }
            Err(error) => {
                self.fail_file(&needed, error);
                Ok(())
            }
        }
    }

    /// The sender cannot send a block longer than the block size of the copy.
    fn zeros(&self, length: u32) -> &[u8] {
        &self.zeros.get_or_init(|| vec![0; self.block_size.0 as usize])[..length as usize]
    }

    /// Writes an intact block. The last block of a file completes the file.
    fn accept_block(
        &self,
        needed: &Arc<NeededFile>,
        block: Block,
        hash: BlockHash,
        payload: &[u8],
    ) -> Result<(), TransferError> {
        let small = match self.write_block(needed, block, hash, payload) {
            Ok(small) => small,
            Err(error) => {
                self.fail_file(needed, error);
                return Ok(());
            }
        };
        let mut state = lock(&needed.state);
        state.assembly.record(block, hash)?;
        let accounted = state.update_tracked();
        drop(state);
        self.release_block(needed, block);
        self.streams.add_arrived_blocks(1);
        if let Err(error) = accounted {
            self.fail_file(needed, error);
            return Ok(());
        }
        match small {
            Some(small) => self.streams.measure(Activity::Disk, || self.complete_single_block(needed, small)),
            None => self.try_complete(needed, true),
        }
        Ok(())
    }

    fn write_block(
        &self,
        needed: &NeededFile,
        block: Block,
        hash: BlockHash,
        payload: &[u8],
    ) -> Result<Option<SingleBlockFile>, TransferError> {
        let Some(tree) = self.tree() else { return Ok(None) };
        if needed.layout.blocks() == 1 {
            let location = tree.locate(&needed.entry.name)?;
            return self.streams.measure(Activity::Disk, || {
                SingleBlockFile::write(location, &needed.entry, payload, &self.attributes).map(Some)
            });
        }
        let Some(partial) = self.partial_of(tree, needed)? else { return Ok(None) };
        self.streams.measure(Activity::Disk, || partial.write_block(block, hash, payload))?;
        Ok(None)
    }

    /// Returns the partial file of `needed`, and opens it if necessary. Returns `None` if the file failed meanwhile.
    fn partial_of(
        &self,
        tree: &DestinationTree,
        needed: &NeededFile,
    ) -> Result<Option<Arc<PartialFile>>, TransferError> {
        let mut state = lock(&needed.state);
        if !state.is_over && state.partial.is_none() && self.has_too_many_partials() {
            drop(state);
            self.wait_for_free_partial(PARTIALS_TIMEOUT);
            state = lock(&needed.state);
        }
        if state.is_over || state.partial.is_some() {
            return Ok(state.partial.clone());
        }
        let have = self.open_partial(tree, needed, &mut state)?;
        let partial = state.partial.clone();
        drop(state);
        // The partial file appeared after the planner looked at the entry.
        if !have.is_empty() {
            self.table.queue_message(ReceiverMessage::Have { file: needed.number, blocks: have });
        }
        Ok(partial)
    }

    /// Opens the partial file. Returns the blocks from an earlier copy that the sender can skip.
    pub(super) fn open_partial(
        &self,
        tree: &DestinationTree,
        needed: &NeededFile,
        state: &mut FileState,
    ) -> Result<BlockSet, TransferError> {
        // Several streams that waited at the same time can exceed the limit together.
        if self.open_partials.fetch_add(1, Ordering::SeqCst) >= 2 * MAX_PARTIALS {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
            let path = needed.entry.name.to_string();
            return Err(TransferError::Forbidden { path, reason: ForbiddenReason::TooManyPartials });
        }
        let opened = tree
            .locate(&needed.entry.name)
            .and_then(|location| self.while_blocked_on_disk(|| self.open_partial_when_free(location, needed)));
        let (partial, kept) = opened.inspect_err(|_| {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
        })?;
        let partial_is_ours = partial.is_newer(self.started_at);
        let new = kept.into_iter().filter(|(index, hash)| state.assembly.add_existing(*index, *hash));
        let have = new.map(|(index, _)| index).collect::<BlockSet>().first_ranges(MAX_RANGES);
        state.update_tracked().inspect_err(|_| {
            self.open_partials.fetch_sub(1, Ordering::SeqCst);
        })?;
        state.partial = Some(Arc::new(partial));
        state.is_own_partial = self.is_resumed && partial_is_ours;
        self.streams.add_not_needed(have.ranges().map(|(first, last)| needed.layout.range_bytes(first, last)).sum());
        Ok(have)
    }

    fn has_too_many_partials(&self) -> bool {
        self.open_partials.load(Ordering::SeqCst) >= MAX_PARTIALS
    }

    /// Waits, for at most `timeout`, until one more file of several blocks may start. The limit avoids a deadlock: the
    /// open files may need blocks behind this one on the stream.
    pub(super) fn wait_for_free_partial(&self, timeout: Duration) {
        let started = Instant::now();
        while self.has_too_many_partials() && !self.is_stopped() && started.elapsed() < timeout {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Opens a partial file. If another copy holds the lock, waits up to [`OTHER_COPY_TIMEOUT`]: that copy may be
    /// interrupted without its server having noticed. If the server has noticed, waits as long as the disk takes.
    fn open_partial_when_free(
        &self,
        location: EntryLocation,
        needed: &NeededFile,
    ) -> Result<partial_file::OpenedPartial, TransferError> {
        let (verify, sparse) = (self.options.verify, self.attributes.is_sparse());
        let options = PartialOptions { verify, sparse, reserve: !self.quota.is_enabled() };
        let afford = |lacking| self.reserve_quota(needed, lacking);
        let may_wait = || {
            let since = self.lock_wait_started.get_or_init(Instant::now);
            !belongs_to_other_token(&location)
                && !self.is_stopped()
                && (since.elapsed() < OTHER_COPY_TIMEOUT || partial_file::is_released(&location))
        };
        loop {
            match PartialFile::open(location.clone(), &needed.entry, needed.layout, options, &afford, &self.streams) {
                Err(TransferError::Locked { .. }) if may_wait() => thread::sleep(Duration::from_millis(20)),
                opened => return opened,
            }
        }
    }
}

/// Claims the block of the header for this stream. Returns `None` if the block is not needed.
fn claim_block(needed: &NeededFile, header: &BlockHeader) -> Result<Option<Block>, TransferError> {
    let mut state = lock(&needed.state);
    if state.is_over {
        return Ok(None);
    }
    match state.assembly.claim(header.offset, header.length)? {
        BlockClaim::Needed(block) => Ok(Some(block)),
        BlockClaim::NotNeeded(_) => Ok(None),
    }
}
