//! The table of entries that are listed and not settled, and the messages about them.
//!
//! An entry arrives with the list. The planner looks at it once, and then either settles it or marks it as needed.
//! Blocks wait until the planner has looked at their file. The table forgets settled entries, so it never holds more
//! entries than [`PendingEntries`] allows, however long the list is. One lock covers the whole table, so messages about
//! an entry keep the order of the events. This file holds the entries and the threads that wait for them; `digests`
//! compares files, and `reporting` counts and reports.

mod digests;
mod reporting;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::transfer::blockset::BlockSet;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, EntryKind, Name};
use lfn_core::transfer::file_assembly::AssemblyError;
use lfn_core::transfer::linkable_files::LinkableFiles;
use lfn_core::transfer::pending_entries::{PendingEntries, PendingLimit};
use lfn_core::transfer::preserve::SkippedEntries;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{CopyTally, EntryEvent, EntryFailure, MAX_PENDING_ENTRIES, ReceiverMessage};

use super::super::base_dir::Inode;
use super::super::stream_set::lock;
use super::super::{SenderViolation, TransferError};
use super::delete::Fingerprint;
use super::entry::{DigestComparison, EntryOutcome, EntrySlot, LinkTarget, NeededFile, NextEntry};
use crate::session::DEAD_PEER_TIMEOUT;

/// Interval at which a waiting thread checks whether the copy is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Facts about a file that later hard links may name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkedFileInfo {
    pub(super) inode: Option<Inode>,
    /// Set only if digests are reported.
    pub(super) digest: Option<Digest>,
    /// Length of the source's file, if a newer file exists at the destination and stays.
    pub(super) newer_kept: Option<Bytes>,
}

/// Shared table of the unsettled entries of a copy.
#[derive(Debug, Default)]
pub(super) struct EntryTable {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    slots: BTreeMap<u32, EntrySlot>,
    pending: PendingEntries,
    /// Number of listed entries, and the total length of their files.
    listed: u32,
    bytes: Bytes,
    is_complete: bool,
    /// Entries that the sender did not list.
    skipped: SkippedEntries,
    /// Number of entries that the planner has looked at.
    planned: u32,
    /// Entries to plan again before the next new one: hard links to files that are settled now, and compared files.
    replan: VecDeque<u32>,
    /// Files that are not settled, with the hard links that wait for them.
    waiting_links: HashMap<u32, Vec<u32>>,
    /// Hard links to settled files, with the name of the file. `None` if the file failed.
    resolved_links: HashMap<u32, Option<Name>>,
    /// Files that a later hard link may name, and the names of the existing ones.
    linkable: LinkableFiles,
    linkable_names: HashMap<u32, Name>,
    /// A hard link is created only from the same inode, so the inodes and digests of linkable files are kept here.
    link_infos: HashMap<u32, LinkedFileInfo>,
    /// Name of the first file, if the file exists now.
    first_name: Option<Name>,
    /// Numbers of files that streams wait for with a received block. Waking every stream for each entry of a large tree
    /// would cost more than the entries themselves.
    awaited_by_streams: Vec<u32>,
    /// Digests that the sender sent before the planner looked at the file.
    early_digests: HashMap<u32, Digest>,
    settled: BlockSet,
    /// Files for which the source digest is requested, and compared files that differ.
    digest_requests: BlockSet,
    differing: BlockSet,
    /// Results of comparisons until the planner looks at the entry again.
    comparisons: HashMap<u32, DigestComparison>,
    messages: Vec<ReceiverMessage>,
    events: Vec<EntryEvent>,
    /// Fingerprints of names that the source has but does not list.
    unlisted: HashSet<Fingerprint>,
    /// At least one entry of the source could not be listed or sent.
    source_failed: bool,
    /// Counts every change of an entry.
    progress_steps: u64,
    /// Entries up to this number were announced to the sender as ready to be sent.
    announced: u32,
    failures: Vec<EntryFailure>,
    /// Total length of the files that an earlier session of this copy wrote.
    earlier_bytes: Bytes,
    tally: CopyTally,
    digest: Option<Digest>,
}

