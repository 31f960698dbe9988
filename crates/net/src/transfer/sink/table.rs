//! The entries that are listed and not settled, and what there is to say about them.
//!
//! An entry comes with the list, is looked at once, and then is either settled at once or wanted; blocks wait until theirs
//! was looked at. What is settled is forgotten: no more than [`MOST_UNSETTLED`] entries are held, however many there are.
//! Everything said about an entry is said in the order in which it was found out, because all is kept under one lock.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::blockset::BlockSet;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::transfer::intake::{Intake, IntakeError};
use lfn_core::transfer::keep::LeftOut;
use lfn_core::transfer::linked::Linked;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Failure, FromReceiver, MOST_FAILURES, MOST_UNSETTLED, Tally, Told};

use super::super::TransferError;
use super::super::flow::lock;
use super::super::side::Extent;
use super::extra::{Fingerprint, fingerprint};
use super::partial::Partial;
use crate::session::DEAD_AFTER;

/// How often a wait looks up to see whether the copy is over.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Most things that wait to be told, and how many of them one message takes: names are long.
const MOST_UNTOLD: usize = 4096;
const TOLD_AT_ONCE: usize = 64;

/// The entries.
#[derive(Debug, Default)]
pub(super) struct Table {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    slots: BTreeMap<u32, Slot>,
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
    /// The name of the first file, if it is there.
    first: Option<Name>,
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
    tally: Tally,
    digest: Option<Digest>,
}

#[derive(Debug)]
enum Slot {
    /// Not looked at.
    Listed(Box<Entry>),
    /// Somebody looks at it.
    Looking,
    /// Its digest is computed, and the sender's is waited for.
    Comparing {
        entry: Box<Entry>,
        ours: Option<Option<Digest>>,
        theirs: Option<Digest>,
    },
    Wanted(Arc<Item>),
}

/// A file that is wanted.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: u32,
    pub(super) entry: Entry,
    pub(super) layout: Layout,
    /// What is there gives way.
    pub(super) replace: bool,
    pub(super) state: Mutex<State>,
}

/// How far a wanted file is.
#[derive(Debug)]
pub(super) struct State {
    pub(super) intake: Intake,
    /// Of a file of several blocks, once one of them is there.
    pub(super) partial: Option<Arc<Partial>>,
    /// The sender's digest of a file of several blocks.
    pub(super) sent: Option<Digest>,
    /// The partial file was begun by an earlier session of this copy.
    pub(super) ours: bool,
    /// Nothing more is done to it: it waits for its name, or failed.
    pub(super) over: bool,
}

/// An entry to be looked at.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// Of a file that was compared with what stands in its place.
    pub(super) compared: Option<Compared>,
    first: bool,
}

impl Next {
    /// Whether it is looked at for the first time.
    pub(super) fn is_first(&self) -> bool {
        self.first
    }
}

/// What a comparison of digests came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) equal: bool,
    /// Of the file here.
    pub(super) digest: Option<Digest>,
}

/// What became of an entry.
#[derive(Debug)]
pub(super) enum Done {
    File {
        digest: Digest,
        kept: Bytes,
        bytes: Bytes,
    },
    /// A file that would be written.
    Planned(Bytes),
    Directory,
    Link,
    Skipped,
    /// A file that an earlier session of this copy wrote.
    Earlier,
    /// Here.
    Failed(TransferError),
    /// At the sender, who knows.
    Unsent(Failure),
}

impl Item {
    pub(super) fn new(number: u32, entry: Entry, layout: Layout, replace: bool) -> Self {
        let state = State { intake: Intake::new(layout), partial: None, sent: None, ours: false, over: false };
        Item { number, entry, layout, replace, state: Mutex::new(state) }
    }
}

