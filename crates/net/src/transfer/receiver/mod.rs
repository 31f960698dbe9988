//! The receiving side of a copy: plans each listed entry, and writes the blocks that arrive.
//!
//! The *planner* thread goes through the listed entries in order. It creates directories and links, and decides for
//! each file whether its blocks are needed. Each data stream has a thread that checks and writes blocks. The *commit*
//! thread gives complete files their final names, after a sync if the options require one. A failed entry is reported,
//! and the copy continues with the other entries. Only a protocol violation or a failure of the destination itself ends
//! the copy.

mod attributes;
mod block_reader;
mod case_folding;
mod commit;
mod delete;
mod digest_queue;
mod directories;
mod dry_run;
mod entry;
mod entry_table;
mod finish_copy;
mod finish_file;
mod journal;
mod partial_file;
mod planner;
mod quota;
mod receive_block;
mod requested;
mod single_block_file;
mod source_names;
mod sparse;
mod stream_recovery;
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

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Modified, Name};
use lfn_core::transfer::options::{FsyncPolicy, TransferOptions, Verify};
use lfn_core::transfer::overwrite::OverwritePolicy;
use lfn_core::transfer::preserve::Preserve;
use lfn_core::transfer::requested_entries::RequestedEntries;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{CopyTally, EntryEvent, Progress, ReceiverMessage, SenderMessage};

use super::TransferError;
use super::base_dir::{BaseDir, now};
use super::entry_listener::EntryListener;
use super::role::{CopyResult, ListedTotals, Role};
use super::stream_set::{Activity, StreamSet, lock};
use crate::session::{DataStream, SessionError};
use crate::written_files::WrittenFiles;
use attributes::AttributeWriter;
use block_reader::BlockReader;
use commit::{CommitQueue, FileSystems};
use digest_queue::DigestQueue;
use entry::{EntryOutcome, TrackedBlocks};
use entry_table::EntryTable;
use finish_file::DeferredClose;
use quota::QuotaReservation;
use stream_recovery::LostStreams;
use tree::{DestinationTree, EntryLocation};

pub(super) use tree::partial_name;

/// The destination of a copy.
#[derive(Debug)]
pub(crate) enum Destination {
    Null,
    Path {
        base: BaseDir,
        path: PathBuf,
        overwrite: OverwritePolicy,
        /// There is one source. If that source is a file, the file may take the name of `path` itself.
        single: bool,
        preserve: Preserve,
    },
}

/// The receiving end of a copy. Its threads share this state.
#[derive(Debug)]
pub(crate) struct Receiver {
    streams: StreamSet,
    table: EntryTable,
    block_size: Bytes,
    options: TransferOptions,
    listener: EntryListener,
    /// Blocks are not hashed and not written: the destination is `null:` and no hash is checked.
    discards_payload: bool,
    attributes: AttributeWriter,
    /// `None` for `null:`, which stores no attributes.
    preserve: Option<Preserve>,
    /// The entries that the sender may list, if this side knows them.
    requested: Mutex<Option<RequestedEntries>>,
    /// Start of this copy by the clock of this host. A resumed copy keeps the time of its first session.
    started_at: Modified,
    is_resumed: bool,
    /// Files that a write-only client's copy has written, in this session and in earlier ones.
    written_files: OnceLock<Arc<WrittenFiles>>,
    /// Set when the planner starts. `None` for `null:`.
    tree: OnceLock<Option<DestinationTree>>,
    commits: CommitQueue,
    digest_queue: DigestQueue,
    file_systems: FileSystems,
    /// The time when this copy first waited for a partial file that another copy has locked.
    lock_wait_started: OnceLock<Instant>,
    deferred_close: DeferredClose,
    /// The payload of a hole, shared by all streams. Zero pages that no thread writes to use no memory.
    zeros: OnceLock<Vec<u8>>,
    open_partials: AtomicUsize,
    /// Number of block records that all unfinished files hold in memory.
    tracked_blocks: TrackedBlocks,
    control_thread: OnceLock<ThreadId>,
    quota: QuotaReservation,
    /// Number of threads that wait for a disk. No progress is expected from the copy meanwhile.
    blocked_on_disk: AtomicUsize,
    /// Number of running threads of this copy, including its streams.
    running_threads: AtomicUsize,
    lost_streams: LostStreams,
    must_request_blocks: AtomicBool,
    result: Mutex<Option<CopyResult>>,
    /// The message [`ReceiverMessage::Done`] was sent.
    done_sent: AtomicBool,
    /// [`EntryTable::progress_steps`] at the last call of [`Role::should_be_moving`].
    last_progress: AtomicU64,
}

