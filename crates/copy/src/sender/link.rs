//! One of several receivers of a sender: a rank, with its streams and its share of the blocks.
//!
//! One receiver, the lead, plans the copy and holds the journal. The other ranks receive blocks too, and write them into the
//! files that the lead has opened. A block of such a rank is done when the rank has stored it. Until then, the block returns to
//! the scheduler if the rank is lost.

use std::sync::Arc;
use std::time::Instant;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::ReceiverMessage;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::entry::Name;

use super::rank_share::RankShare;
use super::shared::Shared;
use super::{Sender, StopOnDrop};
use crate::TransferError;
use crate::role::StreamWorker;
use crate::stream_set::StreamSet;

/// Maximum number of files that are open for all ranks and have blocks to send. The next file opens while one is sent.
const MAX_SHARED_FILES: usize = 8;

/// The streams of one rank.
#[derive(Debug)]
pub(crate) struct ReceiverLink {
    shared: Arc<Shared>,
    share: Arc<RankShare>,
    /// Keeps the sender alive.
    _running: Arc<StopOnDrop>,
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
        let share = Arc::<RankShare>::default();
        let shared = Shared {
            streams,
            stall_detector: Arc::default(),
            // Ranks get zeros instead of holes.
            sparse: false,
            share: Some(share.clone()),
            ..(*self.shared).clone()
        };
        ReceiverLink { shared: Arc::new(shared), share, _running: self.running.clone() }
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
        if self.share.set_staggered(ranks) {
            self.shared.work_available.notify_all();
        }
    }

    /// Records stored blocks. Returns those that were sent to this rank and not stored before.
    pub(crate) fn record_stored(&self, file: u32, blocks: &BlockSet) -> BlockSet {
        self.share.take_unstored(file, blocks)
    }

    /// Makes this rank the lead, before any file is shared.
    pub(crate) fn set_lead(&self) {
        self.share.set_lead();
        self.shared.work_available.notify_all();
    }

    /// Gives a damaged block back to the scheduler. A block that was not sent to this rank is ignored.
    ///
    /// # Errors
    /// [`TransferError`] if the rank requests blocks too often.
    pub(crate) fn resend(&self, file: u32, index: u64) -> Result<(), TransferError> {
        if self.share.take_unstored(file, &BlockSet::from_range(index, index)).is_empty() {
            return Ok(());
        }
        self.shared.state.lock().scheduler.resend(file, index, index)?;
        self.shared.work_available.notify_all();
        Ok(())
    }

    /// Gives the blocks that a lost rank has not stored back to the scheduler.
    pub(crate) fn return_unstored(&self) {
        self.share.return_all(&mut self.shared.state.lock());
        self.shared.work_available.notify_all();
    }
}
