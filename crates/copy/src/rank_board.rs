//! The figures of all ranks of a copy, as the server reports them to each rank.

use std::sync::Arc;

use lfn_session::wire::copy::ranks::RankFigures;
use parking_lot::Mutex;

/// The latest figures of all ranks. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RankBoard(Arc<Mutex<Option<RankFigures>>>);

impl RankBoard {
    pub(crate) fn set(&self, figures: RankFigures) {
        *self.0.lock() = Some(figures);
    }

    /// Returns the latest figures; `None` before the first report.
    pub fn figures(&self) -> Option<RankFigures> {
        self.0.lock().clone()
    }
}
