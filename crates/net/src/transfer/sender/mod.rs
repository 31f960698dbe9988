//! The sending side of a copy: lists its sources, and sends their blocks at the same time.
//!
//! One thread walks the sources and fills the list ([`lister`], [`walk`]). The list may run ahead of the receiver only
//! as far as [`pending_entries`] allows. Each stream takes the next blocks from the [`BlockScheduler`], reads and
//! hashes them, and sends them ([`block_sender`]). All threads share [`State`] under one lock, which no thread holds
//! during an operation on a file or a socket. A file that cannot be read fails alone, and the copy continues.
//!
//! [`pending_entries`]: lfn_core::transfer::pending_entries

mod attributes;
mod block_sender;
mod files_from;
mod glob;
mod hard_links;
mod lister;
mod self_copy;
mod source_file;
mod stall_detector;
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
use lfn_core::transfer::filter::FilterRules;
use lfn_core::transfer::options::{TransferOptions, Verify};
use lfn_core::transfer::preserve::{Preserve, SkippedEntries};
use lfn_core::transfer::schedule::BlockScheduler;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::CopyEnd;
use lfn_core::wire::copy::{
    CopyTally, EntryFailure, FileBlocks, MAX_FAILURES, MAX_LOST_BLOCKS, Progress, ReceiverMessage, Selection,
    SenderMessage,
};
use rustix::io::Errno;

pub(crate) use self::attributes::{ACL_ACCESS, ACL_DEFAULT, MAX_XATTR_BYTES};
pub(crate) use self::glob::{Expansion, ExpansionBudget, expand};
use self::hard_links::LinkedFiles;
use self::self_copy::{DestinationSlot, TypedSource};
use self::source_file::{ListedFile, OpenFiles};
use self::stall_detector::StallDetector;
use self::walk::Walk;
use super::accounts::Accounts;
use super::base_dir::{BaseDir, path_text};
use super::entry_listener::EntryListener;
use super::role::{CopyResult, ListedTotals, Role};
use super::stream_set::{StreamSet, lock};
use super::{ReceiverViolation, TransferError};
use crate::session::{DataStream, SessionError};

/// Maximum time until a waiting thread notices that the copy was stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum number of messages that are sent before the messages of the peer are read.
const MESSAGES_PER_BATCH: usize = 256;

/// A source of a copy.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file or a directory. With a slash at its end, the contents of the directory (the rule of rsync).
    File {
        base: Arc<BaseDir>,
        path: PathBuf,
    },
    /// Names from a list (`--files-from`) below a directory, with their parent directories.
    FilesFrom {
        base: Arc<BaseDir>,
        path: PathBuf,
        names: Vec<Name>,
    },
    /// A path that matches a pattern and cannot be read.
    Unreadable {
        path: PathBuf,
        error: Errno,
    },
    /// Random bytes, which do not compress.
    Random {
        seed: u64,
        bytes: Bytes,
    },
    Zero {
        bytes: Bytes,
    },
}

/// Options for listing and reading the sources.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listing {
    pub(crate) preserve: Preserve,
    pub(crate) rules: Arc<FilterRules>,
    /// Send no block before the receiver has reported whether it requests blocks.
    pub(crate) wait_for_ready: bool,
    pub(crate) verify: Verify,
    /// The receiver deletes unlisted entries, so it must learn which names were skipped.
    pub(crate) delete: bool,
    /// Both ends may run on one host: list no entry before the receiver has reported its destination.
    same_host: bool,
    has_several_sources: bool,
    /// The destination of the receiver on this host.
    destination: DestinationSlot,
    accounts: Arc<Accounts>,
    /// Modification time of generated files. The current time if `None`.
    generated_at: Option<Modified>,
}

impl Listing {
    /// Creates the options from the user's selection.
    pub(crate) fn new(selection: &Selection) -> Self {
        Listing { preserve: selection.preserve, rules: Arc::new(selection.rules.clone()), ..Listing::default() }
    }

    /// Sets the modification time of generated files.
    pub(crate) fn with_generated_time(self, generated_at: Option<Modified>) -> Self {
        Listing { generated_at, ..self }
    }

