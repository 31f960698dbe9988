//! The entries that are listed and not settled, and what there is to say about them.
//!
//! An entry comes with the list, is looked at once, and then is either settled at once or wanted; blocks wait until theirs
//! was looked at. What is settled is forgotten: no more entries are held than [`Unsettled`] lets be, however many there are.
//! Everything said about an entry is said in the order in which it was found out, because all is kept under one lock. Here
//! are the entries and who waits for what; `digests` compares, `account` says and counts.

mod account;
mod digests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::transfer::blockset::BlockSet;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::transfer::intake::IntakeError;
use lfn_core::transfer::keep::LeftOut;
use lfn_core::transfer::linked::Linked;
use lfn_core::transfer::unsettled::{Full, Unsettled};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Failure, FromReceiver, MOST_UNSETTLED, Tally, Told};

use super::super::TransferError;
use super::super::flow::lock;
use super::super::place::Inode;
use super::extra::Fingerprint;
use super::item::{Compared, Done, Item, Leads, Next, Slot};
use crate::session::DEAD_AFTER;

/// How often a wait looks up to see whether the copy is over.
const LOOK_UP: Duration = Duration::from_millis(50);

/// What is remembered of a file that hard links may follow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Note {
    /// Which file it is.
    pub(super) inode: Option<Inode>,
    /// What is in it, where that is told.
    pub(super) digest: Option<Digest>,
    /// How long the source's is, if a newer one is there and stays.
    pub(super) left: Option<Bytes>,
}

/// The entries.
#[derive(Debug, Default)]
pub(super) struct Table {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    slots: BTreeMap<u32, Slot>,
    account: Unsettled,
    /// How many were listed, and the length of their files.
    listed: u32,
    bytes: Bytes,
    /// The list is complete.
    complete: bool,
    /// What the sender did not list.
    left_out: LeftOut,
    /// How many of them were looked at.
    looked: u32,
    /// To be looked at before the next of the list: hard links whose file is there now.
    again: VecDeque<u32>,
    /// Files that hard links wait for.
    awaited: HashMap<u32, Vec<u32>>,
    /// What those whose file was settled lead to.
    resolved: HashMap<u32, Option<Name>>,
    /// Files that a later hard link may name, and the names of those of them that are there.
    linked: Linked,
    names: HashMap<u32, Name>,
    /// Which files those are, and what is in them, where that is told: other names of a file are made of what is there still.
    notes: HashMap<u32, Note>,
    /// The name of the first file, if it is there.
    first: Option<Name>,
    /// Numbers that streams wait for, with blocks of them in hand: to wake all of them for every entry of a large tree costs
    /// more than the entries do.
    sought: Vec<u32>,
    /// Digests of files that were not looked at yet.
    sent: HashMap<u32, Digest>,
    settled: BlockSet,
    /// Files whose digests are wanted, and those that turned out to be others.
    digests: BlockSet,
    differing: BlockSet,
    /// What a comparison came to, until the entry is looked at again.
    compared: HashMap<u32, Compared>,
    words: Vec<FromReceiver>,
    told: Vec<Told>,
    /// What the source has and does not list.
    unlisted: HashSet<Fingerprint>,
    /// Something at the source could not be listed or sent.
    source_failed: bool,
    /// Grows with everything that becomes of entries.
    steps: u64,
    /// Numbers that the sender was told it may send.
    wanted: u32,
    failures: Vec<Failure>,
    /// Length of the files that an earlier session of this copy wrote.
    earlier: Bytes,
    tally: Tally,
    digest: Option<Digest>,
}

