//! The list of one rank as seen from the common list of all ranks: entry numbers, and the piece that the rank holds.

use std::sync::OnceLock;

use parking_lot::RwLock;

use super::border::HeldBytes;

/// The list of one rank. Its streams read, and one thread adds.
#[derive(Debug, Default)]
pub(crate) struct RankList {
    /// Numbers in the common list, in the order of the rank's list.
    numbers: RwLock<Vec<u32>>,
    /// Set if the rank holds a piece of the only file.
    held: OnceLock<HeldBytes>,
}

impl RankList {
    /// Adds the number in the common list of the rank's next entry.
    pub(crate) fn add(&self, common: u32) {
        self.numbers.write().push(common);
    }

    /// Returns the number in the common list of the rank's entry.
    pub(crate) fn common(&self, number: u32) -> Option<u32> {
        self.numbers.read().get(number as usize).copied()
    }

    /// Sets the piece that the rank holds. A rank has one piece.
    pub(crate) fn set_held(&self, held: HeldBytes) {
        let _ = self.held.set(held);
    }

    pub(super) fn held(&self) -> Option<&HeldBytes> {
        self.held.get()
    }
}
