//! Messages and block headers of a copy session.
//!
//! The request says who sends what to whom, and rides in the control connection's first flight. Then the sender says
//! [`FromSender`] and the receiver [`FromReceiver`] over the control connection, while blocks go over the data
//! streams, each behind a [`BlockHeader`]. Whoever dialled may be either.
//!
//! **A list and numbers.** The sender lists what it has, entry by entry, and goes on listing while it sends; a block names its
//! file by the number of its entry. Small files cost no message of their own in either direction: their blocks stand
//! behind each other in one write, and the receiver settles whole ranges of numbers. No more than [`MOST_UNSETTLED`]
//! entries are listed and not settled, which bounds the memory of both ends however many files there are.
//!
//! **Asked or not.** Where the receiver has nothing that could stand in the way, blocks follow the list at once. Otherwise it
//! says so ([`FromReceiver::Ready`]), and the sender waits for its word on each entry; many entries are under way, so
//! that this costs one round trip in all. What it finds out later (a partial file of an earlier copy) it says with
//! [`FromReceiver::Have`], and blocks that came for nothing are dropped.
//!
//! A later version adds ranges of one file from several hosts, and reserved rates, as further messages and flags; a
//! message of a name not known here is an error of the frame.

use serde::{Deserialize, Serialize};

use crate::session::SessionId;
use crate::transfer::blockset::BlockSet;
use crate::transfer::digest::{BlockHash, Digest};
use crate::transfer::entry::{Entry, Modified, Name};
use crate::transfer::filter::Rules;
use crate::transfer::keep::{Keep, LeftOut, Unkept};
use crate::transfer::limit::{Doing, Shares, SocketEvidence};
use crate::transfer::manner::{Manner, Verify};
use crate::transfer::raw::Raw;
use crate::transfer::verdict::Allowed;
use crate::units::{BitRate, Bytes};
use crate::wire::CongestionWish;
use crate::wire::seal::StreamSecret;

/// Most entries listed and not settled.
pub const MOST_UNSETTLED: u32 = 16_384;

/// Most blocks that one message may call lost or missing.
pub const MOST_LOST: u64 = 1 << 20;

/// Most failures told one by one; those after them are counted.
pub const MOST_FAILURES: usize = 1_000;

/// What a client asks of the far end of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRequest {
    /// What is sent, and which way.
    #[serde(flatten)]
    pub job: Job,
    /// How many data streams the client may have open at once; one that breaks may be followed by another of a new number.
    pub streams: u16,
    /// Size of a block; a power of two.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Congestion control for the data streams of a server that sends; the kernel's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionWish>,
    /// What each data stream of a server that sends is paced to; nothing if absent.
    #[serde(default, rename = "pace_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub pace: Option<BitRate>,
    /// What the headers on data streams in the clear are sealed with; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_secret: Option<StreamSecret>,
    /// Which copy it is, however many sessions that takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Box<CopyId>>,
    /// How it is checked, kept and told.
    #[serde(default)]
    pub manner: Box<Manner>,
}

/// By what the sessions of one copy are known to be of one: a session that was lost is followed by another that asks for the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyId {
    /// Random. A server ends an older session of the same copy before it begins a new one.
    pub id: SessionId,
    /// When the copy began, by the client's clock: the time of what is made on the spot.
    pub began: Modified,
    /// When its first session began to write, by the receiver's clock, as [`FromReceiver::Ready`] said it: what is newer there
    /// was written by this copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Modified>,
}

impl CopyId {
    /// What bytes that do not compress are made of: the same in every session.
    pub fn seed(&self) -> u64 {
        let hash = blake3::derive_key("lfn copy 2026 seed of random bytes", &self.id.0);
        u64::from_le_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
    }
}

/// Which way the bytes go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "direction", rename_all = "snake_case")]
pub enum Job {
    /// The client sends.
    Put {
        /// Where it goes.
        to: To,
    },
    /// The client receives.
    Get {
        /// What is wanted; the server lists it.
        from: Vec<From>,
        /// What of it is listed, and as what.
        #[serde(default)]
        pick: Pick,
    },
}

