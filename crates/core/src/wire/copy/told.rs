//! What became of the entries of a copy: one by one, and counted.
//!
//! The receiver knows it, and says it; a failure of the sender's own is said by the sender.

use serde::{Deserialize, Serialize};

use crate::transfer::digest::Digest;
use crate::transfer::entry::Name;
use crate::transfer::keep::Unkept;
use crate::units::Bytes;
use crate::wire::bounded;
use crate::wire::third::CarriedEnd;

/// One entry that could not be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its number, if it was listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u32>,
    /// Its path.
    pub name: Name,
    /// What happened, in words.
    #[serde(deserialize_with = "bounded::words")]
    pub what: String,
    /// The destination is full: it is no use to try others.
    #[serde(default)]
    pub full: bool,
    /// Where it happened; of what a peer says, the peer's.
    #[serde(default)]
    pub end: CarriedEnd,
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
    /// Length of the files among them.
    pub skipped_bytes: Bytes,
    /// Entries that failed at either end.
    pub failed: u64,
    /// For some of them the destination had no room, by its disk or a quota: with more, the same copy goes on.
    pub full: bool,
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

    /// Whether there is something to be on disk: what came, what was there already, and that something is gone.
    pub fn has_touched(&self) -> bool {
        let Tally { files, directories, links, skipped, deleted, .. } = *self;
        [files, directories, links, skipped, deleted].iter().any(|count| *count > 0)
    }

    /// All entries that were dealt with.
    pub fn entries(&self) -> u64 {
        let Tally { files, directories, links, skipped, failed, .. } = *self;
        [files, directories, links, skipped, failed].into_iter().fold(0, u64::saturating_add)
    }
}
