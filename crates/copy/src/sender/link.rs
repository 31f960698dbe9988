//! One of several receivers of a sender: a rank that reads, with its streams and its share of the blocks.
//!
//! One receiver, the lead, plans the copy and holds the journal. The other ranks receive blocks too, and write them into the
//! files that the lead has opened. A block of such a rank is done when the rank has stored it. Until then, the block returns to
//! the scheduler if the rank is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::entry::Name;
use lfn_session::wire::copy::{FileBlocks, ReceiverMessage};
use parking_lot::Mutex;

use super::shared::Shared;
use super::source_file::ListedFile;
use super::state::State;
use super::{Sender, StopOnDrop};
use crate::TransferError;
use crate::proto::schedule::{BlockFilter, BlockTask};
use crate::role::StreamWorker;
use crate::stream_set::StreamSet;

/// Maximum number of files that are open for all ranks and have blocks to send. The next file opens while one is sent.
const MAX_SHARED_FILES: usize = 8;

/// The streams of one rank.
#[derive(Debug)]
pub(crate) struct ReceiverLink {
    shared: Arc<Shared>,
    /// Keeps the sender alive.
    _running: Arc<StopOnDrop>,
}

/// The blocks that one rank may receive.
#[derive(Debug)]
pub(super) struct RankShare {
    /// The rank plans the copy. Its streams may send every file.
    is_lead: AtomicBool,
    /// For each rank, whether this rank receives the blocks of that rank. Empty if any block may go to any rank.
    staggered: Mutex<Vec<bool>>,
    /// Blocks that were sent and are not stored. Always empty for the lead, whose receiver reports lost blocks.
    unstored: Mutex<BTreeMap<u32, BlockSet>>,
}

/// A file that ranks can write, once the lead has opened it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedFile {
    pub(crate) name: Name,
    pub(crate) length: Bytes,
}

impl Sender {
    /// Creates the link of a rank with these streams.
    pub(crate) fn link(&self, streams: Arc<StreamSet>) -> ReceiverLink {
        let share =
            RankShare { is_lead: AtomicBool::new(false), staggered: Mutex::default(), unstored: Mutex::default() };
        let shared = Shared {
            streams,
            stall_detector: Arc::default(),
            // Ranks get zeros instead of holes.
            sparse: false,
            share: Some(Arc::new(share)),
            ..(*self.shared).clone()
        };
        ReceiverLink { shared: Arc::new(shared), _running: self.running.clone() }
    }

    /// Returns the next file that the lead should open for all ranks.
    pub(crate) fn next_file_to_open(&self) -> Option<u32> {
        self.shared.state.lock().scheduler.next_to_share(MAX_SHARED_FILES)
    }

    /// Records that the lead has opened a file. Returns the file, unless it is finished.
    pub(crate) fn set_opened(&self, file: u32) -> Option<SharedFile> {
        let mut state = self.shared.state.lock();
        let (source, length) = state.scheduler.set_shared(file)?;
        drop(state);
        self.shared.work_available.notify_all();
        Some(SharedFile { name: source.name().clone(), length })
    }
}

impl ReceiverLink {
    /// Returns the work of the threads of the rank's streams.
    pub(crate) fn stream_worker(&self) -> StreamWorker {
        let shared = self.shared.clone();
        Arc::new(move |stream| shared.run(stream))
    }

    /// Closes stalled streams, and handles broken ones.
    pub(crate) fn poll(&self, now: Instant) {
        self.shared.maintain_streams(now);
    }

    /// Handles a report of the rank about its streams.
    pub(crate) fn on_stream_message(&self, message: &ReceiverMessage, now: Instant) {
        self.shared.on_stream_message(message, now);
    }

    /// Sets the ranks whose blocks this rank receives. Empty if any block may go to any rank.
    pub(crate) fn set_staggered(&self, ranks: Vec<bool>) {
        let Some(share) = &self.shared.share else { return };
        if std::mem::replace(&mut *share.staggered.lock(), ranks.clone()) != ranks {
            self.shared.work_available.notify_all();
        }
    }

