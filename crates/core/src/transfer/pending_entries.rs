//! Counts the listed entries that are not finished, and their memory. Both ends keep this count.
//!
//! Entries differ in size: most are a name, some carry 1 MiB of extended attributes. A receiver holds each entry until
//! it is finished. The sender therefore stops listing at either limit, and the receiver rejects a list that exceeds it.
//! The sender learns about finished entries after the receiver, so the sender's count is never smaller than the
//! receiver's.

use std::collections::HashMap;

use super::entry::Entry;
use crate::wire::copy::{MAX_PENDING_BYTES, MAX_PENDING_ENTRIES};

/// Listed entries that are not finished, each with its [`Entry::weight`].
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
    /// others are finished, because [`Entry::check`] bounds it.
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

/// Memory of an extended attribute besides its bytes: two strings and their list elements.
const XATTR_OVERHEAD: usize = 64;

impl Entry {
    /// Returns the bytes of memory that this entry needs in addition to the base size: its name, link target, owner
    /// names, and extended attributes with 64 bytes each.
    pub fn weight(&self) -> usize {
        let target = match &self.kind {
            super::entry::EntryKind::Symlink { target } => target.0.len(),
            _ => 0,
        };
        let owner = self.owner.iter().flat_map(|owner| [&owner.user, &owner.group]).flatten();
        let owner: usize = owner.map(|name| name.0.len()).sum();
        self.name.as_bytes().len() + target + owner + self.xattrs_weight()
    }

    /// Returns the part of the weight for extended attributes.
    pub fn xattrs_weight(&self) -> usize {
        self.xattrs.iter().map(|xattr| xattr.name.0.len() + xattr.value.0.len() + XATTR_OVERHEAD).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::byte_string::ByteString;
    use crate::transfer::entry::{EntryKind, MAX_NAME, MAX_XATTR_BYTES, MAX_XATTRS, Modified, Name, Owner, Xattr};
    use proptest::prelude::*;

    fn entry(kind: EntryKind) -> Entry {
        Entry::new(Name::new("d/e").unwrap(), kind, 0o644, Modified::default()).unwrap()
    }

    #[test]
    fn weight_covers_all_variable_parts() {
        let file = entry(EntryKind::File { length: crate::units::Bytes(1 << 40) });
        assert_eq!(file.weight(), 3, "the length of a file is no weight");
        assert_eq!(entry(EntryKind::Symlink { target: "/elsewhere".into() }).weight(), 13);
        let mut rich = file.clone();
        rich.owner = Some(Owner { uid: 1, gid: 2, user: Some("mario".into()), group: None });
        rich.xattrs = vec![
            Xattr { name: "user.a".into(), value: ByteString(vec![0; 1000]) },
            Xattr { name: "b".into(), value: ByteString::default() },
        ];
        assert_eq!((rich.weight(), rich.xattrs_weight()), (3 + 5 + 1007 + 2 * 64, 1007 + 2 * 64));
    }

    #[test]
    fn largest_entry_is_far_below_limit() {
        let most = 2 * MAX_NAME + 512 + MAX_XATTR_BYTES + MAX_XATTRS * XATTR_OVERHEAD;
        assert!(most * 8 < MAX_PENDING_BYTES, "so that waiting for a few makes room");
    }

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