impl EntryTable {
    /// Adds the next part of the list.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the part does not continue the list, or if too many entries are pending.
    pub(super) fn add_listed(&self, first: u32, entries: Vec<Entry>) -> Result<(), TransferError> {
        let mut inner = lock(&self.inner);
        let end = u32::try_from(entries.len()).ok().and_then(|count| first.checked_add(count));
        let violation = match end {
            _ if inner.is_complete => Some(SenderViolation::ListAfterEnd),
            _ if first != inner.listed => Some(SenderViolation::ListGap),
            None => Some(SenderViolation::TooManyEntries),
            Some(_) => match inner.pending.room(entries.len(), entries.iter().map(Entry::weight).sum()) {
                Err(PendingLimit::Entries) => Some(SenderViolation::TooManyPendingEntries),
                Err(PendingLimit::Bytes) => Some(SenderViolation::TooManyPendingBytes),
                Ok(()) => None,
            },
        };
        if let Some(violation) = violation {
            return Err(TransferError::SenderViolation(violation));
        }
        inner.progress_steps += 1;
        for entry in entries {
            if let EntryKind::File { length } = entry.kind {
                inner.bytes = Bytes(inner.bytes.0.saturating_add(length.0));
            }
            let number = inner.listed;
            inner.pending.list(number, entry.weight());
            inner.slots.insert(number, EntrySlot::Listed(Box::new(entry)));
            inner.listed += 1;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Marks the list as complete.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the list has another number of entries.
    pub(super) fn complete_list(&self, entries: u32, skipped: SkippedEntries) -> Result<(), TransferError> {
        let mut inner = lock(&self.inner);
        if inner.is_complete || entries != inner.listed {
            return Err(TransferError::SenderViolation(SenderViolation::IncompleteList));
        }
        inner.is_complete = true;
        inner.skipped = skipped;
        self.changed.notify_all();
        Ok(())
    }

    /// Returns whether the list is one file and nothing else. Waits until the answer is known, or until `stopped`.
    pub(super) fn is_one_file(&self, stopped: impl Fn() -> bool) -> bool {
        let mut inner = lock(&self.inner);
        loop {
            match inner.slots.get(&0) {
                Some(EntrySlot::Listed(entry)) if entry.kind == EntryKind::Directory => return false,
                _ if inner.listed > 1 || stopped() => return false,
                // An empty list creates no directory.
                _ if inner.is_complete => return true,
                _ => inner = self.wait(inner),
            }
        }
    }

    /// Waits for the next entry to plan. Returns `None` when all entries are settled, or when `stopped`.
    pub(super) fn next_entry(&self, stopped: impl Fn() -> bool) -> Option<NextEntry> {
        let mut inner = lock(&self.inner);
        loop {
            if stopped() || (inner.is_complete && inner.slots.is_empty()) {
                return None;
            }
            let next = inner.replan.pop_front().or((inner.planned < inner.listed).then_some(inner.planned));
            if let Some(number) = next {
                let first = number == inner.planned;
                if first {
                    inner.planned += 1;
                }
                // An entry that the sender gave up meanwhile is gone.
                let slot = inner.slots.get_mut(&number).map(|slot| std::mem::replace(slot, EntrySlot::Planning));
                if let Some(EntrySlot::Listed(entry)) = slot {
                    if entry.linked && number + 1 == inner.planned {
                        inner.add_linkable(number, &entry.name);
                    }
                    let compared = inner.comparisons.remove(&number);
                    return Some(NextEntry { number, entry: *entry, compared, is_first: first });
                }
                continue;
            }
            inner = self.wait(inner);
        }
    }

    /// Marks a file as needed. The sender gets `messages` before it learns that the file is needed.
    pub(super) fn mark_needed(&self, needed: Arc<NeededFile>, messages: Vec<ReceiverMessage>) {
        let mut inner = lock(&self.inner);
        if let Some(digest) = inner.early_digests.remove(&needed.number) {
            lock(&needed.state).source_digest = Some(digest);
        }
        let number = needed.number;
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = EntrySlot::Needed(needed);
            inner.messages.extend(messages);
            if inner.awaited_by_streams.contains(&number) {
                self.changed.notify_all();
            }
        }
    }

    /// Returns the target of a hard link. If the target does not exist yet, the planner gets the link again when the
    /// target is settled.
    pub(super) fn resolve_link(&self, number: u32, to: u32, entry: Entry) -> LinkTarget {
        let mut inner = lock(&self.inner);
        if let Some(resolved) = inner.resolved_links.remove(&number) {
            return resolved.map_or(LinkTarget::Missing, |name| LinkTarget::Existing(name, entry));
        }
        if let Some(name) = inner.linkable_names.get(&to) {
            return LinkTarget::Existing(name.clone(), entry);
        }
        if to >= number || !inner.slots.contains_key(&to) {
            return LinkTarget::Missing;
        }
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = EntrySlot::Listed(Box::new(entry));
            inner.waiting_links.entry(to).or_default().push(number);
        }
        LinkTarget::Pending
    }