impl Table {
    /// Takes the next part of the list.
    pub(super) fn list(&self, first: u32, entries: Vec<Entry>) -> Result<(), TransferError> {
        let mut inner = lock(&self.inner);
        let end = u32::try_from(entries.len()).ok().and_then(|count| first.checked_add(count));
        let wrong = match end {
            _ if inner.complete => Some("goes on with a list that it said was complete"),
            _ if first != inner.listed => Some("leaves out entries of its list"),
            None => Some("lists more entries than can be numbered"),
            Some(_) => match inner.account.room(entries.len(), entries.iter().map(Entry::weight).sum()) {
                Err(Full::Entries) => Some("lists more entries than may wait"),
                Err(Full::Bytes) => Some("lists longer names and more attributes than may wait"),
                Ok(()) => None,
            },
        };
        if let Some(what) = wrong {
            return Err(TransferError::Sender(what));
        }
        inner.steps += 1;
        for entry in entries {
            if let Kind::File { length } = entry.kind {
                inner.bytes = Bytes(inner.bytes.0.saturating_add(length.0));
            }
            let number = inner.listed;
            inner.account.list(number, entry.weight());
            inner.slots.insert(number, Slot::Listed(Box::new(entry)));
            inner.listed += 1;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// The list is complete.
    pub(super) fn complete(&self, entries: u32, left_out: LeftOut) -> Result<(), TransferError> {
        let mut inner = lock(&self.inner);
        if inner.complete || entries != inner.listed {
            return Err(TransferError::Sender("says its list is complete, and it is not"));
        }
        inner.complete = true;
        inner.left_out = left_out;
        self.changed.notify_all();
        Ok(())
    }

    /// Whether the list is one file and nothing else, once that can be told; `stopped` ends the wait.
    pub(super) fn is_one_file(&self, stopped: impl Fn() -> bool) -> bool {
        let mut inner = lock(&self.inner);
        loop {
            match inner.slots.get(&0) {
                Some(Slot::Listed(entry)) if entry.kind == Kind::Directory => return false,
                _ if inner.listed > 1 || stopped() => return false,
                // An empty list makes nothing.
                _ if inner.complete => return true,
                _ => inner = self.wait(inner),
            }
        }
    }

    /// The next entry to be looked at; none once all are settled, or `stopped`.
    pub(super) fn next(&self, stopped: impl Fn() -> bool) -> Option<Next> {
        let mut inner = lock(&self.inner);
        loop {
            if stopped() || (inner.complete && inner.slots.is_empty()) {
                return None;
            }
            let next = inner.again.pop_front().or((inner.looked < inner.listed).then_some(inner.looked));
            if let Some(number) = next {
                let first = number == inner.looked;
                if first {
                    inner.looked += 1;
                }
                // One that the sender gave up meanwhile is not there any more.
                let slot = inner.slots.get_mut(&number).map(|slot| std::mem::replace(slot, Slot::Looking));
                if let Some(Slot::Listed(entry)) = slot {
                    if entry.linked && number + 1 == inner.looked {
                        inner.expect_links(number, &entry.name);
                    }
                    let compared = inner.compared.remove(&number);
                    return Some(Next { number, entry: *entry, compared, first });
                }
                continue;
            }
            inner = self.wait(inner);
        }
    }

    /// A file is wanted; `words` are said before the sender hears so.
    pub(super) fn want(&self, item: Arc<Item>, words: Vec<FromReceiver>) {
        let mut inner = lock(&self.inner);
        if let Some(digest) = inner.sent.remove(&item.number) {
            lock(&item.state).sent = Some(digest);
        }
        let number = item.number;
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = Slot::Wanted(item);
            inner.words.extend(words);
            if inner.sought.contains(&number) {
                self.changed.notify_all();
            }
        }
    }

    /// The name of the file that a hard link leads to. If it is not there yet, the link is looked at again when it is.
    pub(super) fn linked(&self, number: u32, to: u32, entry: Entry) -> Leads {
        let mut inner = lock(&self.inner);
        if let Some(resolved) = inner.resolved.remove(&number) {
            return resolved.map_or(Leads::Gone, |name| Leads::There(name, entry));
        }
        if let Some(name) = inner.names.get(&to) {
            return Leads::There(name.clone(), entry);
        }
        if to >= number || !inner.slots.contains_key(&to) {
            return Leads::Gone;
        }
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = Slot::Listed(Box::new(entry));
            inner.awaited.entry(to).or_default().push(number);
        }
        Leads::Later
    }

