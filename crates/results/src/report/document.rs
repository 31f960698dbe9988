//! The stored result of one command.

use std::time::Duration;

use lfn_base::path::optional_seconds;
use serde::{Deserialize, Serialize};

use super::run::Run;
use crate::evidence::HostNames;
use crate::measure::{Interval, TestRequest};
use crate::udp::ramp::RampReport;

/// Result of one `lfn test`: one run, or two runs with `--both` or `--bidir`.
///
/// A key ends with its SI unit, counts are integers, and an unknown value is null or absent, never NaN or 0. A reader
/// ignores unknown keys: later versions of `lfn.test/3` only add keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TestDocument {
    /// Name and version of the schema.
    pub schema: TestSchema,
    /// Origin of the result: the version, the time and the command.
    pub origin: Origin,
    /// Finished tests in the order of their start.
    pub runs: Vec<Run>,
    /// Figures of the test that failed, up to the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedTest>,
    /// Error of the command, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CommandError>,
}

/// Name and version of the schema of a stored result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum TestSchema {
    #[default]
    #[serde(rename = "lfn.test/3")]
    V3,
}

/// Origin of a result: the version, the time, the command and the hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Origin {
    /// Version of the lfn that measured.
    pub lfn_version: String,
    /// Start of the command by the clock of its host: RFC 3339, UTC.
    #[cfg_attr(any(test, feature = "schema"), schemars(extend("format" = "date-time")))]
    pub started: String,
    /// Arguments of the command as typed. Words in capitals replace secrets.
    pub command: Vec<String>,
    /// Names of the two hosts as the user typed them.
    pub hosts: HostNames,
}

/// Figures of a test that failed before its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct UnfinishedTest {
    /// Request to the server.
    pub request: TestRequest,
    /// RTT of the control connection's handshake, if the handshake finished.
    #[serde(rename = "handshake_rtt_seconds", with = "optional_seconds")]
    pub handshake_rtt: Option<Duration>,
    /// Intervals of the client's end.
    pub near_intervals: Vec<Interval>,
    /// Intervals of the server's end.
    pub far_intervals: Vec<Interval>,
    /// Finished steps of a ramp, and the rate of the unfinished step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampReport>,
}

/// Error of a command, as it is printed on its last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CommandError {
    /// Event, object and value of the error.
    pub message: String,
    /// Action that removes the error, if there is one.
    pub hint: Option<String>,
}

impl UnfinishedTest {
    /// Creates the record of a test that starts.
    pub fn new(request: TestRequest) -> Self {
        UnfinishedTest {
            request,
            handshake_rtt: None,
            near_intervals: Vec::new(),
            far_intervals: Vec::new(),
            ramp: None,
        }
    }
}
