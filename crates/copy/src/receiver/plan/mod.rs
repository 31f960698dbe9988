//! The first stage: compares each listed entry with the existing one at the destination, and decides about it.
//!
//! One thread owns the planner. It follows the order of the list, so a directory exists before its contents. It creates
//! directories and links itself, and gives files that need blocks to the [`Assembler`]. Directories get their times and
//! modes last, after the last write in them. When every entry has its outcome, the planner ends the copy (`finish`).

mod case_folding;
mod delete;
mod deletions;
mod directories;
mod dry_run;
mod entries;
mod finish;
mod links;
mod path_spool;
mod place;
mod source_names;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name};
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::preserve::{Preserve, SkippedEntries};
use lfn_session::wire::copy::{EntryAction, EntryFailure};

use self::deletions::Deletions;
pub(super) use self::deletions::MAX_UNLISTED;
use self::directories::{PendingDirectories, is_below};
use self::entries::{EntryState, ExistingDigest, NextEntry, PlannedEntries};
use self::links::HardLinks;
use self::source_names::{EarlierEntry, SourceNames};
use super::assemble::Assembler;
use super::existing_digest::DigestJob;
use super::file::{FileTarget, NeededFile};
use super::inbox::POLL_INTERVAL;
use super::outcome::EntryOutcome;
use super::plan_event::{FileDone, PlanEvent, PlanInbox};
use super::report::Report;
use super::timeouts::ReceiverTimeouts;
use crate::TransferError;
use crate::storage::Storage;
use crate::stream_set::StreamSet;

/// The parts of the receiver that the planner works with, and fixed settings.
#[derive(Debug)]
pub(super) struct PlannerSetup {
    pub(super) inbox: PlanInbox,
    pub(super) assembler: Arc<Assembler>,
    pub(super) streams: Arc<StreamSet>,
    pub(super) options: TransferOptions,
    pub(super) preserve: Preserve,
    pub(super) block_size: Bytes,
    /// Start of the copy, and whether an earlier session began it.
    pub(super) started_at: Modified,
    pub(super) is_resumed: bool,
    pub(super) timeouts: ReceiverTimeouts,
    /// Several ranks send or receive. Two of them may have the same block after one was lost.
    pub(super) has_ranks: bool,
    pub(super) has_sending_ranks: bool,
}

/// Plans the entries of a copy.
#[derive(Debug)]
pub(super) struct Planner {
    setup: PlannerSetup,
    target: Arc<FileTarget>,
    entries: PlannedEntries,
    links: HardLinks,
    directories: PendingDirectories,
    deletions: Deletions,
    sources: SourceNames,
    digests: DigestQueue,
    /// The directory that failed last. Entries below this directory fail with it.
    failed_directory: Option<Name>,
    /// In a dry run, the topmost new directory above the current entry.
    new_directory: Option<Name>,
    totals: PlanTotals,
}

/// Existing files that wait to be hashed. One of them is with the digest thread.
#[derive(Debug)]
pub(super) struct DigestQueue {
    waiting: VecDeque<DigestJob>,
    jobs: SyncSender<DigestJob>,
}

/// Facts about all entries so far.
#[derive(Debug, Default)]
struct PlanTotals {
    /// At least one entry exists at the destination, or was deleted.
    has_touched: bool,
    /// At least one entry was up to date.
    has_skipped: bool,
    deleted: u64,
    /// Name of the first entry, if it is a file and exists now.
    first_file: Option<Name>,
    skipped: SkippedEntries,
}

impl Planner {
    pub(super) fn new(setup: PlannerSetup, target: Arc<FileTarget>, jobs: SyncSender<DigestJob>) -> Self {
        let sources = SourceNames::new(setup.options.multiple_sources);
        Planner {
            setup,
            target,
            entries: PlannedEntries::default(),
            links: HardLinks::default(),
            directories: PendingDirectories::default(),
            deletions: Deletions::default(),
            sources,
            digests: DigestQueue { waiting: VecDeque::new(), jobs },
            failed_directory: None,
            new_directory: None,
            totals: PlanTotals::default(),
        }
    }

