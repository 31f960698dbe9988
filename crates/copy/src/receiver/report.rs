//! The last stage: counts the outcomes of entries, and makes the messages to the sender.
//!
//! All other stages send [`Report`]s. The control thread owns the [`Reporter`]: it drains the reports, and nothing else
//! changes the counts. The order of the reports is the order of the messages. The last message carries the tally.

use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Name};
use lfn_session::wire::copy::preserve::{SkippedEntries, Unpreserved};
use lfn_session::wire::copy::{
    CopyEnd, CopyTally, EntryAction, EntryEvent, EntryFailure, MAX_FAILURES, Progress, ReceiverMessage, ReportedKind,
};

use super::inbox::{Inbox, Urgency};
use super::outcome::EntryOutcome;
use crate::entry_listener::EntryListener;
use crate::proto::pending_entries::{PendingEntries, PendingLimit};
use crate::role::{CopyResult, ListedTotals};
use crate::work_meter::WorkMeter;
use crate::{SenderViolation, TransferError};

/// Maximum number of queued reports. Names in them are long, so more reports wait in their stages.
const MAX_QUEUED_REPORTS: usize = 4096;

/// Maximum number of events in one message.
const EVENTS_PER_MESSAGE: usize = 64;

/// A fact from another stage.
#[derive(Debug)]
pub(super) enum Report {
    /// A message to the sender.
    Message(ReceiverMessage),
    /// An event for the user of the sender.
    Event(EntryEvent),
    /// An entry has its outcome.
    Settled { number: u32, name: Name, outcome: EntryOutcome },
    /// An attribute or a deletion failed. The entry itself exists.
    Failed { name: Name, error: TransferError },
    /// The sender reports the failure of a file that is complete here.
    SourceFailed(EntryFailure),
    /// Entries were deleted, or would be deleted in a dry run.
    Deleted(u64),
    /// Nothing is deleted, although `--delete` was requested.
    DeletionSkipped,
    /// The digest of a source file is requested.
    DigestRequested(u32),
    /// A compared file differs, so its blocks are requested.
    Differs(u32),
    /// Every entry is settled and on disk.
    Finished { path: Option<String>, unpreserved: Unpreserved },
}

/// Sends reports from another stage to the reporter.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    inbox: Arc<Inbox<Report>>,
    meter: Arc<WorkMeter>,
}

impl Reports {
    pub(super) fn new(meter: Arc<WorkMeter>) -> Self {
        Reports { inbox: Arc::new(Inbox::new(MAX_QUEUED_REPORTS)), meter }
    }

    /// Sends a report. Waits while too many reports are queued, unless the copy is stopped.
    pub(super) fn send(&self, report: Report) {
        self.inbox.send(report, Urgency::Batched, || self.meter.is_stopped());
    }

    pub(super) fn message(&self, message: ReceiverMessage) {
        self.send(Report::Message(message));
    }
}

/// Reports entries to the user, at this end or at the sender's.
#[derive(Clone, Debug)]
pub(super) struct EntryReports {
    pub(super) reports: Reports,
    pub(super) listener: EntryListener,
    /// The name of a single file at the destination, if that is not its own name.
    pub(super) single_name: Option<Name>,
    pub(super) reports_entries: bool,
    pub(super) reports_unchanged: bool,
    /// The user may learn that an entry was replaced.
    pub(super) reveals_existing: bool,
}

impl EntryReports {
    /// Reports an event to the local listener, or sends the event to the sender.
    pub(super) fn event(&self, event: EntryEvent) {
        if self.listener.is_active() {
            self.listener.notify(&event);
        } else if self.reports_entries || event.digest.is_some() {
            self.reports.send(Report::Event(event));
        }
    }

    /// Reports an entry, if the options ask for reports.
    pub(super) fn entry(&self, entry: &Entry, action: EntryAction) {
        if !self.reports_entries {
            return;
        }
        let (kind, bytes) = match entry.kind {
            EntryKind::Directory => (ReportedKind::Directory, None),
            EntryKind::File { length } => (ReportedKind::File, Some(length)),
            EntryKind::Symlink { .. } | EntryKind::HardLink { .. } => (ReportedKind::Link, None),
        };
        self.event(EntryEvent { name: self.name_at_destination(&entry.name), kind, action, bytes, digest: None });
    }

    /// Reports an entry that is not copied, if the options ask for such entries.
    pub(super) fn unchanged(&self, entry: &Entry, action: EntryAction) {
        if self.reports_unchanged {
            self.entry(entry, action);
        }
    }

    /// Reports a copied entry.
    pub(super) fn written(&self, entry: &Entry, replaced: bool) {
        let action = if replaced && self.reveals_existing { EntryAction::Replace } else { EntryAction::New };
        self.entry(entry, action);
    }

    /// Reports a complete file, or a hard link to it, with its digest.
    pub(super) fn digest(&self, entry: &Entry, action: EntryAction, digest: Digest) {
        let (kind, bytes) = match entry.kind {
            EntryKind::File { length } => (ReportedKind::File, Some(length)),
            _ => (ReportedKind::Link, None),
        };
        let name = self.name_at_destination(&entry.name);
        self.event(EntryEvent { name, kind, action, bytes, digest: Some(digest) });
    }

