//! One test in a stored result: its evidence, the figures that follow from the evidence, and its diagnosis.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::seconds;
use lfn_base::units::{BitRate, Bytes, Ratio};
use serde::{Deserialize, Serialize};

use crate::diagnose::{Diagnosis, diagnose};
use crate::evidence::figures::{Figures, SteadyPart};
use crate::evidence::{Evidence, LoadKind, PerEnd, Side};
use crate::measure::{EndReport, Interval, TestDirection};
use crate::stopping_rule::{self, GoodputEstimate};

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
    /// Minimum RTT of all connections of the test.
    #[serde(rename = "base_rtt_seconds", with = "seconds")]
    pub base_rtt: Duration,
    /// Capacity × base RTT, known before the run; null without a capacity.
    #[serde(rename = "bdp_bytes")]
    pub bdp: Option<Bytes>,
    /// Steady goodput × base RTT.
    #[serde(rename = "measured_bdp_bytes")]
    pub measured_bdp: Bytes,
    /// Maximum goodput of this path with the congestion control in use.
    #[serde(rename = "possible_goodput_bits_per_second")]
    pub possible_goodput: Option<BitRate>,
    /// Window scale that the sender applies to the advertised window; null if none was negotiated.
    pub window_scale: Option<u8>,
    /// Retransmitted segments; null for datagrams and if the sender does not report them.
    pub retransmits: Option<u64>,
    /// CPU time of the data threads for each 10⁹ bytes; null if an end does not report it.
    pub cpu_seconds_per_gigabyte: PerEnd<Option<Figure>>,
    /// Intervals of the receiver, which give the goodput. `near` and `far` have the intervals of each end for every
    /// stream.
    pub intervals: Vec<GoodputInterval>,
    /// Confidence interval of the steady goodput, if there are enough slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<GoodputEstimate>,
    /// Request and reports of both ends.
    #[serde(flatten)]
    pub evidence: Evidence,
    /// Prediction, limit and findings.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
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

impl Run {
    /// Diagnoses the evidence of a test.
    pub fn new(evidence: Evidence) -> Self {
        let diagnosis = diagnose(&evidence);
        let figures = Figures::of(&evidence);
        let (sender, receiver) = (evidence.sending_side(), evidence.receiving_side());
        let (sent, received) = (evidence.sender(), evidence.receiver());
        let (elapsed, steady) = (received.elapsed, figures.steady);
        let is_tcp = evidence.kind() == LoadKind::Tcp;
        // The figures of an iperf3 server have no slices.
        let is_estimated = is_tcp && evidence.iperf3.is_none();
        Run {
            direction: evidence.request.direction,
            sender,
            receiver,
            goodput: figures.goodput,
            steady_goodput: figures.steady_goodput(),
            bytes: received.bytes,
            elapsed,
            steady,
            start_up_share: steady.and_then(|steady| share(steady.start, elapsed)),
            base_rtt: figures.base_rtt,
            bdp: figures.path.map(|path| path.bdp()),
            measured_bdp: figures.steady_goodput().times(figures.base_rtt),
            // The possible goodput of TCP does not apply to datagrams.
            possible_goodput: figures.possible_goodput().filter(|_| is_tcp),
            window_scale: window_scale(sent),
            retransmits: retransmits(&evidence),
            cpu_seconds_per_gigabyte: PerEnd { near: per_gigabyte(&evidence.near), far: per_gigabyte(&evidence.far) },
            intervals: received.intervals.iter().map(|i| GoodputInterval::new(i, steady.as_ref())).collect(),
            estimate: is_estimated.then(|| stopping_rule::estimate(&received.intervals, evidence.omit)).flatten(),
            evidence: Evidence { path: figures.path, ..evidence },
            diagnosis,
        }
    }

    /// Returns true if the figures of the test are not reliable.
    pub fn is_unreliable(&self) -> bool {
        self.evidence.has_wrong_bytes() || !self.diagnosis.verdict.reliable
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

/// Returns the window scale of the advertised window, if it was negotiated.
fn window_scale(sender: &EndReport) -> Option<u8> {
    let info = sender.streams.first()?.tcp_info.as_ref()?;
    info.window_scaling.then_some(info.snd_wscale)
}

/// Returns the retransmitted segments of the whole test, if the sender reports them.
fn retransmits(evidence: &Evidence) -> Option<u64> {
    let streams = evidence.sender().streams.iter();
    let counts = streams.filter_map(|stream| Some(u64::from(stream.tcp_info.as_ref()?.retransmitted_segments)));
    counts.reduce(u64::saturating_add).or(evidence.iperf3.as_ref().and_then(|iperf3| iperf3.retransmits))
}

fn per_gigabyte(report: &EndReport) -> Option<Figure> {
    let cpu = report.cpu.map(|cpu| (cpu.user + cpu.system).as_secs_f64())?;
    Figure::new(cpu / (report.bytes as f64 / 1e9))
}

fn share(part: Duration, whole: Duration) -> Option<Ratio> {
    Ratio::new((part.as_secs_f64() / whole.as_secs_f64()).min(1.0))
}