    /// Plans every entry, and ends the copy when all have their outcome. Returns early if the copy is stopped. `early`
    /// are the first events of the inbox.
    pub(super) fn run(mut self, early: Vec<PlanEvent>) -> Result<(), TransferError> {
        for event in early {
            self.handle(event);
        }
        while !self.is_stopped() && !self.entries.is_finished() {
            self.handle_events();
            let Some(next) = self.entries.next() else {
                self.wait_for_events(POLL_INTERVAL);
                continue;
            };
            let (number, is_first) = (next.number, next.is_first);
            if is_first {
                self.advance(&next);
            }
            self.plan_entry(next);
            if is_first {
                self.setup.assembler.set_planned(number + 1);
            }
            let entries = &self.entries;
            let finished = self.directories.take_finished(|from, to| entries.has_unsettled(from, to));
            self.finish_directories(finished);
        }
        if self.is_stopped() { Ok(()) } else { self.finish() }
    }

    /// Advances to the next new entry of the list.
    fn advance(&mut self, next: &NextEntry) {
        let (number, entry) = (next.number, &next.entry);
        if entry.linked {
            self.links.add_linkable(number, &entry.name);
        }
        // Hard links and compared files come a second time.
        self.directories.advance_to(number, &entry.name);
        if self.setup.options.delete {
            self.advance_deletions(entry);
        }
    }

    fn plan_entry(&mut self, next: NextEntry) {
        let (number, name) = (next.number, next.entry.name.clone());
        let (is_first, is_directory) = (next.is_first, next.entry.kind == EntryKind::Directory);
        if is_first && self.failed_directory.as_ref().is_some_and(|failed| is_below(&name, failed)) {
            return self.settle(number, &name, EntryOutcome::ParentFailed);
        }
        let before = if is_first { self.sources.add(number, &next.entry) } else { EarlierEntry::Free };
        let result = match before.refusal(self.target.overwrite) {
            Some(reason) => {
                if self.setup.options.dry_run {
                    self.target.reports.entry(&next.entry, EntryAction::Refuse);
                }
                Err(TransferError::Forbidden { path: self.storage().display_name(&name), reason })
            }
            None if before == EarlierEntry::Same => Ok(Some(EntryOutcome::skipped(&next.entry))),
            None if self.setup.options.dry_run => self.dry_run_entry(next),
            None => self.place_entry(next),
        };
        match result {
            Ok(Some(outcome)) => self.settle(number, &name, outcome),
            Ok(None) => {}
            Err(error) => {
                if is_directory && !name.is_root() {
                    self.failed_directory = Some(name.clone());
                }
                self.settle(number, &name, EntryOutcome::Failed(error));
            }
        }
    }

    /// Handles the events that have arrived.
    fn handle_events(&mut self) {
        for event in self.setup.inbox.take_now() {
            self.handle(event);
        }
    }

