//! The figures of all ranks of a copy, as the server reports them to each rank.

use std::sync::Arc;

use lfn_session::wire::copy::ranks::RankStatus;
use parking_lot::Mutex;

/// The latest figures of all ranks. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RankBoard(Arc<Mutex<Vec<RankStatus>>>);

impl RankBoard {
    pub(crate) fn set(&self, ranks: Vec<RankStatus>) {
        *self.0.lock() = ranks;
    }

    /// Returns the latest figures, in the order of the ranks. Empty before the first report.
    pub fn ranks(&self) -> Vec<RankStatus> {
        self.0.lock().clone()
    }
}