    /// Remembers something of a file that hard links may follow.
    pub(super) fn note(&self, number: u32, note: impl FnOnce(&mut Note)) {
        let mut inner = lock(&self.inner);
        if inner.linked.has(number) {
            note(inner.notes.entry(number).or_default());
        }
    }

    /// What is remembered of the file that a hard link leads to.
    pub(super) fn noted(&self, number: u32) -> Note {
        lock(&self.inner).notes.get(&number).copied().unwrap_or_default()
    }

    /// The file that a block belongs to, once it was looked at; none if nothing of it is wanted any more.
    pub(super) fn find(&self, number: u32, stopped: impl Fn() -> bool) -> Result<Option<Arc<Item>>, TransferError> {
        let deadline = Instant::now() + DEAD_AFTER;
        let mut inner = lock(&self.inner);
        loop {
            match inner.slots.get(&number) {
                Some(Slot::Wanted(item)) => return Ok(Some(item.clone())),
                Some(_) => {}
                None if number < inner.listed => return Ok(None),
                None if inner.complete || number - inner.listed > MOST_UNSETTLED || Instant::now() > deadline => {
                    return Err(IntakeError::File(number).into());
                }
                None => {}
            }
            if stopped() {
                return Err(TransferError::Interrupted);
            }
            inner.sought.push(number);
            inner = self.wait(inner);
            if let Some(at) = inner.sought.iter().position(|sought| *sought == number) {
                inner.sought.swap_remove(at);
            }
        }
    }

    /// Which of these blocks are to come still; all of them, of a file that was not looked at.
    pub(super) fn lacking(&self, number: u32, blocks: &BlockSet) -> Result<BlockSet, TransferError> {
        let inner = lock(&self.inner);
        if number >= inner.listed {
            return Err(IntakeError::File(number).into());
        }
        Ok(match inner.slots.get(&number) {
            None => BlockSet::default(),
            Some(Slot::Listed(_) | Slot::Looking | Slot::Comparing { .. }) => blocks.clone(),
            Some(Slot::Wanted(item)) => {
                let state = lock(&item.state);
                let all = blocks.ranges().flat_map(|(first, last)| first..=last);
                if state.over { BlockSet::default() } else { all.filter(|index| state.intake.lacks(*index)).collect() }
            }
        })
    }

    /// Whether the list is complete and everything in it settled.
    pub(super) fn is_over(&self) -> bool {
        let inner = lock(&self.inner);
        inner.complete && inner.slots.is_empty()
    }

    /// The file of that number, if it is wanted still.
    pub(super) fn get(&self, number: u32) -> Option<Arc<Item>> {
        match lock(&self.inner).slots.get(&number) {
            Some(Slot::Wanted(item)) => Some(item.clone()),
            _ => None,
        }
    }

    /// All files that are under way.
    pub(super) fn take_all(&self) -> Vec<Arc<Item>> {
        let slots = std::mem::take(&mut lock(&self.inner).slots);
        let items = slots.into_values().filter_map(|slot| match slot {
            Slot::Wanted(item) => Some(item),
            _ => None,
        });
        items.collect()
    }

    /// Forgets an entry: `done` is what became of it. The second of two words about one entry is not heard.
    pub(super) fn settle(&self, number: u32, name: &Name, done: Done) {
        if lock(&self.inner).settle(number, name, done) {
            self.changed.notify_all();
        }
    }

