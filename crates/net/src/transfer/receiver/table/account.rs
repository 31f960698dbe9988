//! What there is to say of the entries, and how many came to what.
//!
//! Everything is said in the order in which it was found out, and told no faster than the sender hears it; the tally is
//! what the last word carries.

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::Name;
use lfn_core::transfer::keep::LeftOut;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Failure, FromReceiver, MOST_FAILURES, Tally, Told};
use lfn_core::wire::third::CarriedEnd;

use super::{Inner, Table};
use crate::transfer::TransferError;
use crate::transfer::flow::lock;
use crate::transfer::side::Extent;
use crate::transfer::receiver::extra::fingerprint;
use crate::transfer::receiver::item::{Done, Slot};

/// Most things that wait to be told, and how many of them one message takes: names are long.
const MOST_UNTOLD: usize = 4096;
const TOLD_AT_ONCE: usize = 64;

/// Most names that are left out and remembered, in 19 MiB; one more, and it is not known what the source does not have.
const MOST_UNLISTED: usize = 1_800_000;

impl Table {
    /// What there is to say now, with what may be sent if the sender waits for that.
    pub(in crate::transfer::receiver) fn words(&self, asks: bool) -> Vec<FromReceiver> {
        let mut inner = lock(&self.inner);
        let mut words = std::mem::take(&mut inner.words);
        // Nothing stands behind the last word.
        let done = words.iter().position(|word| matches!(word, FromReceiver::Done { .. })).map(|at| words.remove(at));
        if !inner.told.is_empty() {
            let told = std::mem::take(&mut inner.told);
            words.extend(told.chunks(TOLD_AT_ONCE).map(|told| FromReceiver::Told { entries: told.to_vec() }));
            self.changed.notify_all();
        }
        // Before it is said of those behind them that they are wanted.
        if !inner.digests.is_empty() {
            words.push(FromReceiver::Digests { files: std::mem::take(&mut inner.digests) });
        }
        if !inner.differing.is_empty() {
            words.push(FromReceiver::Send { files: std::mem::take(&mut inner.differing) });
        }
        if !inner.settled.is_empty() {
            words.push(FromReceiver::Settled { files: std::mem::take(&mut inner.settled) });
        }
        if asks {
            // The last of those looked at may not be through; links come back.
            let looking = inner.slots.iter().find(|(_, slot)| matches!(slot, Slot::Looking)).map(|(number, _)| *number);
            let up_to = looking.unwrap_or(inner.looked).min(inner.looked);
            if up_to > inner.wanted {
                inner.wanted = up_to;
                words.push(FromReceiver::Wants { up_to });
            }
        }
        words.extend(done);
        words
    }

    /// Something to be said.
    pub(in crate::transfer::receiver) fn say(&self, word: FromReceiver) {
        let mut inner = lock(&self.inner);
        if matches!(word, FromReceiver::Again { .. }) {
            inner.tally.again += 1;
        }
        inner.words.push(word);
    }

    /// Something to be told the sender's user. Waits where too much of that is unsaid.
    pub(in crate::transfer::receiver) fn tell(&self, told: Told, stopped: impl Fn() -> bool) {
        let mut inner = lock(&self.inner);
        while inner.told.len() >= MOST_UNTOLD && !stopped() {
            inner = self.wait(inner);
        }
        inner.told.push(told);
    }

    /// A failure of an attribute: what it is about is there all the same.
    pub(in crate::transfer::receiver) fn complain(&self, name: &Name, error: &TransferError) {
        let failure = failure(None, name, error);
        let mut inner = lock(&self.inner);
        inner.fail(failure);
    }

    /// A failure at the sender of something that has no number.
    pub(in crate::transfer::receiver) fn hear(&self, failure: Failure) {
        lock(&self.inner).unsent(failure);
    }

    /// Counts things that were, or would be, removed.
    pub(in crate::transfer::receiver) fn count_deleted(&self, deleted: u64) {
        let mut inner = lock(&self.inner);
        inner.tally.deleted += deleted;
        inner.steps += 1;
    }

    /// Nothing was removed.
    pub(in crate::transfer::receiver) fn not_deleted(&self) {
        lock(&self.inner).tally.not_deleted = true;
    }

    /// What the source has and the list does not.
    pub(in crate::transfer::receiver) fn leave_out(&self, names: &[Name]) {
        let mut inner = lock(&self.inner);
        if inner.unlisted.len() < MOST_UNLISTED {
            inner.unlisted.extend(names.iter().map(|name| fingerprint(name.as_bytes())));
        }
    }

    /// Whether the source has something of that name though it is not listed, or may have.
    pub(in crate::transfer::receiver) fn is_left_out(&self, name: &[u8]) -> bool {
        let inner = lock(&self.inner);
        inner.unlisted.len() >= MOST_UNLISTED
            || !inner.unlisted.is_empty() && inner.unlisted.contains(&fingerprint(name))
    }

