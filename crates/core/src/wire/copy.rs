//! Messages and block headers of a copy session.
//!
//! The request says who sends what to whom, and rides in the control connection's first flight. Then the sender says
//! [`FromSender`] and the receiver [`FromReceiver`] over the control connection, while blocks go over the data
//! streams, each behind a [`BlockHeader`]. Whoever dialled may be either.
//!
//! **A list and numbers.** The sender lists what it has, entry by entry, and goes on listing while it sends; a block names its
//! file by the number of its entry. Small files cost no message of their own in either direction: their blocks stand
//! behind each other in one write, and the receiver settles whole ranges of numbers. No more than [`MOST_UNSETTLED`]
//! entries, and [`MOST_UNSETTLED_BYTES`] of names and attributes, are listed and not settled
//! ([`crate::transfer::unsettled`]), which bounds the memory of both ends however many files there are and whatever
//! they carry.
//!
//! **Asked or not.** Where the receiver has nothing that could stand in the way, blocks follow the list at once. Otherwise it
//! says so ([`FromReceiver::Ready`]), and the sender waits for its word on each entry; many entries are under way, so
//! that this costs one round trip in all. What it finds out later (a partial file of an earlier copy) it says with
//! [`FromReceiver::Have`], and blocks that came for nothing are dropped.
//!
//! The request is in `request`, what became of entries in `told`, the header in `header`; here is the conversation.
//!
//! A later version adds ranges of one file from several hosts, and reserved rates, as further messages and flags; a
//! message of a name not known here is an error of the frame.

mod header;
mod request;
mod told;

use serde::{Deserialize, Serialize};

use crate::transfer::blockset::BlockSet;
use crate::transfer::digest::Digest;
use crate::transfer::entry::{Entry, Modified, Name};
use crate::transfer::keep::LeftOut;
use crate::transfer::limit::{Doing, Shares, SocketEvidence};
use crate::transfer::raw::Raw;
use crate::units::Bytes;

pub use header::{BlockHeader, HeaderError};
pub use request::{CopyId, CopyRequest, From, Job, Pick, To};
pub use told::{Failure, Fate, Tally, Thing, Told};

/// Most entries listed and not settled.
pub const MOST_UNSETTLED: u32 = 16_384;

/// Most that entries listed and not settled may weigh together ([`Entry::weight`]).
pub const MOST_UNSETTLED_BYTES: usize = 32 << 20;

/// Most blocks that one message may call lost or missing.
pub const MOST_LOST: u64 = 1 << 20;

/// Most failures told one by one; those after them are counted.
pub const MOST_FAILURES: usize = 1_000;

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
        /// It was ended because nothing of it was taken for too long.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stalled: bool,
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
    /// What the source has and the list does not: with [`Manner::delete`](crate::transfer::manner::Manner::delete) it
    /// stays at the destination.
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

/// Parts in messages of at most `most` ranges each, however they have to be cut for it.
pub fn in_messages(parts: impl IntoIterator<Item = Part>, most: usize) -> Vec<Vec<Part>> {
    let (mut messages, mut room) = (Vec::<Vec<Part>>::new(), 0);
    for Part { file, blocks } in parts {
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
            messages.last_mut().into_iter().for_each(|message| message.push(Part { file, blocks: blocks.clone() }));
        }
    }
    messages
}

/// The directory that a copy writes below, as the kernel of both ends knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// Device and inode.
    pub directory: (u64, u64),
    /// The name in it that the one file of the copy takes, or that a directory is made under once the list says that it is
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<Raw>,
    /// Device and inode of the regular file that has this name already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<(u64, u64)>,
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
        /// What it writes below, where both ends are on one host and it is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ground: Option<Ground>,
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
    /// What became of entries, or would become of them, where [`Manner`](crate::transfer::manner::Manner) asks for that.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::digest::Digest;
    use crate::transfer::filter::{Decision, Rules};
    use crate::transfer::keep::Keep;
    use crate::transfer::manner::{Manner, Verify};
    use crate::transfer::verdict::Allowed;
    use crate::wire::third::CarriedEnd;

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
        let ground =
            Ground { directory: (u64::MAX, 2), alone: Some(Raw(b"b\xff".to_vec())), file: Some((1, u64::MAX)) };
        let name = Name::new(b"a/\xff".to_vec()).unwrap();
        let told =
            Told { name, kind: Thing::File, fate: Fate::New, bytes: Some(Bytes(3)), digest: Some(Digest([1; 32])) };
        for message in [
            FromReceiver::Ready { path: None, asks: true, since: None, ground: Some(ground) },
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
        let failure = Failure { file: None, name, what: "vanished".into(), full: false, end: CarriedEnd::Receiver };
        let lost = FromSender::Lost { stream: 1, blocks: Vec::new(), more: true, stalled: false };
        for message in [FromSender::Sent { file: 2, digest: Digest([1; 32]) }, lost, FromSender::Failed(failure)] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<FromSender>(&text).unwrap(), message, "{text}");
        }
    }
}