    /// Adds the settings from the transfer options.
    pub(crate) fn with_options(self, options: &TransferOptions) -> Self {
        let TransferOptions { verify, delete, same_host, multiple_sources: has_several_sources, .. } = *options;
        let wait_for_ready = options.wait_for_ready || options.dry_run;
        Listing { wait_for_ready, verify, delete, same_host, has_several_sources, ..self }
    }
}

/// Totals of the entries that are listed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SourceTotals {
    pub(crate) entries: u32,
    /// Total length of all files.
    pub(crate) bytes: Bytes,
    pub(crate) skipped: SkippedEntries,
    pub(crate) is_complete: bool,
}

/// The sending end of a copy.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    streams: StreamSet,
    block_size: Bytes,
    sparse: bool,
    verify: Verify,
    destination: DestinationSlot,
    open_files: OpenFiles,
    /// Receives the events that the receiver reports.
    listener: OnceLock<EntryListener>,
    state: Mutex<State>,
    /// Signalled when there are blocks to send, or when there will be none any more.
    work_available: Condvar,
    /// Signalled when the list may grow.
    room_in_list: Condvar,
}

#[derive(Debug)]
struct State {
    scheduler: BlockScheduler<Arc<ListedFile>>,
    /// Messages to the receiver, in order.
    outbox: VecDeque<SenderMessage>,
    /// Maximum JSON length of the entries in the last message, if the last message is a list.
    listed_bytes: usize,
    totals: SourceTotals,
    /// Hard-linked files, if hard links are preserved.
    linked_files: LinkedFiles,
    /// The first failures of both sides.
    failures: Vec<EntryFailure>,
    /// Digest of entry 0, if entry 0 is a file.
    digest: Option<Digest>,
    reports_skipped: bool,
    /// Number of streams that are sending blocks now.
    busy_streams: usize,
    is_hashing: bool,
    destination_path: Option<String>,
    /// Start of the copy by the clock of the receiver.
    started_at: Option<Modified>,
    stall_detector: StallDetector,
    final_tally: Option<CopyTally>,
}

impl Sender {
    /// Starts to list the sources.
    ///
    /// # Errors
    /// [`TransferError`] if the block size is not valid, if the only source cannot be read, or if the thread cannot be
    /// started.
    pub(crate) fn start(
        sources: Vec<Source>,
        listing: Listing,
        block_size: Bytes,
        streams: StreamSet,
    ) -> Result<Arc<Sender>, TransferError> {
        Layout::new(Bytes(0), block_size)?;
        let typed: Vec<_> =
            sources.iter().filter(|_| listing.same_host).map(|source| TypedSource::new(source, &listing)).collect();
        let walks: Box<dyn Iterator<Item = Walk> + Send> = match <[Source; 1]>::try_from(sources) {
            Ok([only]) => {
                let name = only.display_name();
                Box::new(iter::once(
                    Walk::try_new(only, listing.clone()).map_err(|error| error.into_transfer_error(name))?,
                ))
            }
            Err(sources) => {
                let listing = listing.clone();
                Box::new(sources.into_iter().map(move |source| Walk::new(source, listing.clone())))
            }
        };
        let shared = Arc::new(Shared::new(block_size, &listing, streams));
        let lister = shared.clone();
        spawn("list", move || {
            if let Some(walks) = lister.without_destination(walks, &typed, &listing) {
                lister.list(walks);
            }
        })?;
        Ok(Arc::new(Sender { shared }))
    }

    /// Returns the start time of the copy by the clock of the receiver, if the receiver has reported it.
    pub(crate) fn started_at(&self) -> Option<Modified> {
        lock(&self.shared.state).started_at
    }

    /// Returns the digest of the file, if the copy is one file and that file was read to its end.
    pub(crate) fn digest(&self) -> Option<Digest> {
        let state = lock(&self.shared.state);
        state
            .digest
            .filter(|_| state.totals.is_complete && state.totals.entries == 1 && self.shared.verify.has_digest())
    }

    /// Sends the events that the receiver reports to `listener`.
    pub(crate) fn set_listener(&self, listener: EntryListener) {
        // A second listener is ignored.
        let _ = self.shared.listener.set(listener);
    }
}

