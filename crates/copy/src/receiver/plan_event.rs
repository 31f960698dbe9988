//! Events for the planner from the control thread and from later stages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Entry;
use lfn_session::wire::copy::preserve::SkippedEntries;
use lfn_session::wire::copy::{EntryFailure, MAX_PENDING_ENTRIES};

use super::fingerprint::Fingerprint;
use super::inbox::{Inbox, Urgency};
use crate::storage::FileId;
use crate::{SenderViolation, TransferError};

/// Maximum number of queued events. Each of them concerns a pending entry, or is a part of the list.
const MAX_QUEUED_EVENTS: usize = 8 * MAX_PENDING_ENTRIES as usize;

/// An event for the planner.
#[derive(Debug)]
pub(super) enum PlanEvent {
    /// The next entries of the list.
    Listed(Vec<Entry>),
    /// The list is complete. `SkippedEntries` were not listed.
    ListComplete(SkippedEntries),
    /// Fingerprints of names that the source has but does not list.
    Unlisted(Vec<Fingerprint>),
    /// The list does not have every entry of the source, or there are too many unlisted names to remember.
    SourceIncomplete,
    /// The sender cannot send this entry.
    SourceFailed { number: u32, failure: EntryFailure, discard: bool },
    /// The requested digest of a source file.
    SourceDigest { number: u32, digest: Digest },
    /// The digest of a file whose blocks are sent. It arrived before the planner had looked at the file.
    SentDigest { number: u32, digest: Digest },
    /// The digest of an existing file.
    ExistingDigest { number: u32, digest: Result<Digest, TransferError> },
    /// A needed file has its outcome, which is reported already.
    FileDone(FileDone),
}

impl PlanEvent {
    /// Returns the number of entries that the event lists.
    pub(super) fn listed(&self) -> usize {
        match self {
            PlanEvent::Listed(entries) => entries.len(),
            _ => 0,
        }
    }
}

/// The end of a needed file, as the planner must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileDone {
    pub(super) number: u32,
    /// The file exists under its final name.
    pub(super) exists: bool,
    /// Identity of the file, for later hard links to it.
    pub(super) id: Option<FileId>,
    /// Digest of the file, for reports about later hard links to it.
    pub(super) digest: Option<Digest>,
}

/// The planner's inbox, as the other stages see it.
#[derive(Clone, Debug)]
pub(super) struct PlanInbox(Arc<Inbox<PlanEvent>>);

impl Default for PlanInbox {
    fn default() -> Self {
        PlanInbox(Arc::new(Inbox::new(MAX_QUEUED_EVENTS)))
    }
}

impl PlanInbox {
    /// Sends an event from the control thread, which never waits for room in a queue.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the sender has sent more than pending entries can need.
    pub(super) fn send(&self, event: PlanEvent) -> Result<(), TransferError> {
        if self.0.send_now(event, Urgency::Urgent) > MAX_QUEUED_EVENTS {
            return Err(TransferError::SenderViolation(SenderViolation::TooManyMessages));
        }
        Ok(())
    }

    /// Reports the end of a needed file. At most one report for each pending entry is sent, so the inbox has room. The
    /// planner needs a linked file at once, because hard links wait for it.
    pub(super) fn file_done(&self, done: FileDone, is_linked: bool) {
        let urgency = if is_linked { Urgency::Urgent } else { Urgency::Batched };
        self.0.send_now(PlanEvent::FileDone(done), urgency);
    }

    /// Sends the digest of an existing file.
    pub(super) fn existing_digest(&self, number: u32, digest: Result<Digest, TransferError>) {
        self.0.send_now(PlanEvent::ExistingDigest { number, digest }, Urgency::Urgent);
    }

    /// Takes all events. Waits until an urgent one or `wake_at` others arrive, for at most `timeout`.
    pub(super) fn take(&self, wake_at: usize, timeout: Duration) -> VecDeque<PlanEvent> {
        self.0.take(wake_at, timeout)
    }

    /// Takes the events that are there.
    pub(super) fn take_now(&self) -> VecDeque<PlanEvent> {
        self.0.take_now()
    }
}
