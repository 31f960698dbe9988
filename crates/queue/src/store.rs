//! The manifest and the records in the key-value bucket, and the messages in the stream.

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{DeleteStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::kv::{self, CreateErrorKind, Store, UpdateErrorKind};
use async_nats::jetstream::stream::{self, DiscardPolicy, RetentionPolicy, StorageType};
use std::time::Duration;

use crate::connection::{Attempt, Connection, again};
use crate::error::QueueError;
use crate::proto::header::Header;
use crate::proto::part::Part;
use crate::proto::record::PartRecord;

/// Keys in the bucket.
pub(crate) const MANIFEST_KEY: &str = "manifest";
pub(crate) const LISTER_KEY: &str = "lister";

/// Durable consumer that all movers share.
const CONSUMER: &str = "movers";

/// Maximum messages that movers hold at the same time.
const MAX_HELD: i64 = 65_536;

/// Messages that are sent before their confirmations are awaited.
const PUBLISH_BATCH: usize = 500;

/// The objects of one queue on the server.
#[derive(Clone, Debug)]
pub(crate) struct QueueStore {
    pub(crate) connection: Connection,
    pub(crate) bucket: Store,
}

impl QueueStore {
    /// Opens the bucket, and creates it if it does not exist.
    pub(crate) async fn open(connection: Connection) -> Result<Self, QueueError> {
        let name = format!("lfn-{}", connection.address.name());
        let bucket = connection
            .patiently("open the bucket of the queue", || async {
                if let Ok(bucket) = connection.jetstream.get_key_value(&name).await {
                    return Ok(bucket);
                }
                // The client can create a bucket only on servers since 2.10. A bucket is a stream with these settings.
                let config = stream::Config {
                    name: format!("KV_{name}"),
                    description: Some("manifest and records of lfn copy --queue".to_owned()),
                    subjects: vec![format!("$KV.{name}.>")],
                    max_messages_per_subject: 1,
                    storage: StorageType::File,
                    discard: DiscardPolicy::New,
                    allow_rollup: true,
                    deny_delete: true,
                    allow_direct: true,
                    ..stream::Config::default()
                };
                connection.jetstream.create_stream(config).await.map_err(again)?;
                connection.jetstream.get_key_value(&name).await.map_err(again)
            })
            .await?;
        Ok(QueueStore { connection, bucket })
    }

    fn name(&self) -> &str {
        self.connection.address.name()
    }

    fn stream_name(&self) -> String {
        format!("LFN_{}", self.name())
    }

    fn subject(&self, header: &Header, part: &str) -> String {
        format!("lfn.queue.{}.{}.{part}", self.name(), header.id)
    }

    fn invalid(&self, object: impl ToString, reason: String) -> QueueError {
        QueueError::Invalid { name: self.name().to_owned(), object: object.to_string(), reason }
    }

    /// Reads a value with its revision.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<(Vec<u8>, u64)>, QueueError> {
        let get = || async {
            let entry = self.bucket.entry(key).await.map_err(again)?;
            Ok(entry.filter(|e| e.operation == kv::Operation::Put).map(|e| (e.value.to_vec(), e.revision)))
        };
        self.connection.patiently("read the queue", get).await
    }

    /// Writes a value, whatever the key had.
    pub(crate) async fn put(&self, key: &str, value: Vec<u8>) -> Result<(), QueueError> {
        let put = || async {
            let written = self.bucket.put(key, value.clone().into()).await;
            written.map(|_| ()).map_err(|error| {
                let reason = error.to_string();
                if reason.contains("exceed") {
                    return Attempt::Final(self.connection.refused("write the queue", reason));
                }
                Attempt::Again(reason)
            })
        };
        self.connection.patiently("write the queue", put).await
    }

    /// Writes a value if the key has none. Returns false if it has one.
    pub(crate) async fn create(&self, key: &str, value: Vec<u8>) -> Result<bool, QueueError> {
        let create = || async {
            match self.bucket.create(key, value.clone().into()).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(again(error)),
            }
        };
        self.connection.patiently("write the queue", create).await
    }

    /// Replaces the value of this revision. Returns the new revision, or `None` if another mover changed it.
    pub(crate) async fn update(&self, key: &str, value: Vec<u8>, revision: u64) -> Result<Option<u64>, QueueError> {
        let update = || async {
            match self.bucket.update(key, value.clone().into(), revision).await {
                Ok(revision) => Ok(Some(revision)),
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
                Err(error) => Err(again(error)),
            }
        };
        self.connection.patiently("write the queue", update).await
    }

    /// Reads the head of the manifest.
    pub(crate) async fn header(&self) -> Result<Option<Header>, QueueError> {
        let Some((value, _)) = self.get(MANIFEST_KEY).await? else { return Ok(None) };
        Header::decode(&value).map(Some).map_err(|reason| self.invalid("manifest", reason))
    }

    /// Reads a part of the manifest.
    pub(crate) async fn part(&self, header: &Header, part: u32) -> Result<Part, QueueError> {
        let key = part_key(&header.id, part, header.entry_parts);
        let Some((value, _)) = self.get(&key).await? else {
            return Err(QueueError::Replaced { name: self.name().to_owned() });
        };
        Part::decode(&value).map_err(|reason| self.invalid(format!("part {part} of its manifest"), reason))
    }

    /// Reads the record of a part, with its revision.
    pub(crate) async fn record(&self, header: &Header, part: u32) -> Result<Option<(PartRecord, u64)>, QueueError> {
        let Some((value, revision)) = self.get(&record_key(&header.id, part)).await? else { return Ok(None) };
        let record = PartRecord::decode(&value);
        record.map(|record| Some((record, revision))).map_err(|reason| self.invalid(format!("record {part}"), reason))
    }

    /// Deletes the record of a part if it still has this revision.
    pub(crate) async fn delete_record(&self, header: &Header, part: u32, revision: u64) -> Result<(), QueueError> {
        let key = record_key(&header.id, part);
        let delete = || async {
            match self.bucket.delete_expect_revision(&key, Some(revision)).await {
                Ok(()) => Ok(()),
                // Another mover was faster.
                Err(error) if format!("{error:?}").contains("WrongLastRevision") => Ok(()),
                Err(error) => Err(again(error)),
            }
        };
        self.connection.patiently("write the queue", delete).await
    }

    /// Creates the stream of messages if it does not exist.
    pub(crate) async fn open_stream(&self) -> Result<(), QueueError> {
        let open = || async { self.stream().await.map(|_| ()) };
        self.connection.patiently("open the stream of the queue", open).await
    }

    async fn stream(&self) -> Result<stream::Stream, Attempt> {
        let config = stream::Config {
            name: self.stream_name(),
            description: Some("leases of lfn copy --queue".to_owned()),
            subjects: vec![format!("lfn.queue.{}.>", self.name())],
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            // A part that waits for a mover is never queued twice.
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            ..stream::Config::default()
        };
        self.connection.jetstream.get_or_create_stream(config).await.map_err(again)
    }

    /// Opens the consumer of the stream. Creates both if they do not exist.
    pub(crate) async fn consumer(&self, lease: Duration) -> Result<PullConsumer, Attempt> {
        let stream = self.stream().await?;
        let config = pull::Config {
            durable_name: Some(CONSUMER.to_owned()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: lease,
            max_ack_pending: MAX_HELD,
            ..pull::Config::default()
        };
        stream.get_or_create_consumer(CONSUMER, config).await.map_err(again)
    }

    /// Publishes messages for these parts. A part that already has a message gets no second one.
    pub(crate) async fn publish(&self, header: &Header, parts: &[u32]) -> Result<(), QueueError> {
        for parts in parts.chunks(PUBLISH_BATCH) {
            let publish = || async {
                let mut sent = Vec::with_capacity(parts.len());
                for part in parts {
                    let subject = self.subject(header, &part.to_string());
                    let payload = part.to_string().into();
                    sent.push(self.connection.jetstream.publish(subject, payload).await.map_err(again)?);
                }
                for confirmation in sent {
                    match confirmation.await {
                        Ok(_) => {}
                        Err(error) if is_duplicate(&error) => {}
                        Err(error) => return Err(again(error)),
                    }
                }
                Ok(())
            };
            self.connection.patiently("publish the parts of the manifest", publish).await?;
        }
        Ok(())
    }
}