/// What of the sources is listed, and what is kept of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pick {
    /// What is kept.
    pub keep: Keep,
    /// What is left out; asked about names as they stand in the list.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub rules: Rules,
    /// Only these, below the one directory that is the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<Name>>,
}

/// A place at the far end that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum From {
    /// A file or a directory, by its path under the served root.
    File {
        /// Relative to the root; a slash behind it means what is in the directory, as with rsync. Wildcards are expanded
        /// there ([`crate::transfer::glob`]).
        path: Raw,
    },
    /// Bytes made there.
    Random {
        /// How many.
        bytes: Bytes,
    },
    /// Zeros made there.
    Zero {
        /// How many.
        bytes: Bytes,
    },
}

/// A place at the far end that can be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum To {
    /// A file or a directory, by its path under the served root.
    File {
        /// Relative to the root; empty for the root itself.
        path: Raw,
        /// What may happen to what is there.
        #[serde(flatten)]
        allowed: Allowed,
        /// There is one source, and it is one file: it may take the name of the path itself.
        #[serde(default)]
        single: bool,
        /// What is kept of what comes.
        #[serde(default)]
        keep: Keep,
    },
    /// Checked and forgotten.
    Null,
}

/// What the sender says over the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "sender", rename_all = "snake_case")]
pub enum FromSender {
    /// The next entries of the list.
    List {
        /// The number of the first of them; those behind it have the next ones.
        first: u32,
        /// At least one.
        entries: Vec<Entry>,
    },
    /// The list is complete.
    Listed {
        /// How many entries it has.
        entries: u32,
        /// Length of all its files.
        bytes: Bytes,
        /// What is not in it.
        #[serde(default)]
        left_out: LeftOut,
    },
    /// Still there; every [`ALIVE_EVERY`].
    Alive(Progress),
    /// Every block of a file of several has left; with the digest of what was read.
    Sent {
        /// Its number.
        file: u32,
        /// Of the whole file.
        digest: Digest,
    },
    /// A data stream is over, and what it carried may not have arrived: whatever of these blocks did not is to be asked for
    /// with [`FromReceiver::Missing`].
    Lost {
        /// Its number.
        stream: u16,
        /// What was sent over it and is not known to have come.
        blocks: Vec<Part>,
        /// Another message about this stream follows.
        #[serde(default)]
        more: bool,
    },
    /// Could not be sent.
    Failed(Failure),
    /// The digest of a file that was not sent, because [`FromReceiver::Digests`] asked.
    Digest {
        /// Its number.
        file: u32,
        /// Of the whole file.
        digest: Digest,
    },
    /// What the source has and the list does not: with [`Manner::delete`] it stays at the destination.
    LeftOut {
        /// Their names.
        names: Vec<Name>,
    },
}

/// Blocks of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its number.
    pub file: u32,
    /// Which.
    pub blocks: BlockSet,
}

/// What a receiver has taken off a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its number.
    pub stream: u16,
    /// Blocks, in the order in which they were sent.
    pub blocks: u64,
    /// Bytes, headers included.
    pub bytes: Bytes,
}

