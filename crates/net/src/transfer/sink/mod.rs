//! The side of a copy that wants the bytes: takes a list, decides about each entry, and writes what comes.
//!
//! The *register* thread looks at each listed entry in order: it makes directories and links, and says of each file
//! whether it is wanted. Each data stream has a thread that checks and writes blocks. The *names* thread gives files
//! their names when they are whole and, if asked, on disk. What a file could not be is said of that file, and the rest
//! goes on; only what breaks the order of the conversation, or the destination itself, ends the copy.

mod attributes;
mod compare;
mod directories;
mod dry;
mod extra;
mod group;
mod journal;
mod lost;
mod partial;
mod register;
mod small;
mod sparse;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::{Block, Layout};
use lfn_core::transfer::blockset::{BlockSet, MAX_RANGES};
use lfn_core::transfer::digest::{BlockHash, Digest};
use lfn_core::transfer::entry::{Modified, Name};
use lfn_core::transfer::intake::{Checked, Claim};
use lfn_core::transfer::keep::Keep;
use lfn_core::transfer::manner::{Manner, Sync, Verify};
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{BlockHeader, Fate, FromReceiver, FromSender, Progress, Tally, Told};

use super::TransferError;
use super::flow::{Activity, Flow, lock};
use super::place::{Base, now};
use super::side::{Ended, Extent, Side};
use super::teller::Teller;
use crate::session::{DEAD_AFTER, DataStream, SessionError};
use attributes::Dressing;
use compare::Compare;
use group::{Devices, Group, Whole};
use lost::Losses;
use partial::Partial;
use small::Small;
use stream::Blocks;
use table::{Done, Item, State, Table};
use tree::{Place, Tree};

/// How many files of several blocks may be under way at once; each holds two descriptors open. The sender begins no more
/// than [`MOST_BEGUN`]; the others are what the register finds half-done.
///
/// [`MOST_BEGUN`]: lfn_core::transfer::schedule::MOST_BEGUN
const MOST_PARTIALS: usize = 128;

/// How long a stream waits for one of them to end. Whoever lets it wait longer began more than it may.
const PARTIALS_WAIT: Duration = DEAD_AFTER;

/// How long all files together wait for another copy to let go of them.
const OTHERS_WAIT: Duration = Duration::from_secs(5);

/// Where a copy goes.
#[derive(Debug)]
pub(crate) enum Aim {
    /// Checked and forgotten.
    Null,
    /// Below a directory, or one file.
    Path {
        base: Base,
        path: PathBuf,
        /// What may happen to what is there.
        allowed: Allowed,
        /// There is one source: if that is a file, it may take the name of the path itself.
        single: bool,
        /// What is kept of what comes.
        keep: Keep,
    },
}

/// A copy being received.
#[derive(Debug)]
pub(crate) struct Receiving {
    flow: Flow,
    table: Table,
    block: Bytes,
    manner: Manner,
    /// Is told what the manner wants told, if that is here.
    teller: Teller,
    /// Nobody looks at what comes: it is neither hashed nor written.
    forgets: bool,
    dressing: Dressing,
    /// When this copy began, by the clock of this host, and whether that was in an earlier session.
    since: Modified,
    earlier: bool,
    /// Where it goes, once the first entry was looked at; nowhere, for `null:`.
    tree: OnceLock<Option<Tree>>,
    group: Group,
    compare: Compare,
    devices: Devices,
    /// Since when another copy's files were waited for.
    others: OnceLock<Instant>,
    /// Partial files that nobody writes to any more, to be closed by a thread that may wait for a disk.
    graves: Mutex<Vec<Arc<Partial>>>,
    partials: AtomicUsize,
    /// Threads that wait for a disk where nothing can move meanwhile.
    busy: AtomicUsize,
    /// Threads of this copy, its streams among them.
    threads: AtomicUsize,
    losses: Losses,
    asks: AtomicBool,
    ended: Mutex<Option<Ended>>,
    /// [`FromReceiver::Done`] was said.
    told: AtomicBool,
    /// How far the table was when it was last looked at.
    steps: AtomicU64,
}