impl Table {
    /// Takes the next part of the list.
    pub(super) fn list(&self, first: u32, entries: Vec<Entry>) -> Result<(), TransferError> {
        let mut inner = lock(&self.inner);
        let room = (MOST_UNSETTLED as usize).saturating_sub(inner.slots.len());
        let end = u32::try_from(entries.len()).ok().and_then(|count| first.checked_add(count));
        let wrong = match end {
            _ if inner.complete => Some("goes on with a list that it said was complete"),
            _ if first != inner.listed => Some("leaves out entries of its list"),
            None => Some("lists more entries than can be numbered"),
            Some(_) if entries.len() > room => Some("lists more entries than may wait"),
            Some(_) => None,
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

    /// The digest of a file is asked for, while that of what stands in its place is computed.
    pub(super) fn compare(&self, number: u32, entry: Entry) {
        let mut inner = lock(&self.inner);
        if let Some(slot) = inner.slots.get_mut(&number) {
            *slot = Slot::Comparing { entry: Box::new(entry), ours: None, theirs: None };
            inner.digests.insert(number.into());
        }
    }

    /// The digest of what stands in the place of a file; none if it cannot be read.
    pub(super) fn ours(&self, number: u32, digest: Option<Digest>) {
        let mut inner = lock(&self.inner);
        if let Some(Slot::Comparing { ours, .. }) = inner.slots.get_mut(&number) {
            *ours = Some(digest);
            inner.conclude(number);
            self.changed.notify_all();
        }
    }

    /// The sender's digest of a file that it was asked for.
    pub(super) fn theirs(&self, number: u32, digest: Digest) {
        let mut inner = lock(&self.inner);
        if let Some(Slot::Comparing { theirs, .. }) = inner.slots.get_mut(&number) {
            *theirs = Some(digest);
            inner.conclude(number);
            self.changed.notify_all();
        }
    }

    /// A file whose digest was asked for is wanted after all.
    pub(super) fn differs(&self, number: u32) {
        lock(&self.inner).differing.insert(number.into());
    }

    /// Something to be told the sender's user. Waits where too much of that is unsaid.
    pub(super) fn tell(&self, told: Told, stopped: impl Fn() -> bool) {
        let mut inner = lock(&self.inner);
        while inner.told.len() >= MOST_UNTOLD && !stopped() {
            inner = self.wait(inner);
        }
        inner.told.push(told);
    }

    /// What the source has and the list does not.
    pub(super) fn leave_out(&self, names: &[Name]) {
        lock(&self.inner).unlisted.extend(names.iter().map(|name| fingerprint(name.as_bytes())));
    }

    /// Whether the source has something of that name though it is not listed.
    pub(super) fn is_left_out(&self, name: &[u8]) -> bool {
        let inner = lock(&self.inner);
        !inner.unlisted.is_empty() && inner.unlisted.contains(&fingerprint(name))
    }

    /// Whether something at the source could not be listed or sent.
    pub(super) fn source_failed(&self) -> bool {
        lock(&self.inner).source_failed
    }

    /// Counts things that were, or would be, removed.
    pub(super) fn count_deleted(&self, deleted: u64) {
        let mut inner = lock(&self.inner);
        inner.tally.deleted += deleted;
        inner.steps += 1;
    }

    /// Nothing was removed.
    pub(super) fn not_deleted(&self) {
        lock(&self.inner).tally.not_deleted = true;
    }

    /// Grows with everything that becomes of entries.
    pub(super) fn steps(&self) -> u64 {
        lock(&self.inner).steps
    }

    /// A file is wanted; `words` are said before the sender hears so.
    pub(super) fn want(&self, item: Arc<Item>, words: Vec<FromReceiver>) {
        let mut inner = lock(&self.inner);
        if let Some(digest) = inner.sent.remove(&item.number) {
            lock(&item.state).sent = Some(digest);
        }
        if let Some(slot) = inner.slots.get_mut(&item.number) {
            *slot = Slot::Wanted(item);
            inner.words.extend(words);
        }
        self.changed.notify_all();
    }

    /// The sender's digest of a file; hands out the file if it is wanted.
    pub(super) fn sent(&self, number: u32, digest: Digest) -> Option<Arc<Item>> {
        let mut inner = lock(&self.inner);
        match inner.slots.get(&number) {
            None => None,
            Some(Slot::Wanted(item)) => {
                lock(&item.state).sent = Some(digest);
                Some(item.clone())
            }
            Some(_) => {
                inner.sent.insert(number, digest);
                None
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
            inner = self.wait(inner);
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
        let mut inner = lock(&self.inner);
        if inner.slots.remove(&number).is_none() {
            return;
        }
        inner.sent.remove(&number);
        inner.compared.remove(&number);
        let there = matches!(done, Done::File { .. } | Done::Planned(_) | Done::Skipped | Done::Earlier);
        inner.count(number, name, done);
        if there {
            inner.remember(number, name);
        }
        for link in inner.awaited.remove(&number).unwrap_or_default() {
            inner.resolved.insert(link, there.then(|| name.clone()));
            inner.again.push_back(link);
        }
        self.changed.notify_all();
    }

    /// Something to be said.
    pub(super) fn say(&self, word: FromReceiver) {
        let mut inner = lock(&self.inner);
        if matches!(word, FromReceiver::Again { .. }) {
            inner.tally.again += 1;
        }
        inner.words.push(word);
    }

    /// A failure of an attribute: what it is about is there all the same.
    pub(super) fn complain(&self, name: &Name, error: &TransferError) {
        let failure = failure(None, name, error);
        let mut inner = lock(&self.inner);
        inner.tally.failed += 1;
        inner.tell(failure);
    }

    /// A failure at the sender of something that has no number.
    pub(super) fn hear(&self, failure: Failure) {
        lock(&self.inner).unsent(failure);
    }

    /// What there is to say now, with what may be sent if the sender waits for that.
    pub(super) fn words(&self, asks: bool) -> Vec<FromReceiver> {
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
        // The last of those looked at may not be through; links come back.
        let looking = inner.slots.iter().find(|(_, slot)| matches!(slot, Slot::Looking)).map(|(number, _)| *number);
        let up_to = looking.unwrap_or(inner.looked).min(inner.looked);
        if asks && up_to > inner.wanted {
            inner.wanted = up_to;
            words.push(FromReceiver::Wants { up_to });
        }
        words.extend(done);
        words
    }

    /// What the sender did not list.
    pub(super) fn left_out(&self) -> LeftOut {
        lock(&self.inner).left_out
    }

    /// Calls `look` with a way to tell whether any entry from a number up to another is not settled.
    pub(super) fn unsettled<T>(&self, look: impl FnOnce(&dyn Fn(u32, u32) -> bool) -> T) -> T {
        let inner = lock(&self.inner);
        look(&|from, to| inner.slots.range(from..to).next().is_some())
    }

    /// Length of all files listed so far.
    pub(super) fn bytes(&self) -> Bytes {
        lock(&self.inner).bytes
    }

    /// How much there is, as far as it is listed.
    pub(super) fn extent(&self) -> Extent {
        let inner = lock(&self.inner);
        let (entries, settled) = (inner.listed.into(), inner.tally.entries());
        Extent { bytes: inner.bytes, entries, settled, complete: inner.complete }
    }

    /// What became of the entries.
    pub(super) fn tally(&self) -> Tally {
        lock(&self.inner).tally
    }

    /// What failed on either side.
    pub(super) fn failures(&self) -> Vec<Failure> {
        lock(&self.inner).failures.clone()
    }

    /// The digest of the file, if the list was one file.
    pub(super) fn digest(&self) -> Option<Digest> {
        let inner = lock(&self.inner);
        inner.digest.filter(|_| inner.complete && inner.listed == 1)
    }

    /// The name of the file, if the list was one file.
    pub(super) fn name(&self) -> Option<Name> {
        let inner = lock(&self.inner);
        inner.first.clone().filter(|_| inner.complete && inner.listed == 1)
    }

    /// How many entries were listed.
    pub(super) fn listed(&self) -> u32 {
        lock(&self.inner).listed
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

/// What a hard link leads to.
#[derive(Debug)]
pub(super) enum Leads {
    There(Name, Entry),
    Later,
    Gone,
}

impl Inner {
    fn count(&mut self, number: u32, name: &Name, done: Done) {
        self.steps += 1;
        match done {
            Done::File { digest, kept, bytes } => {
                self.tally.files += 1;
                self.tally.bytes = Bytes(self.tally.bytes.0.saturating_add(bytes.0));
                self.tally.kept = Bytes(self.tally.kept.0.saturating_add(kept.0));
                self.digest = Some(digest);
            }
            Done::Planned(bytes) => {
                self.tally.files += 1;
                self.tally.bytes = Bytes(self.tally.bytes.0.saturating_add(bytes.0));
            }
            Done::Directory => self.tally.directories += 1,
            Done::Link => self.tally.links += 1,
            Done::Skipped => self.tally.skipped += 1,
            Done::Earlier => self.tally.files += 1,
            Done::Failed(error) => {
                self.tally.failed += 1;
                self.tell(failure(Some(number), name, &error));
            }
            Done::Unsent(failure) => self.unsent(failure),
        }
        self.settled.insert(number.into());
    }

    /// A failure of the sender, who knows it.
    fn unsent(&mut self, failure: Failure) {
        self.source_failed = true;
        self.tally.failed += 1;
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Once both digests are there, the entry is looked at again.
    fn conclude(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(&number) else { return };
        let Slot::Comparing { entry, ours: Some(ours), theirs: Some(theirs) } = slot else { return };
        let compared = Compared { equal: *ours == Some(*theirs), digest: *ours };
        *slot = Slot::Listed(Box::new((**entry).clone()));
        self.compared.insert(number, compared);
        self.again.push_back(number);
    }

    /// Only the first failures are told one by one.
    fn tell(&mut self, failure: Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure.clone());
            self.words.push(FromReceiver::Failed(failure));
        }
    }

    /// A file that hard links may follow.
    fn expect_links(&mut self, number: u32, name: &Name) {
        for old in self.linked.push(number, name.as_bytes().len()) {
            self.names.remove(&old);
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

fn failure(file: Option<u32>, name: &Name, error: &TransferError) -> Failure {
    Failure { file, name: name.clone(), what: error.of_entry(), full: error.is_full() }
}
