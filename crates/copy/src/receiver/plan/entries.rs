//! The entries that are listed and have no outcome yet, in the order of the list.
//!
//! The planner forgets an entry when the entry has its outcome, so it never holds more entries than the protocol allows
//! to be pending, however long the list is.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Entry;

use crate::receiver::file::NeededFile;
use crate::receiver::outcome::EntryOutcome;

/// State of an entry without an outcome.
#[derive(Debug)]
pub(super) enum EntryState {
    /// The planner has to look at the entry, for the first time or again.
    Listed(Box<Entry>),
    /// A hard link waits for the outcome of its target.
    WaitingLink(Box<Entry>),
    /// The digest of the existing file is being computed, and the source's digest is requested.
    Comparing {
        entry: Box<Entry>,
        existing: ExistingDigest,
        source: Option<Digest>,
    },
    /// The existing file is up to date. Only its digest is missing.
    Hashing {
        entry: Box<Entry>,
        outcome: EntryOutcome,
    },
    Needed(Arc<NeededFile>),
}

/// Digest of an existing file that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExistingDigest {
    /// The file is being read.
    Pending,
    /// The file cannot be read, and counts as different.
    Unreadable,
    Known(Digest),
}

/// An entry to plan.
#[derive(Debug)]
pub(super) struct NextEntry {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// Result of the comparison with the existing file.
    pub(super) compared: Option<DigestComparison>,
    /// The planner has not seen the entry before.
    pub(super) is_first: bool,
}

/// Result of a comparison of digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DigestComparison {
    pub(super) is_equal: bool,
    /// Digest of the existing file.
    pub(super) existing: Option<Digest>,
}

/// The entries without an outcome.
#[derive(Debug, Default)]
pub(super) struct PlannedEntries {
    states: BTreeMap<u32, EntryState>,
    /// Number of listed entries.
    pub(super) listed: u32,
    pub(super) is_list_complete: bool,
    /// Number of entries that the planner has looked at.
    planned: u32,
    /// Entries to plan again before the next new one: hard links to files that have their outcome now, and compared
    /// files.
    again: VecDeque<u32>,
    /// Results of comparisons until the planner looks at the entry again.
    comparisons: HashMap<u32, DigestComparison>,
    /// Digests that the sender sent before the planner looked at the file.
    sent_digests: HashMap<u32, Digest>,
}

impl PlannedEntries {
    /// Adds the next entries of the list.
    pub(super) fn add_listed(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.states.insert(self.listed, EntryState::Listed(Box::new(entry)));
            self.listed += 1;
        }
    }

    /// Returns whether the list is complete and every entry has its outcome.
    pub(super) fn is_finished(&self) -> bool {
        self.is_list_complete && self.states.is_empty()
    }

    /// Returns the next entry to plan, if there is one.
    pub(super) fn next(&mut self) -> Option<NextEntry> {
        while let Some(number) = self.again.pop_front().or((self.planned < self.listed).then_some(self.planned)) {
            let is_first = number == self.planned;
            self.planned += u32::from(is_first);
            // An entry that the sender gave up meanwhile is gone.
            if matches!(self.states.get(&number), Some(EntryState::Listed(_) | EntryState::WaitingLink(_)))
                && let Some(EntryState::Listed(entry) | EntryState::WaitingLink(entry)) = self.states.remove(&number)
            {
                let compared = self.comparisons.remove(&number);
                return Some(NextEntry { number, entry: *entry, compared, is_first });
            }
        }
        None
    }

    /// Sets the state of an entry that [`PlannedEntries::next`] returned.
    pub(super) fn set(&mut self, number: u32, state: EntryState) {
        self.states.insert(number, state);
    }

    pub(super) fn get(&self, number: u32) -> Option<&EntryState> {
        self.states.get(&number)
    }

    /// Removes an entry that has its outcome.
    pub(super) fn remove(&mut self, number: u32) -> Option<EntryState> {
        self.comparisons.remove(&number);
        self.sent_digests.remove(&number);
        self.states.remove(&number)
    }

    /// Returns whether an entry in the range of numbers has no outcome. An entry that is being planned counts as one
    /// with an outcome.
    pub(super) fn has_unsettled(&self, from: u32, to: u32) -> bool {
        self.states.range(from..to).next().is_some()
    }

    /// Returns the number of entries without an outcome.
    pub(super) fn unsettled(&self) -> usize {
        self.states.len()
    }

    /// Plans an entry again, before the next new one.
    pub(super) fn plan_again(&mut self, number: u32) {
        self.again.push_back(number);
    }

    /// Keeps a digest that arrived before the planner decided about its file.
    pub(super) fn keep_sent_digest(&mut self, number: u32, digest: Digest) {
        self.sent_digests.insert(number, digest);
    }

    /// Returns the digest that arrived early, if there is one.
    pub(super) fn take_sent_digest(&mut self, number: u32) -> Option<Digest> {
        self.sent_digests.remove(&number)
    }

    /// Sets the digest of the existing file of a comparison.
    pub(super) fn set_existing_digest(&mut self, number: u32, digest: ExistingDigest) {
        if let Some(EntryState::Comparing { existing, .. }) = self.states.get_mut(&number) {
            *existing = digest;
            self.compare(number);
        }
    }

    /// Sets the source's digest of a comparison.
    pub(super) fn set_compared_source(&mut self, number: u32, digest: Digest) {
        if let Some(EntryState::Comparing { source, .. }) = self.states.get_mut(&number) {
            *source = Some(digest);
            self.compare(number);
        }
    }

    /// Plans the entry again if both digests of its comparison are known.
    fn compare(&mut self, number: u32) {
        let Some(EntryState::Comparing { existing, source: Some(source), .. }) = self.states.get(&number) else {
            return;
        };
        let existing = match existing {
            ExistingDigest::Pending => return,
            ExistingDigest::Unreadable => None,
            ExistingDigest::Known(digest) => Some(*digest),
        };
        let is_equal = existing == Some(*source);
        if let Some(EntryState::Comparing { entry, .. }) = self.states.remove(&number) {
            self.states.insert(number, EntryState::Listed(entry));
            self.comparisons.insert(number, DigestComparison { is_equal, existing });
            self.again.push_back(number);
        }
    }
}