    /// Waits for events, and handles them. The ends of many files together are one reason to wake up.
    fn wait_for_events(&mut self, timeout: Duration) {
        let wake_at = if self.entries.is_list_complete { self.entries.unsettled() } else { usize::MAX };
        for event in self.setup.inbox.take(wake_at, timeout) {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: PlanEvent) {
        match event {
            PlanEvent::Listed(entries) => self.entries.add_listed(entries),
            PlanEvent::ListComplete(skipped) => {
                self.entries.is_list_complete = true;
                self.totals.skipped = skipped;
            }
            PlanEvent::Unlisted(names) => self.deletions.add_unlisted(names),
            PlanEvent::SourceIncomplete => self.deletions.set_source_incomplete(),
            PlanEvent::SourceFailed { number, failure, discard } => self.fail_at_source(number, failure, discard),
            PlanEvent::SourceDigest { number, digest } => self.entries.set_compared_source(number, digest),
            PlanEvent::SentDigest { number, digest } => match self.entries.get(number) {
                Some(EntryState::Needed(_)) => {
                    self.setup.assembler.set_source_digest(number, digest);
                }
                Some(_) => self.entries.keep_sent_digest(number, digest),
                None => {}
            },
            PlanEvent::ExistingDigest { number, digest } => {
                self.start_digest();
                self.handle_existing_digest(number, digest);
            }
            PlanEvent::FileDone(done) => self.handle_file_done(done),
        }
    }

    fn handle_existing_digest(&mut self, number: u32, digest: Result<Digest, TransferError>) {
        if !matches!(self.entries.get(number), Some(EntryState::Hashing { .. })) {
            let digest = digest.map_or(ExistingDigest::Unreadable, ExistingDigest::Known);
            return self.entries.set_existing_digest(number, digest);
        }
        let Some(EntryState::Hashing { entry, outcome }) = self.entries.remove(number) else { return };
        match digest {
            Ok(digest) => self.report_digest(number, &entry, EntryAction::UpToDate, digest),
            Err(error) => self.report(Report::Failed { name: entry.name.clone(), error }),
        }
        self.settle(number, &entry.name, outcome);
    }

    /// Handles the failure of an entry at the sender.
    fn fail_at_source(&mut self, number: u32, failure: EntryFailure, discard: bool) {
        self.deletions.set_source_incomplete();
        let name = match self.entries.get(number) {
            None => return,
            Some(EntryState::Needed(needed)) => {
                let needed = needed.clone();
                if !self.setup.assembler.cancel(&needed, discard) {
                    // The file gets its name, and the user must learn that its content may be that of no version.
                    return self.report(Report::SourceFailed(failure));
                }
                needed.entry.name.clone()
            }
            Some(EntryState::WaitingLink(entry)) => {
                let (entry_name, kind) = (entry.name.clone(), entry.kind.clone());
                if let EntryKind::HardLink { to } = kind {
                    self.links.cancel_wait(number, to);
                }
                entry_name
            }
            Some(
                EntryState::Listed(entry) | EntryState::Comparing { entry, .. } | EntryState::Hashing { entry, .. },
            ) => entry.name.clone(),
        };
        self.settle(number, &name, EntryOutcome::SourceFailed(failure));
    }

    /// Handles the end of a needed file, whose outcome the commit stage has reported.
    fn handle_file_done(&mut self, done: FileDone) {
        self.setup.assembler.forget(done.number);
        let Some(EntryState::Needed(needed)) = self.entries.remove(done.number) else { return };
        self.links.update(done.number, |info| {
            info.id = done.id.or(info.id);
            info.digest = done.digest.or(info.digest);
        });
        self.note_settled(done.number, &needed.entry.name, done.exists, done.exists);
    }

    /// Gives an entry its outcome, and reports it.
    fn settle(&mut self, number: u32, name: &Name, outcome: EntryOutcome) {
        self.entries.remove(number);
        let (is_linkable, exists) = (outcome.is_linkable(), outcome.exists());
        self.totals.has_skipped |= matches!(outcome, EntryOutcome::Skipped(_));
        self.report(Report::Settled { number, name: name.clone(), outcome });
        self.setup.assembler.decide(number, None);
        self.note_settled(number, name, is_linkable, exists);
    }

    fn note_settled(&mut self, number: u32, name: &Name, is_linkable: bool, exists: bool) {
        self.totals.has_touched |= exists;
        if number == 0 && is_linkable {
            self.totals.first_file = Some(name.clone());
        }
        for link in self.links.settle(number, name, is_linkable) {
            self.entries.plan_again(link);
        }
    }

    /// Adds a file that needs blocks.
    fn need_file(&mut self, number: u32, needed: Arc<NeededFile>) {
        if let Some(digest) = self.entries.take_sent_digest(number) {
            needed.state.lock().source_digest = Some(digest);
        }
        if self.setup.has_ranks {
            needed.state.lock().assembly.accept_duplicates();
        }
        self.entries.set(number, EntryState::Needed(needed.clone()));
        self.setup.assembler.decide(number, Some(needed));
    }

    /// Queues an existing file to be hashed.
    fn hash_existing(&mut self, number: u32, name: Name, layout: Layout) {
        self.digests.waiting.push_back(DigestJob { number, name, layout });
        self.start_digest();
    }

    /// Gives the next file to the digest thread, if the thread has none.
    fn start_digest(&mut self) {
        let Some(job) = self.digests.waiting.pop_front() else { return };
        if let Err(TrySendError::Full(job)) = self.digests.jobs.try_send(job) {
            self.digests.waiting.push_front(job);
        }
    }

    /// Reports a file with its digest, which later hard links to it need too.
    fn report_digest(&mut self, number: u32, entry: &Entry, action: EntryAction, digest: Digest) {
        self.links.update(number, |info| info.digest = Some(digest));
        self.target.reports.digest(entry, action, digest);
    }

    fn storage(&self) -> &dyn Storage {
        self.target.storage.as_ref()
    }

    fn report(&self, report: Report) {
        self.target.reports.reports.send(report);
    }

    fn is_stopped(&self) -> bool {
        self.setup.streams.is_stopped()
    }
}
