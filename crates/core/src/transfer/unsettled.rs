//! What is listed and not settled: the account that both ends keep of it, by number and by bytes.
//!
//! Entries differ: most are a name, some carry a mebibyte of extended attributes, and a receiver holds them all until
//! they are settled. So the sender lists no further than either bound lets it, and the receiver refuses one that does.
//! The sender hears of what was settled after the receiver knows it, so that what it counts is never less.

use std::collections::HashMap;

use super::entry::Entry;
use crate::wire::copy::{MOST_UNSETTLED, MOST_UNSETTLED_BYTES};

/// Entries that are listed and not settled, each with its [`Entry::weight`].
#[derive(Debug, Default)]
pub struct Unsettled {
    weights: HashMap<u32, usize>,
    bytes: usize,
}

/// Which bound an entry would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// As many entries as may be.
    Entries,
    /// As many bytes of them as may be.
    Bytes,
}

impl Unsettled {
    /// Whether so many entries of that weight together may be listed now. A single one may once all are settled:
    /// [`Entry::check`] bounds it.
    pub fn room(&self, entries: usize, weight: usize) -> Result<(), Full> {
        if self.weights.len().saturating_add(entries) > MOST_UNSETTLED as usize {
            return Err(Full::Entries);
        }
        if self.bytes.saturating_add(weight) > MOST_UNSETTLED_BYTES { Err(Full::Bytes) } else { Ok(()) }
    }

    /// Counts an entry as listed.
    pub fn list(&mut self, number: u32, weight: usize) {
        let before = self.weights.insert(number, weight);
        self.bytes = self.bytes.saturating_add(weight) - before.unwrap_or(0);
    }

    /// It is settled.
    pub fn settle(&mut self, number: u32) {
        self.bytes -= self.weights.remove(&number).unwrap_or(0);
    }

    /// How many entries.
    pub fn entries(&self) -> usize {
        self.weights.len()
    }

    /// What they weigh.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What an extended attribute weighs besides its bytes: two strings and their places in a list.
const EACH_XATTR: usize = 64;

impl Entry {
    /// What it takes to hold this entry, beyond what every entry takes: the bytes of its name, of a link's target, of
    /// its owner's names, and of its extended attributes with 64 for each.
    pub fn weight(&self) -> usize {
        let target = match &self.kind {
            super::entry::Kind::Symlink { target } => target.0.len(),
            _ => 0,
        };
        let owner = self.owner.iter().flat_map(|owner| [&owner.user, &owner.group]).flatten();
        let owner: usize = owner.map(|name| name.0.len()).sum();
        self.name.as_bytes().len() + target + owner + self.xattrs_weight()
    }

    /// The part of it that extended attributes have.
    pub fn xattrs_weight(&self) -> usize {
        self.xattrs.iter().map(|xattr| xattr.name.0.len() + xattr.value.0.len() + EACH_XATTR).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::entry::{Kind, MAX_NAME, MAX_XATTR_BYTES, MAX_XATTRS, Modified, Name, Owner, Xattr};
    use crate::transfer::raw::Raw;
    use proptest::prelude::*;

    fn entry(kind: Kind) -> Entry {
        Entry::new(Name::new("d/e").unwrap(), kind, 0o644, Modified::default()).unwrap()
    }

    #[test]
    fn an_entry_weighs_what_is_held_of_it() {
        let file = entry(Kind::File { length: crate::units::Bytes(1 << 40) });
        assert_eq!(file.weight(), 3, "the length of a file is no weight");
        assert_eq!(entry(Kind::Symlink { target: "/elsewhere".into() }).weight(), 13);
        let mut rich = file.clone();
        rich.owner = Some(Owner { uid: 1, gid: 2, user: Some("mario".into()), group: None });
        rich.xattrs = vec![
            Xattr { name: "user.a".into(), value: Raw(vec![0; 1000]) },
            Xattr { name: "b".into(), value: Raw::default() },
        ];
        assert_eq!((rich.weight(), rich.xattrs_weight()), (3 + 5 + 1007 + 2 * 64, 1007 + 2 * 64));
    }

    #[test]
    fn the_richest_entry_there_may_be_is_far_below_the_bound() {
        let most = 2 * MAX_NAME + 512 + MAX_XATTR_BYTES + MAX_XATTRS * EACH_XATTR;
        assert!(most * 8 < MOST_UNSETTLED_BYTES, "so that waiting for a few makes room");
    }

    #[test]
    fn both_bounds_hold_by_themselves() {
        let mut rich = Unsettled::default();
        let mebibyte = 1 << 20;
        let many = (MOST_UNSETTLED_BYTES / mebibyte) as u32;
        (0..many).for_each(|number| {
            assert_eq!(rich.room(1, mebibyte), Ok(()), "{number}");
            rich.list(number, mebibyte);
        });
        assert_eq!((rich.room(1, 1), rich.room(1, 0)), (Err(Full::Bytes), Ok(())));
        rich.settle(3);
        assert_eq!((rich.room(1, mebibyte), rich.room(1, mebibyte + 1)), (Ok(()), Err(Full::Bytes)));
        let mut many = Unsettled::default();
        (0..MOST_UNSETTLED).for_each(|number| many.list(number, 1));
        assert_eq!((many.room(1, 0), many.room(0, 0)), (Err(Full::Entries), Ok(())));
        many.settle(7);
        assert_eq!((many.room(1, 0), many.room(2, 0)), (Ok(()), Err(Full::Entries)));
    }

    proptest! {
        #[test]
        fn what_is_counted_is_what_is_there(acts in proptest::collection::vec((0u32..20, proptest::option::of(0usize..2000)), 0..200)) {
            let (mut account, mut model) = (Unsettled::default(), std::collections::BTreeMap::new());
            for (number, weight) in acts {
                match weight {
                    Some(weight) => {
                        account.list(number, weight);
                        model.insert(number, weight);
                    }
                    // Twice is as once.
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
