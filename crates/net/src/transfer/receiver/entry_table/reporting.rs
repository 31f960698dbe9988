//! Messages about entries to the sender, and the tally of outcomes.
//!
//! Messages keep the order of the events. The events of entries are bounded: a full queue makes its producers wait
//! until the sender has received more. The last message carries the tally.

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::Name;
use lfn_core::transfer::preserve::SkippedEntries;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::CopyEnd;
use lfn_core::wire::copy::{CopyTally, EntryEvent, EntryFailure, MAX_FAILURES, ReceiverMessage};

use super::{EntryTable, Inner};
use crate::transfer::TransferError;
use crate::transfer::receiver::delete::fingerprint;
use crate::transfer::receiver::entry::{EntryOutcome, EntrySlot};
use crate::transfer::role::ListedTotals;
use crate::transfer::stream_set::lock;

/// Maximum number of queued events, and of events in one message. Names in them are long.
const MAX_QUEUED_EVENTS: usize = 4096;
const EVENTS_PER_MESSAGE: usize = 64;

/// Maximum number of remembered unlisted names (19 MiB). With more of them, the receiver no longer knows which names
/// the source lacks.
const MAX_UNLISTED: usize = 1_800_000;

impl EntryTable {
    /// Takes the queued messages. With `on_request`, also announces the entries that the sender may send.
    pub(in crate::transfer::receiver) fn take_messages(&self, on_request: bool) -> Vec<ReceiverMessage> {
        let mut inner = lock(&self.inner);
        let mut messages = std::mem::take(&mut inner.messages);
        // `Done` must be the last message.
        let done = messages
            .iter()
            .position(|message| matches!(message, ReceiverMessage::Done { .. }))
            .map(|at| messages.remove(at));
        if !inner.events.is_empty() {
            let events = std::mem::take(&mut inner.events);
            messages.extend(
                events.chunks(EVENTS_PER_MESSAGE).map(|events| ReceiverMessage::Events { entries: events.to_vec() }),
            );
            self.changed.notify_all();
        }
        // Requests of digests come before the announcement of later entries.
        if !inner.digest_requests.is_empty() {
            messages.push(ReceiverMessage::Digests { files: std::mem::take(&mut inner.digest_requests) });
        }
        if !inner.differing.is_empty() {
            messages.push(ReceiverMessage::Send { files: std::mem::take(&mut inner.differing) });
        }
        if !inner.settled.is_empty() {
            messages.push(ReceiverMessage::Settled { files: std::mem::take(&mut inner.settled) });
        }
        if on_request {
            // The planner may still work on the last entry. Hard links and compared files come back later.
            let looking =
                inner.slots.iter().find(|(_, slot)| matches!(slot, EntrySlot::Planning)).map(|(number, _)| *number);
            let up_to = looking.unwrap_or(inner.planned).min(inner.planned);
            if up_to > inner.announced {
                inner.announced = up_to;
                messages.push(ReceiverMessage::Request { up_to });
            }
        }
        messages.extend(done);
        messages
    }

    /// Queues a message to the sender.
    pub(in crate::transfer::receiver) fn queue_message(&self, message: ReceiverMessage) {
        let mut inner = lock(&self.inner);
        if matches!(message, ReceiverMessage::Resend { .. }) {
            inner.tally.resent_blocks += 1;
        }
        inner.messages.push(message);
    }

    /// Queues an event for the user of the sender. Waits while too many events are queued, unless `stopped`.
    pub(in crate::transfer::receiver) fn queue_event(&self, event: EntryEvent, stopped: impl Fn() -> bool) {
        let mut inner = lock(&self.inner);
        while inner.events.len() >= MAX_QUEUED_EVENTS && !stopped() {
            inner = self.wait(inner);
        }
        inner.events.push(event);
    }

    /// Reports a failure of an attribute or a deletion. The entry itself exists.
    pub(in crate::transfer::receiver) fn report_failure(&self, name: &Name, error: &TransferError) {
        let failure = failure(None, name, error);
        let mut inner = lock(&self.inner);
        inner.count_failure(failure);
    }

    /// Adds a failure at the sender of an object that has no number in the list.
    pub(in crate::transfer::receiver) fn add_source_failure(&self, failure: EntryFailure) {
        lock(&self.inner).count_source_failure(failure);
    }

    /// Adds to the number of deleted entries. In a dry run these are entries that a copy would delete.
    pub(in crate::transfer::receiver) fn count_deleted(&self, deleted: u64) {
        let mut inner = lock(&self.inner);
        inner.tally.deleted += deleted;
        inner.progress_steps += 1;
    }

    /// Records that `--delete` was skipped.
    pub(in crate::transfer::receiver) fn set_deletion_skipped(&self) {
        lock(&self.inner).tally.deletion_skipped = true;
    }

    /// Adds names that the source has but does not list.
    pub(in crate::transfer::receiver) fn add_unlisted(&self, names: &[Name]) {
        let mut inner = lock(&self.inner);
        if inner.unlisted.len() < MAX_UNLISTED {
            inner.unlisted.extend(names.iter().map(|name| fingerprint(name.as_bytes())));
        }
    }

    /// Returns whether the source has, or may have, this name without listing it.
    pub(in crate::transfer::receiver) fn may_be_unlisted(&self, name: &[u8]) -> bool {
        let inner = lock(&self.inner);
        inner.unlisted.len() >= MAX_UNLISTED
            || !inner.unlisted.is_empty() && inner.unlisted.contains(&fingerprint(name))
    }

