//! A queue as a mover uses it. All functions block.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::kv::Operation;
use futures_util::StreamExt;
use lfn_session::wire::copy::EntryFailure;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::connection::{Connection, again};
use crate::error::QueueError;
use crate::lease::Lease;
use crate::listing_claim::ListingClaim;
use crate::proto::address::QueueAddress;
use crate::proto::board::{Board, QueueTotals};
use crate::proto::header::{Header, MAX_PARTS};
use crate::proto::part::Part;
use crate::proto::record::PartRecord;
use crate::store::{self, LISTER_KEY, MANIFEST_KEY, QueueStore};
use crate::worker::Worker;

/// Maximum time that a request for a lease waits at the server.
const FETCH_TIME: Duration = Duration::from_secs(1);

/// Interval at which a waiting mover looks for the manifest.
const LISTING_POLL: Duration = Duration::from_millis(200);

/// Time in which the server sends the first record, if there is one.
const FIRST_RECORD_TIME: Duration = Duration::from_millis(500);

/// Silence of the records after which an idle mover reads all of them again: the server may have lost the watch.
const SILENT_WATCH_TIME: Duration = Duration::from_secs(5);
const WATCH_PAUSE: Duration = Duration::from_millis(200);

/// Time to give back leases after an interrupt.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Settings of the connection to a queue.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    pub address: QueueAddress,
    /// A file with the credentials of a NATS user (`.creds`).
    pub credentials: Option<PathBuf>,
    /// Duration of a lease. The mover that writes the manifest decides for all.
    pub lease: Duration,
    /// Maximum time to wait for the server, and for parts that other movers hold.
    pub patience: Duration,
    /// Name of this mover in records.
    pub mover: String,
}

/// A queue. Its thread ends when the queue is dropped.
#[derive(Debug)]
pub struct Queue {
    worker: Worker,
    store: QueueStore,
    options: QueueOptions,
    interrupted: Arc<AtomicBool>,
    joined: Option<Joined>,
}

/// The state after the manifest is known.
#[derive(Clone, Debug)]
struct Joined {
    header: Arc<Header>,
    board: Arc<Mutex<Board>>,
    /// Asks the task that reads the records to read all of them again.
    refresh: Arc<Notify>,
    consumer: Arc<tokio::sync::Mutex<Option<PullConsumer>>>,
    lease: Duration,
}

/// State of the whole queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    pub totals: QueueTotals,
    pub is_complete: bool,
}

impl Queue {
    /// Connects to the server. A set `interrupted` ends every wait.
    pub fn open(options: QueueOptions, interrupted: &Arc<AtomicBool>) -> Result<Self, QueueError> {
        let worker = Worker::start(interrupted.clone()).map_err(QueueError::Thread)?;
        let QueueOptions { address, credentials, patience, .. } = options.clone();
        let store = worker.call(move || async move {
            let connection = Connection::open(address, credentials.as_deref(), patience).await?;
            QueueStore::open(connection).await
        })?;
        Ok(Queue { worker, store, options, interrupted: interrupted.clone(), joined: None })
    }

    /// Deletes the manifest, the records and the messages of a queue. Returns false if there is no such queue.
    pub fn delete(options: QueueOptions, interrupted: &Arc<AtomicBool>) -> Result<bool, QueueError> {
        let worker = Worker::start(interrupted.clone()).map_err(QueueError::Thread)?;
        let QueueOptions { address, credentials, patience, .. } = options;
        worker.call(move || async move {
            let connection = Connection::open(address, credentials.as_deref(), patience).await?;
            store::delete(&connection).await
        })
    }

