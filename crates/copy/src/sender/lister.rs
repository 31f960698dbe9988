//! The lister thread: walks the sources one after the other, and waits while the list is too far ahead.
//!
//! Entries go to the list, to the scheduler and to the messages in batches under one lock. Waking the streams for each
//! of a million small files would cost more than sending the files.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Name};
use lfn_session::wire::copy::{CopyEnd, EntryFailure, SenderMessage};

use super::shared::{Shared, wait};
use super::source_file::ListedFile;
use super::state::{SourceTotals, State};
use super::walk::Walk;
use super::walk_step::WalkStep;
use crate::work_meter::Activity;

/// Number of entries in a batch, and the maximum time that the first of them waits.
const BATCH_ENTRIES: usize = 128;
const BATCH_DELAY: Duration = Duration::from_millis(2);

/// Maximum number of entries in one message, and its maximum length in bytes if it has several entries.
const ENTRIES_PER_MESSAGE: usize = 1024;
const MAX_MESSAGE_BYTES: usize = 256 * 1024;
const NAMES_PER_MESSAGE: usize = 64;

/// Maximum number of queued messages. A tree of unreadable files must not fill the memory.
const MAX_QUEUED_MESSAGES: usize = 1024;

impl Shared {
    /// Lists all sources, or as much as possible until the copy stops.
    pub(super) fn list(&self, walks: impl Iterator<Item = Walk>) {
        let (mut steps, mut started, mut weight) = (Vec::new(), Instant::now(), 0);
        let mut walks = walks.flatten();
        // Skipped entries cause no message. Counting the walk as disk work shows progress.
        while let Some(step) = self.streams.measure(Activity::Disk, || walks.next()) {
            if steps.is_empty() {
                (started, weight) = (Instant::now(), 0);
            }
            weight += step.weight();
            steps.push(step);
            if steps.len() < BATCH_ENTRIES && weight < MAX_MESSAGE_BYTES && started.elapsed() < BATCH_DELAY {
                continue;
            }
            if !self.add_steps(&mut steps) {
                return;
            }
        }
        if self.add_steps(&mut steps) {
            self.state.lock().finish_list();
            self.work_available.notify_all();
        }
    }

    /// Adds the steps to the list as soon as there is room. Returns false if the copy is over.
    fn add_steps(&self, steps: &mut Vec<WalkStep>) -> bool {
        let mut state = self.state.lock();
        for step in steps.drain(..) {
            let weight = step.weight();
            while !state.scheduler.has_room(weight) || state.outbox.len() >= MAX_QUEUED_MESSAGES {
                self.work_available.notify_all();
                if self.streams.is_stopped() {
                    return false;
                }
                wait(&self.room_in_list, &mut state);
            }
            state.add_step(step);
        }
        drop(state);
        self.work_available.notify_all();
        !self.streams.is_stopped()
    }
}

impl WalkStep {
    /// Returns the memory that the receiver needs for the entry.
    fn weight(&self) -> usize {
        match self {
            WalkStep::Entry(entry, _) => entry.weight(),
            _ => 0,
        }
    }
}

impl State {
    fn add_step(&mut self, step: WalkStep) {
        match step {
            WalkStep::SkippedLink(path) => {
                self.totals.skipped.links += 1;
                self.report_skipped(&path);
            }
            WalkStep::SkippedSpecial(path) => {
                self.totals.skipped.special += 1;
                self.report_skipped(&path);
            }
            WalkStep::Failed { name, reason } => {
                self.fail(EntryFailure { file: None, name, reason, disk_full: false, end: CopyEnd::Sender })
            }
            WalkStep::Entry(entry, file) => self.add_entry(entry, file),
            WalkStep::Excluded => {}
        }
    }

    fn report_skipped(&mut self, path: &[u8]) {
        // No copy can have created a name that is not valid in a list.
        let Some(name) = Name::new(path).ok().filter(|_| self.reports_skipped) else { return };
        match self.outbox.back_mut() {
            Some(SenderMessage::Excluded { names }) if names.len() < NAMES_PER_MESSAGE => names.push(name),
            _ => self.outbox.push_back(SenderMessage::Excluded { names: vec![name] }),
        }
    }

    fn add_entry(&mut self, mut entry: Entry, file: Option<Arc<ListedFile>>) {
        let identity = file.as_ref().and_then(|file| file.identity()).filter(|_| self.linked_files.is_enabled());
        let earlier = identity.and_then(|identity| self.linked_files.number_of(identity));
        let file = match earlier {
            Some(to) => {
                entry.kind = EntryKind::HardLink { to };
                None
            }
            None => file,
        };
        entry.linked = identity.is_some() && earlier.is_none();
        let length = match entry.kind {
            EntryKind::File { length } => length,
            _ => Bytes(0),
        };
        let number = match self.scheduler.add_entry(entry.weight(), file.map(|file| (length, file))) {
            Ok(number) => number,
            Err(error) => {
                let reason = error.to_string();
                return self.fail(EntryFailure {
                    file: None,
                    name: entry.name,
                    reason,
                    disk_full: false,
                    end: CopyEnd::Sender,
                });
            }
        };
        if let (Some(identity), true) = (identity, entry.linked) {
            self.linked_files.add(number, entry.name.as_bytes().len(), identity);
        }
        if number == 0 && entry.kind == (EntryKind::File { length: Bytes(0) }) {
            // An empty file has no blocks that would produce its digest.
            self.digest = Some(Digest(*blake3::hash(&[]).as_bytes()));
        }
        self.totals.entries = number + 1;
        self.totals.bytes = Bytes(self.totals.bytes.0.saturating_add(length.0));
        self.listed_bytes += entry.max_json_bytes();
        match self.outbox.back_mut() {
            Some(SenderMessage::List { entries, .. })
                if entries.len() < ENTRIES_PER_MESSAGE && self.listed_bytes <= MAX_MESSAGE_BYTES =>
            {
                entries.push(entry);
            }
            _ => {
                self.listed_bytes = entry.max_json_bytes();
                self.outbox.push_back(SenderMessage::List { first: number, entries: vec![entry] });
            }
        }
    }

    fn finish_list(&mut self) {
        self.scheduler.finish_list();
        self.totals.is_complete = true;
        let SourceTotals { entries, bytes, skipped, .. } = self.totals;
        self.outbox.push_back(SenderMessage::Listed { entries, bytes, skipped });
    }
}