    /// Returns the entries that the sender did not list.
    pub(in crate::transfer::receiver) fn skipped_entries(&self) -> SkippedEntries {
        lock(&self.inner).skipped
    }

    /// Returns whether an entry of the source could not be listed or sent, or whether too many names are unlisted to
    /// remember.
    pub(in crate::transfer::receiver) fn is_source_incomplete(&self) -> bool {
        let inner = lock(&self.inner);
        inner.source_failed || inner.unlisted.len() >= MAX_UNLISTED
    }

    /// Returns a counter that grows with every change of an entry.
    pub(in crate::transfer::receiver) fn progress_steps(&self) -> u64 {
        lock(&self.inner).progress_steps
    }

    /// Returns the total length of all files listed so far.
    pub(in crate::transfer::receiver) fn listed_bytes(&self) -> Bytes {
        lock(&self.inner).bytes
    }

    /// Returns the totals of the list so far.
    pub(in crate::transfer::receiver) fn listed_totals(&self) -> ListedTotals {
        let inner = lock(&self.inner);
        let (entries, finished) = (inner.listed.into(), inner.tally.entries());
        let not_needed = saturating_sum(inner.tally.skipped_bytes, inner.earlier_bytes);
        ListedTotals { bytes: inner.bytes, not_needed, entries, finished, complete: inner.is_complete }
    }

    /// Returns the numbers of entries by outcome.
    pub(in crate::transfer::receiver) fn tally(&self) -> CopyTally {
        lock(&self.inner).tally
    }

    /// Returns the first failures of both sides.
    pub(in crate::transfer::receiver) fn failures(&self) -> Vec<EntryFailure> {
        lock(&self.inner).failures.clone()
    }

    /// Returns the digest of the file, if the list is one file.
    pub(in crate::transfer::receiver) fn single_file_digest(&self) -> Option<Digest> {
        let inner = lock(&self.inner);
        inner.digest.filter(|_| inner.is_complete && inner.listed == 1)
    }

    /// Returns the name of the file, if the list is one file.
    pub(in crate::transfer::receiver) fn single_file_name(&self) -> Option<Name> {
        let inner = lock(&self.inner);
        inner.first_name.clone().filter(|_| inner.is_complete && inner.listed == 1)
    }

    /// Returns the number of listed entries.
    pub(in crate::transfer::receiver) fn listed_count(&self) -> u32 {
        lock(&self.inner).listed
    }
}

impl Inner {
    pub(super) fn count_outcome(&mut self, number: u32, name: &Name, done: EntryOutcome) {
        self.progress_steps += 1;
        match done {
            EntryOutcome::File { digest, kept, bytes } => {
                self.tally.files += 1;
                self.tally.bytes = saturating_sum(self.tally.bytes, bytes);
                self.tally.resumed_bytes = saturating_sum(self.tally.resumed_bytes, kept);
                self.digest = Some(digest);
            }
            EntryOutcome::Planned(bytes) => {
                self.tally.files += 1;
                self.tally.bytes = saturating_sum(self.tally.bytes, bytes);
            }
            EntryOutcome::Directory => self.tally.directories += 1,
            EntryOutcome::Link => self.tally.links += 1,
            EntryOutcome::Skipped(bytes) => {
                self.tally.skipped += 1;
                self.tally.skipped_bytes = saturating_sum(self.tally.skipped_bytes, bytes);
            }
            EntryOutcome::WrittenEarlier(bytes) => {
                self.tally.files += 1;
                self.tally.bytes = saturating_sum(self.tally.bytes, bytes);
                self.earlier_bytes = saturating_sum(self.earlier_bytes, bytes);
            }
            EntryOutcome::Failed(error) => self.count_failure(failure(Some(number), name, &error)),
            EntryOutcome::ParentFailed => self.tally.failed += 1,
            EntryOutcome::SourceFailed(failure) => self.count_source_failure(failure),
        }
        self.settled.insert(number.into());
    }

    /// Counts a failure that the sender reported.
    fn count_source_failure(&mut self, failure: EntryFailure) {
        self.source_failed = true;
        self.tally.failed += 1;
        self.tally.disk_full |= failure.disk_full;
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(EntryFailure { end: CopyEnd::Sender, ..failure });
        }
    }

    /// Counts a failure of this side. Only the first failures are sent one by one.
    fn count_failure(&mut self, failure: EntryFailure) {
        self.tally.failed += 1;
        self.tally.disk_full |= failure.disk_full;
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure.clone());
            self.messages.push(ReceiverMessage::Failed(failure));
        }
    }
}

fn saturating_sum(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.saturating_add(b.0))
}

fn failure(file: Option<u32>, name: &Name, error: &TransferError) -> EntryFailure {
    let end = CopyEnd::Receiver;
    EntryFailure { file, name: name.clone(), reason: error.entry_message(), disk_full: error.is_out_of_space(), end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_seen_after_many_failures() {
        let (table, name) = (EntryTable::default(), Name::new("a").unwrap());
        let path = || "a".to_owned();
        for _ in 0..=MAX_FAILURES {
            table.report_failure(&name, &TransferError::NotFound { path: path() });
        }
        assert!(!table.tally().disk_full);
        let (needed, available) = (Bytes(2), Bytes(1));
        table.report_failure(&name, &TransferError::NoSpace { path: path(), needed, available });
        assert!(table.tally().disk_full && table.failures().iter().all(|failure| !failure.disk_full));
    }
}
