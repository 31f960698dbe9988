//! What a client asks of the far end of a copy.
//!
//! It rides in the control connection's first flight, and is all that the far end knows of the command: whatever the
//! client leaves out has the default of the version that reads it.

use serde::{Deserialize, Serialize};

use crate::session::SessionId;
use crate::transfer::entry::{Modified, Name};
use crate::transfer::filter::Rules;
use crate::transfer::keep::Keep;
use crate::transfer::manner::Manner;
use crate::transfer::raw::Raw;
use crate::transfer::verdict::Allowed;
use crate::units::{BitRate, Bytes};
use crate::wire::CongestionWish;
use crate::wire::seal::StreamSecret;

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
    /// When its first session began to write, by the receiver's clock, as
    /// [`FromReceiver::Ready`](super::FromReceiver::Ready) said it: what is newer there was written by this copy.
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