    /// The same of many, waking whoever waits for them once.
    pub(super) fn settle_all<'a>(&self, all: impl IntoIterator<Item = (u32, &'a Name, Done)>) {
        let mut inner = lock(&self.inner);
        // Every one of them is to be settled, so none is passed over.
        if all.into_iter().fold(false, |matters, (number, name, done)| inner.settle(number, name, done) || matters) {
            self.changed.notify_all();
        }
    }

    /// Calls `look` with a way to tell whether any entry from a number up to another is not settled.
    pub(super) fn unsettled<T>(&self, look: impl FnOnce(&dyn Fn(u32, u32) -> bool) -> T) -> T {
        let inner = lock(&self.inner);
        look(&|from, to| inner.slots.range(from..to).next().is_some())
    }

    /// Whether the list is complete and something of it still has to come.
    pub(super) fn waits(&self) -> bool {
        let inner = lock(&self.inner);
        inner.complete && inner.slots.values().any(|slot| matches!(slot, Slot::Wanted(item) if !lock(&item.state).over))
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.changed.wait_timeout(inner, LOOK_UP).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Inner {
    /// Forgets an entry; says whether somebody may be waiting for that.
    fn settle(&mut self, number: u32, name: &Name, done: Done) -> bool {
        let Some(slot) = self.slots.remove(&number) else { return false };
        self.account.settle(number);
        self.wait_no_more(number, &slot);
        self.sent.remove(&number);
        self.compared.remove(&number);
        let there = matches!(done, Done::File { .. } | Done::Planned(_) | Done::Skipped(_) | Done::Earlier(_));
        self.count(number, name, done);
        if there {
            self.remember(number, name);
        }
        let links = self.awaited.remove(&number).unwrap_or_default();
        for &link in &links {
            self.resolved.insert(link, there.then(|| name.clone()));
            self.again.push_back(link);
        }
        !links.is_empty() || self.sought.contains(&number) || (self.complete && self.slots.is_empty())
    }

    /// Forgets that an entry waits for a file: the sender may give up a link whose file is still to come.
    fn wait_no_more(&mut self, number: u32, slot: &Slot) {
        self.resolved.remove(&number);
        let Slot::Listed(entry) = slot else { return };
        let Kind::HardLink { to } = entry.kind else { return };
        if let Some(links) = self.awaited.get_mut(&to) {
            links.retain(|link| *link != number);
        }
    }

    /// A file that hard links may follow.
    fn expect_links(&mut self, number: u32, name: &Name) {
        for old in self.linked.push(number, name.as_bytes().len()) {
            self.names.remove(&old);
            self.notes.remove(&old);
        }
    }

    fn remember(&mut self, number: u32, name: &Name) {
        if number == 0 {
            self.first = Some(name.clone());
        }
        if self.linked.has(number) {
            self.names.insert(number, name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::transfer::entry::Modified;

    #[test]
    fn a_link_that_is_given_up_waits_for_nothing() {
        let (table, name) = (Table::default(), Name::new("x").unwrap());
        let entry = |kind| Entry::new(name.clone(), kind, 0o600, Modified::new(0, 0).unwrap()).unwrap();
        let file = Entry { linked: true, ..entry(Kind::File { length: Bytes(5_000) }) };
        let link = || entry(Kind::HardLink { to: 0 });
        table.list(0, vec![file, link(), link()]).unwrap();
        let looked: Vec<Next> = (0..3).filter_map(|_| table.next(|| false)).collect();
        for Next { number, entry, .. } in looked.into_iter().skip(1) {
            assert!(matches!(table.linked(number, 0, entry), Leads::Later));
        }
        table.settle(1, &name, Done::Below);
        assert_eq!(lock(&table.inner).awaited[&0], [2]);
        table.settle(0, &name, Done::Skipped(Bytes(5_000)));
        assert_eq!(lock(&table.inner).resolved.len(), 1);
        table.settle(2, &name, Done::Below);
        let inner = lock(&table.inner);
        assert!(inner.awaited.is_empty() && inner.resolved.is_empty());
    }
}