    /// Waits for the manifest. Returns a claim instead if this mover shall write it.
    pub fn wait_for_manifest(&self) -> Result<Option<ListingClaim>, QueueError> {
        let mut last_seen = (None, Instant::now());
        loop {
            let (store, mover, lease) = (self.store.clone(), self.options.mover.clone(), self.options.lease);
            let claimed = if last_seen.1.elapsed() > lease { last_seen.0 } else { None };
            let (claim, seen) = self.worker.call(move || async move {
                if store.header().await?.is_some() {
                    return Ok((None, None));
                }
                let Some((_, revision)) = store.get(LISTER_KEY).await? else {
                    store.create(LISTER_KEY, mover.clone().into_bytes()).await?;
                    // The next look finds the owner, which may be another mover.
                    let owner = store.get(LISTER_KEY).await?;
                    let own = owner.filter(|(owner, _)| *owner == mover.as_bytes());
                    let claim = own.map(|(_, revision)| ListingClaim::start(store, mover, revision, lease));
                    return Ok((claim, Some(0)));
                };
                if claimed == Some(revision)
                    && let Some(next) = store.update(LISTER_KEY, mover.clone().into_bytes(), revision).await?
                {
                    return Ok((Some(ListingClaim::start(store, mover, next, lease)), Some(next)));
                }
                Ok((None, Some(revision)))
            })?;
            match (claim, seen) {
                (Some(claim), _) => return Ok(Some(claim)),
                (None, None) => return Ok(None),
                (None, seen) if seen != last_seen.0 => last_seen = (seen, Instant::now()),
                (None, Some(_)) => {}
            }
            std::thread::sleep(LISTING_POLL);
        }
    }

    /// Stores a part of a manifest that is being written. Directory parts count from 0 again.
    pub fn store_part(&self, id: &str, part: u32, is_directories: bool, content: &Part) -> Result<(), QueueError> {
        if part >= MAX_PARTS {
            return Err(QueueError::TooLarge { max: MAX_PARTS });
        }
        let key = if is_directories { store::directory_key(id, part) } else { store::part_key(id, part, u32::MAX) };
        let (store, value) = (self.store.clone(), content.encode());
        self.worker.call(move || async move { store.put(&key, value).await })
    }

    /// Publishes the head of a manifest whose parts are stored. Another manifest that was published first stays.
    pub fn publish_manifest(&self, header: &Header) -> Result<(), QueueError> {
        let (store, header) = (self.store.clone(), header.clone());
        self.worker.call(move || async move {
            // A mover that reads the records then has a first event to wait for.
            store.put(&store::first_record_key(&header.id), Vec::new()).await?;
            if store.create(MANIFEST_KEY, header.encode()).await? {
                let parts: Vec<_> = Board::new(&header).open_parts().collect();
                store.open_stream().await?;
                store.publish(&header, &parts).await?;
            }
            Ok(())
        })
    }

    /// Joins the queue whose manifest exists. `copy` are the settings of this command, which must be those of the queue.
    pub fn join(&mut self, copy: &BTreeMap<String, String>) -> Result<Arc<Header>, QueueError> {
        let store = self.store.clone();
        let name = || self.options.address.name().to_owned();
        let header = self.worker.call(move || async move { store.header().await })?;
        let header = Arc::new(header.ok_or_else(|| QueueError::Replaced { name: name() })?);
        if let Some(difference) = header.difference(copy) {
            return Err(QueueError::OtherCopy { name: name(), difference });
        }
        let joined = Joined {
            board: Arc::new(Mutex::new(Board::new(&header))),
            refresh: Arc::default(),
            consumer: Arc::default(),
            lease: Duration::from_millis(header.lease_milliseconds.max(100)),
            header: header.clone(),
        };
        let (store, watching) = (self.store.clone(), joined.clone());
        self.worker.call(move || async move {
            let known = Arc::new(Notify::new());
            let ready = known.clone();
            let connection = store.connection.clone();
            tokio::spawn(async move { watch_records(&store, &watching, &known).await });
            connection
                .patiently("read the records", || async {
                    ready.notified().await;
                    Ok(())
                })
                .await
        })?;
        self.joined = Some(joined);
        Ok(header)
    }

