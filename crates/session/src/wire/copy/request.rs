//! The client's request for a copy.
//!
//! The request is part of the control connection's first flight. It is all that the remote end knows of the command.
//! Absent fields have the default of the version that reads them.

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use crate::SessionId;
use crate::wire::copy::byte_string::ByteString;
use crate::wire::copy::entry::{Modified, Name};
use crate::wire::copy::filter::FilterRules;
use crate::wire::copy::options::TransferOptions;
use crate::wire::copy::overwrite::OverwritePolicy;
use crate::wire::copy::preserve::Preserve;
use crate::wire::copy::ranks::RankRequest;
use crate::wire::seal::StreamSecret;

/// The client's request for a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRequest {
    #[serde(flatten)]
    pub job: CopyJob,
    /// Maximum data streams that the client opens at the same time. A broken stream may be replaced by another with a
    /// new number.
    pub streams: u16,
    /// Block size; a power of two.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Congestion control of a sending server's data streams; the kernel's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionRequest>,
    /// Pacing rate of each data stream of a sending server; no pacing if absent.
    #[serde(default, rename = "pace_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub pace: Option<BitRate>,
    /// Secret that authenticates block headers on unencrypted data streams; absent without such streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_secret: Option<StreamSecret>,
    /// Paths between the hosts that the streams use; absent if the client requests none. With several paths, a silent
    /// stream is replaced early.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stripes: u16,
    /// Identifies the copy across sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Box<CopyId>>,
    /// Number of this client among the ranks of a copy; absent if the client copies alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<Box<RankRequest>>,
    /// Verification, syncing and reporting.
    #[serde(default)]
    pub transfer_options: Box<TransferOptions>,
}

fn is_zero(stripes: &u16) -> bool {
    *stripes == 0
}

/// Identifies the sessions of one copy: after a lost session, the next session requests the same copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyId {
    /// Random. A server ends an older session of the same copy before it starts a new one.
    pub id: SessionId,
    /// Start of the copy by the client's clock: the modification time of generated files.
    pub began: Modified,
    /// Start of writing in the first session, by the receiver's clock, as in
    /// [`ReceiverMessage::Ready`](super::ReceiverMessage::Ready). Files newer than this were written by this copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Modified>,
}

impl CopyId {
    /// Returns the seed of `random:` data, which is equal in every session.
    pub fn seed(&self) -> u64 {
        let hash = blake3::derive_key("lfn copy 2026 seed of random bytes", &self.id.0);
        u64::from_le_bytes([hash[0], hash[1], hash[2], hash[3], hash[4], hash[5], hash[6], hash[7]])
    }
}

/// Direction of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "direction", rename_all = "snake_case")]
pub enum CopyJob {
    Put {
        to: RemoteDestination,
    },
    Get {
        /// Sources that the server lists.
        from: Vec<RemoteSource>,
        /// Filter of the listed entries, and attributes to preserve.
        #[serde(default)]
        selection: Selection,
    },
}

/// Filter of the listed entries, and attributes to preserve.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    pub preserve: Preserve,
    /// Filter rules, applied to the names in the list.
    #[serde(skip_serializing_if = "FilterRules::is_empty")]
    pub rules: FilterRules,
    /// Only these names, below the single source directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<Name>>,
}

/// A source at the remote end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum RemoteSource {
    /// A file or directory, by its path below the served root.
    File {
        /// Relative to the root. A trailing slash means the contents of the directory, as in rsync. The remote end
        /// expands wildcards ([`crate::wire::copy::glob`]).
        path: ByteString,
    },
    /// Random bytes that the server generates.
    Random { bytes: Bytes },
    /// Zeros that the server generates.
    Zero { bytes: Bytes },
}

/// A destination at the remote end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum RemoteDestination {
    /// A file or directory, by its path below the served root.
    File {
        /// Relative to the root; empty for the root itself.
        path: ByteString,
        /// Options about existing files.
        #[serde(flatten)]
        allowed: OverwritePolicy,
        /// The only source is a single file: the file may get the name of the path itself.
        #[serde(default)]
        single: bool,
        #[serde(default)]
        preserve: Preserve,
    },
    Null,
}
