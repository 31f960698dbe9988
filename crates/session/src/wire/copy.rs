//! Messages of a copy session.
//!
//! The client's request is part of the first flight of the control connection. The sender then sends [`SenderMessage`]s
//! and the receiver sends [`ReceiverMessage`]s over the control connection. Blocks travel over the data streams, each
//! after a [`BlockHeader`]. The client may be the sender or the receiver.
//!
//! **List and entry numbers.** The sender lists its entries, and continues to list while it sends. A block names its
//! file by the entry number. Small files need no message of their own in either direction: their blocks follow each
//! other in one write, and the receiver reports whole ranges of numbers as settled. An entry is settled when it is
//! copied, up to date, or failed. At most [`MAX_PENDING_ENTRIES`] entries, with at most [`MAX_PENDING_BYTES`] of names
//! and attributes, are listed and not settled (`lfn_copy::proto::pending_entries`). This limits the memory of both
//! ends, whatever the number of files and their attributes.
//!
//! **With or without requests.** If the receiver has no existing files in the way, blocks follow the list at once.
//! Otherwise the receiver sets `on_request` ([`ReceiverMessage::Ready`]), and the sender waits for its decision on each
//! entry. Many entries are in flight, so that this costs one RTT in total. Later discoveries (a partial file of an
//! earlier copy) are sent as [`ReceiverMessage::Have`]; blocks that arrive for nothing are discarded.
//!
//! The request is in `request`, results of entries are in `events`, and the block header is in `header`. The other
//! modules have the types in these messages with their rules: entries, blocks, digests, filters and options.
//!
//! A message with an unknown name is a frame error.

pub mod blocks;
pub mod blockset;
pub mod byte_string;
pub mod digest;
pub mod entry;
mod events;
pub mod filter;
pub mod glob;
mod header;
mod host_tag;
pub mod options;
pub mod overwrite;
pub mod preserve;
pub mod progress;
pub mod ranks;
mod request;
pub mod requested_entries;
pub mod stream_change;
mod wildcard;

use lfn_base::units::Bytes;
use lfn_results::evidence::{CopyHost, SocketEvidence, StreamTime};
use serde::{Deserialize, Serialize};

use crate::wire::copy::blockset::BlockSet;
use crate::wire::copy::byte_string::ByteString;
use crate::wire::copy::digest::{BlockHash, Digest};
use crate::wire::copy::entry::{Entry, Modified, Name};
use crate::wire::copy::preserve::SkippedEntries;
use crate::wire::copy::progress::StreamActivity;
use crate::wire::copy::ranks::RankFigures;

pub use events::{CopyEnd, CopyTally, EntryAction, EntryEvent, EntryFailure, ReportedKind};
pub use header::{BlockHeader, HeaderError};
pub use host_tag::{HostTag, HostTagError};
pub use request::{CopyId, CopyJob, CopyRequest, RemoteDestination, RemoteSource, Selection};

/// Maximum entries that are listed and not settled.
pub const MAX_PENDING_ENTRIES: u32 = 16_384;

/// Maximum total weight of these entries in bytes ([`Entry::weight`]).
pub const MAX_PENDING_BYTES: usize = 32 << 20;

/// Maximum failures that are reported one by one. Further failures are only counted.
pub const MAX_FAILURES: usize = 1_000;

