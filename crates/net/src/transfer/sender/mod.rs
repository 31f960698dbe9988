//! The side that has the bytes: lists its sources while it sends what is listed.
//!
//! One thread walks the trees and fills the list ([`lister`], [`walk`]), no further ahead of what the receiver has
//! settled than [`unsettled`] lets it; each stream takes what the [`Deck`] deals next, reads and hashes it and sends it
//! ([`stream`]). They meet in [`State`], under one lock that nobody holds while a file or a socket is touched.
//! What cannot be read fails by itself, and everything else goes on.
//!
//! [`unsettled`]: lfn_core::transfer::unsettled

mod attributes;
mod glob;
mod itself;
mod lister;
mod names;
mod origin;
mod patrol;
mod picked;
mod stream;
mod walk;

use std::collections::VecDeque;
use std::iter;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Modified, Name};
use lfn_core::transfer::filter::Rules;
use lfn_core::transfer::keep::{Keep, LeftOut};
use lfn_core::transfer::manner::{Manner, Verify};
use lfn_core::transfer::schedule::Deck;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Failure, FromReceiver, FromSender, MOST_FAILURES, MOST_LOST, Part, Pick, Progress, Tally};
use lfn_core::wire::third::CarriedEnd;
use rustix::io::Errno;

pub(crate) use self::attributes::{ACCESS, DEFAULT, LONGEST};
pub(crate) use self::glob::{Budget, Expanded, expand};
use self::itself::{Destination, Typed};
use self::names::Names;
use self::origin::{Item, Opened};
use self::patrol::Patrol;
use self::walk::Walk;
use super::TransferError;
use super::accounts::Accounts;
use super::flow::{Flow, lock};
use super::place::{Base, show};
use super::side::{Ended, Extent, Side};
use super::teller::Teller;
use crate::session::{DataStream, SessionError};

/// How long a thread that waits for work may take to notice that the copy was cut.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Most messages that are said at once; then those of the other side are heard.
const SAID_AT_ONCE: usize = 256;

/// Something to be copied.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file or a directory; with a slash behind it, what is in it (rsync's rule).
    File {
        base: Arc<Base>,
        path: PathBuf,
    },
    /// Some of what is in a directory, and the directories on the way to that.
    Some {
        base: Arc<Base>,
        path: PathBuf,
        names: Vec<Name>,
    },
    /// What a pattern may stand for, and cannot be read.
    Unread {
        path: PathBuf,
        error: Errno,
    },
    /// Bytes that do not compress.
    Random {
        seed: u64,
        bytes: Bytes,
    },
    Zero {
        bytes: Bytes,
    },
}

/// What of the sources is listed, and when it is sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    pub(crate) keep: Keep,
    pub(crate) rules: Arc<Rules>,
    /// Nothing is sent before the receiver has said whether it asks.
    pub(crate) wait: bool,
    /// What blocks are hashed with.
    pub(crate) verify: Verify,
    /// What else is at the destination goes: it is to know what is left out.
    pub(crate) delete: bool,
    /// Both ends are on one host: nothing is listed before the receiver has said where it writes.
    here: bool,
    /// Where that is.
    destination: Destination,
    accounts: Arc<Accounts>,
    /// The time of what is made on the spot; now, if none is given.
    made: Option<Modified>,
}

impl Listing {
    /// As it was asked for.
    pub(crate) fn of(pick: &Pick) -> Self {
        Listing { keep: pick.keep, rules: Arc::new(pick.rules.clone()), ..Listing::default() }
    }

    /// The same, with this time for what is made on the spot.
    pub(crate) fn made(self, made: Option<Modified>) -> Self {
        Listing { made, ..self }
    }

    /// The same in that manner.
    pub(crate) fn in_manner(self, manner: &Manner) -> Self {
        let Manner { verify, delete, here, .. } = *manner;
        Listing { wait: manner.wait || manner.dry_run, verify, delete, here, ..self }
    }
}

/// How long the list is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) entries: u32,
    /// Of all files.
    pub(crate) bytes: Bytes,
    pub(crate) left_out: LeftOut,
    /// Whether it is complete.
    pub(crate) complete: bool,
}

/// The sources of a copy while they are sent.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    flow: Flow,
    block: Bytes,
    /// Blocks of zeros are not sent.
    sparse: bool,
    verify: Verify,
    destination: Destination,
    opened: Opened,
    /// Is told what the receiver tells.
    teller: OnceLock<Teller>,
    state: Mutex<State>,
    /// There is something to send, or nothing will be any more.
    work: Condvar,
    /// The list may grow.
    room: Condvar,
}

