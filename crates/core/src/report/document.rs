//! The stored result of one command.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Figure, Iperf3};
use crate::blocks::Caught;
use crate::diagnose::{self, Remedy, Steady};
use crate::discover::report::PathReport;
use crate::host::clock::Alignment;
use crate::latency::Latency;
use crate::path::{PathProfile, optional_seconds, seconds};
use crate::prediction::Expected;
use crate::tcp_model::Prediction;
use crate::udp::ramp::RampReport;
use crate::units::{BitRate, Bytes, Ratio};
use crate::stopping_rule::Estimate;
use crate::wire::test::{Direction, EndReport, Interval, SocketWish, TestRequest};

/// The result of one `lfn test`: a list of runs, one or, with `--both` or `--bidir`, two.
///
/// Names carry SI units; counts are integers; what is not known is null or absent, never NaN and never 0. A reader
/// ignores what it does not know: later versions of `lfn.test/2` only add.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    /// What this is.
    pub schema: DocumentSchema,
    /// Who measured, when, and as what it was typed.
    pub origin: Origin,
    /// The tests that came to their end, in the order they were begun.
    pub runs: Vec<Run>,
    /// The test that did not, if one did not: what was seen of it before it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Unfinished>,
    /// Why, if the command failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Failed>,
}

/// The name and version of the schema of a stored result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum DocumentSchema {
    /// This one.
    #[default]
    #[serde(rename = "lfn.test/2")]
    Two,
}

/// Who measured, when, and as what it was typed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Origin {
    /// Version of the lfn that measured.
    pub lfn_version: String,
    /// When the command began, by the clock of its host: RFC 3339, UTC.
    #[cfg_attr(test, schemars(extend("format" = "date-time")))]
    pub started: String,
    /// The words of the command as typed; secrets are replaced by words in capitals.
    pub command: Vec<String>,
    /// What the user calls the two hosts.
    pub hosts: Hosts,
}

/// What the user calls the two hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hosts {
    /// Where the command was typed: the client.
    pub near: String,
    /// The server.
    pub far: String,
}

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The client's.
    Near,
    /// The server's.
    Far,
}

/// A figure of each end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PerEnd<T> {
    /// The client's.
    pub near: T,
    /// The server's.
    pub far: T,
}

/// One test, judged: one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// Who sent, by who dialled.
    pub direction: Direction,
    /// The end that sent.
    pub sender: Side,
    /// The end that received, whose count and clock say what the goodput was.
    pub receiver: Side,
    /// What the receiver got over the whole test.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Past start-up; that of the whole of a test too short to have such a part.
    #[serde(rename = "steady_goodput_bits_per_second")]
    pub steady_goodput: BitRate,
    /// Payload bytes received.
    pub bytes: u64,
    /// The receiver's time, from the first payload byte to the last that counts.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub elapsed: Duration,
    /// The part past start-up; null of a test too short to have one.
    pub steady: Option<Steady>,
    /// Share of the time that was start-up.
    pub start_up_share: Option<Ratio>,
    /// How much was to be taken for start-up, if it was not to be found in the figures (`--omit`).
    #[serde(rename = "omit_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub omit: Option<Duration>,
    /// The least RTT that any connection of the test saw.
    #[serde(rename = "base_rtt_seconds", with = "seconds")]
    pub base_rtt: Duration,
    /// That of the control connection's handshake, before the load.
    #[serde(rename = "handshake_rtt_seconds", with = "seconds")]
    pub handshake_rtt: Duration,
    /// Capacity × base RTT, as known before the run; null without a capacity.
    #[serde(rename = "bdp_bytes")]
    pub bdp: Option<Bytes>,
    /// Steady goodput × base RTT.
    #[serde(rename = "measured_bdp_bytes")]
    pub measured_bdp: Bytes,
    /// The path, if its capacity is known, with the base RTT that was measured.
    pub path: Option<PathProfile>,
    /// The steady goodput to expect on that path with the window asked for.
    pub predicted: Option<Prediction>,
    /// What a measurement may be and agree with that.
    #[serde(default)]
    pub expected: Option<Expected>,
    /// The most goodput that path carries with the congestion control in use.
    #[serde(rename = "possible_goodput_bits_per_second")]
    pub possible_goodput: Option<BitRate>,
    /// Shift applied to the windows the sender is told; null if none was negotiated.
    pub window_scale: Option<u8>,
    /// Segments sent again; null where the sender does not tell, and of datagrams.
    pub retransmits: Option<u64>,
    /// Processor time of the threads that moved the data, per 10⁹ bytes; null of an end that does not tell.
    pub cpu_seconds_per_gigabyte: PerEnd<Option<Figure>>,
    /// What the server was asked, its own socket options among it.
    pub request: TestRequest,
    /// Socket options asked for at the client's end.
    pub near_socket: SocketWish,
    /// What holds the test back, the most to gain first.
    pub findings: Vec<Finding>,
    /// The receiver's intervals, which say what the goodput was; those of each end with every stream are under `near`
    /// and `far`.
    pub intervals: Vec<Slice>,
    /// The client's report.
    pub near: EndReport,
    /// The server's report.
    pub far: EndReport,
    /// How the server's clock stood to the client's; its intervals then have their times on both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Alignment>,
    /// What lies between the two ends, if it was looked at (`--path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_report: Option<PathReport>,
    /// When the receiver had its blocks, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Caught>,
    /// What probes beside the load saw (`--latency`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// What the server said, where it was one of iperf3's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iperf3: Option<Iperf3>,
    /// How well the steady goodput is known, where there were slices of time enough to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Why it ended.
    #[serde(default)]
    pub ended: Ended,
    /// The other direction was under load at the same time (`--bidir`).
    #[serde(default)]
    pub at_once: bool,
}

