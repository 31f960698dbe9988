//! The receiving side of a copy: five stages, each with its own state.
//!
//! ```text
//! control thread ── list, digests ──▶ plan ── needed files ──▶ assemble ── complete files ──▶ commit
//!                                      ▲                          ▲                             │ │
//! stream threads ── blocks: receive ───│── verified blocks ───────┘                             │ │
//!                                      └────────────── files that are done ─────────────────────┘ │
//! control thread ◀── report ◀── outcomes, events, messages of all stages ─────────────────────────┘
//! ```
//!
//! - [`plan`]: one thread decides about each listed entry, in order, and creates directories and links.
//! - [`receive`]: the thread of each data stream reads blocks and verifies them.
//! - [`assemble`]: writes verified blocks into files, on the threads of the streams.
//! - [`commit`]: syncs complete files and gives them their final names, on one thread. A file of one block that needs
//!   no sync of its own gets its name on the thread of its stream.
//! - [`report`]: the control thread counts the outcomes and makes the messages to the sender.
//!
//! A failed entry is reported, and the copy continues with the other entries. Only a protocol violation or a failure of
//! the destination itself ends the copy.
//!
//! # Locks
//! The stages send each other messages through bounded queues ([`inbox`], [`commit`]). A thread that holds one of these
//! locks takes only locks that follow it in this list:
//!
//! 1. the opening of one partial file (`NeededFile::opening`), which no control thread takes,
//! 2. the state of one file (`NeededFile::state`), for a moment,
//! 3. the quota, and the counters of the streams,
//! 4. the queues: the planner's, the reporter's and the commit queue,
//! 5. the locks within a storage.
//!
//! The map of files (`Assembler::files`) is never held together with another lock. The control thread never waits for
//! room in a queue, because only the control thread empties the queue of reports.

mod assemble;
mod block_reader;
mod border;
mod commit;
mod existing_digest;
mod file;
mod fingerprint;
mod inbox;
mod lead_rank;
mod link;
mod outcome;
mod plan;
mod plan_event;
mod quota;
mod rank_list;
mod rank_writer;
mod receive;
mod recovery;
mod report;
mod start;
mod stream_reports;
#[cfg(test)]
mod tests;
mod timeouts;

use std::sync::Arc;
use std::sync::mpsc::{Receiver as ChannelReceiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified};
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::requested_entries::RequestedEntries;
use lfn_session::wire::copy::{CopyTally, EntryFailure, ReceiverMessage, SenderMessage};

pub(crate) use self::border::HeldBytes;
pub(crate) use self::link::SenderLink;
pub(crate) use self::rank_list::RankList;
pub(crate) use self::rank_writer::RankWriter;
pub(super) use self::start::subtract_clock_lag;
pub(crate) use self::start::{Destination, ReceiverOptions, ReceiverRanks};
pub(crate) use self::timeouts::ReceiverTimeouts;

use self::assemble::Assembler;
use self::commit::CommitStage;
use self::fingerprint::{Fingerprint, fingerprint};
use self::lead_rank::LeadRank;
use self::plan::MAX_UNLISTED;
use self::plan_event::{PlanEvent, PlanInbox};
use self::receive::BlockReceiver;
use self::recovery::StreamRecovery;
use self::report::Reporter;
use super::role::{CopyResult, ListedTotals, Role, StreamWorker};
use super::storage::Storage;
use super::stream_set::StreamSet;
use super::{SenderViolation, TransferError, UnrequestedKind};

/// The receiving end of a copy, as its control thread sees it.
#[derive(Debug)]
pub(crate) struct Receiver {
    streams: Arc<StreamSet>,
    assembler: Arc<Assembler>,
    commits: Arc<CommitStage>,
    planner: PlanInbox,
    reporter: Reporter,
    recovery: StreamRecovery,
    blocks: BlockReceiver,
    threads: RunningThreads,
    checks: ListChecks,
    unlisted: UnlistedNames,
    /// Start of this copy by the clock of this host. A resumed copy keeps the time of its first session.
    started_at: Modified,
    /// The message [`ReceiverMessage::Done`] was sent.
    is_done_sent: bool,
    /// [`Reporter::steps`] at the last call of [`Role::should_be_moving`].
    last_steps: u64,
    close_timeout: Duration,
    /// Set if this is the lead of several ranks that receive.
    lead: Option<LeadRank>,
}

/// Ends when every thread of the receiver has ended. The planner's thread sends its storage here.
#[derive(Debug)]
struct RunningThreads(ChannelReceiver<Arc<dyn Storage>>);