    /// Changes the facts about a file that later hard links may name.
    pub(super) fn update_link_info(&self, number: u32, change: impl FnOnce(&mut LinkedFileInfo)) {
        let mut inner = lock(&self.inner);
        if inner.linkable.contains(number) {
            change(inner.link_infos.entry(number).or_default());
        }
    }

    /// Returns the facts about a file that hard links may name.
    pub(super) fn link_info(&self, number: u32) -> LinkedFileInfo {
        lock(&self.inner).link_infos.get(&number).copied().unwrap_or_default()
    }

    /// Waits until the planner has looked at the file of a block. Returns `None` if the file needs no more blocks.
    ///
    /// # Errors
    /// [`AssemblyError::File`] if the sender does not list the file, and [`TransferError::Interrupted`] if `stopped`.
    pub(super) fn wait_for_file(
        &self,
        number: u32,
        stopped: impl Fn() -> bool,
    ) -> Result<Option<Arc<NeededFile>>, TransferError> {
        let deadline = Instant::now() + DEAD_PEER_TIMEOUT;
        let mut inner = lock(&self.inner);
        loop {
            match inner.slots.get(&number) {
                Some(EntrySlot::Needed(needed)) => return Ok(Some(needed.clone())),
                Some(_) => {}
                None if number < inner.listed => return Ok(None),
                None if inner.is_complete
                    || number - inner.listed > MAX_PENDING_ENTRIES
                    || Instant::now() > deadline =>
                {
                    return Err(AssemblyError::File(number).into());
                }
                None => {}
            }
            if stopped() {
                return Err(TransferError::Interrupted);
            }
            inner.awaited_by_streams.push(number);
            inner = self.wait(inner);
            if let Some(at) = inner.awaited_by_streams.iter().position(|awaited| *awaited == number) {
                inner.awaited_by_streams.swap_remove(at);
            }
        }
    }

    /// Returns those of `blocks` that are still missing. All of them are missing if the planner has not looked at the
    /// file.
    pub(super) fn missing_blocks(&self, number: u32, blocks: &BlockSet) -> Result<BlockSet, TransferError> {
        let inner = lock(&self.inner);
        if number >= inner.listed {
            return Err(AssemblyError::File(number).into());
        }
        Ok(match inner.slots.get(&number) {
            None => BlockSet::default(),
            Some(EntrySlot::Listed(_) | EntrySlot::Planning | EntrySlot::Comparing { .. }) => blocks.clone(),
            Some(EntrySlot::Needed(needed)) => {
                let state = lock(&needed.state);
                let all = blocks.ranges().flat_map(|(first, last)| first..=last);
                if state.is_over {
                    BlockSet::default()
                } else {
                    all.filter(|index| state.assembly.is_missing(*index)).collect()
                }
            }
        })
    }

    /// Returns whether the list is complete and every entry is settled.
    pub(super) fn is_finished(&self) -> bool {
        let inner = lock(&self.inner);
        inner.is_complete && inner.slots.is_empty()
    }

    /// Returns the file of this number, if it is needed and not settled.
    pub(super) fn needed_file(&self, number: u32) -> Option<Arc<NeededFile>> {
        match lock(&self.inner).slots.get(&number) {
            Some(EntrySlot::Needed(needed)) => Some(needed.clone()),
            _ => None,
        }
    }

    /// Removes all entries and returns the needed files among them.
    pub(super) fn take_needed_files(&self) -> Vec<Arc<NeededFile>> {
        let slots = std::mem::take(&mut lock(&self.inner).slots);
        let items = slots.into_values().filter_map(|slot| match slot {
            EntrySlot::Needed(needed) => Some(needed),
            _ => None,
        });
        items.collect()
    }

    /// Removes an entry with its outcome. A second outcome for the same entry is ignored.
    pub(super) fn settle(&self, number: u32, name: &Name, done: EntryOutcome) {
        if lock(&self.inner).settle(number, name, done) {
            self.changed.notify_all();
        }
    }