impl Shared {
    fn new(block_size: Bytes, listing: &Listing, streams: StreamSet) -> Self {
        let mut scheduler = BlockScheduler::new(block_size);
        scheduler.set_wait_for_requests(listing.wait_for_ready);
        let state = State {
            scheduler,
            // A client starts to send after the receiver's first message. On one host, this side waits for the receiver
            // too.
            outbox: listing.same_host.then(|| SenderMessage::Alive(Progress::default())).into_iter().collect(),
            listed_bytes: 0,
            totals: SourceTotals::default(),
            linked_files: LinkedFiles::new(listing.preserve.hard_links),
            failures: Vec::new(),
            digest: None,
            reports_skipped: listing.delete,
            busy_streams: 0,
            is_hashing: false,
            destination_path: None,
            started_at: None,
            stall_detector: StallDetector::new(Instant::now()),
            final_tally: None,
        };
        let (work_available, room_in_list) = Default::default();
        let (sparse, open_files, listener) = (listing.preserve.sparse, OpenFiles::default(), OnceLock::new());
        let (verify, destination) = (listing.verify, listing.destination.clone());
        Shared {
            streams,
            block_size,
            sparse,
            verify,
            destination,
            open_files,
            listener,
            state: Mutex::new(state),
            work_available,
            room_in_list,
        }
    }
}

impl Role for Sender {
    type Outgoing = SenderMessage;
    type Incoming = ReceiverMessage;
    const IS_SENDER: bool = true;

    fn alive_message(progress: Progress) -> SenderMessage {
        SenderMessage::Alive(progress)
    }

    fn peer_progress(message: &ReceiverMessage) -> Option<Progress> {
        match message {
            ReceiverMessage::Alive(progress) | ReceiverMessage::Done { progress, .. } => Some(*progress),
            _ => None,
        }
    }

    fn is_progress(message: &ReceiverMessage) -> bool {
        !matches!(message, ReceiverMessage::Received { .. } | ReceiverMessage::Broken { .. })
    }

    fn streams(&self) -> &StreamSet {
        &self.shared.streams
    }

    fn listed(&self) -> ListedTotals {
        let state = lock(&self.shared.state);
        let SourceTotals { entries, bytes, is_complete, .. } = state.totals;
        let finished = u64::from(entries).saturating_sub(state.scheduler.pending_entries() as u64);
        let not_needed = Bytes(state.scheduler.not_needed().0.saturating_add(self.shared.streams.not_needed().0));
        ListedTotals { bytes, not_needed, entries: entries.into(), finished, complete: is_complete }
    }

    fn take_messages(&self) -> Vec<SenderMessage> {
        self.maintain_streams(Instant::now());
        let mut state = lock(&self.shared.state);
        // Send one list at a time: a long list takes a while on a slow path.
        let list = state
            .outbox
            .iter()
            .take(MESSAGES_PER_BATCH)
            .position(|message| matches!(message, SenderMessage::List { .. }));
        let count = list.map_or(state.outbox.len().min(MESSAGES_PER_BATCH), |list| list + 1);
        let messages = state.outbox.drain(..count).collect();
        drop(state);
        if count > 0 {
            self.shared.room_in_list.notify_all();
        }
        messages
    }

    fn on_message(&self, message: ReceiverMessage) -> Result<(), TransferError> {
        let message = match (message, self.shared.listener.get()) {
            (ReceiverMessage::Events { entries }, Some(listener)) => {
                entries.iter().for_each(|event| listener.notify(event));
                return Ok(());
            }
            (message, _) => message,
        };
        if let ReceiverMessage::Ready { destination, .. } = &message {
            self.shared.destination.set(destination.clone());
        }
        let mut state = lock(&self.shared.state);
        state.stall_detector.on_message(Instant::now());
        self.on_stream_message(&mut state, &message)?;
        state.apply(message)?;
        let must_hash = state.scheduler.has_blocks_to_hash() && !std::mem::replace(&mut state.is_hashing, true);
        drop(state);
        if must_hash {
            // The files at the receiver are hashed in parallel to the streams.
            let shared = self.shared.clone();
            spawn("hash", move || shared.hash_requested())?;
        }
        self.shared.work_available.notify_all();
        self.shared.room_in_list.notify_all();
        Ok(())
    }

    fn run(&self, stream: DataStream) {
        self.shared.run(stream);
    }