/// The entries that the sender may list.
#[derive(Debug)]
struct ListChecks {
    /// `None` if this side does not know them.
    requested: Option<RequestedEntries>,
    /// `None` for `null:`, which stores no attributes.
    preserve: Option<Preserve>,
}

/// Names that the source has but does not list, until they are sent to the planner.
#[derive(Debug, Default)]
struct UnlistedNames {
    waiting: Vec<Fingerprint>,
    total: usize,
    is_source_incomplete: bool,
}

impl Receiver {
    /// Accepts only requested entries from now on.
    pub(crate) fn accept_only(&mut self, requested: RequestedEntries) {
        self.checks.requested = Some(requested);
    }

    /// Returns the numbers of entries by outcome so far.
    pub(crate) fn tally(&self) -> CopyTally {
        self.reporter.tally()
    }

    /// Returns the start time of the copy, which is the oldest time that its files can have.
    pub(crate) fn started_at(&self) -> Modified {
        self.started_at
    }

    /// Returns the digest of the file, if the copy is one file and that file is complete.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.reporter.single_file_digest()
    }

    /// Returns the part of the lead.
    fn lead(&mut self) -> Result<&mut LeadRank, TransferError> {
        self.lead.as_mut().ok_or(TransferError::SenderViolation(SenderViolation::UnexpectedRankMessage))
    }

    /// Ends an incomplete copy. Waits for a limited time until the threads have left every partial file in a state from
    /// which the next copy can resume.
    pub(crate) fn close(&mut self) {
        // The sender closes the streams of a complete copy.
        if self.is_done_sent {
            return;
        }
        self.streams.shut_down();
        let deadline = Instant::now() + self.close_timeout;
        let mut storage = None;
        loop {
            // Threads may wait for room in the queue of reports.
            self.reporter.drain();
            let remaining = deadline.saturating_duration_since(Instant::now());
            match self.threads.0.recv_timeout(remaining.min(Duration::from_millis(20))) {
                Ok(opened) => storage = Some(opened),
                Err(RecvTimeoutError::Timeout) if !remaining.is_zero() => {}
                Err(RecvTimeoutError::Disconnected) if self.streams.len() > 0 && !remaining.is_zero() => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(_) => break,
            }
        }
        self.commits.clear();
        for needed in self.assembler.take_all() {
            self.streams.meter().do_disk_work(|| self.assembler.cancel(&needed, false));
        }
        if let Some(storage) = storage {
            storage.remove_new_top();
        }
    }

    /// Handles an entry that the sender cannot send. If `discard`, no copy may resume its blocks.
    fn on_source_failed(&mut self, failure: EntryFailure, discard: bool) -> Result<(), TransferError> {
        match failure.file {
            Some(number) if self.reporter.is_pending(number) => {
                self.planner.send(PlanEvent::SourceFailed { number, failure, discard })
            }
            Some(_) => Ok(()),
            None => {
                self.reporter.add_source_failure(failure);
                self.set_source_incomplete()
            }
        }
    }

    /// Adds the next part of the list.
    fn add_listed(&mut self, first: u32, entries: Vec<Entry>) -> Result<(), TransferError> {
        self.checks.check(&entries)?;
        self.reporter.add_listed(first, &entries)?;
        self.assembler.set_listed(self.reporter.listed(), false);
        self.send_unlisted()?;
        self.planner.send(PlanEvent::Listed(entries))
    }

    /// Remembers names that the source has but does not list.
    fn add_unlisted(&mut self, names: &[lfn_session::wire::copy::entry::Name]) -> Result<(), TransferError> {
        let room = MAX_UNLISTED.saturating_sub(self.unlisted.total);
        self.unlisted.waiting.extend(names.iter().take(room).map(|name| fingerprint(name.as_bytes())));
        self.unlisted.total += names.len().min(room);
        if names.len() > room { self.set_source_incomplete() } else { Ok(()) }
    }

    fn send_unlisted(&mut self) -> Result<(), TransferError> {
        if self.unlisted.waiting.is_empty() {
            return Ok(());
        }
        self.planner.send(PlanEvent::Unlisted(std::mem::take(&mut self.unlisted.waiting)))
    }

    fn set_source_incomplete(&mut self) -> Result<(), TransferError> {
        if std::mem::replace(&mut self.unlisted.is_source_incomplete, true) {
            return Ok(());
        }
        self.planner.send(PlanEvent::SourceIncomplete)
    }

    /// Handles the digest of a file that was sent. The planner may not have looked at the file yet.
    fn on_sent(&mut self, number: u32, digest: Digest) -> Result<(), TransferError> {
        if self.assembler.set_source_digest(number, digest) || !self.reporter.is_pending(number) {
            return Ok(());
        }
        self.planner.send(PlanEvent::SentDigest { number, digest })
    }
}

