//! Digests of the sender's: those that were asked for, to compare with what stands in a file's place, and those of files
//! that were sent.

use std::sync::Arc;

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::Entry;

use super::{Inner, Table};
use crate::transfer::flow::lock;
use crate::transfer::receiver::item::{Compared, Item, Slot};

impl Table {
    /// The digest of a file is asked for, while that of what stands in its place is computed.
    pub(in crate::transfer::receiver) fn compare(&self, number: u32, entry: Entry) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = Slot::Comparing { entry: Box::new(entry), ours: None, theirs: None };
            inner.digests.insert(number.into());
        }
    }

    /// The digest of what stands in the place of a file; none if it cannot be read.
    pub(in crate::transfer::receiver) fn ours(&self, number: u32, digest: Option<Digest>) {
        let mut inner = lock(&self.inner);
        if let Some(Slot::Comparing { ours, .. }) = inner.slots.get_mut(&number) {
            *ours = Some(digest);
            inner.conclude(number);
            self.changed.notify_all();
        }
    }

    /// The sender's digest of a file that it was asked for.
    pub(in crate::transfer::receiver) fn theirs(&self, number: u32, digest: Digest) {
        let mut inner = lock(&self.inner);
        if let Some(Slot::Comparing { theirs, .. }) = inner.slots.get_mut(&number) {
            *theirs = Some(digest);
            inner.conclude(number);
            self.changed.notify_all();
        }
    }

    /// A file whose digest was asked for is wanted after all.
    pub(in crate::transfer::receiver) fn differs(&self, number: u32) {
        lock(&self.inner).differing.insert(number.into());
    }

    /// The sender's digest of a file; hands out the file if it is wanted.
    pub(in crate::transfer::receiver) fn sent(&self, number: u32, digest: Digest) -> Option<Arc<Item>> {
        let mut inner = lock(&self.inner);
        match inner.slots.get(&number) {
            None => None,
            Some(Slot::Wanted(item)) => {
                lock(&item.state).sent = Some(digest);
                Some(item.clone())
            }
            Some(_) => {
                inner.sent.insert(number, digest);
                None
            }
        }
    }
}

impl Inner {
    /// Once both digests are there, the entry is looked at again.
    fn conclude(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        let Slot::Comparing { entry, ours: Some(ours), theirs: Some(theirs) } = slot else { return };
        let compared = Compared { equal: *ours == Some(*theirs), digest: *ours };
        *slot = Slot::Listed(Box::new((**entry).clone()));
        self.compared.insert(number, compared);
        self.again.push_back(number);
    }
}
