//! The only writer of the archive: a thread that stores the entries of all agents that wait in one transaction.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::archive::{Archive, InsertCount};
use crate::entry::Entry;

/// Batches of agents that may wait.
const MAX_WAITING: usize = 64;

/// Entries of a transaction above which no further batch is added.
const MAX_TRANSACTION: usize = 5_000;

/// Interval of the deletion of old details.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

/// Details that one step deletes, so that agents do not wait for a long deletion.
const EXPIRY_STEP: usize = 5_000;

/// Function that returns the time since 1970.
pub type Clock = fn() -> Duration;

/// Entries of one agent, and the way to report what became of them.
#[derive(Debug)]
struct Batch {
    entries: Vec<Entry>,
    reply: SyncSender<Result<InsertCount, String>>,
}

/// The archive's writer thread.
#[derive(Debug)]
pub struct Store {
    batches: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
    keep_detail_seconds: Arc<AtomicU64>,
}

impl Store {
    /// Starts the thread. Details older than `keep_detail` are deleted.
    pub fn start(archive: Archive, keep_detail: Duration, clock: Clock) -> io::Result<Self> {
        let (sender, receiver) = mpsc::sync_channel(MAX_WAITING);
        let keep_detail_seconds = Arc::new(AtomicU64::new(keep_detail.as_secs()));
        let writer =
            Writer { archive, keep_detail_seconds: keep_detail_seconds.clone(), clock, next_expiry: Instant::now() };
        let thread = thread::Builder::new().name("archive".into()).spawn(move || writer.run(&receiver))?;
        Ok(Store { batches: Some(sender), thread: Some(thread), keep_detail_seconds })
    }

    /// Replaces the time after which details are deleted.
    pub fn set_keep_detail(&self, keep_detail: Duration) {
        self.keep_detail_seconds.store(keep_detail.as_secs(), Ordering::Relaxed);
    }

    /// Stores entries, and returns when they are on disk. The error is one line for the agent and the log.
    pub fn insert(&self, entries: Vec<Entry>) -> Result<InsertCount, String> {
        let stopped = || "the archive is closed".to_owned();
        let (reply, stored) = mpsc::sync_channel(1);
        let batches = self.batches.as_ref().ok_or_else(stopped)?;
        batches.send(Batch { entries, reply }).map_err(|_| stopped())?;
        stored.recv().map_err(|_| stopped())?
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The thread ends when the last batch is stored.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on stderr.
            let _ = thread.join();
        }
    }
}

struct Writer {
    archive: Archive,
    keep_detail_seconds: Arc<AtomicU64>,
    clock: Clock,
    next_expiry: Instant,
}

impl Writer {
    fn run(mut self, batches: &Receiver<Batch>) {
        loop {
            let wait = self.next_expiry.saturating_duration_since(Instant::now());
            match batches.recv_timeout(wait) {
                Ok(first) => self.store(first, batches),
                Err(RecvTimeoutError::Timeout) => self.expire(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Stores a batch together with those that wait behind it.
    fn store(&mut self, first: Batch, batches: &Receiver<Batch>) {
        let mut all = first.entries.len();
        let mut group = vec![first];
        while all < MAX_TRANSACTION {
            let Ok(next) = batches.try_recv() else { break };
            all += next.entries.len();
            group.push(next);
        }
        let now = (self.clock)();
        let stored = self.archive.insert_batches(group.iter().map(|batch| batch.entries.as_slice()), now);
        let results: Vec<_> = match stored {
            Ok(counts) => counts.into_iter().map(Ok).collect(),
            Err(error) => group.iter().map(|_| Err(error.to_string())).collect(),
        };
        for (batch, result) in group.into_iter().zip(results) {
            // The agent may be gone. It sends the entries again, and they are known.
            let _ = batch.reply.send(result);
        }
    }

    fn expire(&mut self) {
        let keep_detail = Duration::from_secs(self.keep_detail_seconds.load(Ordering::Relaxed));
        let before = (self.clock)().saturating_sub(keep_detail);
        let deleted = self.archive.expire_details(before, EXPIRY_STEP).unwrap_or(0);
        let wait = if deleted == EXPIRY_STEP { Duration::from_millis(100) } else { EXPIRY_INTERVAL };
        self.next_expiry = Instant::now() + wait;
    }
}