/// Why a test ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All of the load was done.
    #[default]
    Done,
    /// Its goodput was known well enough (`--until`).
    Narrow,
    /// The user had seen enough; what had arrived by then is all of it.
    Interrupted,
}

/// An interval by the receiver's count and clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Slice {
    /// When it began.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// When it ended.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Payload bytes received.
    pub bytes: u64,
    /// Those over that time.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// It lies past start-up.
    pub steady: bool,
}

/// One cause, diagnosed, as it is stored: its name is text, because a later version knows more of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// What holds the test back.
    pub name: String,
    /// How that shows, in one or two sentences with the figures.
    pub summary: String,
    /// The figures; their names carry units.
    pub evidence: BTreeMap<String, serde_json::Value>,
    /// What to do about it.
    pub cure: Remedy,
    /// Goodput to expect after the cure, where it can be told.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// What that is more than now.
    #[serde(rename = "gain_bits_per_second")]
    pub gain: Option<BitRate>,
}

/// A test that failed midway: all that was seen of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unfinished {
    /// What the server was asked.
    pub request: TestRequest,
    /// The RTT of the control connection's handshake, if it came that far.
    #[serde(rename = "handshake_rtt_seconds", with = "optional_seconds")]
    pub handshake_rtt: Option<Duration>,
    /// The client's intervals.
    pub near_intervals: Vec<Interval>,
    /// The server's intervals.
    pub far_intervals: Vec<Interval>,
    /// Of a ramp, what was known by then, and the rate of the step that had been begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<RampReport>,
}

/// Why a command failed, in the words of its last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Failed {
    /// Names the thing and the value.
    pub message: String,
    /// What to do about it, if there is something to do.
    pub hint: Option<String>,
}

impl From<&diagnose::Finding> for Finding {
    fn from(finding: &diagnose::Finding) -> Self {
        let diagnose::Finding { cause, summary, evidence, cure, predicted, gain } = finding;
        Finding {
            name: cause.name().to_owned(),
            summary: summary.clone(),
            // A figure that came out as no number tells nothing.
            evidence: evidence
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
            cure: cure.clone(),
            predicted: *predicted,
            gain: *gain,
        }
    }
}

impl Side {
    /// Who sends and who receives in this direction.
    pub fn of(direction: Direction) -> (Side, Side) {
        match direction {
            Direction::Forward => (Side::Near, Side::Far),
            Direction::Reverse => (Side::Far, Side::Near),
        }
    }
}

impl<T> PerEnd<T> {
    /// That of one end.
    pub fn get(&self, side: Side) -> &T {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl Hosts {
    /// What one of them is called.
    pub fn name(&self, side: Side) -> &str {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl Run {
    /// The report of one end.
    pub fn end(&self, side: Side) -> &EndReport {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl Slice {
    /// An interval of the receiver; it is steady where it lies in that part.
    pub fn new(interval: &Interval, steady: Option<&Steady>) -> Self {
        Slice {
            start: interval.start,
            end: interval.end,
            bytes: interval.bytes,
            goodput: Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start)),
            steady: steady.is_some_and(|steady| interval.start >= steady.start && interval.end <= steady.end),
        }
    }
}

impl Unfinished {
    /// A test that is to begin.
    pub fn new(request: TestRequest) -> Self {
        Unfinished { request, handshake_rtt: None, near_intervals: Vec::new(), far_intervals: Vec::new(), ramp: None }
    }
}
