//! A change of the streams during a copy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A change of the streams during a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StreamChange {
    /// Time since the copy began.
    #[serde(rename = "seconds", with = "lfn_base::path::seconds")]
    pub at: Duration,
    /// New number of streams.
    pub streams: u16,
    /// New congestion control of the sender, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Reason for the change.
    #[serde(deserialize_with = "crate::wire::bounded::text")]
    pub reason: String,
}

impl StreamChange {
    /// Creates the change of the sender to BBR.
    pub fn to_bbr(at: Duration, streams: u16, reason: String) -> StreamChange {
        StreamChange { at, streams, congestion: Some("bbr".to_owned()), reason }
    }
}
