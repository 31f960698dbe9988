//! Measured figures of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

/// Measured figures of both components.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RunReport {
    /// Figures of this component.
    pub own: ComponentReport,
    /// Figures of the partner, as the partner measured them.
    pub partner: ComponentReport,
    /// Minimum RTT of the connections, seconds.
    #[serde(rename = "rtt_seconds", with = "seconds")]
    pub rtt: Duration,
    /// Number of data streams in each direction: one for small fields and events, and those for large fields.
    pub streams: u16,
}

/// Measured figures of one component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ComponentReport {
    /// Name of the component.
    pub component: String,
    /// First step of the run of this process. Above 0 after a resume.
    pub first_step: u64,
    /// Number of steps that this process has run.
    pub steps: u64,
    /// Time from the start of the first step to the end of the last step, seconds.
    #[serde(rename = "run_seconds", with = "seconds")]
    pub run: Duration,
    /// Time outside the channel: the model computes, seconds.
    #[serde(rename = "compute_seconds", with = "seconds")]
    pub compute: Duration,
    /// Time for handing over fields to the channel, without waits, seconds.
    #[serde(rename = "put_seconds", with = "seconds")]
    pub put: Duration,
    /// Time for which a put waited, because the partner did not take fields, seconds.
    #[serde(rename = "put_wait_seconds", with = "seconds")]
    pub put_wait: Duration,
    /// Time without a connection to the partner, after the first one, seconds.
    #[serde(rename = "disconnected_seconds", with = "seconds")]
    pub disconnected: Duration,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Variables that the component gets, by name.
    pub received: BTreeMap<String, ReceivedVariable>,
    /// Variables that the component puts, by name.
    pub sent: BTreeMap<String, SentVariable>,
}

/// Measured figures of a variable at the component that gets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReceivedVariable {
    /// Number of fields that the model got, without initial values.
    pub fields: u64,
    /// Bytes of these fields.
    pub bytes: Bytes,
    /// Sum of the waits for the field, seconds.
    #[serde(rename = "wait_seconds", with = "seconds")]
    pub wait: Duration,
    /// Sum of the waits after the first `lag` steps, seconds.
    #[serde(rename = "steady_wait_seconds", with = "seconds")]
    pub steady_wait: Duration,
    /// Part of `steady_wait_seconds` in which the partner had not begun the step that puts the field, seconds.
    #[serde(rename = "partner_wait_seconds", with = "seconds")]
    pub partner_wait: Duration,
    /// Number of fields that a newer one replaced before the model got them (`drop = "oldest"`).
    pub dropped: u64,
    /// Number of fields that arrived, and that the model had not got at the end of its last step.
    #[serde(default)]
    pub unread: u64,
    /// Number of elements that are not a number.
    pub nan: u64,
}

/// Measured figures of a variable at the component that puts it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SentVariable {
    /// Number of fields that the model put.
    pub fields: u64,
    /// Bytes of these fields.
    pub bytes: Bytes,
    /// Number of fields that a newer one replaced before they were sent (`drop = "oldest"`).
    pub dropped: u64,
    /// Number of elements that are not a number.
    pub nan: u64,
    /// Number of fields that the partner had before a restart of this component; they were not sent again.
    pub known_to_partner: u64,
}
