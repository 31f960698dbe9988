//! The stored result of one command.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Figure, Iperf3Report};
use crate::block_timing::ReceivedBlocks;
use crate::diagnose::{self, Remedy, SteadyPart, Verdict};
use crate::discover::report::PathReport;
use crate::host::clock::ClockAlignment;
use crate::latency::Latency;
use crate::path::{PathProfile, optional_seconds, seconds};
use crate::prediction::ExpectedRange;
use crate::stopping_rule::GoodputEstimate;
use crate::tcp_model::Prediction;
use crate::udp::ramp::RampReport;
use crate::units::{BitRate, Bytes, Ratio};
use crate::wire::measure::{EndReport, Interval, SocketRequest, TestDirection, TestRequest};

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

/// Names of the two hosts as the user typed them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HostNames {
    /// Name of the client, where the command runs.
    pub near: String,
    /// Name of the server.
    pub far: String,
}

/// One of the two ends of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Client end of the test.
    Near,
    /// Server end of the test.
    Far,
}

/// A figure for each of the two ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PerEnd<T> {
    /// Figure of the client.
    pub near: T,
    /// Figure of the server.
    pub far: T,
}

/// Result of one test in one direction, with its findings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Run {
    /// Direction of the data: forward is client to server.
    pub direction: TestDirection,
    /// End that sent the data.
    pub sender: Side,
    /// End that received the data; its count and its clock give the goodput.
    pub receiver: Side,
    /// Goodput of the whole test, from the receiver's count.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Goodput of the steady part, or of the whole test if it has no steady part.
    #[serde(rename = "steady_goodput_bits_per_second")]
    pub steady_goodput: BitRate,
    /// Payload bytes that the receiver read.
    pub bytes: u64,
    /// Receiver's time from the first payload byte to the last counted byte.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// Steady part, after start-up; null if the test is too short.
    pub steady: Option<SteadyPart>,
    /// Start-up as a share of the elapsed time.
    pub start_up_share: Option<Ratio>,
    /// Start-up time set by the user (`--omit`); absent if it was detected.
    #[serde(rename = "omit_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub omit: Option<Duration>,
    /// Minimum RTT of all connections of the test.
    #[serde(rename = "base_rtt_seconds", with = "seconds")]
    pub base_rtt: Duration,
    /// RTT of the control connection's handshake, before the load.
    #[serde(rename = "handshake_rtt_seconds", with = "seconds")]
    pub handshake_rtt: Duration,
    /// Capacity × base RTT, known before the run; null without a capacity.
    #[serde(rename = "bdp_bytes")]
    pub bdp: Option<Bytes>,
    /// Steady goodput × base RTT.
    #[serde(rename = "measured_bdp_bytes")]
    pub measured_bdp: Bytes,
    /// Figures of the path with the measured base RTT; null if the capacity is unknown.
    pub path: Option<PathProfile>,
    /// Predicted steady goodput on this path with the requested window.
    pub predicted: Option<Prediction>,
    /// Range of measured goodput that agrees with the prediction.
    #[serde(default)]
    pub expected: Option<ExpectedRange>,
    /// Maximum goodput of this path with the congestion control in use.
    #[serde(rename = "possible_goodput_bits_per_second")]
    pub possible_goodput: Option<BitRate>,
    /// Window scale that the sender applies to the advertised window; null if none was negotiated.
    pub window_scale: Option<u8>,
    /// Retransmitted segments; null for datagrams and if the sender does not report them.
    pub retransmits: Option<u64>,
    /// CPU time of the data threads for each 10⁹ bytes; null if an end does not report it.
    pub cpu_seconds_per_gigabyte: PerEnd<Option<Figure>>,
    /// Request to the server, with the options of its sockets.
    pub request: TestRequest,
    /// Socket options requested at the client's end.
    pub near_socket: SocketRequest,
    /// Limit of the test, with or without a finding.
    #[serde(default)]
    pub verdict: Verdict,
    /// Causes that limit the test, the largest gain first.
    pub findings: Vec<StoredFinding>,
    /// Intervals of the receiver, which give the goodput. `near` and `far` have the intervals of each end for every
    /// stream.
    pub intervals: Vec<GoodputInterval>,
    /// Report of the client's end.
    pub near: EndReport,
    /// Report of the server's end.
    pub far: EndReport,
    /// Offset of the server's clock; the server's intervals then have times on both clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockAlignment>,
    /// Hops and path MTUs, if they were measured (`--path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_report: Option<PathReport>,
    /// Block timings at the receiver, if they were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<ReceivedBlocks>,
    /// Round trips of probes during the load (`--latency`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Results of the iperf3 server, if the server was iperf3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iperf3: Option<Iperf3Report>,
    /// Confidence interval of the steady goodput, if there are enough slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<GoodputEstimate>,
    /// Reason for the end of the test.
    #[serde(default)]
    pub ended: EndReason,
    /// Both directions ran at the same time (`--bidir`).
    #[serde(default)]
    pub bidirectional: bool,
}

/// Reason for the end of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The load was completed.
    #[default]
    Completed,
    /// The confidence interval was narrow enough (`--precision`).
    Converged,
    /// The user interrupted the test; the data received until then is counted.
    Interrupted,
}

/// One interval of a test, by the receiver's count and clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct GoodputInterval {
    /// Start of the interval.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// End of the interval.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Payload bytes that the receiver read in this interval.
    pub bytes: u64,
    /// Bytes divided by the length of the interval.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// The interval lies in the steady part.
    pub steady: bool,
}

/// A diagnosed cause as it is stored; the name is text, because later versions know more causes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StoredFinding {
    /// Name of the cause that limits the test.
    pub name: String,
    /// Explanation in one or two sentences with the figures.
    pub summary: String,
    /// Figures that show the cause; the end of each key is the unit.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// Command that removes the cause.
    pub remedy: Remedy,
    /// Goodput predicted after the remedy; null if unknown.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Predicted goodput minus the current goodput; null if unknown.
    #[serde(rename = "gain_bits_per_second")]
    pub gain: Option<BitRate>,
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

impl From<&diagnose::Finding> for StoredFinding {
    fn from(finding: &diagnose::Finding) -> Self {
        let diagnose::Finding { cause, summary, evidence, remedy, predicted, gain } = finding;
        StoredFinding {
            name: cause.name().to_owned(),
            summary: summary.clone(),
            // A figure that is not a finite number is not evidence.
            evidence: evidence
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            remedy: remedy.clone(),
            predicted: *predicted,
            gain: *gain,
        }
    }
}

impl Side {
    /// Returns the sender and the receiver of a direction.
    pub fn sender_and_receiver(direction: TestDirection) -> (Side, Side) {
        match direction {
            TestDirection::Forward => (Side::Near, Side::Far),
            TestDirection::Reverse => (Side::Far, Side::Near),
        }
    }
}

impl<T> PerEnd<T> {
    /// Returns the figure of one end.
    pub fn get(&self, side: Side) -> &T {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl HostNames {
    /// Returns the name of one host.
    pub fn name(&self, side: Side) -> &str {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl Run {
    /// Returns the report of one end.
    pub fn end(&self, side: Side) -> &EndReport {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl GoodputInterval {
    /// Creates an interval from one of the receiver's; it is steady if it lies in the steady part.
    pub fn new(interval: &Interval, steady: Option<&SteadyPart>) -> Self {
        GoodputInterval {
            start: interval.start,
            end: interval.end,
            bytes: interval.bytes,
            goodput: Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start)),
            steady: steady.is_some_and(|steady| interval.start >= steady.start && interval.end <= steady.end),
        }
    }
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
