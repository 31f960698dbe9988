//! The log entry: one measurement between two hosts, in one direction, with its conditions.
//!
//! An entry is one line of JSON (`lfn.mesh.entry/1`). The spool, the archive, `lfn mesh import` and `lfn mesh export` use the
//! same form. The key of an entry is its direction, its kind, its time and its test: an entry that arrives twice is stored once.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::optional_seconds;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

mod check;
pub mod point;
mod raw_json;
pub mod timestamp;

pub use check::EntryError;
pub use raw_json::RawJson;

/// Schema of an entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum EntrySchema {
    #[default]
    #[serde(rename = "lfn.mesh.entry/1")]
    V1,
}

/// Kind of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A timed load: goodput next to the predicted goodput, with a verdict.
    Load,
    /// Small packets: RTT, loss and one-way delay.
    Latency,
    /// The hops of the path.
    Path,
    /// Counters of the interfaces of one host; both ends of the entry are this host.
    Counters,
}

impl EntryKind {
    /// Returns the name of the kind in files and labels.
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::Load => "load",
            EntryKind::Latency => "latency",
            EntryKind::Path => "path",
            EntryKind::Counters => "counters",
        }
    }
}

/// Outcome of a measurement for a reader who sees one letter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As fast as predicted, or limited by the path, without a finding.
    Good,
    /// A finding names a limit other than the path.
    Limited,
    /// The measurement failed; [`Entry::error`] has the reason.
    Failed,
    /// Measured, but the limit is unknown.
    #[default]
    Unknown,
}

impl Outcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Outcome; 4] = [Outcome::Good, Outcome::Limited, Outcome::Failed, Outcome::Unknown];

    /// Returns the name of the outcome in files and labels.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Good => "good",
            Outcome::Limited => "limited",
            Outcome::Failed => "failed",
            Outcome::Unknown => "unknown",
        }
    }
}

/// A finding of a load, as far as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct EntryFinding {
    /// Name of the cause, as in `lfn test --list-findings`.
    pub name: String,
    /// Explanation with its figures.
    pub summary: String,
    /// Command that removes the cause; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
    /// Host of the command; `None` is the host that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Circumstances under which a measurement must be judged with care.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Marks {
    /// A load of the mesh used a host or a bottleneck of the path at this time.
    #[serde(skip_serializing_if = "is_false")]
    pub own_load: bool,
    /// A maintenance window of a site or a circuit of the path.
    #[serde(skip_serializing_if = "is_false")]
    pub maintenance: bool,
    /// The clock of the agent differed from the clock of the hub by more than the schedule permits.
    #[serde(skip_serializing_if = "is_false")]
    pub clock: bool,
    /// Entered by `lfn mesh import`.
    #[serde(skip_serializing_if = "is_false")]
    pub imported: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// One measurement in one direction. Unknown figures are `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Entry {
    pub schema: EntrySchema,
    /// Host that sends the data, by its name in the sites file.
    pub from: String,
    /// Host that receives the data.
    pub to: String,
    pub kind: EntryKind,
    /// Start of the measurement: time since 1970 in whole milliseconds; RFC 3339 in JSON.
    #[serde(with = "timestamp")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "String"))]
    pub time: Duration,
    /// Name of the test in the sites file; empty for an imported result.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub test: String,
    /// Duration of the measurement.
    #[serde(default, rename = "duration_seconds", with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// Payload bytes that the receiver read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Goodput of the steady part.
    #[serde(default, rename = "goodput_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub goodput: Option<BitRate>,
    /// Goodput predicted for this path.
    #[serde(default, rename = "predicted_goodput_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub predicted: Option<BitRate>,
    /// Capacity of the path, as the sites file has it.
    #[serde(default, rename = "capacity_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub capacity: Option<BitRate>,
    /// Minimum RTT of the measurement.
    #[serde(default, rename = "base_rtt_seconds", with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub base_rtt: Option<Duration>,
    /// Median RTT of the measurement.
    #[serde(default, rename = "rtt_seconds", with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Duration>,
    /// Maximum RTT of the measurement.
    #[serde(default, rename = "max_rtt_seconds", with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub max_rtt: Option<Duration>,
    /// Minimum one-way delay in the direction of the data.
    #[serde(
        default,
        rename = "one_way_delay_seconds",
        with = "optional_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub one_way_delay: Option<Duration>,
    /// Packets sent in the direction of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Packets of [`Entry::packets`] that did not arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
    /// Retransmitted segments of a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    /// Addresses of the hops from TTL 1; empty text for a hop without an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<String>,
    #[serde(default)]
    pub outcome: Outcome,
    /// The limit in one phrase, such as `limited by the path (no other bottleneck found)`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    /// Causes that limit the load, the largest gain first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<EntryFinding>,
    /// Everything that a repeated measurement must have in common with this one: kernel, buffers, congestion control, flags,
    /// versions, by name. See [`crate::compare`] for the names with a known effect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, String>,
    #[serde(default)]
    pub marks: Marks,
    /// Reason of a failed measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The complete result document; the archive deletes it after the time for details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "Option<serde_json::Value>"))]
    pub detail: Option<RawJson>,
}

impl Entry {
    /// Creates an entry without figures.
    pub fn new(kind: EntryKind, from: impl Into<String>, to: impl Into<String>, time: Duration) -> Self {
        Entry {
            schema: EntrySchema::V1,
            from: from.into(),
            to: to.into(),
            kind,
            time: Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            test: String::new(),
            duration: None,
            bytes: None,
            goodput: None,
            predicted: None,
            capacity: None,
            base_rtt: None,
            rtt: None,
            max_rtt: None,
            one_way_delay: None,
            packets: None,
            lost_packets: None,
            retransmits: None,
            hops: Vec::new(),
            outcome: Outcome::Unknown,
            verdict: String::new(),
            findings: Vec::new(),
            conditions: BTreeMap::new(),
            marks: Marks::default(),
            error: None,
            detail: None,
        }
    }

    /// Returns the bandwidth-delay product: capacity × minimum RTT.
    pub fn bdp(&self) -> Option<Bytes> {
        Some(self.capacity?.times(self.base_rtt?))
    }
}
