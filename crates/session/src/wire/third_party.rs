//! Messages of a copy between two servers (third-party copy).
//!
//! The client of both servers requests a temporary token from the destination server, valid for one upload only, so
//! that the source server does not need the client's own token. The token lives as long as its session. The client
//! sends a message every [`ALIVE_INTERVAL`](super::copy::ALIVE_INTERVAL) and closes the connection when the copy ends.
//! The client then requests the upload from the source server. The source server reports to the client everything that
//! the client would see of its own copy.

use core::net::SocketAddr;
use std::time::Duration;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::evidence::ProgressSample;
use serde::{Deserialize, Serialize};

use super::copy::{
    CopyEnd, CopyId, CopyJob, CopyRequest, CopyTally, EntryEvent, EntryFailure, RemoteDestination, RemoteSource,
    Selection,
};
use crate::wire::copy::digest::Digest;
use crate::wire::copy::entry::Modified;
use crate::wire::copy::options::TransferOptions;
use crate::wire::copy::preserve::SkippedEntries;
use crate::wire::copy::progress::ListedTotals;
use crate::wire::copy::requested_entries::RequestedEntries;
use crate::wire::copy::stream_change::StreamChange;
use crate::{Fingerprint, Token};

/// Request to the destination server for a temporary token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRequest {
    /// Destination of the copy. The token permits no other destination and no other replacement or deletion.
    pub to: RemoteDestination,
    /// Options of the copy: a dry run cannot become a real copy.
    #[serde(default)]
    pub transfer_options: Box<TransferOptions>,
    /// Sources of the copy, as in [`SendRequest`]; no other names may be listed. If empty, any name is accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<RemoteSource>,
    #[serde(default)]
    pub selection: Selection,
    /// Time of an earlier token for the same copy, as in [`TokenReply::Issued`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Modified>,
}

impl TokenRequest {
    /// Returns the names that the copy may list, if the request limits them.
    pub fn requested_entries(&self) -> Option<RequestedEntries> {
        (!self.from.is_empty()).then(|| RequestedEntries::new(&self.from, &self.selection))
    }

    /// Reports whether a copy request matches this token request.
    pub fn matches(&self, copy: &CopyRequest) -> bool {
        matches!(&copy.job, CopyJob::Put { to } if *to == self.to) && copy.transfer_options == self.transfer_options
    }
}

/// Messages of the destination server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "destination", rename_all = "snake_case")]
pub enum TokenReply {
    /// The first and only message.
    Issued {
        /// Token for the source server.
        token: Token,
        /// Port of the destination server, as known to that server.
        port: u16,
        /// Fingerprint of the destination server.
        fingerprint: Fingerprint,
        /// Time of the token by the server's clock, or the time in the request. Newer files were written by this copy.
        since: Modified,
    },
}

/// Request to the source server for an upload to the destination server. Fields as in [`CopyRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendRequest {
    pub from: Vec<RemoteSource>,
    /// Filter of the listed entries, and attributes to preserve.
    #[serde(default)]
    pub selection: Selection,
    pub receiver: ReceiverAddress,
    pub to: RemoteDestination,
    /// Data streams at the start.
    pub streams: u16,
    /// Maximum data streams at the same time.
    pub max_streams: u16,
    /// Block size; a power of two.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Data streams are not encrypted, but authenticated.
    #[serde(default)]
    pub clear: bool,
    /// Congestion control of the data streams; the kernel's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionRequest>,
    /// Pacing rate of each data stream; no pacing if absent.
    #[serde(default, rename = "pace_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub pace: Option<BitRate>,
    /// Predicted goodput of the path.
    #[serde(default, rename = "predicted_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub predicted: Option<BitRate>,
    /// Identifies the copy across sessions.
    pub copy: CopyId,
    /// Time during which the source server tries to reconnect to the destination server.
    #[serde(rename = "retry_seconds", with = "lfn_base::path::seconds")]
    pub retry_for: Duration,
    /// Verification, syncing and reporting.
    #[serde(default)]
    pub transfer_options: Box<TransferOptions>,
}