    fn name_at_destination(&self, name: &Name) -> Name {
        self.single_name.as_ref().unwrap_or(name).clone()
    }
}

/// The list of the sender so far.
#[derive(Debug, Default)]
struct ListState {
    pending: PendingEntries,
    /// Number of listed entries, and the total length of their files.
    entries: u32,
    bytes: Bytes,
    is_complete: bool,
    /// Entries that the sender did not list.
    skipped: SkippedEntries,
    /// Entries that have their outcome.
    settled: BlockSet,
}

/// Messages to the sender that wait for the next turn of the control loop.
#[derive(Debug, Default)]
struct Outbox {
    messages: Vec<ReceiverMessage>,
    events: Vec<EntryEvent>,
    digest_requests: BlockSet,
    differing: BlockSet,
    settled: BlockSet,
    /// Entries up to this number were announced as ready to be sent.
    announced: u32,
}

/// Counts outcomes and makes messages. The control thread owns it.
#[derive(Debug)]
pub(super) struct Reporter {
    inbox: Arc<Inbox<Report>>,
    has_digest: bool,
    list: ListState,
    outbox: Outbox,
    tally: CopyTally,
    failures: Vec<EntryFailure>,
    /// Digest of the file that was written last.
    digest: Option<Digest>,
    /// Total length of the files that an earlier session of this copy wrote.
    earlier_bytes: Bytes,
    /// Grows with every change of an entry.
    steps: u64,
    result: Option<CopyResult>,
}

impl Reporter {
    /// Creates a reporter. `has_digest` states whether the joined hash of a file is a digest to show.
    pub(super) fn new(reports: &Reports, has_digest: bool) -> Self {
        Reporter {
            has_digest,
            inbox: reports.inbox.clone(),
            list: ListState::default(),
            outbox: Outbox::default(),
            tally: CopyTally::default(),
            failures: Vec::new(),
            digest: None,
            earlier_bytes: Bytes(0),
            steps: 0,
            result: None,
        }
    }

    /// Counts the next part of the list.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the part does not continue the list, or if too many entries are pending.
    pub(super) fn add_listed(&mut self, first: u32, entries: &[Entry]) -> Result<(), TransferError> {
        // Entries that are settled meanwhile make room.
        self.drain();
        let list = &mut self.list;
        let end = u32::try_from(entries.len()).ok().and_then(|count| first.checked_add(count));
        let violation = match end {
            _ if list.is_complete => Some(SenderViolation::ListAfterEnd),
            _ if first != list.entries => Some(SenderViolation::ListGap),
            None => Some(SenderViolation::TooManyEntries),
            Some(_) => match list.pending.room(entries.len(), entries.iter().map(Entry::weight).sum()) {
                Err(PendingLimit::Entries) => Some(SenderViolation::TooManyPendingEntries),
                Err(PendingLimit::Bytes) => Some(SenderViolation::TooManyPendingBytes),
                Ok(()) => None,
            },
        };
        if let Some(violation) = violation {
            return Err(TransferError::SenderViolation(violation));
        }
        self.steps += 1;
        for entry in entries {
            if let EntryKind::File { length } = entry.kind {
                list.bytes = saturating_sum(list.bytes, length);
            }
            list.pending.list(list.entries, entry.weight());
            list.entries += 1;
        }
        Ok(())
    }

    /// Returns whether an entry of this weight may be added now.
    pub(super) fn has_room(&mut self, weight: usize) -> bool {
        self.drain();
        self.list.pending.room(1, weight).is_ok()
    }

    /// Marks the list as complete.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the list has another number of entries.
    pub(super) fn complete_list(&mut self, entries: u32, skipped: SkippedEntries) -> Result<(), TransferError> {
        if self.list.is_complete || entries != self.list.entries {
            return Err(TransferError::SenderViolation(SenderViolation::IncompleteList));
        }
        self.list.is_complete = true;
        self.list.skipped = skipped;
        Ok(())
    }

    /// Takes the messages to the sender. With `planned`, also announces the entries that the planner has looked at.
    /// `progress` is part of the last message.
    pub(super) fn take_messages(&mut self, planned: Option<u32>, progress: Progress) -> Vec<ReceiverMessage> {
        self.drain();
        let outbox = &mut self.outbox;
        let mut messages = std::mem::take(&mut outbox.messages);
        let events = std::mem::take(&mut outbox.events);
        messages.extend(
            events.chunks(EVENTS_PER_MESSAGE).map(|events| ReceiverMessage::Events { entries: events.to_vec() }),
        );
        // Requests of digests come before the announcement of later entries.
        if !outbox.digest_requests.is_empty() {
            messages.push(ReceiverMessage::Digests { files: std::mem::take(&mut outbox.digest_requests) });
        }
        if !outbox.differing.is_empty() {
            messages.push(ReceiverMessage::Send { files: std::mem::take(&mut outbox.differing) });
        }
        if !outbox.settled.is_empty() {
            messages.push(ReceiverMessage::Settled { files: std::mem::take(&mut outbox.settled) });
        }
        if let Some(up_to) = planned.filter(|planned| *planned > outbox.announced) {
            outbox.announced = up_to;
            messages.push(ReceiverMessage::Request { up_to });
        }
        if let Some(result) = &self.result {
            messages.push(ReceiverMessage::Done { progress: Box::new(progress), tally: result.tally });
        }
        messages
    }