#[derive(Debug)]
struct State {
    deck: Deck<Arc<Item>>,
    /// In the order in which it is to be said.
    outbox: VecDeque<FromSender>,
    /// What the entries of its last message take at most, if that is a list.
    listed_bytes: usize,
    count: Count,
    /// Files that have several, if that is kept.
    names: Names,
    /// Of either side, the first of them.
    failures: Vec<Failure>,
    /// Of entry 0, if that is a file.
    digest: Option<Digest>,
    /// The receiver is told what is left out.
    tells_left_out: bool,
    /// Streams that have something in hand.
    working: usize,
    hashing: bool,
    path: Option<String>,
    /// When the receiver began to write, by its clock.
    since: Option<Modified>,
    patrol: Patrol,
    done: Option<Tally>,
}

impl Sender {
    /// Begins to list. A source that cannot be had is an error of its own if it is the only one.
    pub(crate) fn start(
        sources: Vec<Source>,
        how: Listing,
        block: Bytes,
        flow: Flow,
    ) -> Result<Arc<Sender>, TransferError> {
        Layout::new(Bytes(0), block)?;
        let typed: Vec<_> = sources.iter().filter(|_| how.here).map(|source| Typed::of(source, &how)).collect();
        let walks: Box<dyn Iterator<Item = Walk> + Send> = match <[Source; 1]>::try_from(sources) {
            Ok([only]) => {
                let shown = only.shown();
                Box::new(iter::once(Walk::try_new(only, how.clone()).map_err(|why| why.into_error(shown))?))
            }
            Err(sources) => {
                let how = how.clone();
                Box::new(sources.into_iter().map(move |source| Walk::new(source, how.clone())))
            }
        };
        let shared = Arc::new(Shared::new(block, &how, flow));
        let lister = shared.clone();
        spawn("list", move || {
            if let Some(walks) = lister.less_destination(walks, &typed, &how) {
                lister.list(walks);
            }
        })?;
        Ok(Arc::new(Sender { shared }))
    }

    /// When the receiver began to write, by its clock.
    pub(crate) fn since(&self) -> Option<Modified> {
        lock(&self.shared.state).since
    }

    /// The digest of the one file, if that is all there is and it was read to its end.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let state = lock(&self.shared.state);
        state.digest.filter(|_| state.count.complete && state.count.entries == 1 && self.shared.verify.has_digest())
    }

    /// Tells there what the receiver will tell.
    pub(crate) fn tell(&self, teller: Teller) {
        // Once only.
        let _ = self.shared.teller.set(teller);
    }
}

impl Shared {
    fn new(block: Bytes, how: &Listing, flow: Flow) -> Self {
        let mut deck = Deck::new(block);
        deck.asks(how.wait);
        let state = State {
            deck,
            // A client begins when it has heard that it is let in, and here that is waited for.
            outbox: how.here.then(|| FromSender::Alive(Progress::default())).into_iter().collect(),
            listed_bytes: 0,
            count: Count::default(),
            names: Names::new(how.keep.hard_links),
            failures: Vec::new(),
            digest: None,
            tells_left_out: how.delete,
            working: 0,
            hashing: false,
            path: None,
            since: None,
            patrol: Patrol::new(Instant::now()),
            done: None,
        };
        let (work, room) = Default::default();
        let (sparse, opened, teller) = (how.keep.sparse, Opened::default(), OnceLock::new());
        let (verify, destination) = (how.verify, how.destination.clone());
        Shared { flow, block, sparse, verify, destination, opened, teller, state: Mutex::new(state), work, room }
    }
}

impl Side for Sender {
    type Says = FromSender;
    type Hears = FromReceiver;
    const SENDS: bool = true;

    fn alive(progress: Progress) -> FromSender {
        FromSender::Alive(progress)
    }

    fn progress_in(message: &FromReceiver) -> Option<Progress> {
        match message {
            FromReceiver::Alive(progress) | FromReceiver::Done { progress, .. } => Some(*progress),
            _ => None,
        }
    }

    fn advances(message: &FromReceiver) -> bool {
        !matches!(message, FromReceiver::Taken { .. } | FromReceiver::Broken { .. })
    }

    fn flow(&self) -> &Flow {
        &self.shared.flow
    }

    fn listed(&self) -> Extent {
        let state = lock(&self.shared.state);
        let Count { entries, bytes, complete, .. } = state.count;
        let settled = u64::from(entries).saturating_sub(state.deck.unsettled() as u64);
        let passed = Bytes(state.deck.passed().0.saturating_add(self.shared.flow.passed().0));
        Extent { bytes, passed, entries: entries.into(), settled, complete }
    }

    fn words(&self) -> Vec<FromSender> {
        self.look_after_streams(Instant::now());
        let mut state = lock(&self.shared.state);
        // Of long ones one at a time: on a slow path it takes a while.
        let list = state.outbox.iter().take(SAID_AT_ONCE).position(|word| matches!(word, FromSender::List { .. }));
        let count = list.map_or(state.outbox.len().min(SAID_AT_ONCE), |list| list + 1);
        let words = state.outbox.drain(..count).collect();
        drop(state);
        if count > 0 {
            self.shared.room.notify_all();
        }
        words
    }