    fn joined(&self) -> Result<&Joined, QueueError> {
        self.joined.as_ref().ok_or_else(|| QueueError::Replaced { name: self.options.address.name().to_owned() })
    }

    /// Returns the state of the whole queue, as far as this mover knows it.
    pub fn state(&self) -> QueueState {
        let Some(joined) = &self.joined else { return QueueState::default() };
        let board = joined.board.lock();
        QueueState { totals: board.totals(), is_complete: board.is_complete() }
    }

    /// Returns the failures of all movers.
    pub fn failures(&self) -> Vec<EntryFailure> {
        self.joined.as_ref().map(|joined| joined.board.lock().failures()).unwrap_or_default()
    }

    /// Deletes the records of parts with failures, so that they are copied again.
    pub fn retry_failures(&self) -> Result<(), QueueError> {
        let joined = self.joined()?.clone();
        let parts = joined.board.lock().failed_parts();
        let store = self.store.clone();
        self.worker.call(move || async move {
            for part in parts {
                if let Some((record, revision)) = store.record(&joined.header, part).await?
                    && (record.failed > 0 || part >= joined.header.entry_parts)
                {
                    store.delete_record(&joined.header, part, revision).await?;
                    store.put(&store::attempts_key(&joined.header.id, part), b"0".to_vec()).await?;
                }
                joined.board.lock().reopen(part);
            }
            Ok(())
        })
    }

    /// Waits up to a second for a part. Returns `None` if no part is free. Publishes missing messages again.
    pub fn next_lease(&self) -> Result<Option<Lease>, QueueError> {
        let (joined, store) = (self.joined()?.clone(), self.store.clone());
        self.worker.call(move || async move {
            if let Some(lease) = fetch(&store, &joined).await? {
                return Ok(Some(lease));
            }
            republish_missing(&store, &joined).await?;
            Ok(None)
        })
    }

    /// Reads a part of the manifest. Returns `None` if the part is done.
    pub fn part_to_copy(&self, part: u32) -> Result<Option<Part>, QueueError> {
        let (joined, store) = (self.joined()?.clone(), self.store.clone());
        self.worker.call(move || async move {
            if let Some((record, _)) = store.record(&joined.header, part).await? {
                joined.board.lock().record(part, record);
                return Ok(None);
            }
            store.part(&joined.header, part).await.map(Some)
        })
    }

    /// Counts a failed attempt of a part, and returns the number of attempts.
    pub fn count_attempt(&self, part: u32) -> Result<u64, QueueError> {
        let (joined, store) = (self.joined()?.clone(), self.store.clone());
        self.worker.call(move || async move {
            let key = store::attempts_key(&joined.header.id, part);
            let text = store.get(&key).await?.map(|(value, _)| String::from_utf8_lossy(&value).into_owned());
            let attempts = text.and_then(|text| text.parse().ok()).unwrap_or(0_u64).saturating_add(1);
            store.put(&key, attempts.to_string().into_bytes()).await?;
            Ok(attempts)
        })
    }

    /// Records that a part is done. `digests` are lines in the format of `b3sum`.
    pub fn record(&self, part: u32, record: PartRecord, digests: Vec<u8>) -> Result<(), QueueError> {
        let (joined, store) = (self.joined()?.clone(), self.store.clone());
        self.worker.call(move || async move {
            let id = &joined.header.id;
            if !digests.is_empty() {
                store.put(&store::digests_key(id, part), digests).await?;
            }
            store.put(&store::record_key(id, part), record.clone().encode()).await?;
            let directories: Vec<_> = {
                let mut board = joined.board.lock();
                board.record(part, record);
                board.open_parts().filter(|part| *part >= joined.header.entry_parts).collect()
            };
            // After the last entry, the directories follow at once.
            if part < joined.header.entry_parts && !directories.is_empty() {
                store.publish(&joined.header, &directories).await?;
            }
            Ok(())
        })
    }