/// Messages of the sender over the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "sender", rename_all = "snake_case")]
pub enum SenderMessage {
    /// The next entries of the list.
    List {
        /// Number of the first entry. The following entries have the next numbers.
        first: u32,
        /// At least one entry.
        entries: Vec<Entry>,
    },
    /// The list is complete.
    Listed {
        entries: u32,
        /// Total length of all files.
        bytes: Bytes,
        /// Source entries that the list does not contain.
        #[serde(default)]
        skipped: SkippedEntries,
    },
    /// Progress and proof of life, every [`ALIVE_INTERVAL`].
    Alive(Box<Progress>),
    /// All blocks of a file with several blocks were sent.
    Sent {
        file: u32,
        /// Digest of the complete file as read.
        digest: Digest,
    },
    /// A data stream ended, and its last blocks may not have arrived. The receiver requests the missing blocks with
    /// [`ReceiverMessage::Missing`].
    Lost {
        stream: u16,
        /// Blocks that were sent over the stream and not confirmed.
        blocks: Vec<FileBlocks>,
        /// Another message about this stream follows.
        #[serde(default)]
        more: bool,
        /// The stream was closed because the receiver read nothing for too long.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stalled: bool,
    },
    /// An entry that cannot be sent.
    Failed(EntryFailure),
    /// A file whose content changed while it was sent. The receiver discards its blocks: no copy may resume them.
    Changed(EntryFailure),
    /// Digest of a file that was not sent, on request of [`ReceiverMessage::Digests`].
    Digest {
        file: u32,
        /// Digest of the complete file.
        digest: Digest,
    },
    /// Source entries that are excluded from the list. With
    /// [`TransferOptions::delete`](crate::wire::copy::options::TransferOptions::delete) they are not deleted at the
    /// destination.
    Excluded { names: Vec<Name> },
    /// The first message to a receiving rank. The lead plans the copy and holds the journal.
    Appointed { is_lead: bool },
    /// The lead must open this file of several blocks, because other ranks will write into it.
    Open { file: u32 },
    /// A rank can write blocks of this file, which the lead has opened.
    Opened {
        file: u32,
        name: Name,
        /// Length of the complete file.
        bytes: Bytes,
        #[serde(flatten)]
        identity: SharedFileId,
    },
    /// Other ranks have stored these blocks of a file.
    Stored { file: u32, blocks: Vec<StoredBlock> },
    /// A rank needs these files no more.
    Closed { files: BlockSet },
    /// Figures of all ranks, about once a second and at the end.
    Ranks {
        #[serde(flatten)]
        figures: RankFigures,
        /// Digest of the complete file, if the copy is one file and that file is complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
        /// Outcomes of the entries. Present at the end of the copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tally: Option<CopyTally>,
    },
}

/// Identity of a partial file that all ranks must see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFileId {
    /// Inode number of the partial file. `None` if nothing is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// Name of a marker that the lead has created at the top of the destination. Random hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
}

/// A block that a rank has verified and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlock {
    pub index: u64,
    pub hash: BlockHash,
}

/// Maximum blocks in one message of stored blocks.
pub const MAX_STORED_BLOCKS: usize = 1024;

/// Blocks of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBlocks {
    pub file: u32,
    pub blocks: BlockSet,
}

/// Splits blocks into messages with at most `most` ranges each.
pub fn split_into_messages(parts: impl IntoIterator<Item = FileBlocks>, most: usize) -> Vec<Vec<FileBlocks>> {
    let (mut messages, mut room) = (Vec::<Vec<FileBlocks>>::new(), 0);
    for FileBlocks { file, blocks } in parts {
        let mut ranges = blocks.ranges().peekable();
        while ranges.peek().is_some() {
            if room == 0 {
                messages.push(Vec::new());
                room = most.max(1);
            }
            let mut blocks = BlockSet::default();
            for (first, last) in ranges.by_ref().take(room) {
                blocks.insert_range(first, last);
                room -= 1;
            }
            messages
                .last_mut()
                .into_iter()
                .for_each(|message| message.push(FileBlocks { file, blocks: blocks.clone() }));
        }
    }
    messages
}

/// Maximum number of directories above the destination that are reported.
pub const MAX_ANCESTORS: usize = 128;

/// The destination directory of a copy, as the kernel of the receiver identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationId {
    /// The kernel for which the numbers are valid. `None` if it has no boot id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostTag>,
    /// Device and inode of the directory.
    pub directory: (u64, u64),
    /// The same of the directories above, from the bottom, up to the root of the host or of the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<(u64, u64)>,
    /// Name below the directory of the only file of the copy, or of a directory that is created when the list shows a
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single_name: Option<ByteString>,
    /// Device and inode of the existing regular file with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<(u64, u64)>,
}