    /// Returns the number of reports that wait to be handled.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.inbox.len()
    }

    /// Handles all reports that have arrived.
    pub(super) fn drain(&mut self) {
        for report in self.inbox.take_now() {
            self.steps += 1;
            self.handle(report);
        }
    }

    fn handle(&mut self, report: Report) {
        match report {
            Report::Message(message) => {
                self.tally.resent_blocks += u64::from(matches!(message, ReceiverMessage::Resend { .. }));
                self.outbox.messages.push(message);
            }
            Report::Event(event) => self.outbox.events.push(event),
            Report::Settled { number, name, outcome } => self.settle(number, &name, outcome),
            Report::Failed { name, error } => self.count_failure(failure(None, &name, &error)),
            Report::SourceFailed(failure) => self.count_source_failure(failure),
            Report::Deleted(deleted) => self.tally.deleted += deleted,
            Report::DeletionSkipped => self.tally.deletion_skipped = true,
            Report::DigestRequested(number) => {
                self.outbox.digest_requests.insert(number.into());
            }
            Report::Differs(number) => {
                self.outbox.differing.insert(number.into());
            }
            Report::Finished { path, unpreserved } => self.finish(path, unpreserved),
        }
    }

    /// Counts the outcome of an entry.
    fn settle(&mut self, number: u32, name: &Name, outcome: EntryOutcome) {
        self.list.pending.settle(number);
        self.list.settled.insert(number.into());
        self.outbox.settled.insert(number.into());
        match outcome {
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
    }

    /// Counts a failure at the sender of an object that has no number in the list.
    pub(super) fn add_source_failure(&mut self, failure: EntryFailure) {
        self.steps += 1;
        self.count_source_failure(failure);
    }

    /// Counts a failure that the sender reported.
    fn count_source_failure(&mut self, failure: EntryFailure) {
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
            self.outbox.messages.push(ReceiverMessage::Failed(failure));
        }
    }

    fn finish(&mut self, path: Option<String>, unpreserved: Unpreserved) {
        self.tally.not_preserved = unpreserved;
        self.result = Some(CopyResult {
            tally: self.tally,
            digest: self.single_file_digest(),
            path,
            bytes: self.list.bytes,
            failures: self.failures.clone(),
            skipped: self.list.skipped,
        });
    }

    /// Returns the result, once every entry is settled and on disk.
    pub(super) fn result(&self) -> Option<&CopyResult> {
        self.result.as_ref()
    }

    /// Returns the numbers of entries by outcome.
    pub(super) fn tally(&self) -> CopyTally {
        self.tally
    }

    /// Returns a counter that grows with every change of an entry.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the totals of the list so far.
    pub(super) fn listed_totals(&self) -> ListedTotals {
        let not_needed = saturating_sum(self.tally.skipped_bytes, self.earlier_bytes);
        let (entries, finished) = (self.list.entries.into(), self.tally.entries());
        ListedTotals { bytes: self.list.bytes, not_needed, entries, finished, complete: self.list.is_complete }
    }

    /// Returns the number of listed entries.
    pub(super) fn listed(&self) -> u32 {
        self.list.entries
    }

    /// Returns whether the list is complete.
    pub(super) fn is_list_complete(&self) -> bool {
        self.list.is_complete
    }

    /// Returns whether the entry is listed and has no outcome yet.
    pub(super) fn is_pending(&self, number: u32) -> bool {
        number < self.list.entries && !self.list.settled.contains(number.into())
    }

    /// Returns whether the list is complete and every entry is settled.
    pub(super) fn is_finished(&self) -> bool {
        self.list.is_complete && self.list.pending.entries() == 0
    }

    /// Returns the digest of the file, if the list is one file.
    pub(super) fn single_file_digest(&self) -> Option<Digest> {
        self.digest.filter(|_| self.has_digest && self.list.is_complete && self.list.entries == 1)
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
        let reports = Reports::new(Arc::default());
        let (mut reporter, name) = (Reporter::new(&reports, true), Name::new("a").unwrap());
        let path = || "a".to_owned();
        for _ in 0..=MAX_FAILURES {
            reports.send(Report::Failed { name: name.clone(), error: TransferError::NotFound { path: path() } });
        }
        reporter.drain();
        assert!(!reporter.tally().disk_full);
        let (needed, available) = (Bytes(2), Bytes(1));
        let error = TransferError::NoSpace { path: path(), needed, available };
        reports.send(Report::Failed { name, error });
        reporter.drain();
        assert!(reporter.tally().disk_full && reporter.failures.iter().all(|failure| !failure.disk_full));
    }
}