    /// Settles many entries, and wakes waiting threads once.
    pub(super) fn settle_all<'a>(&self, all: impl IntoIterator<Item = (u32, &'a Name, EntryOutcome)>) {
        let mut inner = lock(&self.inner);
        // `fold` instead of `any`: every entry must be settled.
        if all.into_iter().fold(false, |must_wake, (number, name, done)| inner.settle(number, name, done) || must_wake)
        {
            self.changed.notify_all();
        }
    }

    /// Calls `check` with a function that returns whether any entry in a range of numbers is unsettled.
    pub(super) fn with_unsettled_check<T>(&self, check: impl FnOnce(&dyn Fn(u32, u32) -> bool) -> T) -> T {
        let inner = lock(&self.inner);
        check(&|from, to| inner.slots.range(from..to).next().is_some())
    }

    /// Returns whether the list is complete and at least one file still misses blocks.
    pub(super) fn is_waiting_for_blocks(&self) -> bool {
        let inner = lock(&self.inner);
        inner.is_complete
            && inner
                .slots
                .values()
                .any(|slot| matches!(slot, EntrySlot::Needed(needed) if !lock(&needed.state).is_over))
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.changed.wait_timeout(inner, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Inner {
    /// Removes an entry with its outcome. Returns whether a thread may be waiting for this.
    fn settle(&mut self, number: u32, name: &Name, done: EntryOutcome) -> bool {
        let Some(slot) = self.slots.remove(&number) else { return false };
        self.pending.settle(number);
        self.cancel_link_wait(number, &slot);
        self.early_digests.remove(&number);
        self.comparisons.remove(&number);
        let exists = matches!(
            done,
            EntryOutcome::File { .. }
                | EntryOutcome::Planned(_)
                | EntryOutcome::Skipped(_)
                | EntryOutcome::WrittenEarlier(_)
        );
        self.count_outcome(number, name, done);
        if exists {
            self.remember_name(number, name);
        }
        let links = self.waiting_links.remove(&number).unwrap_or_default();
        for &link in &links {
            self.resolved_links.insert(link, exists.then(|| name.clone()));
            self.replan.push_back(link);
        }
        !links.is_empty() || self.awaited_by_streams.contains(&number) || (self.is_complete && self.slots.is_empty())
    }

    /// Removes a hard link from the links that wait for a file. The sender may give up a link before the file arrives.
    fn cancel_link_wait(&mut self, number: u32, slot: &EntrySlot) {
        self.resolved_links.remove(&number);
        let EntrySlot::Listed(entry) = slot else { return };
        let EntryKind::HardLink { to } = entry.kind else { return };
        if let Some(links) = self.waiting_links.get_mut(&to) {
            links.retain(|link| *link != number);
        }
    }

    /// Adds a file that later hard links may name.
    fn add_linkable(&mut self, number: u32, name: &Name) {
        for old in self.linkable.push(number, name.as_bytes().len()) {
            self.linkable_names.remove(&old);
            self.link_infos.remove(&old);
        }
    }

    fn remember_name(&mut self, number: u32, name: &Name) {
        if number == 0 {
            self.first_name = Some(name.clone());
        }
        if self.linkable.contains(number) {
            self.linkable_names.insert(number, name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::transfer::entry::Modified;

    #[test]
    fn cancelled_link_waits_for_nothing() {
        let (table, name) = (EntryTable::default(), Name::new("x").unwrap());
        let entry = |kind| Entry::new(name.clone(), kind, 0o600, Modified::new(0, 0).unwrap()).unwrap();
        let file = Entry { linked: true, ..entry(EntryKind::File { length: Bytes(5_000) }) };
        let link = || entry(EntryKind::HardLink { to: 0 });
        table.add_listed(0, vec![file, link(), link()]).unwrap();
        let looked: Vec<NextEntry> = (0..3).filter_map(|_| table.next_entry(|| false)).collect();
        for NextEntry { number, entry, .. } in looked.into_iter().skip(1) {
            assert!(matches!(table.resolve_link(number, 0, entry), LinkTarget::Pending));
        }
        table.settle(1, &name, EntryOutcome::ParentFailed);
        assert_eq!(lock(&table.inner).waiting_links[&0], [2]);
        table.settle(0, &name, EntryOutcome::Skipped(Bytes(5_000)));
        assert_eq!(lock(&table.inner).resolved_links.len(), 1);
        table.settle(2, &name, EntryOutcome::ParentFailed);
        let inner = lock(&table.inner);
        assert!(inner.waiting_links.is_empty() && inner.resolved_links.is_empty());
    }
}