/// Totals that a receiver read from one data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReceived {
    pub stream: u16,
    /// Blocks, in the order of sending.
    pub blocks: u64,
    pub bytes: Bytes,
}

/// Messages of the receiver over the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "receiver", rename_all = "snake_case")]
pub enum ReceiverMessage {
    /// The destination is ready. Blocks may have arrived before.
    Ready {
        /// Path of the destination, if the sender may know it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The sender must wait for [`ReceiverMessage::Request`] before it sends a file.
        #[serde(default)]
        on_request: bool,
        /// Start of writing, by the clock of the destination's file system.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        started_at: Option<Modified>,
        /// Destination directory, if both ends may be on one host and the directory exists.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination: Option<DestinationId>,
    },
    /// All entries up to this number that are not settled are requested.
    Request {
        /// The first number that is not requested.
        up_to: u32,
    },
    /// Blocks that an earlier copy left: they need not be sent.
    Have { file: u32, blocks: BlockSet },
    /// A block that arrived damaged and must be sent again.
    Resend { file: u32, index: u64 },
    /// Totals of the data streams that made progress, sent a few times a second.
    Received {
        streams: Vec<StreamReceived>,
        /// The receiver itself delays the streams, because of its disk or a quota.
        #[serde(default)]
        delayed: bool,
    },
    /// A data stream ended at the receiver before everything was settled.
    Broken {
        stream: u16,
        /// Blocks that arrived over the stream after the last report of its totals.
        #[serde(default)]
        blocks: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Blocks that were lost with a stream and did not arrive: send them again.
    Missing { blocks: Vec<FileBlocks> },
    /// The digests of these files are needed before any data.
    Digests { files: BlockSet },
    /// These files must be sent, after their digests were compared.
    Send { files: BlockSet },
    /// A rank must send these blocks. Each file of one block is in `files`, by its entry number.
    Assign {
        #[serde(default, skip_serializing_if = "BlockSet::is_empty")]
        files: BlockSet,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        blocks: Vec<FileBlocks>,
    },
    /// Figures of all ranks, about once a second and at the end.
    Ranks {
        #[serde(flatten)]
        figures: RankFigures,
        /// Digest of the complete file, if the copy is one file and that file is complete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        digest: Option<Digest>,
    },
    /// Results of entries, or planned actions of a dry run, if
    /// [`TransferOptions`](crate::wire::copy::options::TransferOptions) request them.
    Events {
        /// In order of occurrence.
        entries: Vec<EntryEvent>,
    },
    /// These entries need no more data: they are complete, up to date, or failed.
    Settled { files: BlockSet },
    /// An entry that cannot be received.
    Failed(EntryFailure),
    /// Progress and proof of life, every [`ALIVE_INTERVAL`].
    Alive(Box<Progress>),
    /// The lead has opened a file, on request of [`SenderMessage::Open`].
    Opened {
        file: u32,
        #[serde(flatten)]
        identity: SharedFileId,
    },
    /// This rank has verified these blocks of a file and written them into the file of the lead.
    Stored { file: u32, blocks: Vec<StoredBlock> },
    /// Every entry that did not fail is complete, on disk and under its final name.
    Done {
        /// Final progress of the receiver.
        #[serde(default)]
        progress: Box<Progress>,
        tally: CopyTally,
    },
}

/// Interval of the progress messages of each side.
pub const ALIVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Progress of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Payload over the data streams so far.
    pub bytes: Bytes,
    /// Time that this side's streams spent so far.
    #[serde(default)]
    pub shares: StreamTime,
    /// Current activity of this side's streams.
    #[serde(default)]
    pub activity: StreamActivity,
    /// Kernel counters of this side's sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketEvidence>,
    /// Host of this side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<CopyHost>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::copy::digest::Digest;
    use crate::wire::copy::filter::{Decision, FilterRules};
    use crate::wire::copy::options::{TransferOptions, Verify};
    use crate::wire::copy::overwrite::OverwritePolicy;
    use crate::wire::copy::preserve::Preserve;