impl Receiving {
    /// Begins to receive, or goes on with what an earlier session of the same copy began at `since`. What becomes of entries
    /// is told to the sender, unless `teller` listens.
    pub(crate) fn start(
        aim: Aim,
        manner: Manner,
        teller: Teller,
        since: Option<Modified>,
        block: Bytes,
        flow: Flow,
    ) -> Result<Arc<Self>, TransferError> {
        // The size of a block is the peer's: every later layout has it.
        Layout::new(Bytes(0), block)?;
        let dressing = match &aim {
            Aim::Null => Dressing::new(Keep::default(), false),
            Aim::Path { base, keep, .. } => Dressing::new(*keep, matches!(base, Base::Here)),
        };
        let forgets = matches!(aim, Aim::Null) && manner.verify == Verify::Off;
        let receiving = Arc::new(Receiving {
            forgets,
            flow,
            table: Table::default(),
            block,
            manner,
            teller,
            dressing,
            earlier: since.is_some(),
            since: since.unwrap_or_else(|| a_moment_before(now())),
            tree: OnceLock::new(),
            group: Group::default(),
            compare: Compare::default(),
            devices: Devices::default(),
            others: OnceLock::new(),
            graves: Mutex::default(),
            partials: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            losses: Losses::default(),
            asks: AtomicBool::new(false),
            ended: Mutex::default(),
            told: AtomicBool::new(false),
            steps: AtomicU64::new(0),
        });
        receiving.spawn("register", move |receiving| receiving.register(aim))?;
        receiving.spawn("names", Receiving::give_names)?;
        receiving.spawn("digests", Receiving::hash_there)?;
        Ok(receiving)
    }

    /// What became of the entries so far.
    pub(crate) fn tally(&self) -> Tally {
        self.table.tally()
    }

    /// When this copy began to write.
    pub(crate) fn since(&self) -> Modified {
        self.since
    }