    /// What the sender did not list.
    pub(in crate::transfer::receiver) fn left_out(&self) -> LeftOut {
        lock(&self.inner).left_out
    }

    /// Whether something at the source could not be listed or sent, or more was left out than is remembered.
    pub(in crate::transfer::receiver) fn source_is_unknown(&self) -> bool {
        let inner = lock(&self.inner);
        inner.source_failed || inner.unlisted.len() >= MOST_UNLISTED
    }

    /// Grows with everything that becomes of entries.
    pub(in crate::transfer::receiver) fn steps(&self) -> u64 {
        lock(&self.inner).steps
    }

    /// Length of all files listed so far.
    pub(in crate::transfer::receiver) fn bytes(&self) -> Bytes {
        lock(&self.inner).bytes
    }

    /// How much there is, as far as it is listed.
    pub(in crate::transfer::receiver) fn extent(&self) -> Extent {
        let inner = lock(&self.inner);
        let (entries, settled) = (inner.listed.into(), inner.tally.entries());
        let passed = plus(inner.tally.skipped_bytes, inner.earlier);
        Extent { bytes: inner.bytes, passed, entries, settled, complete: inner.complete }
    }

    /// What became of the entries.
    pub(in crate::transfer::receiver) fn tally(&self) -> Tally {
        lock(&self.inner).tally
    }

    /// What failed on either side.
    pub(in crate::transfer::receiver) fn failures(&self) -> Vec<Failure> {
        lock(&self.inner).failures.clone()
    }

    /// The digest of the file, if the list was one file.
    pub(in crate::transfer::receiver) fn digest(&self) -> Option<Digest> {
        let inner = lock(&self.inner);
        inner.digest.filter(|_| inner.complete && inner.listed == 1)
    }

    /// The name of the file, if the list was one file.
    pub(in crate::transfer::receiver) fn name(&self) -> Option<Name> {
        let inner = lock(&self.inner);
        inner.first.clone().filter(|_| inner.complete && inner.listed == 1)
    }

    /// How many entries were listed.
    pub(in crate::transfer::receiver) fn listed(&self) -> u32 {
        lock(&self.inner).listed
    }
}

impl Inner {
    pub(super) fn count(&mut self, number: u32, name: &Name, done: Done) {
        self.steps += 1;
        match done {
            Done::File { digest, kept, bytes } => {
                self.tally.files += 1;
                self.tally.bytes = plus(self.tally.bytes, bytes);
                self.tally.kept = plus(self.tally.kept, kept);
                self.digest = Some(digest);
            }
            Done::Planned(bytes) => {
                self.tally.files += 1;
                self.tally.bytes = plus(self.tally.bytes, bytes);
            }
            Done::Directory => self.tally.directories += 1,
            Done::Link => self.tally.links += 1,
            Done::Skipped(bytes) => {
                self.tally.skipped += 1;
                self.tally.skipped_bytes = plus(self.tally.skipped_bytes, bytes);
            }
            Done::Earlier(bytes) => {
                self.tally.files += 1;
                self.tally.bytes = plus(self.tally.bytes, bytes);
                self.earlier = plus(self.earlier, bytes);
            }
            Done::Failed(error) => self.fail(failure(Some(number), name, &error)),
            Done::Below => self.tally.failed += 1,
            Done::Unsent(failure) => self.unsent(failure),
        }
        self.settled.insert(number.into());
    }

    /// A failure of the sender, who knows it.
    fn unsent(&mut self, failure: Failure) {
        self.source_failed = true;
        self.tally.failed += 1;
        self.tally.full |= failure.full;
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(Failure { end: CarriedEnd::Sender, ..failure });
        }
    }

    /// A failure here; only the first are told one by one.
    fn fail(&mut self, failure: Failure) {
        self.tally.failed += 1;
        self.tally.full |= failure.full;
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure.clone());
            self.words.push(FromReceiver::Failed(failure));
        }
    }
}

fn plus(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.saturating_add(b.0))
}

fn failure(file: Option<u32>, name: &Name, error: &TransferError) -> Failure {
    let end = CarriedEnd::Receiver;
    Failure { file, name: name.clone(), what: error.of_entry(), full: error.is_full(), end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_behind_many_other_failures_is_known() {
        let (table, name) = (Table::default(), Name::new("a").unwrap());
        let path = || "a".to_owned();
        for _ in 0..=MOST_FAILURES {
            table.complain(&name, &TransferError::NotFound { path: path() });
        }
        assert!(!table.tally().full);
        let (needed, available) = (Bytes(2), Bytes(1));
        table.complain(&name, &TransferError::NoSpace { path: path(), needed, available });
        assert!(table.tally().full && table.failures().iter().all(|failure| !failure.full));
    }
}