    #[test]
    fn messages_round_trip_through_json() {
        let allowed = OverwritePolicy { update: true, ..OverwritePolicy::default() };
        let to = RemoteDestination::File {
            path: ByteString(b"b\xff".to_vec()),
            allowed,
            single: true,
            preserve: Preserve::ALL,
        };
        let mut rules = FilterRules::default();
        rules.push(Decision::Exclude, b"*.o").unwrap();
        let names = Some(vec![Name::new(b"a/\xff".to_vec()).unwrap()]);
        let from = vec![RemoteSource::File { path: "runs/*.nc".into() }];
        let get = CopyJob::Get {
            from,
            selection: Selection { preserve: Preserve { links: true, ..Preserve::default() }, rules, names },
        };
        let transfer_options = TransferOptions { verify: Verify::Xxh3, dry_run: true, ..TransferOptions::default() };
        for job in [CopyJob::Put { to }, get, CopyJob::Get { from: Vec::new(), selection: Selection::default() }] {
            let request = CopyRequest {
                job,
                streams: 4,
                block: Bytes(1024),
                congestion: None,
                pace: None,
                stream_secret: None,
                stripes: 0,
                copy: None,
                rank: None,
                transfer_options: Box::new(transfer_options.clone()),
            };
            let text = serde_json::to_string(&crate::wire::Request::Copy(request.clone())).unwrap();
            let crate::wire::Request::Copy(read) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
            assert_eq!(read, request, "{text}");
        }
        let blocks = BlockSet::from_range(3, 7);
        let ground = DestinationId {
            host: Some(HostTag::new("boot", [1; 16])),
            directory: (u64::MAX, 2),
            ancestors: vec![(3, 4), (5, 6)],
            single_name: Some(ByteString(b"b\xff".to_vec())),
            file: Some((1, u64::MAX)),
        };
        let name = Name::new(b"a/\xff".to_vec()).unwrap();
        let told = EntryEvent {
            name,
            kind: ReportedKind::File,
            action: EntryAction::New,
            bytes: Some(Bytes(3)),
            digest: Some(Digest([1; 32])),
        };
        for message in [
            ReceiverMessage::Ready { path: None, on_request: true, started_at: None, destination: Some(ground) },
            ReceiverMessage::Have { file: 1, blocks: blocks.clone() },
            ReceiverMessage::Settled { files: blocks.clone() },
            ReceiverMessage::Missing { blocks: vec![FileBlocks { file: 3, blocks: blocks.clone() }] },
            ReceiverMessage::Broken { stream: 7, blocks: 2, reason: Some("reset".into()) },
            ReceiverMessage::Received {
                streams: vec![StreamReceived { stream: 1, blocks: 2, bytes: Bytes(3) }],
                delayed: true,
            },
            ReceiverMessage::Digests { files: blocks.clone() },
            ReceiverMessage::Send { files: blocks },
            ReceiverMessage::Events { entries: vec![told] },
            ReceiverMessage::Done { progress: Box::default(), tally: CopyTally { files: 3, ..CopyTally::default() } },
        ] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<ReceiverMessage>(&text).unwrap(), message, "{text}");
        }
        let name = Name::new(b"a/\xff".to_vec()).unwrap();
        let failure =
            EntryFailure { file: None, name, reason: "vanished".into(), disk_full: false, end: CopyEnd::Receiver };
        let lost = SenderMessage::Lost { stream: 1, blocks: Vec::new(), more: true, stalled: false };
        for message in [
            SenderMessage::Sent { file: 2, digest: Digest([1; 32]) },
            lost,
            SenderMessage::Failed(failure.clone()),
            SenderMessage::Changed(failure),
        ] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<SenderMessage>(&text).unwrap(), message, "{text}");
        }
    }
}