    fn heard(&self, message: FromReceiver) -> Result<(), TransferError> {
        let message = match (message, self.shared.teller.get()) {
            (FromReceiver::Told { entries }, Some(teller)) => {
                entries.iter().for_each(|told| teller.tell(told));
                return Ok(());
            }
            (message, _) => message,
        };
        if let FromReceiver::Ready { ground, .. } = &message {
            self.shared.destination.tell(ground.clone());
        }
        let mut state = lock(&self.shared.state);
        state.patrol.heard(Instant::now());
        self.hear_of_streams(&mut state, &message)?;
        state.hear(message)?;
        let hash = state.deck.has_hashing() && !std::mem::replace(&mut state.hashing, true);
        drop(state);
        if hash {
            // What the receiver has is read and hashed beside what is sent to it, not before and not after.
            let shared = self.shared.clone();
            spawn("hash", move || shared.hash())?;
        }
        self.shared.work.notify_all();
        self.shared.room.notify_all();
        Ok(())
    }

    fn run(&self, stream: DataStream) {
        self.shared.run(stream);
    }

    fn wants_streams(&self) -> bool {
        let state = lock(&self.shared.state);
        state.done.is_none() && !state.deck.is_over()
    }

    fn moving(&self) -> bool {
        let state = lock(&self.shared.state);
        state.working > 0 || state.deck.has_more()
    }

    fn ended(&self) -> Option<Ended> {
        let state = lock(&self.shared.state);
        let tally = state.done?;
        let alone = state.count.entries == 1 && self.shared.verify.has_digest();
        let digest = state.digest.filter(|_| alone);
        let (path, failures) = (state.path.clone(), state.failures.clone());
        let Count { bytes, left_out, .. } = state.count;
        Some(Ended { tally, digest, path, bytes, failures, left_out })
    }
}

/// Whoever lists, waits or hashes does not outlive it.
impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.flow.cut();
        self.shared.work.notify_all();
        self.shared.room.notify_all();
    }
}

impl State {
    fn hear(&mut self, message: FromReceiver) -> Result<(), TransferError> {
        match message {
            FromReceiver::Ready { path, asks, since, .. } => {
                self.path = path;
                self.since = since;
                self.deck.asks(asks);
            }
            FromReceiver::Wants { up_to } => self.deck.wants(up_to)?,
            FromReceiver::Have { file, blocks } => self.deck.have(file, &blocks)?,
            FromReceiver::Again { file, index } => self.deck.again(file, (index, index))?,
            FromReceiver::Settled { files } => self.deck.settle(&files)?,
            FromReceiver::Digests { files } => self.deck.digests_first(&files)?,
            FromReceiver::Send { files } => self.deck.send(&files)?,
            FromReceiver::Failed(failure) => {
                if let Some(file) = failure.file {
                    self.names.forget(file);
                    self.deck.fail(file)?;
                }
                self.note(Failure { end: CarriedEnd::Receiver, ..failure });
            }
            FromReceiver::Missing { blocks } => self.again(&blocks)?,
            FromReceiver::Taken { .. }
            | FromReceiver::Broken { .. }
            | FromReceiver::Alive(_)
            | FromReceiver::Told { .. } => {}
            FromReceiver::Done { tally, .. } => {
                self.deck.close()?;
                self.done = Some(tally);
            }
        }
        Ok(())
    }

    fn again(&mut self, parts: &[Part]) -> Result<(), TransferError> {
        if parts.iter().map(|part| part.blocks.len()).fold(0, u64::saturating_add) > MOST_LOST {
            return Err(TransferError::Receiver("misses more blocks than were on their way"));
        }
        for part in parts {
            for (first, last) in part.blocks.ranges() {
                self.deck.again(part.file, (first, last))?;
            }
        }
        Ok(())
    }

    /// Something here cannot be sent.
    fn fail(&mut self, failure: Failure) {
        self.note(failure.clone());
        self.outbox.push_back(FromSender::Failed(failure));
    }

    fn note(&mut self, failure: Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        }
    }
}

impl Source {
    /// A file or a directory; or only these names in it.
    pub(crate) fn of(base: Arc<Base>, path: PathBuf, names: Option<&Vec<Name>>) -> Self {
        match names {
            Some(names) => Source::Some { base, path, names: names.clone() },
            None => Source::File { base, path },
        }
    }

    fn shown(&self) -> String {
        match self {
            Source::File { path, .. } | Source::Some { path, .. } | Source::Unread { path, .. } => show(path),
            Source::Random { bytes, .. } => format!("random:{}", bytes.0),
            Source::Zero { bytes } => format!("zero:{}", bytes.0),
        }
    }
}

/// Waits until something may have changed, or to look whether the copy was cut.
fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait_timeout(state, LOOK_UP).unwrap_or_else(PoisonError::into_inner).0
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
}

#[cfg(test)]
mod tests;
