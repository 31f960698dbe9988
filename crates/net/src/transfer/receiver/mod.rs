//! The side of a copy that wants the bytes: takes a list, decides about each entry, and writes what comes.
//!
//! The *register* thread looks at each listed entry in order: it makes directories and links, and says of each file
//! whether it is wanted. Each data stream has a thread that checks and writes blocks. The *names* thread gives files
//! their names when they are whole and, if asked, on disk. What a file could not be is said of that file, and the rest
//! goes on; only what breaks the order of the conversation, or the destination itself, ends the copy.

mod arrive;
mod asked;
mod attributes;
mod compare;
mod directories;
mod dry;
mod end;
mod extra;
mod finish;
mod folded;
mod group;
mod item;
mod journal;
mod lost;
mod partial;
mod quota;
mod register;
mod small;
mod sources;
mod sparse;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod tree;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use lfn_core::transfer::asked::Asked;
use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Modified, Name};
use lfn_core::transfer::keep::Keep;
use lfn_core::transfer::manner::{Manner, Sync, Verify};
use lfn_core::transfer::verdict::Allowed;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{FromReceiver, FromSender, Progress, Tally, Told};

use super::TransferError;
use super::flow::{Activity, Flow, lock};
use super::place::{Base, now};
use super::side::{Ended, Extent, Side};
use super::teller::Teller;
use crate::server::written::Written;
use crate::session::{DataStream, SessionError};
use attributes::Dressing;
use compare::Compare;
use finish::Graves;
use group::{Devices, Group};
use item::{Done, Held};
use lost::Losses;
use quota::SetAside;
use stream::Blocks;
use table::Table;
use tree::{Place, Tree};

pub(super) use tree::partial_name;

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
pub(crate) struct Receiver {
    flow: Flow,
    table: Table,
    block: Bytes,
    manner: Manner,
    /// Is told what the manner wants told, if that is here.
    teller: Teller,
    /// Nobody looks at what comes: it is neither hashed nor written.
    forgets: bool,
    dressing: Dressing,
    /// What is kept of what comes; unknown for `null:`, which makes nothing of it.
    keep: Option<Keep>,
    /// What may be listed, where that is known.
    asked: Mutex<Option<Asked>>,
    /// When this copy began, by the clock of this host, and whether that was in an earlier session.
    since: Modified,
    earlier: bool,
    /// What a guest's copy has written, this session and those before it.
    written: OnceLock<Arc<Written>>,
    /// Where it goes, once the first entry was looked at; nowhere, for `null:`.
    tree: OnceLock<Option<Tree>>,
    group: Group,
    compare: Compare,
    devices: Devices,
    /// Since when another copy's files were waited for.
    others: OnceLock<Instant>,
    graves: Graves,
    /// What stands for the payload of a hole, for all streams: zeros that nobody touches take no memory.
    zeros: OnceLock<Vec<u8>>,
    partials: AtomicUsize,
    /// How much is remembered of single blocks in all of them.
    held: Held,
    /// The thread of the conversation.
    says: OnceLock<ThreadId>,
    set_aside: SetAside,
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

impl Receiver {
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
            // A hole is as good as the zeros that nobody writes.
            Aim::Null => Dressing::new(Keep { sparse: true, ..Keep::default() }, false),
            Aim::Path { base, keep, .. } => Dressing::new(*keep, matches!(base, Base::Here)),
        };
        let keep = match &aim {
            Aim::Null => None,
            Aim::Path { keep, .. } => Some(*keep),
        };
        let forgets = matches!(aim, Aim::Null) && manner.verify == Verify::Off;
        let receiving = Arc::new(Receiver {
            forgets,
            set_aside: SetAside::new(flow.counts_bytes()),
            flow,
            table: Table::default(),
            block,
            manner,
            teller,
            dressing,
            keep,
            asked: Mutex::default(),
            earlier: since.is_some(),
            since: since.unwrap_or_else(|| a_moment_before(now())),
            written: OnceLock::new(),
            tree: OnceLock::new(),
            group: Group::default(),
            compare: Compare::default(),
            devices: Devices::default(),
            others: OnceLock::new(),
            graves: Graves::default(),
            zeros: OnceLock::new(),
            partials: AtomicUsize::new(0),
            held: Held::default(),
            says: OnceLock::new(),
            busy: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
            losses: Losses::default(),
            asks: AtomicBool::new(false),
            ended: Mutex::default(),
            told: AtomicBool::new(false),
            steps: AtomicU64::new(0),
        });
        receiving.spawn("register", move |receiving| receiving.register(aim))?;
        receiving.spawn("names", Receiver::give_names)?;
        receiving.spawn("digests", Receiver::hash_there)?;
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
        self.graves.close(self);
        if let Some(tree) = self.tree() {
            tree.unmake();
        }
    }

    fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Receiver) + Send + 'static,
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

    /// The same, as work of this side's disk: both ends see that it goes on, however long all of it takes.
    fn on_disk<T>(&self, work: impl FnOnce() -> T) -> T {
        self.while_busy(|| self.flow.spend(Activity::Disk, work))
    }

    /// Where it goes, if it goes anywhere.
    fn tree(&self) -> Option<&Tree> {
        self.tree.get().and_then(Option::as_ref)
    }

    /// Tells what became of an entry, here or to the sender.
    fn tell(&self, told: Told) {
        match self.teller.listens() {
            true => self.teller.tell(&told),
            false if self.manner.tell || told.digest.is_some() => {
                // Whoever says what was told waits for nobody to do so.
                let says = self.says.get() == Some(&thread::current().id());
                self.table.tell(told, || says || self.stopped());
            }
            false => {}
        }
    }

    /// What an entry is called below the destination.
    fn name_of(&self, name: &Name) -> Name {
        let alone = self.tree().and_then(Tree::alone).and_then(|alone| Name::new(alone.as_bytes()).ok());
        alone.unwrap_or_else(|| name.clone())
    }
}