/// What the receiver says over the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "receiver", rename_all = "snake_case")]
pub enum FromReceiver {
    /// The destination is there; blocks may have come already.
    Ready {
        /// Where things will stand, as far as the sender may know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// The sender is to wait for [`FromReceiver::Wants`] before it sends a file.
        #[serde(default)]
        asks: bool,
        /// When it began to write, by the clock of its file system.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Modified>,
    },
    /// Of the entries up to this number, all that were not settled meanwhile are wanted.
    Wants {
        /// The number behind the last one.
        up_to: u32,
    },
    /// Blocks that need not be sent: an earlier copy left them.
    Have {
        /// Its number.
        file: u32,
        /// Which.
        blocks: BlockSet,
    },
    /// A block that was damaged on the way, to be sent again.
    Again {
        /// Its number.
        file: u32,
        /// Which block.
        index: u64,
    },
    /// What came over the data streams so far; said of those that moved, some times a second.
    Taken {
        /// Which.
        streams: Vec<Taken>,
        /// The receiver itself keeps streams waiting, for its disk or a quota.
        #[serde(default)]
        held: bool,
    },
    /// A data stream came to its end here before everything was settled.
    Broken {
        /// Its number.
        stream: u16,
        /// How many blocks came over it that [`FromReceiver::Taken`] did not tell of.
        #[serde(default)]
        blocks: u64,
        /// Why, if that can be told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// Of the blocks that were lost with a stream, those that did not arrive: they are sent again.
    Missing {
        /// Which.
        blocks: Vec<Part>,
    },
    /// Of these files the digest is wanted before anything is sent.
    Digests {
        /// Their numbers.
        files: BlockSet,
    },
    /// These files, whose digests were asked for, are wanted.
    Send {
        /// Their numbers.
        files: BlockSet,
    },
    /// What became of entries, or would become of them, where [`Manner`] asks for that.
    Told {
        /// In the order in which it happened.
        entries: Vec<Told>,
    },
    /// Nothing of these has to be sent any more: they are there, or failed.
    Settled {
        /// Their numbers.
        files: BlockSet,
    },
    /// Could not be received.
    Failed(Failure),
    /// Still there; every [`ALIVE_EVERY`].
    Alive(Progress),
    /// Everything that did not fail is whole, on disk and under its name.
    Done {
        /// How it went here.
        #[serde(default)]
        progress: Progress,
        /// What became of the entries.
        tally: Tally,
    },
}

/// One entry that could not be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its number, if it was listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u32>,
    /// Its path.
    pub name: Name,
    /// What happened, in words.
    pub what: String,
    /// The destination is full: it is no use to try others.
    #[serde(default)]
    pub full: bool,
}

/// What became of one entry, or of something at the destination that is no entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Where it stands below the destination.
    pub name: Name,
    /// What it is.
    pub kind: Thing,
    /// What became of it.
    pub fate: Fate,
    /// Length of a file that was, or would be, copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Of a file that is whole there, where digests are wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thing {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic or hard link.
    Link,
    /// A device, a socket, a FIFO.
    Other,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Nothing was in its place.
    New,
    /// Something else gave way to it.
    Replace,
    /// It is there already.
    There,
    /// A newer one is there and stays.
    Newer,
    /// What is there stays, though it is another.
    Refuse,
    /// The source has no such thing.
    Delete,
}

impl Fate {
    /// As it stands before a name: a word that says what happens.
    pub fn word(self) -> &'static str {
        match self {
            Fate::New => "new",
            Fate::Replace => "replace",
            Fate::There => "there",
            Fate::Newer => "newer",
            Fate::Refuse => "refuse",
            Fate::Delete => "delete",
        }
    }
}

/// What became of the entries of a copy, as the receiver counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Files written.
    pub files: u64,
    /// Directories made.
    pub directories: u64,
    /// Symbolic links made.
    pub links: u64,
    /// Entries that were there already.
    pub skipped: u64,
    /// Entries that failed at either end.
    pub failed: u64,
    /// Length of the files written.
    pub bytes: Bytes,
    /// Things removed that the source does not have, those in removed directories among them.
    pub deleted: u64,
    /// Nothing was removed though it was asked for: what the source has could not be listed whole.
    pub not_deleted: bool,
    /// Bytes of files that an earlier copy had left and that were not sent.
    pub kept: Bytes,
    /// Blocks that came damaged and were sent again.
    pub again: u64,
    /// Entries that lack something they were to have.
    pub unkept: Unkept,
}

impl Tally {
    /// Whether the destination has something it had not before.
    pub fn changed(&self) -> bool {
        self.files + self.directories + self.links > 0
    }