    fn needs_streams(&self) -> bool {
        let state = lock(&self.shared.state);
        state.final_tally.is_none() && !state.scheduler.is_finished()
    }

    fn should_be_moving(&self) -> bool {
        let state = lock(&self.shared.state);
        state.busy_streams > 0 || state.scheduler.has_blocks_to_send()
    }

    fn result(&self) -> Option<CopyResult> {
        let state = lock(&self.shared.state);
        let tally = state.final_tally?;
        let is_single_file = state.totals.entries == 1 && self.shared.verify.has_digest();
        let digest = state.digest.filter(|_| is_single_file);
        let (path, failures) = (state.destination_path.clone(), state.failures.clone());
        let SourceTotals { bytes, skipped, .. } = state.totals;
        Some(CopyResult { tally, digest, path, bytes, failures, skipped })
    }
}

/// Stops all threads of the sender.
impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.streams.shut_down();
        self.shared.work_available.notify_all();
        self.shared.room_in_list.notify_all();
    }
}

impl State {
    fn apply(&mut self, message: ReceiverMessage) -> Result<(), TransferError> {
        match message {
            ReceiverMessage::Ready { path, on_request, started_at, .. } => {
                self.destination_path = path;
                self.started_at = started_at;
                self.scheduler.set_wait_for_requests(on_request);
            }
            ReceiverMessage::Request { up_to } => self.scheduler.request_up_to(up_to)?,
            ReceiverMessage::Have { file, blocks } => self.scheduler.skip_blocks(file, &blocks)?,
            ReceiverMessage::Resend { file, index } => self.scheduler.resend(file, index, index)?,
            ReceiverMessage::Settled { files } => self.scheduler.settle(&files)?,
            ReceiverMessage::Digests { files } => self.scheduler.digests_first(&files)?,
            ReceiverMessage::Send { files } => self.scheduler.send_files(&files)?,
            ReceiverMessage::Failed(failure) => {
                if let Some(file) = failure.file {
                    self.linked_files.remove(file);
                    self.scheduler.fail(file)?;
                }
                self.remember_failure(EntryFailure { end: CopyEnd::Receiver, ..failure });
            }
            ReceiverMessage::Missing { blocks } => self.resend_all(&blocks)?,
            ReceiverMessage::Received { .. }
            | ReceiverMessage::Broken { .. }
            | ReceiverMessage::Alive(_)
            | ReceiverMessage::Events { .. } => {}
            ReceiverMessage::Done { tally, .. } => {
                self.scheduler.finish()?;
                self.final_tally = Some(tally);
            }
        }
        Ok(())
    }

    fn resend_all(&mut self, parts: &[FileBlocks]) -> Result<(), TransferError> {
        if parts.iter().map(|part| part.blocks.len()).fold(0, u64::saturating_add) > MAX_LOST_BLOCKS {
            return Err(TransferError::ReceiverViolation(ReceiverViolation::TooManyMissingBlocks));
        }
        for part in parts {
            for (first, last) in part.blocks.ranges() {
                self.scheduler.resend(part.file, first, last)?;
            }
        }
        Ok(())
    }

    /// Reports that an entry of this side cannot be sent.
    fn fail(&mut self, failure: EntryFailure) {
        self.remember_failure(failure.clone());
        self.outbox.push_back(SenderMessage::Failed(failure));
    }

    fn remember_failure(&mut self, failure: EntryFailure) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }
}

impl Source {
    /// Creates a source of a file or a directory, or of only these names in it.
    pub(crate) fn new(base: Arc<BaseDir>, path: PathBuf, names: Option<&Vec<Name>>) -> Self {
        match names {
            Some(names) => Source::FilesFrom { base, path, names: names.clone() },
            None => Source::File { base, path },
        }
    }

    fn display_name(&self) -> String {
        match self {
            Source::File { path, .. } | Source::FilesFrom { path, .. } | Source::Unreadable { path, .. } => {
                path_text(path)
            }
            Source::Random { bytes, .. } => format!("random:{}", bytes.0),
            Source::Zero { bytes } => format!("zero:{}", bytes.0),
        }
    }
}

/// Waits until the state may have changed, for at most [`POLL_INTERVAL`].
fn wait<'a>(condition: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    condition.wait_timeout(state, POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
}

#[cfg(test)]
mod tests;