    /// Waits until the server has all messages of this mover. Called before the end, also after an interrupt.
    pub fn flush(&self) {
        let client = self.store.connection.client.clone();
        // Without an answer, the leases expire.
        let _ = self.worker.call_at_end(END_PATIENCE, move || async move {
            // Tasks that give back a lease run before this one.
            tokio::time::sleep(Duration::from_millis(20)).await;
            client.flush().await.map_err(|_| QueueError::Interrupted)
        });
    }

    /// Reports whether the mover was interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Fetches one message from the stream.
async fn fetch(store: &QueueStore, joined: &Joined) -> Result<Option<Lease>, QueueError> {
    let fetch = || async {
        let mut consumer = joined.consumer.lock().await;
        let open = match &*consumer {
            Some(open) => open.clone(),
            None => consumer.insert(store.consumer(joined.lease).await?).clone(),
        };
        let fetched = async {
            let mut batch = open.batch().max_messages(1).expires(FETCH_TIME).messages().await.map_err(again)?;
            batch.next().await.transpose().map_err(again)
        };
        let fetched = fetched.await;
        if fetched.is_err() {
            // The stream or the consumer may be gone.
            *consumer = None;
        }
        fetched
    };
    let Some(message) = store.connection.patiently("fetch the next part", fetch).await? else { return Ok(None) };
    let part = std::str::from_utf8(&message.payload).ok().and_then(|part| part.parse().ok());
    let is_current = message.subject.contains(&joined.header.id);
    match part.filter(|part| is_current && *part < joined.header.parts()) {
        Some(part) => Ok(Some(Lease::start(message, part, joined.lease))),
        None => {
            // A message of an earlier manifest.
            let _ = message.ack().await;
            Ok(None)
        }
    }
}

/// Publishes messages for open parts if the stream has fewer messages than there are open parts.
async fn republish_missing(store: &QueueStore, joined: &Joined) -> Result<(), QueueError> {
    let (open, parts) = {
        let board = joined.board.lock();
        (board.open_count(), board.open_parts().collect::<Vec<_>>())
    };
    if open == 0 {
        return Ok(());
    }
    joined.refresh.notify_one();
    let consumer = joined.consumer.lock().await.clone();
    let Some(mut consumer) = consumer else { return Ok(()) };
    let Ok(info) = consumer.info().await.cloned() else {
        *joined.consumer.lock().await = None;
        return Ok(());
    };
    if info.num_pending.saturating_add(info.num_ack_pending as u64) >= open {
        return Ok(());
    }
    store.publish(&joined.header, &parts).await
}

/// Reads all records, then follows their changes.
async fn watch_records(store: &QueueStore, joined: &Joined, known: &Notify) {
    let prefix = format!("done.{}.", joined.header.id);
    loop {
        if let Ok(mut records) = store.bucket.watch_with_history(format!("{prefix}*")).await {
            let (mut is_known, mut last_event) = (false, Instant::now());
            loop {
                let entry = tokio::select! {
                    entry = records.next() => entry,
                    // The first record may be lost.
                    () = tokio::time::sleep(FIRST_RECORD_TIME), if !is_known => {
                        is_known = true;
                        known.notify_one();
                        continue;
                    }
                    () = joined.refresh.notified(), if is_known && last_event.elapsed() > SILENT_WATCH_TIME => break,
                };
                let Some(Ok(entry)) = entry else { break };
                last_event = Instant::now();
                if let Some(part) = entry.key.strip_prefix(&prefix).and_then(|part| part.parse().ok()) {
                    match (entry.operation, PartRecord::decode(&entry.value)) {
                        (Operation::Put, Ok(record)) => joined.board.lock().record(part, record),
                        _ => joined.board.lock().reopen(part),
                    }
                }
                if entry.seen_current && !is_known {
                    is_known = true;
                    known.notify_one();
                }
            }
        }
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}
