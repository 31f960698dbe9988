//! The entry numbers of one rank, and those of the common list of all ranks.

use parking_lot::RwLock;

/// Translates the entry numbers of one rank. Its streams read, and one thread adds.
#[derive(Debug, Default)]
pub(crate) struct EntryNumbers(RwLock<Vec<u32>>);

impl EntryNumbers {
    /// Adds the number in the common list of the rank's next entry.
    pub(crate) fn add(&self, common: u32) {
        self.0.write().push(common);
    }

    /// Returns the number in the common list of the rank's entry.
    pub(crate) fn common(&self, number: u32) -> Option<u32> {
        self.0.read().get(number as usize).copied()
    }
}
