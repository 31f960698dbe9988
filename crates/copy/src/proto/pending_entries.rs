//! Counts the listed entries that are not finished, and their memory. Both ends keep this count.
//!
//! Entries differ in size: most are a name, some carry 1 MiB of extended attributes. A receiver holds each entry until
//! it is finished. The sender therefore stops listing at either limit, and the receiver rejects a list that exceeds it.
//! The sender learns about finished entries after the receiver, so the sender's count is never smaller than the
//! receiver's.

use std::collections::HashMap;

use lfn_session::wire::copy::{MAX_PENDING_BYTES, MAX_PENDING_ENTRIES};

/// Listed entries that are not finished, each with its
/// [`Entry::weight`](lfn_session::wire::copy::entry::Entry::weight).
#[derive(Debug, Default)]
pub struct PendingEntries {
    weights: HashMap<u32, usize>,
    bytes: usize,
}

/// The limit that an entry would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingLimit {
    Entries,
    Bytes,
}

impl PendingEntries {
    /// Checks that this many entries with this total weight may be listed now. A single entry always fits once all
    /// others are finished, because [`Entry::check`](lfn_session::wire::copy::entry::Entry::check) bounds it.
    pub fn room(&self, entries: usize, weight: usize) -> Result<(), PendingLimit> {
        if self.weights.len().saturating_add(entries) > MAX_PENDING_ENTRIES as usize {
            return Err(PendingLimit::Entries);
        }
        if self.bytes.saturating_add(weight) > MAX_PENDING_BYTES { Err(PendingLimit::Bytes) } else { Ok(()) }
    }

    /// Adds a listed entry with its weight.
    pub fn list(&mut self, number: u32, weight: usize) {
        let before = self.weights.insert(number, weight);
        self.bytes = self.bytes.saturating_add(weight) - before.unwrap_or(0);
    }

    /// Removes a finished entry.
    pub fn settle(&mut self, number: u32) {
        self.bytes -= self.weights.remove(&number).unwrap_or(0);
    }

    /// Returns the count of entries.
    pub fn entries(&self) -> usize {
        self.weights.len()
    }

    /// Returns the total weight of the entries in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    #[test]
    fn both_limits_apply_independently() {
        let mut rich = PendingEntries::default();
        let mebibyte = 1 << 20;
        let many = (MAX_PENDING_BYTES / mebibyte) as u32;
        (0..many).for_each(|number| {
            assert_eq!(rich.room(1, mebibyte), Ok(()), "{number}");
            rich.list(number, mebibyte);
        });
        assert_eq!((rich.room(1, 1), rich.room(1, 0)), (Err(PendingLimit::Bytes), Ok(())));
        rich.settle(3);
        assert_eq!((rich.room(1, mebibyte), rich.room(1, mebibyte + 1)), (Ok(()), Err(PendingLimit::Bytes)));
        let mut many = PendingEntries::default();
        (0..MAX_PENDING_ENTRIES).for_each(|number| many.list(number, 1));
        assert_eq!((many.room(1, 0), many.room(0, 0)), (Err(PendingLimit::Entries), Ok(())));
        many.settle(7);
        assert_eq!((many.room(1, 0), many.room(2, 0)), (Ok(()), Err(PendingLimit::Entries)));
    }

    proptest! {
        #[test]
        fn totals_match_model(acts in proptest::collection::vec((0u32..20, proptest::option::of(0usize..2000)), 0..200)) {
            let (mut account, mut model) = (PendingEntries::default(), std::collections::BTreeMap::new());
            for (number, weight) in acts {
                match weight {
                    Some(weight) => {
                        account.list(number, weight);
                        model.insert(number, weight);
                    }
                    // Removing an entry twice has no further effect.
                    None => {
                        account.settle(number);
                        model.remove(&number);
                    }
                }
                prop_assert_eq!((account.entries(), account.bytes()), (model.len(), model.values().sum()));
            }
        }
    }
}