impl Receiver {
    /// Starts the receiver of a new copy, or resumes a copy that started at `since`. Events of entries
    /// go to the sender unless `listener` takes them.
    ///
    /// # Errors
    /// [`TransferError`] if the peer's block size is not valid, or if a thread cannot be started.
    pub(crate) fn start(
        destination: Destination,
        options: TransferOptions,
        listener: EntryListener,
        since: Option<Modified>,
        block_size: Bytes,
        streams: StreamSet,
    ) -> Result<Arc<Self>, TransferError> {
        // The peer chose the block size. This check is the only one: every later layout uses the same size.
        Layout::new(Bytes(0), block_size)?;
        let attributes = match &destination {
            // A hole and zeros are the same here, because nothing is written.
            Destination::Null => AttributeWriter::new(Preserve { sparse: true, ..Preserve::default() }, false),
            Destination::Path { base, preserve, .. } => AttributeWriter::new(*preserve, matches!(base, BaseDir::Local)),
        };
        let preserve = match &destination {
            Destination::Null => None,
            Destination::Path { preserve, .. } => Some(*preserve),
        };
        let discards_payload = matches!(destination, Destination::Null) && options.verify == Verify::Off;
        let receiver = Arc::new(Receiver {
            discards_payload,
            quota: QuotaReservation::new(streams.has_byte_quota()),
            streams,
            table: EntryTable::default(),
            block_size,
            options,
            listener,
            attributes,
            preserve,
            requested: Mutex::default(),
            is_resumed: since.is_some(),
            started_at: since.unwrap_or_else(|| subtract_clock_lag(now())),
            written_files: OnceLock::new(),
            tree: OnceLock::new(),
            commits: CommitQueue::default(),
            digest_queue: DigestQueue::default(),
            file_systems: FileSystems::default(),
            lock_wait_started: OnceLock::new(),
            deferred_close: DeferredClose::default(),
            zeros: OnceLock::new(),
            open_partials: AtomicUsize::new(0),
            tracked_blocks: TrackedBlocks::default(),
            control_thread: OnceLock::new(),
            blocked_on_disk: AtomicUsize::new(0),
            running_threads: AtomicUsize::new(0),
            lost_streams: LostStreams::default(),
            must_request_blocks: AtomicBool::new(false),
            result: Mutex::default(),
            done_sent: AtomicBool::new(false),
            last_progress: AtomicU64::new(0),
        });
        receiver.spawn("planner", move |receiver| receiver.run_planner(destination))?;
        receiver.spawn("commit", Receiver::run_commits)?;
        receiver.spawn("digests", Receiver::hash_existing_files)?;
        Ok(receiver)
    }

    /// Returns the numbers of entries by outcome so far.
    pub(crate) fn tally(&self) -> CopyTally {
        self.table.tally()
    }

    /// Returns the start time of the copy, which is the oldest time that its files can have.
    pub(crate) fn started_at(&self) -> Modified {
        self.started_at
    }

    /// Returns the digest of the file, if the copy is one file and that file is complete.
    pub(crate) fn digest(&self) -> Option<Digest> {
        self.table.single_file_digest().filter(|_| self.options.verify.has_digest())
    }

    /// Returns whether an earlier session of this copy wrote the existing entry.
    fn is_from_earlier_session(&self, location: &EntryLocation) -> bool {
        self.is_resumed && location.is_newer(self.started_at)
    }

    /// Ends an incomplete copy. Waits, for at most 10 seconds, until the threads have left every partial file in a
    /// state from which the next copy can resume.
    pub(crate) fn close(&self) {
        // The sender closes the streams of a complete copy.
        if self.done_sent.load(Ordering::SeqCst) {
            return;
        }
        self.streams.shut_down();
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.running_threads.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        self.commits.clear();
        drop(self.table.take_needed_files());
        self.deferred_close.close(self);
        if let Some(tree) = self.tree() {
            tree.remove_created();
        }
    }

    fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce(&Receiver) + Send + 'static) -> Result<(), TransferError> {
        let receiver = self.clone();
        self.running_threads.fetch_add(1, Ordering::SeqCst);
        let work = move || {
            work(&receiver);
            receiver.running_threads.fetch_sub(1, Ordering::SeqCst);
        };
        let spawned = thread::Builder::new().name(name.into()).spawn(work);
        if spawned.is_err() {
            self.running_threads.fetch_sub(1, Ordering::SeqCst);
        }
        spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
    }

    fn has_no_disk_wait(&self) -> bool {
        self.blocked_on_disk.load(Ordering::SeqCst) == 0
    }

    fn is_stopped(&self) -> bool {
        self.streams.is_stopped()
    }

    /// Runs `work` while this thread counts as blocked on a disk.
    fn while_blocked_on_disk<T>(&self, work: impl FnOnce() -> T) -> T {
        self.blocked_on_disk.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.blocked_on_disk.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Runs `work` as disk work of this side. Both ends then see activity, however long the work takes.
    fn do_disk_work<T>(&self, work: impl FnOnce() -> T) -> T {
        self.while_blocked_on_disk(|| self.streams.measure(Activity::Disk, work))
    }

    fn tree(&self) -> Option<&DestinationTree> {
        self.tree.get().and_then(Option::as_ref)
    }

    /// Reports an event to the local listener, or queues the event for the sender.
    fn report_event(&self, event: EntryEvent) {
        match self.listener.is_active() {
            true => self.listener.notify(&event),
            false if self.options.report_entries || event.digest.is_some() => {
                // The control thread empties the queue itself, so it must not wait until the queue has room.
                let is_control = self.control_thread.get() == Some(&thread::current().id());
                self.table.queue_event(event, || is_control || self.is_stopped());
            }
            false => {}
        }
    }

    /// Returns the name of an entry at the destination. A single file may take the name of the destination path.
    fn name_at_destination(&self, name: &Name) -> Name {
        let single_name = self
            .tree()
            .and_then(DestinationTree::single_name)
            .and_then(|single_name| Name::new(single_name.as_bytes()).ok());
        single_name.unwrap_or_else(|| name.clone())
    }
}