/// A file system's clock lags behind the host's by some milliseconds.
pub(super) fn a_moment_before(now: Modified) -> Modified {
    const MOMENT: u32 = 50_000_000;
    match now.nanoseconds().checked_sub(MOMENT) {
        Some(nanoseconds) => Modified::new(now.seconds(), nanoseconds),
        None => Modified::new(now.seconds() - 1, now.nanoseconds() + 1_000_000_000 - MOMENT),
    }
    .unwrap_or(now)
}

impl Side for Receiver {
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
        let extent = self.table.extent();
        Extent { passed: Bytes(extent.passed.0.saturating_add(self.flow.passed().0)), ..extent }
    }

    fn words(&self) -> Vec<FromReceiver> {
        self.look_after_streams();
        self.says.get_or_init(|| thread::current().id());
        let words = self.table.words(self.asks.load(Ordering::SeqCst));
        if matches!(words.last(), Some(FromReceiver::Done { .. })) {
            self.told.store(true, Ordering::SeqCst);
        }
        words
    }

    fn heard(&self, message: FromSender) -> Result<(), TransferError> {
        match message {
            FromSender::List { first, entries } => {
                self.check_asked(&entries)?;
                self.table.list(first, entries)?;
            }
            FromSender::Listed { entries, left_out, .. } => self.table.complete(entries, left_out)?,
            FromSender::Alive(_) => {}
            FromSender::Lost { stream, blocks, more, stalled } => {
                if stalled {
                    self.flow.stalls(Instant::now());
                }
                self.lost(stream, blocks, more)?;
            }
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
                // Of holes one read brings thousands, each of them a block to hash.
                if self.stopped() || line.is_cut() {
                    return Err(self.flow.broken(line, io::ErrorKind::ConnectionAborted.into()));
                }
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