    /// Records stored blocks. Returns those that were sent to this rank and not stored before.
    pub(crate) fn record_stored(&self, file: u32, blocks: &BlockSet) -> BlockSet {
        self.shared.share.as_ref().map(|share| share.take_unstored(file, blocks)).unwrap_or_default()
    }

    /// Makes this rank the lead, before any file is shared.
    pub(crate) fn set_lead(&self) {
        if let Some(share) = &self.shared.share {
            share.is_lead.store(true, Ordering::SeqCst);
        }
        self.shared.work_available.notify_all();
    }

    /// Gives a damaged block back to the scheduler. Blocks that were not sent to this rank are ignored.
    ///
    /// # Errors
    /// [`TransferError`] if the rank requests blocks too often.
    pub(crate) fn resend(&self, file: u32, index: u64) -> Result<(), TransferError> {
        if self.record_stored(file, &BlockSet::from_range(index, index)).is_empty() {
            return Ok(());
        }
        self.shared.state.lock().scheduler.resend(file, index, index)?;
        self.shared.work_available.notify_all();
        Ok(())
    }

    /// Gives the blocks that a lost rank has not stored back to the scheduler.
    pub(crate) fn return_unstored(&self) {
        let Some(share) = &self.shared.share else { return };
        let unstored = share.unstored.lock().clone();
        let blocks = unstored.into_iter().map(|(file, blocks)| FileBlocks { file, blocks });
        share.return_blocks(&mut self.shared.state.lock(), blocks);
        self.shared.work_available.notify_all();
    }
}

impl RankShare {
    /// Removes blocks from those that are not stored. Returns the removed ones.
    fn take_unstored(&self, file: u32, blocks: &BlockSet) -> BlockSet {
        let mut taken = BlockSet::default();
        let mut unstored = self.unstored.lock();
        let Some(sent) = unstored.get_mut(&file) else { return taken };
        for (first, last) in blocks.ranges() {
            sent.remove_range(first, last).into_iter().for_each(|(first, last)| taken.insert_range(first, last));
        }
        if sent.is_empty() {
            unstored.remove(&file);
        }
        taken
    }

    /// Gives those of the blocks that are not stored back to the scheduler.
    pub(super) fn return_blocks(&self, state: &mut State, blocks: impl Iterator<Item = FileBlocks>) {
        for FileBlocks { file, blocks } in blocks {
            let unstored = self.take_unstored(file, &blocks);
            for (first, last) in unstored.ranges() {
                // The blocks were taken from this schedule, so they exist.
                let _ = state.scheduler.resend(file, first, last);
            }
        }
    }
}

impl Shared {
    /// Returns the share of a rank that is not the lead.
    pub(super) fn helper_share(&self) -> Option<&RankShare> {
        self.share.as_deref().filter(|share| !share.is_lead.load(Ordering::SeqCst))
    }

    /// Takes the next blocks that these streams may send.
    pub(super) fn take_blocks(&self, state: &mut State, room: usize) -> Vec<BlockTask<Arc<ListedFile>>> {
        match self.share.as_deref() {
            None => state.scheduler.next_blocks(room, BlockFilter::ALL),
            Some(share) => {
                let staggered = share.staggered.lock();
                state.scheduler.next_blocks(
                    room,
                    BlockFilter { shared_only: self.helper_share().is_some(), staggered: &staggered },
                )
            }
        }
    }

    /// Remembers blocks that are about to be sent to a rank that is not the lead.
    pub(super) fn record_taken(&self, blocks: impl Iterator<Item = (u32, u64, u64)>) {
        let Some(share) = self.helper_share() else { return };
        let mut unstored = share.unstored.lock();
        blocks.for_each(|(file, first, last)| unstored.entry(file).or_default().insert_range(first, last));
    }
}