impl ListChecks {
    /// Checks the next part of the list. An honest sender never lists an unrequested entry by mistake, so such an entry
    /// ends the whole copy.
    ///
    /// # Errors
    /// [`TransferError::Unrequested`] for the first entry that was not requested.
    fn check(&mut self, entries: &[Entry]) -> Result<(), TransferError> {
        for entry in entries {
            let is_requested = self.requested.as_mut().is_none_or(|requested| requested.allows(entry));
            let kind = match (&entry.kind, self.preserve) {
                _ if !is_requested => UnrequestedKind::Name,
                (EntryKind::Symlink { .. }, Some(Preserve { links: false, .. })) => UnrequestedKind::SymbolicLink,
                (EntryKind::HardLink { .. }, Some(Preserve { hard_links: false, .. })) => UnrequestedKind::HardLink,
                _ => continue,
            };
            return Err(TransferError::Unrequested { name: entry.name.to_string(), kind });
        }
        Ok(())
    }
}

impl Role for Receiver {
    type Outgoing = ReceiverMessage;
    type Incoming = SenderMessage;

    fn streams(&self) -> &StreamSet {
        &self.streams
    }

    fn listed(&self) -> ListedTotals {
        let totals = self.reporter.listed_totals();
        ListedTotals { not_needed: Bytes(totals.not_needed.0.saturating_add(self.streams.not_needed().0)), ..totals }
    }

    fn take_messages(&mut self, now: Instant) -> Vec<ReceiverMessage> {
        // The number of planned entries is read before their reports.
        let planned = self.assembler.requests_blocks().then(|| self.assembler.planned());
        let mut messages = self.recovery.poll(&self.reporter, now);
        messages.extend(self.reporter.take_messages(planned, self.streams.progress()));
        self.is_done_sent |= matches!(messages.last(), Some(ReceiverMessage::Done { .. }));
        messages
    }

    fn on_message(&mut self, message: SenderMessage, now: Instant) -> Result<(), TransferError> {
        match message {
            SenderMessage::List { first, entries } => self.add_listed(first, entries),
            SenderMessage::Listed { entries, skipped, .. } => {
                self.reporter.complete_list(entries, skipped)?;
                self.assembler.set_listed(entries, true);
                self.send_unlisted()?;
                self.planner.send(PlanEvent::ListComplete(skipped))
            }
            SenderMessage::Alive(_) => Ok(()),
            SenderMessage::Lost { stream, blocks, more, stalled } => {
                if stalled {
                    self.streams.record_stall(now);
                }
                self.recovery.on_stream_lost(stream, blocks, more)
            }
            SenderMessage::Sent { file, digest } => self.on_sent(file, digest),
            SenderMessage::Digest { file, digest } if self.reporter.is_pending(file) => {
                self.planner.send(PlanEvent::SourceDigest { number: file, digest })
            }
            SenderMessage::Digest { .. } => Ok(()),
            SenderMessage::Excluded { names } => self.add_unlisted(&names),
            SenderMessage::Open { file } => self.lead()?.open(file),
            SenderMessage::Stored { file, blocks } => self.lead()?.store(file, blocks),
            SenderMessage::Ranks { figures, tally, .. } => {
                self.lead()?.set_figures(figures, tally.is_some());
                Ok(())
            }
            SenderMessage::Appointed { .. } | SenderMessage::Opened { .. } | SenderMessage::Closed { .. } => {
                Err(TransferError::SenderViolation(SenderViolation::UnexpectedRankMessage))
            }
            SenderMessage::Failed(failure) => self.on_source_failed(failure, false),
            SenderMessage::Changed(failure) => self.on_source_failed(failure, true),
        }
    }

    fn stream_worker(&self) -> StreamWorker {
        let blocks = self.blocks.clone();
        Arc::new(move |stream| blocks.run(stream))
    }

    fn needs_streams(&self) -> bool {
        !self.reporter.is_finished()
    }

    fn should_be_moving(&mut self) -> bool {
        // Entries that need no bytes count as progress too.
        let steps = self.reporter.steps();
        std::mem::replace(&mut self.last_steps, steps) == steps && !self.streams.meter().is_blocked()
    }

    fn result(&self) -> Option<CopyResult> {
        let is_over = self.is_done_sent && self.lead.as_ref().is_none_or(LeadRank::is_over);
        self.reporter.result().filter(|_| is_over).cloned()
    }
}