    /// All entries that were dealt with.
    pub fn entries(&self) -> u64 {
        let Tally { files, directories, links, skipped, failed, .. } = *self;
        [files, directories, links, skipped, failed].into_iter().fold(0, u64::saturating_add)
    }
}

/// How often each side says that it is there, and how far it is.
pub const ALIVE_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// How far one side is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Payload through the data streams so far.
    pub bytes: Bytes,
    /// Where this side's streams spent their time so far.
    #[serde(default)]
    pub shares: Shares,
    /// What they are at now.
    #[serde(default)]
    pub doing: Doing,
    /// What the kernel says of the sender's sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketEvidence>,
}

/// What stands before each block on a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Which file: the number of its entry.
    pub file: u32,
    /// Where the block starts, bytes from the start of the file.
    pub offset: u64,
    /// Bytes of payload that follow.
    pub length: u32,
    /// Hash of the payload; zeros if there is none.
    pub hash: BlockHash,
    /// The payload is all zeros, and is not sent: the next header follows.
    pub hole: bool,
    /// What made the hash.
    pub verify: Verify,
}

/// Flag of a header whose payload is not sent.
const HOLE: u8 = 0b10;

/// Why bytes are no block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The stream is out of step, or something else than a block stands here.
    #[error("block header of unknown kind {0:#04x}")]
    Kind(u8),
    /// Of a newer version.
    #[error("block header with unknown flags {0:#04x}")]
    Flags(u8),
    /// Bytes kept for later are not zero.
    #[error("block header with reserved bytes in use")]
    Reserved,
    /// On a stream in the clear: changed on the way, left out, sent again, or of another stream.
    #[error("block header {0} of a stream in the clear was changed on the way: its authentication code is wrong")]
    Seal(u64),
}

impl BlockHeader {
    /// Bytes of a header: kind `B`, flags, two reserved; file, offset, length, hash; integers big-endian. The flags tell
    /// what made the hash: 0 BLAKE3, 4 XXH3 (16 bytes, the rest zero), 8 nothing; 2 is that of a hole, 1 that of a seal.
    pub const LENGTH: usize = 52;

    /// The bytes to send.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = b'B';
        bytes[1] = flags(self.verify) | if self.hole { HOLE } else { 0 };
        bytes[4..8].copy_from_slice(&self.file.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes[20..].copy_from_slice(&self.hash.0);
        bytes
    }

    /// Reads a header; whether its range makes sense is for [`crate::transfer::intake::Intake`] to say.
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Result<Self, HeaderError> {
        let [kind, flags, reserved @ ..] = bytes;
        if *kind != b'B' {
            return Err(HeaderError::Kind(*kind));
        }
        let made_by = |verify: &Verify| self::flags(*verify) == *flags & !HOLE;
        let verify = [Verify::Blake3, Verify::Xxh3, Verify::Off].into_iter().find(made_by);
        let verify = verify.ok_or(HeaderError::Flags(*flags))?;
        if reserved[..2] != [0, 0] {
            return Err(HeaderError::Reserved);
        }
        Ok(BlockHeader {
            file: u32::from_be_bytes(field(bytes, 4)),
            offset: u64::from_be_bytes(field(bytes, 8)),
            length: u32::from_be_bytes(field(bytes, 16)),
            hash: BlockHash(field(bytes, 20)),
            hole: *flags & HOLE != 0,
            verify,
        })
    }
}

/// Bit 0 is that of a header with a seal, bit 1 that of a hole.
fn flags(verify: Verify) -> u8 {
    match verify {
        Verify::Blake3 => 0,
        Verify::Xxh3 => 4,
        Verify::Off => 8,
    }
}