/// Subtracts 50 ms: a file system's clock lags behind the host's clock by some milliseconds.
pub(super) fn subtract_clock_lag(now: Modified) -> Modified {
    const CLOCK_LAG: u32 = 50_000_000;
    match now.nanoseconds().checked_sub(CLOCK_LAG) {
        Some(nanoseconds) => Modified::new(now.seconds(), nanoseconds),
        None => Modified::new(now.seconds() - 1, now.nanoseconds() + 1_000_000_000 - CLOCK_LAG),
    }
    .unwrap_or(now)
}

impl Role for Receiver {
    type Outgoing = ReceiverMessage;
    type Incoming = SenderMessage;
    const IS_SENDER: bool = false;

    fn alive_message(progress: Progress) -> ReceiverMessage {
        ReceiverMessage::Alive(progress)
    }

    fn peer_progress(message: &SenderMessage) -> Option<Progress> {
        match message {
            SenderMessage::Alive(progress) => Some(*progress),
            _ => None,
        }
    }

    fn is_progress(message: &SenderMessage) -> bool {
        !matches!(message, SenderMessage::Lost { .. })
    }

    fn streams(&self) -> &StreamSet {
        &self.streams
    }

    fn listed(&self) -> ListedTotals {
        let totals = self.table.listed_totals();
        ListedTotals { not_needed: Bytes(totals.not_needed.0.saturating_add(self.streams.not_needed().0)), ..totals }
    }

    fn take_messages(&self) -> Vec<ReceiverMessage> {
        self.maintain_streams();
        self.control_thread.get_or_init(|| thread::current().id());
        let messages = self.table.take_messages(self.must_request_blocks.load(Ordering::SeqCst));
        if matches!(messages.last(), Some(ReceiverMessage::Done { .. })) {
            self.done_sent.store(true, Ordering::SeqCst);
        }
        messages
    }

    fn on_message(&self, message: SenderMessage) -> Result<(), TransferError> {
        match message {
            SenderMessage::List { first, entries } => {
                self.check_requested(&entries)?;
                self.table.add_listed(first, entries)?;
            }
            SenderMessage::Listed { entries, skipped, .. } => self.table.complete_list(entries, skipped)?,
            SenderMessage::Alive(_) => {}
            SenderMessage::Lost { stream, blocks, more, stalled } => {
                if stalled {
                    self.streams.record_stall(Instant::now());
                }
                self.on_stream_lost(stream, blocks, more)?;
            }
            SenderMessage::Sent { file, digest } => {
                if let Some(needed) = self.table.set_sent_digest(file, digest) {
                    self.try_complete(&needed, false);
                }
            }
            SenderMessage::Digest { file, digest } => self.table.set_source_digest(file, digest),
            SenderMessage::Excluded { names } => self.table.add_unlisted(&names),
            SenderMessage::Failed(failure) => match failure.file {
                Some(number) => {
                    let name = self.cancel_file(number).unwrap_or_else(|| failure.name.clone());
                    self.table.settle(number, &name, EntryOutcome::SourceFailed(failure));
                }
                None => self.table.add_source_failure(failure),
            },
        }
        Ok(())
    }

    fn run(&self, stream: DataStream) {
        self.running_threads.fetch_add(1, Ordering::SeqCst);
        self.streams.run_stream(stream, |stream, state| {
            let mut blocks = BlockReader::new(&self.streams, stream, state, self.block_size, self.discards_payload);
            while let Some(header) = blocks.read_header()? {
                // One read of holes can contain thousands of blocks, and each of them costs a hash. So check for the
                // end of the copy before each block.
                if self.is_stopped() || state.is_shut_down() {
                    return Err(self.streams.stream_error(state, io::ErrorKind::ConnectionAborted.into()));
                }
                self.receive_block(&mut blocks, header)?;
                state.record_received();
            }
            Ok(())
        });
        self.running_threads.fetch_sub(1, Ordering::SeqCst);
    }

    fn needs_streams(&self) -> bool {
        !self.table.is_finished()
    }

    fn should_be_moving(&self) -> bool {
        // Entries that need no bytes count as progress too.
        let steps = self.table.progress_steps();
        self.last_progress.swap(steps, Ordering::SeqCst) == steps && self.has_no_disk_wait()
    }

    fn result(&self) -> Option<CopyResult> {
        let done_sent = self.done_sent.load(Ordering::SeqCst);
        lock(&self.result).clone().filter(|_| done_sent)
    }
}
