//! First messages on the control connection.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::seconds;
use serde::{Deserialize, Serialize};

use crate::coupling::Coupling;

/// First message of each side: who it is, and what it expects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Introduction {
    /// Version of lfn, for messages.
    pub version: String,
    /// Component that this side runs.
    pub component: String,
    pub coupling: Coupling,
    /// Random number of the process. A restarted process has another one.
    pub instance: u64,
    /// Time of this host since 1970, when the message was sent.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// This process has begun its run.
    pub has_begun: bool,
    /// Last checkpoint that the partner has reported to this side.
    pub partner_checkpoint: Option<u64>,
}

/// Second message of each side: the fields that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// First step of the process.
    pub first_step: u64,
    /// Last checkpoint of the component.
    pub checkpoint: Option<u64>,
    /// Variables that this side gets, by name.
    pub variables: BTreeMap<String, VariableState>,
    /// Bytes that the partner may have in flight and unread.
    pub window: u64,
}

/// Third message of each side: the side has all fields that its partner needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {}

/// Fields of a variable at the side that gets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableState {
    /// First step whose field has not arrived completely.
    pub next: u64,
    /// First step whose field the model has not got.
    pub unread: u64,
}