/// The destination server, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverAddress {
    pub host: String,
    /// Addresses that the client used: the source server may be unable to resolve the name.
    pub addresses: Vec<SocketAddr>,
    pub token: Token,
    pub fingerprint: Fingerprint,
}

/// Maximum addresses of the destination server that are dialled.
pub const MAX_ADDRESSES: usize = 16;

/// Maximum failures or entry events per message.
pub const MAX_EVENTS_PER_MESSAGE: usize = 64;

/// Messages of the source server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum SourceMessage {
    /// Proof of life, after [`ALIVE_INTERVAL`](super::copy::ALIVE_INTERVAL) without another message.
    Alive,
    /// Progress, several times a second.
    Progress {
        extent: ListedTotals,
        progress: Box<ProgressSample>,
    },
    Changed(StreamChange),
    /// The connection to the destination server was lost.
    Lost {
        reason: String,
    },
    /// There is no connection to the destination server.
    Reconnecting {
        /// Time without a connection.
        #[serde(with = "lfn_base::path::seconds")]
        seconds: Duration,
    },
    /// The connection is restored.
    Reconnected {
        /// Time without a connection.
        #[serde(with = "lfn_base::path::seconds")]
        seconds: Duration,
    },
    /// Results of entries, if requested.
    Events {
        /// At most [`MAX_EVENTS_PER_MESSAGE`] elements.
        entries: Vec<EntryEvent>,
    },
    /// Discard all reported results: they follow again.
    Reset,
    /// Failed entries; sent before the last message.
    Failures {
        /// At most [`MAX_EVENTS_PER_MESSAGE`] elements.
        failures: Vec<EntryFailure>,
    },
    /// Last message: every entry that did not fail is complete at the destination.
    Done(Box<ThirdPartyReport>),
    /// Last message: the copy failed.
    Failed {
        /// End that reported the failure.
        #[serde(default)]
        end: CopyEnd,
        message: String,
        /// Action for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// The same command resumes the copy.
        resumable: bool,
        /// The destination server no longer knows the token. A new token may succeed.
        #[serde(default)]
        forgotten: bool,
    },
}

/// Result of a third-party copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThirdPartyReport {
    /// Total length of all files.
    pub bytes: Bytes,
    /// Digest of the file, if there was only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Path of the copy at the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub tally: CopyTally,
    /// Source entries that were not listed.
    pub skipped: SkippedEntries,
    /// Counters of both sides at the end.
    pub progress: ProgressSample,
    pub replaced: u32,
}

/// Messages of the client to either server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "orchestrator", rename_all = "snake_case")]
pub enum OrchestratorMessage {
    Alive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn messages_match_protocol_doc() {
        let lend = TokenRequest {
            to: RemoteDestination::Null,
            transfer_options: Box::default(),
            from: Vec::new(),
            selection: Selection::default(),
            since: None,
        };
        let json = r#"{"verb":"issue_token","to":{"to":"null"}}"#;
        assert!(matches!(serde_json::from_str(json), Ok(Request::IssueToken(read)) if *read == lend));
        let json = r#"{"verb":"issue_token","to":{"to":"null"},"from":[{"from":"zero","bytes":1}],"since":[5,0]}"#;
        let (from, since) = (vec![RemoteSource::Zero { bytes: Bytes(1) }], Modified::new(5, 0).ok());
        let bound = TokenRequest { from, since, ..lend.clone() };
        assert!(matches!(serde_json::from_str(json), Ok(Request::IssueToken(read)) if *read == bound));
        assert!(lend.requested_entries().is_none() && bound.requested_entries().is_some());
        let (token, fingerprint) = (Token::from_bytes([1; 16]), Fingerprint([2; 32]));
        let since = Modified::new(1_790_000_000, 0).unwrap();
        let lent = TokenReply::Issued { token, port: 4096, fingerprint, since };
        let text = serde_json::to_string(&lent).unwrap();
        assert!(text.starts_with(r#"{"destination":"issued","token":""#), "{text}");
        assert_eq!(serde_json::from_str::<TokenReply>(&text).unwrap(), lent);
        assert_eq!(serde_json::to_string(&OrchestratorMessage::Alive).unwrap(), r#"{"orchestrator":"alive"}"#);
    }
}