/// Deletes the bucket and the stream of a queue. Returns false if neither exists.
pub(crate) async fn delete(connection: &Connection) -> Result<bool, QueueError> {
    let mut has_existed = false;
    for name in [format!("KV_lfn-{}", connection.address.name()), format!("LFN_{}", connection.address.name())] {
        let delete = || async {
            match connection.jetstream.delete_stream(&name).await {
                Ok(_) => Ok(true),
                Err(error) => match error.kind() {
                    DeleteStreamErrorKind::JetStream(error) if error.code() == 404 => Ok(false),
                    _ => Err(again(error)),
                },
            }
        };
        has_existed |= connection.patiently("delete the queue", delete).await?;
    }
    Ok(has_existed)
}

/// Reports whether the stream has a message for this subject.
fn is_duplicate(error: &async_nats::jetstream::context::PublishError) -> bool {
    error.kind() == PublishErrorKind::Other && format!("{error:?}").contains("maximum messages per subject")
}

/// Returns the key of a part. The lister knows the number of entry parts only at the end, so both kinds count from 0.
pub(crate) fn part_key(id: &str, part: u32, entry_parts: u32) -> String {
    match part.checked_sub(entry_parts) {
        None => format!("part.{id}.{part}"),
        Some(directory) => directory_key(id, directory),
    }
}

/// Returns the key of a part with directories.
pub(crate) fn directory_key(id: &str, part: u32) -> String {
    format!("directories.{id}.{part}")
}

/// Returns the key of the record of a part.
pub(crate) fn record_key(id: &str, part: u32) -> String {
    format!("done.{id}.{part}")
}

/// Returns the key of the record that is written before all others. It belongs to no part.
pub(crate) fn first_record_key(id: &str) -> String {
    format!("done.{id}.first")
}

/// Returns the key of the digests of a part: lines in the format of `b3sum`.
pub(crate) fn digests_key(id: &str, part: u32) -> String {
    format!("digests.{id}.{part}")
}

/// Returns the key with the number of failed attempts of a part.
pub(crate) fn attempts_key(id: &str, part: u32) -> String {
    format!("attempts.{id}.{part}")
}
