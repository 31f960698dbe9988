//! Digests from the sender: requested ones to compare with existing files, and those of files that were sent.

use std::sync::Arc;

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::Entry;

use super::{EntryTable, Inner};
use crate::transfer::receiver::entry::{DigestComparison, EntrySlot, NeededFile};
use crate::transfer::stream_set::lock;

impl EntryTable {
    /// Requests the digest of a source file, while this side computes the digest of the existing file.
    pub(in crate::transfer::receiver) fn request_digest(&self, number: u32, entry: Entry) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = EntrySlot::Comparing { entry: Box::new(entry), existing: None, source: None };
            inner.digest_requests.insert(number.into());
        }
    }

    /// Sets the digest of the existing file. `None` if the file cannot be read.
    pub(in crate::transfer::receiver) fn set_existing_digest(&self, number: u32, digest: Option<Digest>) {
        let mut inner = lock(&self.inner);
        if let Some(EntrySlot::Comparing { existing, .. }) = inner.slots.get_mut(&number) {
            *existing = Some(digest);
            inner.finish_comparison(number);
            self.changed.notify_all();
        }
    }

    /// Sets the requested digest of the source file.
    pub(in crate::transfer::receiver) fn set_source_digest(&self, number: u32, digest: Digest) {
        let mut inner = lock(&self.inner);
        if let Some(EntrySlot::Comparing { source, .. }) = inner.slots.get_mut(&number) {
            *source = Some(digest);
            inner.finish_comparison(number);
            self.changed.notify_all();
        }
    }

    /// Requests a compared file from the sender, because it differs.
    pub(in crate::transfer::receiver) fn mark_differing(&self, number: u32) {
        lock(&self.inner).differing.insert(number.into());
    }

    /// Sets the sender's digest of a sent file. Returns the file if it is needed.
    pub(in crate::transfer::receiver) fn set_sent_digest(
        &self,
        number: u32,
        digest: Digest,
    ) -> Option<Arc<NeededFile>> {
        let mut inner = lock(&self.inner);
        match inner.slots.get(&number) {
            None => None,
            Some(EntrySlot::Needed(needed)) => {
                lock(&needed.state).source_digest = Some(digest);
                Some(needed.clone())
            }
            Some(_) => {
                inner.early_digests.insert(number, digest);
                None
            }
        }
    }
}

impl Inner {
    /// Gives the entry back to the planner when both digests are known.
    fn finish_comparison(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        let EntrySlot::Comparing { entry, existing: Some(existing), source: Some(source) } = slot else { return };
        let compared = DigestComparison { is_equal: *existing == Some(*source), existing: *existing };
        *slot = EntrySlot::Listed(Box::new((**entry).clone()));
        self.comparisons.insert(number, compared);
        self.replan.push_back(number);
    }
}
