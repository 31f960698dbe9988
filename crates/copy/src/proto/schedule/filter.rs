//! The blocks that one stream may send, if there are several receivers.

use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::blockset::BlockSet;

/// Whether ranks that do not plan the copy can write a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sharing {
    #[default]
    No,
    /// The lead opens the file.
    Requested,
    /// The lead has opened the file.
    Shared,
}

/// The blocks that one stream may send, if there are several receivers.
#[derive(Clone, Copy, Debug)]
pub struct BlockFilter<'a> {
    /// Only blocks of files that the lead has opened.
    pub shared_only: bool,
    /// For each rank, whether its blocks may be sent: rank r of n has the blocks r, r + n, r + 2n, and so on. Empty if all
    /// may be sent. A file of one block has no rank.
    pub staggered: &'a [bool],
}

impl BlockFilter<'static> {
    /// Every block may be sent.
    pub const ALL: BlockFilter<'static> = BlockFilter { shared_only: false, staggered: &[] };
}

impl BlockFilter<'_> {
    pub(super) fn is_all(&self) -> bool {
        !self.shared_only && self.staggered.is_empty()
    }

    /// Returns the first block that may be sent, of those of a file in `send`.
    pub(super) fn first_block(&self, sharing: Sharing, layout: &Layout, send: &BlockSet) -> Option<u64> {
        if self.shared_only && sharing != Sharing::Shared {
            return None;
        }
        if self.staggered.is_empty() || layout.blocks() == 1 {
            return Some(send.first_range()?.0);
        }
        let ranks = self.staggered.len() as u64;
        let is_own = |index: &u64| self.staggered[(index % ranks) as usize];
        // Each of the next `ranks` blocks belongs to another rank.
        send.ranges().find_map(|(first, last)| (first..=last.min(first + ranks - 1)).find(is_own))
    }
}