    /// The digest of the one file, if that is all there is and it is whole.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.table.digest().filter(|_| self.manner.verify.has_digest())
    }

    /// Whether an entry that is there was written by an earlier session of this copy.
    fn is_ours(&self, place: &Place) -> bool {
        self.earlier && place.is_newer(self.since)
    }

    /// Ends a copy that is not whole, and waits until every file is left as the next copy wants it; no longer than some
    /// seconds.
    pub(crate) fn close(&self) {
        // The streams of a whole one are the sender's to close.
        if self.told.load(Ordering::SeqCst) {
            return;
        }
        self.flow.cut();
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.threads.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        self.group.clear();
        drop(self.table.take_all());
        lock(&self.graves).clear();
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Receiving) + Send + 'static,
    ) -> Result<(), TransferError> {
        let receiving = self.clone();
        self.threads.fetch_add(1, Ordering::SeqCst);
        let work = move || {
            work(&receiving);
            receiving.threads.fetch_sub(1, Ordering::SeqCst);
        };
        let spawned = thread::Builder::new().name(name.into()).spawn(work);
        if spawned.is_err() {
            self.threads.fetch_sub(1, Ordering::SeqCst);
        }
        spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
    }

    /// Whether nobody keeps others waiting for a disk.
    fn is_idle(&self) -> bool {
        self.busy.load(Ordering::SeqCst) == 0
    }

    fn stopped(&self) -> bool {
        self.flow.is_stopped()
    }

    /// Does something that keeps others waiting for a disk.
    fn while_busy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.busy.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.busy.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Where it goes, if it goes anywhere.
    fn tree(&self) -> Option<&Tree> {
        self.tree.get().and_then(Option::as_ref)
    }

    /// Tells what became of an entry, here or to the sender.
    fn tell(&self, told: Told) {
        match self.teller.listens() {
            true => self.teller.tell(&told),
            false if self.manner.tell || told.digest.is_some() => self.table.tell(told, || self.stopped()),
            false => {}
        }
    }

    /// What an entry is called below the destination.
    fn name_of(&self, name: &Name) -> Name {
        let alone = self.tree().and_then(Tree::alone).and_then(|alone| Name::new(alone.as_bytes()).ok());
        alone.unwrap_or_else(|| name.clone())
    }

    fn receive(&self, blocks: &mut Blocks<'_>, header: BlockHeader) -> Result<(), TransferError> {
        if header.verify != self.manner.verify {
            return Err(TransferError::Sender("hashes its blocks in another way than agreed"));
        }
        let line = blocks.line();
        let found = self.table.find(header.file, || self.stopped() || line.is_cut())?;
        let claimed = match &found {
            Some(item) => claim(item, &header)?,
            None => None,
        };
        let payload = match header.hole {
            true => blocks.zeros(header.length),
            false if self.forgets => blocks.skip(header.length).map(|()| &[][..]),
            false => blocks.payload(header.length),
        };
        let (Some(item), Some(block)) = (found, claimed) else { return payload.map(drop) };
        let payload = payload.inspect_err(|_| lock(&item.state).intake.release(block))?;
        let hash = self.flow.spend(Activity::Hash, || self.manner.verify.hash(&item.layout, block, payload));
        let checked = lock(&item.state).intake.check(block, header.hash, hash);
        match checked {
            Ok(Checked::Whole) => self.take(&item, block, hash, payload),
            Ok(Checked::Again) => {
                self.table.say(FromReceiver::Again { file: item.number, index: block.index });
                Ok(())
            }
            Err(error) => {
                self.fail(&item, error.into());
                Ok(())
            }
        }
    }

    /// Writes a block that is whole, and ends its file with the last one.
    fn take(&self, item: &Arc<Item>, block: Block, hash: BlockHash, payload: &[u8]) -> Result<(), TransferError> {
        let written = self.flow.spend(Activity::Disk, || self.write(item, block, hash, payload));
        let small = match written {
            Ok(small) => small,
            Err(error) => {
                self.fail(item, error);
                return Ok(());
            }
        };
        lock(&item.state).intake.take(block, hash)?;
        self.flow.arrive(1);
        match small {
            Some(small) => self.flow.spend(Activity::Disk, || self.whole_small(item, small)),
            None => self.try_complete(item, true),
        }
        Ok(())
    }

    fn write(
        &self,
        item: &Item,
        block: Block,
        hash: BlockHash,
        payload: &[u8],
    ) -> Result<Option<Small>, TransferError> {
        let Some(tree) = self.tree() else { return Ok(None) };
        if item.layout.blocks() == 1 {
            return Small::write(tree.place(&item.entry.name)?, &item.entry, payload, &self.dressing).map(Some);
        }
        let Some(partial) = self.partial(tree, item)? else { return Ok(None) };
        partial.write(block, hash, payload)?;
        Ok(None)
    }

    /// The partial file of `item`, opened if need be; none if the file failed meanwhile.
    fn partial(&self, tree: &Tree, item: &Item) -> Result<Option<Arc<Partial>>, TransferError> {
        let mut state = lock(&item.state);
        if !state.over && state.partial.is_none() && self.are_too_many() {
            drop(state);
            self.wait_for_partials(PARTIALS_WAIT);
            state = lock(&item.state);
        }
        if state.over || state.partial.is_some() {
            return Ok(state.partial.clone());
        }
        let have = self.open_partial(tree, item, &mut state)?;
        let partial = state.partial.clone();
        drop(state);
        // One that came to be after the register looked.
        if !have.is_empty() {
            self.table.say(FromReceiver::Have { file: item.number, blocks: have });
        }
        Ok(partial)
    }

    /// Opens the partial file; the blocks that an earlier copy left are what the sender may know of.
    fn open_partial(&self, tree: &Tree, item: &Item, state: &mut State) -> Result<BlockSet, TransferError> {
        // Streams that waited together may be some too many together.
        if self.partials.fetch_add(1, Ordering::SeqCst) >= 2 * MOST_PARTIALS {
            self.partials.fetch_sub(1, Ordering::SeqCst);
            let path = item.entry.name.to_string();
            return Err(TransferError::Forbidden { path, why: "too many large files are under way at once" });
        }
        let opened = tree.place(&item.entry.name).and_then(|place| self.while_busy(|| self.open_at(place, item)));
        let (partial, kept) = opened.inspect_err(|_| {
            self.partials.fetch_sub(1, Ordering::SeqCst);
        })?;
        let partial_is_ours = partial.is_newer(self.since);
        state.partial = Some(Arc::new(partial));
        state.ours = self.earlier && partial_is_ours;
        let new = kept.into_iter().filter(|(index, hash)| state.intake.keep(*index, *hash));
        Ok(new.map(|(index, _)| index).collect::<BlockSet>().at_most(MAX_RANGES))
    }

    fn are_too_many(&self) -> bool {
        self.partials.load(Ordering::SeqCst) >= MOST_PARTIALS
    }

    /// Waits until one more file of several blocks may be under way; not for ever, since those that are may need what stands
    /// behind this one.
    fn wait_for_partials(&self, most: Duration) {
        let started = Instant::now();
        while self.are_too_many() && !self.stopped() && started.elapsed() < most {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Opens a partial file. One that another copy has is waited for a little: that may have been cut, and its server not
    /// have noticed yet.
    fn open_at(&self, place: Place, item: &Item) -> Result<partial::Opened, TransferError> {
        let how = (self.manner.verify, self.dressing.is_sparse());
        let may_wait = || {
            let since = self.others.get_or_init(Instant::now);
            place.guest.is_none() && !self.stopped() && since.elapsed() < OTHERS_WAIT
        };
        loop {
            match Partial::open(place.clone(), &item.entry, item.layout, how, || self.stopped()) {
                Err(TransferError::Busy { .. }) if may_wait() => thread::sleep(Duration::from_millis(20)),
                opened => return opened,
            }
        }
    }

    /// Takes the partial file from a file that is over.
    fn take_partial(&self, state: &mut State) -> Option<Arc<Partial>> {
        let partial = state.partial.take();
        if partial.is_some() {
            self.partials.fetch_sub(1, Ordering::SeqCst);
        }
        partial
    }

    fn whole_small(&self, item: &Arc<Item>, small: Small) {
        lock(&item.state).over = true;
        match self.manner.fsync {
            Sync::File => self.group.push(item.clone(), Whole::Small(small), || !self.stopped()),
            Sync::End | Sync::None => {
                if self.manner.fsync == Sync::End {
                    self.devices.note(small.file());
                }
                let named = small.name(item.replace);
                self.settle(item, named);
            }
        }
    }

    /// Ends a file that has no more to come: a large one once the sender has said its digest.
    fn try_complete(&self, item: &Arc<Item>, may_wait: bool) {
        let mut state = lock(&item.state);
        let Some(digest) = state.intake.digest().filter(|_| !state.over) else { return };
        match state.sent {
            Some(sent) if sent != digest => {
                if let Some(partial) = &state.partial {
                    partial.condemn();
                }
                drop(state);
                self.fail(item, TransferError::Digest { sent, received: digest });
            }
            None if item.layout.blocks() > 1 => {}
            _ => {
                state.over = true;
                let partial = self.take_partial(&mut state);
                drop(state);
                match partial {
                    None => self.settle(item, Ok(())),
                    Some(partial) => {
                        self.group.push(item.clone(), Whole::Large(partial), || may_wait && !self.stopped());
                    }
                }
            }
        }
    }

    /// A file that cannot be had; the rest goes on.
    fn fail(&self, item: &Item, error: TransferError) {
        let mut state = lock(&item.state);
        if state.over {
            return;
        }
        state.over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        drop(partial);
        self.table.settle(item.number, &item.entry.name, Done::Failed(error));
    }

    /// What became of a file that was whole.
    fn settle(&self, item: &Item, named: Result<(), TransferError>) {
        let state = lock(&item.state);
        let block = |index| item.layout.block(index).map_or(0, |block| u64::from(block.length));
        let kept: u64 = state.intake.kept().ranges().flat_map(|(first, last)| first..=last).map(block).sum();
        let digest = state.intake.digest();
        let ours = state.ours;
        drop(state);
        let kept = if ours { 0 } else { kept };
        let done = match (named, digest) {
            (Ok(()), Some(digest)) => {
                if self.manner.digests {
                    let fate = if item.replace { Fate::Replace } else { Fate::New };
                    self.tell_there(&item.entry, fate, Some(digest));
                }
                Done::File { digest, kept: Bytes(kept), bytes: item.layout.bytes() }
            }
            (Ok(()), None) => Done::Failed(TransferError::Incomplete),
            (Err(error), _) => Done::Failed(error),
        };
        self.table.settle(item.number, &item.entry.name, done);
    }

    /// Gives up a file that its sender cannot send; tells its name if nothing had become of it.
    fn unsent(&self, number: u32) -> Option<Name> {
        let item = self.table.get(number)?;
        let mut state = lock(&item.state);
        if state.over {
            return None;
        }
        state.over = true;
        let partial = self.take_partial(&mut state);
        drop(state);
        lock(&self.graves).extend(partial);
        Some(item.entry.name.clone())
    }
}

/// A file system's clock lags behind the host's by some milliseconds.
fn a_moment_before(now: Modified) -> Modified {
    const MOMENT: u32 = 50_000_000;
    match now.nanoseconds().checked_sub(MOMENT) {
        Some(nanoseconds) => Modified::new(now.seconds(), nanoseconds),
        None => Modified::new(now.seconds() - 1, now.nanoseconds() + 1_000_000_000 - MOMENT),
    }
    .unwrap_or(now)
}

/// Keeps the block that the header names for this stream, if it is wanted.
fn claim(item: &Item, header: &BlockHeader) -> Result<Option<Block>, TransferError> {
    let mut state = lock(&item.state);
    if state.over {
        return Ok(None);
    }
    match state.intake.claim(header.offset, header.length)? {
        Claim::Wanted(block) => Ok(Some(block)),
        Claim::There(_) => Ok(None),
    }
}

impl Side for Receiving {
    type Says = FromReceiver;
    type Hears = FromSender;
    const SENDS: bool = false;

    fn alive(progress: Progress) -> FromReceiver {
        FromReceiver::Alive(progress)
    }

    fn progress_in(message: &FromSender) -> Option<Progress> {
        match message {
            FromSender::Alive(progress) => Some(*progress),
            _ => None,
        }
    }

    fn advances(message: &FromSender) -> bool {
        !matches!(message, FromSender::Lost { .. })
    }

    fn flow(&self) -> &Flow {
        &self.flow
    }

    fn listed(&self) -> Extent {
        self.table.extent()
    }

    fn words(&self) -> Vec<FromReceiver> {
        self.look_after_streams();
        let words = self.table.words(self.asks.load(Ordering::SeqCst));
        if matches!(words.last(), Some(FromReceiver::Done { .. })) {
            self.told.store(true, Ordering::SeqCst);
        }
        words
    }

    fn heard(&self, message: FromSender) -> Result<(), TransferError> {
        match message {
            FromSender::List { first, entries } => self.table.list(first, entries)?,
            FromSender::Listed { entries, left_out, .. } => self.table.complete(entries, left_out)?,
            FromSender::Alive(_) => {}
            FromSender::Lost { stream, blocks, more } => self.lost(stream, blocks, more)?,
            FromSender::Sent { file, digest } => {
                if let Some(item) = self.table.sent(file, digest) {
                    self.try_complete(&item, false);
                }
            }
            FromSender::Digest { file, digest } => self.table.theirs(file, digest),
            FromSender::LeftOut { names } => self.table.leave_out(&names),
            FromSender::Failed(failure) => match failure.file {
                Some(number) => {
                    let name = self.unsent(number).unwrap_or_else(|| failure.name.clone());
                    self.table.settle(number, &name, Done::Unsent(failure));
                }
                None => self.table.hear(failure),
            },
        }
        Ok(())
    }

    fn run(&self, stream: DataStream) {
        self.threads.fetch_add(1, Ordering::SeqCst);
        self.flow.run(stream, |stream, line| {
            let mut blocks = Blocks::new(&self.flow, (stream, line), self.block, self.forgets);
            while let Some(header) = blocks.header()? {
                self.receive(&mut blocks, header)?;
                line.took();
            }
            Ok(())
        });
        self.threads.fetch_sub(1, Ordering::SeqCst);
    }

    fn wants_streams(&self) -> bool {
        !self.table.is_over()
    }

    fn moving(&self) -> bool {
        // Entries that are settled without a byte are as good as bytes.
        let steps = self.table.steps();
        self.steps.swap(steps, Ordering::SeqCst) == steps && self.is_idle()
    }

    fn ended(&self) -> Option<Ended> {
        let told = self.told.load(Ordering::SeqCst);
        lock(&self.ended).clone().filter(|_| told)
    }
}
