//! Document of `lfn copy`, and its lines during the copy.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use lfn_results::diagnose::{Finding, MissingEvidence, Verdict};
use lfn_results::evidence::{SocketEvidence, StreamTime};
use lfn_session::Protection;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::options::{FsyncPolicy, Verify};
use lfn_session::wire::copy::preserve::SkippedEntries;
use lfn_session::wire::copy::ranks::RankStatus;
use lfn_session::wire::copy::stream_change::StreamChange;
use lfn_session::wire::copy::{CopyTally, EntryEvent, EntryFailure};
use serde::{Deserialize, Serialize};

use super::schema_name::schema_name;
use super::stripe::{StripeFigures, UsedTransport};
use crate::prediction::CopyPrediction;

/// Result of `lfn copy`, schema `lfn.copy/3`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CopyDocument {
    /// Result of a copy that ran to its end. Single entries may have failed.
    Finished(Box<FinishedCopy>),
    /// Error of a copy without a result.
    Failed(FailedCopy),
}

/// The ranks that sent or received a copy together, as the server counted them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RanksReport {
    /// Number of this rank, from 0.
    pub rank: u16,
    /// Whether the ranks sent or received.
    #[serde(default)]
    pub direction: RankDirection,
    /// Name of the job at its launcher; absent without a launcher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Payload of all ranks.
    pub bytes: Bytes,
    /// Time from the first assigned block, in a download from the start of the list, to the end.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
    /// Payload of all ranks divided by the time.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Each rank, in the order of their numbers.
    pub ranks: Vec<RankStatus>,
}

/// Direction of a copy of several ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RankDirection {
    /// The ranks sent to the server.
    #[default]
    Upload,
    /// The ranks received from the server.
    Download,
}

/// The queue of a copy, and the share of this mover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueReport {
    /// Name of the queue.
    pub name: String,
    /// True if no entry is left.
    pub complete: bool,
    /// Files, directories and links in the manifest.
    pub entries: u64,
    /// Total length of the files in the manifest.
    pub bytes: Bytes,
    /// Entries that are complete at the destination.
    pub done_entries: u64,
    /// Total length of the complete files.
    pub done_bytes: Bytes,
    /// Entries that failed for good.
    pub failed_entries: u64,
    /// Entries that this mover completed.
    pub own_entries: u64,
    /// Total length of the files that this mover completed.
    pub own_bytes: Bytes,
    /// Leases that this mover got after another mover, or after a failed attempt.
    pub redeliveries: u64,
    /// Leases that this mover lost to other movers.
    pub lost_leases: u64,
}

/// Result of a copy that ran to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FinishedCopy {
    /// Name and version of the schema.
    pub schema: CopySchema,
    /// Sources as typed, without secrets.
    pub sources: Vec<String>,
    /// Destination as typed, without secrets.
    pub destination: String,
    /// Path of a single file at the receiver; absent for several files and for `null:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Total length of the listed files.
    pub bytes: Bytes,
    /// Useful bytes that crossed the path.
    pub moved_bytes: Bytes,
    /// Time from the start to the receiver's final confirmation.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
    /// Moved bytes divided by the time.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Digest of a single file, as b3sum prints it.
    #[serde(rename = "digest_blake3", default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Nothing was written; absent if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Result of each entry, if requested and not reported before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<EntryEvent>>,
    /// Verification of the blocks.
    pub verify: Verify,
    /// Time at which the data is flushed to disk.
    pub fsync: FsyncPolicy,
    /// Numbers of entries by their result.
    pub counts: CopyTally,
    /// Entries of the source that were skipped.
    pub not_copied: SkippedEntries,
    /// Lines of the manifest; absent without --manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_files: Option<u64>,
    /// Entries that failed, at most the first thousand.
    pub failures: Vec<EntryFailure>,
    /// Number of lost connections that were restored.
    pub reconnects: u32,
    /// Total time without a connection.
    #[serde(rename = "disconnected_seconds", with = "seconds")]
    pub disconnected: Duration,
    /// Total time without data on a live connection.
    #[serde(rename = "stalled_seconds", with = "seconds")]
    pub stalled: Duration,
    /// Data streams that broke and were replaced.
    pub streams_replaced: u32,
    /// All ranks of the copy; absent if this host copied alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksReport>,
    /// Queue of the copy; absent without --queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueReport>,
    /// Prediction for the moved bytes; null if the path is unknown or no byte was moved.
    pub predicted: Option<CopyPrediction>,
    /// Activity or resource that limits the copy, in the words of the progress line.
    pub limited_by: String,
    /// Limit of the copy in a sentence.
    pub verdict: Verdict,
    /// Causes that limit the copy, the largest gain first.
    pub findings: Vec<Finding>,
    /// Evidence that is missing, with the findings that need it; absent if nothing is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingEvidence>,
    /// Number of data streams at the end.
    pub streams: u16,
    /// Number of data streams at the start; null in documents of earlier versions.
    #[serde(default)]
    pub first_streams: Option<u16>,
    /// Reason for the number of streams at the start.
    pub streams_reason: String,
    /// Changes of the streams during the copy.
    pub streams_changes: Vec<StreamChange>,
    /// Stripes of the copy; absent without --stripe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stripes: Vec<StripeFigures>,
    /// Transport of the data streams.
    #[serde(default)]
    pub transport: UsedTransport,
    /// Reason for plain TCP if Multipath TCP was requested; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_reason: Option<String>,
    /// Block size of the copy.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Reason for the block size.
    pub block_reason: String,
    /// Initial need of each stream's buffers; null if the path is unknown.
    #[serde(rename = "buffer_bytes")]
    pub buffer: Option<Bytes>,
    /// Reason for the buffers.
    pub buffer_reason: String,
    /// Protection of the data streams.
    pub protection: Protection,
    /// Congestion control of the sender; null for the default of its host.
    pub congestion: Option<String>,
    /// Reason for the congestion control.
    pub congestion_reason: String,
    /// Maximum rate of each stream; null without a limit.
    #[serde(rename = "pacing_bits_per_second")]
    pub pacing: Option<BitRate>,
    /// Time of the sender's threads.
    pub sender: StreamTime,
    /// Time of the receiver's threads.
    pub receiver: StreamTime,
    /// Counters of the sender's sockets at the end; null if the sender reported none.
    pub sockets: Option<SocketEvidence>,
}