fn field<const N: usize>(bytes: &[u8; BlockHeader::LENGTH], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::filter::Decision;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_a_header_panic(bytes in proptest::array::uniform::<_, { BlockHeader::LENGTH }>(any::<u8>())) {
            let mut bytes = bytes;
            let _ = BlockHeader::decode(&bytes);
            bytes[..4].copy_from_slice(b"B\0\0\0");
            prop_assert_eq!(BlockHeader::decode(&bytes).unwrap().encode(), bytes);
        }

        #[test]
        fn headers_survive(file: u32, offset: u64, length: u32, hash: [u8; 32], hole: bool, kind in 0usize..3) {
            let verify = [Verify::Blake3, Verify::Xxh3, Verify::Off][kind];
            let header = BlockHeader { file, offset, length, hash: BlockHash(hash), hole, verify };
            prop_assert_eq!(BlockHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn what_is_kept_for_later_is_refused_now() {
        let hash = BlockHash([0; 32]);
        let verify = Verify::Blake3;
        let good = BlockHeader { file: 0, offset: 0, length: 1, hash, hole: false, verify }.encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            BlockHeader::decode(&bytes)
        };
        assert_eq!(with(0, b'E'), Err(HeaderError::Kind(b'E')));
        for flags in [1, 3, 5, 12, 16] {
            assert_eq!(with(1, flags), Err(HeaderError::Flags(flags)));
        }
        assert_eq!(with(3, 1), Err(HeaderError::Reserved));
    }

    #[test]
    fn messages_survive_json() {
        let allowed = Allowed { update: true, ..Allowed::default() };
        let to = To::File { path: Raw(b"b\xff".to_vec()), allowed, single: true, keep: Keep::ALL };
        let mut rules = Rules::default();
        rules.push(Decision::Exclude, b"*.o").unwrap();
        let names = Some(vec![Name::new(b"a/\xff".to_vec()).unwrap()]);
        let from = vec![From::File { path: "runs/*.nc".into() }];
        let get = Job::Get { from, pick: Pick { keep: Keep { links: true, ..Keep::default() }, rules, names } };
        let manner = Manner { verify: Verify::Xxh3, dry_run: true, ..Manner::default() };
        for job in [Job::Put { to }, get, Job::Get { from: Vec::new(), pick: Pick::default() }] {
            let request = CopyRequest {
                job,
                streams: 4,
                block: Bytes(1024),
                congestion: None,
                pace: None,
                stream_secret: None,
                copy: None,
                manner: Box::new(manner.clone()),
            };
            let text = serde_json::to_string(&crate::wire::Request::Copy(request.clone())).unwrap();
            let crate::wire::Request::Copy(read) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
            assert_eq!(read, request, "{text}");
        }
        let blocks = BlockSet::from_range(3, 7);
        let name = Name::new(b"a/\xff".to_vec()).unwrap();
        let told =
            Told { name, kind: Thing::File, fate: Fate::New, bytes: Some(Bytes(3)), digest: Some(Digest([1; 32])) };
        for message in [
            FromReceiver::Have { file: 1, blocks: blocks.clone() },
            FromReceiver::Settled { files: blocks.clone() },
            FromReceiver::Missing { blocks: vec![Part { file: 3, blocks: blocks.clone() }] },
            FromReceiver::Broken { stream: 7, blocks: 2, why: Some("reset".into()) },
            FromReceiver::Taken { streams: vec![Taken { stream: 1, blocks: 2, bytes: Bytes(3) }], held: true },
            FromReceiver::Digests { files: blocks.clone() },
            FromReceiver::Send { files: blocks },
            FromReceiver::Told { entries: vec![told] },
            FromReceiver::Done { progress: Progress::default(), tally: Tally { files: 3, ..Tally::default() } },
        ] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<FromReceiver>(&text).unwrap(), message, "{text}");
        }
        let name = Name::new(b"a/\xff".to_vec()).unwrap();
        let failure = Failure { file: None, name, what: "vanished".into(), full: false };
        let lost = FromSender::Lost { stream: 1, blocks: Vec::new(), more: true };
        for message in [FromSender::Sent { file: 2, digest: Digest([1; 32]) }, lost, FromSender::Failed(failure)] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<FromSender>(&text).unwrap(), message, "{text}");
        }
    }
}
