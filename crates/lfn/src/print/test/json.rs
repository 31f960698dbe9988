//! One JSON object, schema `lfn.test/1`: a list of runs, one or, with --both, two.
//!
//! Names carry SI units; counts stay integers; what is not known is null or absent, never NaN. A run's own intervals
//! are the receiver's, which say what the goodput was; each end's are under `near` and `far` with every stream.

use std::io::{self, Write};
use std::time::Duration;

use lfn_core::diagnose::{Finding, Steady};
use lfn_core::path::PathProfile;
use lfn_core::tcp_model::Prediction;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::{Direction, EndReport, Interval, TestRequest};
use serde::Serialize;

use super::Run;

const SCHEMA: &str = "lfn.test/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    runs: Vec<Test<'a>>,
}

#[derive(Serialize)]
struct Test<'a> {
    direction: Direction,
    sender: &'static str,
    receiver: &'static str,
    /// What the receiver got over the whole test.
    goodput_bits_per_second: BitRate,
    /// Past start-up; that of the whole of a test too short to have such a part.
    steady_goodput_bits_per_second: BitRate,
    bytes: u64,
    elapsed_seconds: f64,
    /// The part past start-up; null of a test too short to have one.
    steady: Option<Steady>,
    start_up_share: Option<f64>,
    /// The least RTT that any connection of the test saw.
    base_rtt_seconds: f64,
    /// That of the control connection's handshake, before the load.
    handshake_rtt_seconds: f64,
    /// As known before the run; null without a capacity.
    bdp_bytes: Option<Bytes>,
    /// Steady goodput × base RTT.
    measured_bdp_bytes: Bytes,
    path: Option<PathProfile>,
    predicted: Option<Prediction>,
    possible_goodput_bits_per_second: Option<BitRate>,
    /// Applied to the windows the sender is told; null if none was negotiated.
    window_scale: Option<u8>,
    /// Segments sent again.
    retransmits: u64,
    request: &'a TestRequest,
    findings: &'a [Finding],
    intervals: Vec<Slice>,
    near: End<'a>,
    far: End<'a>,
}

/// An interval by the receiver's count and clock.
#[derive(Serialize)]
struct Slice {
    start_seconds: f64,
    end_seconds: f64,
    bytes: u64,
    goodput_bits_per_second: BitRate,
    /// It lies past start-up.
    steady: bool,
}

#[derive(Serialize)]
struct End<'a> {
    name: &'a str,
    role: &'static str,
    cpu_seconds_per_gigabyte: Option<f64>,
    #[serde(flatten)]
    report: &'a EndReport,
}

pub fn print(runs: &[Run], near: &str, far: &str) -> io::Result<()> {
    let document = Document { schema: SCHEMA, runs: runs.iter().map(|run| test(run, near, far)).collect() };
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, &document)?;
    writeln!(out)
}

fn test<'a>(run: &'a Run, near: &'a str, far: &'a str) -> Test<'a> {
    let (measurement, evidence) = (&run.measurement, &run.evidence);
    let (sender, receiver) = match run.direction() {
        Direction::Forward => ("near", "far"),
        Direction::Reverse => ("far", "near"),
    };
    let end = |which: &str, name: &'a str, report: &'a EndReport| End {
        name,
        role: if which == sender { "sender" } else { "receiver" },
        cpu_seconds_per_gigabyte: per_gigabyte(report),
        report,
    };
    Test {
        direction: run.direction(),
        sender,
        receiver,
        goodput_bits_per_second: evidence.goodput,
        steady_goodput_bits_per_second: evidence.judged_goodput(),
        bytes: measurement.receiver().bytes,
        elapsed_seconds: evidence.elapsed.as_secs_f64(),
        steady: evidence.steady,
        start_up_share: evidence.steady.and_then(|steady| share(steady.start, evidence.elapsed)),
        base_rtt_seconds: evidence.base_rtt.as_secs_f64(),
        handshake_rtt_seconds: measurement.rtt.as_secs_f64(),
        bdp_bytes: evidence.path.map(|path| path.bdp()),
        measured_bdp_bytes: evidence.judged_goodput().times(evidence.base_rtt),
        path: evidence.path,
        predicted: run.predicted,
        possible_goodput_bits_per_second: evidence.possible(),
        window_scale: run.window_scale(),
        retransmits: super::text::resent(measurement.sender()),
        request: &measurement.request,
        findings: &run.findings,
        intervals: measurement.receiver().intervals.iter().map(|i| slice(i, evidence.steady)).collect(),
        near: end("near", near, &measurement.near),
        far: end("far", far, &measurement.far),
    }
}

fn slice(interval: &Interval, steady: Option<Steady>) -> Slice {
    Slice {
        start_seconds: interval.start.as_secs_f64(),
        end_seconds: interval.end.as_secs_f64(),
        bytes: interval.bytes,
        goodput_bits_per_second: Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start)),
        steady: steady.is_some_and(|steady| interval.start >= steady.start && interval.end <= steady.end),
    }
}

fn per_gigabyte(report: &EndReport) -> Option<f64> {
    let cpu = report.cpu.map(|cpu| (cpu.user + cpu.system).as_secs_f64())?;
    (report.bytes > 0).then(|| cpu / (report.bytes as f64 / 1e9))
}

fn share(part: Duration, whole: Duration) -> Option<f64> {
    (!whole.is_zero()).then(|| part.as_secs_f64() / whole.as_secs_f64())
}