/// Error of a copy without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedCopy {
    /// Name and version of the schema.
    pub schema: CopySchema,
    /// Sources as typed, without secrets.
    pub sources: Vec<String>,
    /// Destination as typed, without secrets; absent if only one place is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Error in one line.
    pub error: String,
    /// One action that fixes the cause, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Exit code of the command.
    pub exit_code: u8,
}

/// A line of `lfn copy --output ndjson`. The last line is the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum CopyLine {
    /// Progress, or a change of the streams or the connection.
    Progress(CopyProgressLine),
    /// Result of one entry, with -v or --dry-run.
    Entry(EntryEvent),
    /// Result of the copy, without its entries.
    Result(Box<CopyDocument>),
}

/// Progress of a copy, or a change of its streams or its connection.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyProgressLine {
    /// Progress, at most once a second.
    Progress {
        #[serde(flatten)]
        figures: CopyProgressFigures,
    },
    /// The number of streams or the congestion control changed.
    Streams {
        #[serde(flatten)]
        change: StreamChange,
    },
    /// No stream of a stripe works any more. The other stripes carry the copy.
    StripeDown {
        /// Stripe as typed, LOCAL=REMOTE.
        stripe: String,
        /// Cause of the last failure.
        reason: String,
    },
    /// A stripe works again.
    StripeUp {
        /// Stripe as typed, LOCAL=REMOTE.
        stripe: String,
        /// Time in which the stripe was down.
        #[serde(rename = "after_seconds", with = "seconds")]
        after: Duration,
    },
    /// The connection is lost.
    Disconnected {
        /// Cause of the loss.
        reason: String,
        /// Time in which the copy tries to reconnect.
        #[serde(rename = "retry_seconds", with = "seconds")]
        retry_for: Duration,
    },
    /// The connection is restored.
    Reconnected {
        /// Time without a connection.
        #[serde(rename = "after_seconds", with = "seconds")]
        after: Duration,
    },
}

/// Progress so far, with the current rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CopyProgressFigures {
    /// Time since the copy began.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
    /// Bytes that are done: sent, up to date or skipped.
    pub bytes: Bytes,
    /// Bytes that crossed the path.
    pub moved_bytes: Bytes,
    /// Bytes of the files listed so far.
    pub total_bytes: Bytes,
    /// Files, directories and links that are done.
    pub entries: u64,
    /// Files, directories and links listed so far.
    pub total_entries: u64,
    /// True if the list is complete.
    pub listing_complete: bool,
    /// Goodput of the last seconds.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Estimated time until the end; absent if unknown.
    #[serde(rename = "eta_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub eta: Option<Duration>,
    /// Activity or resource that limits the copy at present.
    pub limited_by: String,
    /// Number of data streams.
    pub streams: u16,
    /// Stripes of the copy; absent without --stripe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stripes: Vec<StripeFigures>,
}

impl FinishedCopy {
    /// Returns the last change of the number of streams, if there was one.
    pub fn last_count_change(&self) -> Option<&StreamChange> {
        self.streams_changes.iter().rfind(|change| change.congestion.is_none())
    }

    /// Returns the congestion control that the sender changed to and the reason, if there was a change.
    pub fn congestion_change(&self) -> Option<(&str, &str)> {
        congestion_change(&self.streams_changes)
    }
}

/// Returns the last change of the congestion control with its reason, if there was one.
pub(crate) fn congestion_change(changes: &[StreamChange]) -> Option<(&str, &str)> {
    changes.iter().rev().find_map(|change| Some((change.congestion.as_deref()?, change.reason.as_str())))
}

impl FailedCopy {
    /// Creates the document of an error. `places` are the sources and the destination as typed, without secrets.
    pub fn new(places: &[String], error: String, hint: Option<String>, exit_code: u8) -> Self {
        let (sources, destination) = match places.split_last() {
            Some((destination, sources)) if !sources.is_empty() => (sources, Some(destination.clone())),
            _ => (places, None),
        };
        FailedCopy { schema: CopySchema::Current, sources: sources.to_vec(), destination, error, hint, exit_code }
    }
}

schema_name! {
    /// Name and version of the schema of a copy.
    CopySchema = "lfn.copy/3"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A hostile peer can send counters whose sum is infinite.
    #[test]
    fn infinite_counters_stay_numbers() {
        let time = StreamTime { disk: f64::INFINITY, hash: f64::NAN, network: 1.5, rate_limited: 0.0 };
        let expected = json!({
            "disk_seconds": f64::MAX, "hash_seconds": f64::MAX, "network_seconds": 1.5, "rate_limited_seconds": 0.0
        });
        assert_eq!(json!(time), expected);
    }
}
