//! The blocks that one of several receiving ranks gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_session::wire::copy::FileBlocks;
use lfn_session::wire::copy::blockset::BlockSet;
use parking_lot::Mutex;

use super::source_file::ListedFile;
use super::state::State;
use crate::proto::schedule::{BlockFilter, BlockTask};

/// The blocks that one rank may receive, and those that it has not stored.
#[derive(Debug, Default)]
pub(super) struct RankShare {
    /// The rank plans the copy. Its streams may send every file.
    is_lead: AtomicBool,
    /// For each rank, whether this rank receives the blocks of that rank. Empty if any block may go to any rank.
    staggered: Mutex<Vec<bool>>,
    /// Blocks that were sent and are not stored. Always empty for the lead, whose receiver reports lost blocks.
    unstored: Mutex<BTreeMap<u32, BlockSet>>,
}

impl RankShare {
    pub(super) fn is_lead(&self) -> bool {
        self.is_lead.load(Ordering::SeqCst)
    }

    pub(super) fn set_lead(&self) {
        self.is_lead.store(true, Ordering::SeqCst);
    }

    /// Sets the ranks whose blocks this rank receives. Returns whether they have changed.
    pub(super) fn set_staggered(&self, ranks: Vec<bool>) -> bool {
        let mut staggered = self.staggered.lock();
        let is_changed = *staggered != ranks;
        *staggered = ranks;
        is_changed
    }

    /// Takes the next blocks that may be sent to the rank.
    pub(super) fn take_blocks(&self, state: &mut State, room: usize) -> Vec<BlockTask<Arc<ListedFile>>> {
        let staggered = self.staggered.lock();
        let filter = BlockFilter { shared_only: !self.is_lead(), staggered: &staggered };
        state.scheduler.next_blocks(room, filter)
    }

    /// Records blocks that are about to be sent: file, with the first and the last block.
    pub(super) fn record_sent(&self, blocks: impl Iterator<Item = (u32, u64, u64)>) {
        if self.is_lead() {
            return;
        }
        let mut unstored = self.unstored.lock();
        blocks.for_each(|(file, first, last)| unstored.entry(file).or_default().insert_range(first, last));
    }

    /// Removes blocks from those that are not stored. Returns the removed ones.
    pub(super) fn take_unstored(&self, file: u32, blocks: &BlockSet) -> BlockSet {
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

    /// Gives all blocks that are not stored back to the scheduler.
    pub(super) fn return_all(&self, state: &mut State) {
        let unstored = self.unstored.lock().clone();
        self.return_blocks(state, unstored.into_iter().map(|(file, blocks)| FileBlocks { file, blocks }));
    }
}
