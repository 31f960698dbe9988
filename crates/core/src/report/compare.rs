//! Comparison of several results: the main figures of each, the difference of each to the first, and the settings that
//! differ.
//!
//! The 95 % interval of the difference (Welch) decides if two goodputs differ. The standard error of each mean comes
//! from its run ([`stopping_rule`]). A run that is too short has no interval, and its difference has
//! no verdict. The difference of two kinds has no verdict either: TCP and datagrams, or copying and not copying. Each
//! direction is compared with its own first result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Figure;
use super::comparability::{failure_warning, warnings};
use super::document::{EndReason, PerEnd, Run, Side, TestDocument};
use super::read::StoredResult;
use crate::path::{PathProfile, optional_seconds, seconds};
use crate::stats::{self, BatchMeans, MIN_BLOCKS, RateSample, median};
use crate::stopping_rule::{self, GoodputEstimate};
use crate::udp::figures::UdpReceived;
use crate::units::{BitRate, Bytes};
use crate::wire::measure::{Interval, Modes, PayloadData, StreamReport, TestDirection};

/// Comparison of several results, schema `lfn.show/2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Comparison {
    /// Name and version of the schema.
    pub schema: ComparisonSchema,
    /// One summary for each direction of each file.
    pub results: Vec<RunSummary>,
    /// Difference of each result to the first result of its direction.
    pub differences: Vec<GoodputDifference>,
    /// Settings that differ, because a difference may come from them.
    pub warnings: Vec<String>,
}

/// Name and version of the schema of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum ComparisonSchema {
    #[default]
    #[serde(rename = "lfn.show/2")]
    V2,
}

/// Program that measured a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResultSource {
    /// `lfn test`, any supported version.
    #[default]
    Lfn,
    /// `iperf3`, from its JSON output.
    Iperf3,
}

/// Compared figures of one direction. A value that the program does not report is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// Name of the file as typed.
    pub file: String,
    /// Number of the run in the file, from 0.
    pub run: usize,
    /// Program that measured the result.
    pub source: ResultSource,
    /// Version of the program.
    pub version: String,
    /// Start of the test: RFC 3339, UTC.
    pub started: Option<String>,
    /// Direction of the data: forward is client to server.
    pub direction: TestDirection,
    /// `tcp`, `udp` or `udp ramp`; the goodput of a ramp is the highest rate that passed.
    pub protocol: String,
    /// Time in which data was received.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub time: Duration,
    /// Number of parallel streams.
    pub streams: u32,
    /// Bytes of one write.
    #[serde(rename = "record_bytes")]
    pub record: Option<Bytes>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Payload bytes of a full segment.
    #[serde(rename = "mss_bytes")]
    pub mss: Option<u32>,
    /// Path MTU of IP as the sender's kernel knew it.
    #[serde(rename = "mtu_bytes")]
    pub mtu: Option<u32>,
    /// Data path of each end; null for iperf3.
    pub modes: Option<Modes>,
    /// Content of the payload; null for iperf3.
    pub data: Option<PayloadData>,
    /// Steady goodput if it is known, else the goodput of the whole test.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Half width of the 95 % interval of the mean goodput; null if the run is too short.
    #[serde(rename = "goodput_interval_bits_per_second")]
    pub interval: Option<Figure>,
    /// CPU time for each 10⁹ bytes.
    pub cpu_seconds_per_gigabyte: PerEnd<Option<Figure>>,
    /// Retransmitted segments of the whole run.
    pub retransmits: Option<u64>,
    /// Minimum RTT of the run.
    #[serde(rename = "base_rtt_seconds", with = "optional_seconds")]
    pub base_rtt: Option<Duration>,
    /// Median of the data streams' smoothed RTT, under load.
    #[serde(rename = "loaded_rtt_seconds", with = "optional_seconds")]
    pub rtt: Option<Duration>,
    /// Median RTT of the probes under load.
    #[serde(rename = "probe_p50_seconds", with = "optional_seconds")]
    pub probe_p50: Option<Duration>,
    /// 99th percentile of the probes' RTT under load.
    #[serde(rename = "probe_p99_seconds", with = "optional_seconds")]
    pub probe_p99: Option<Duration>,
    /// Lost datagrams in per cent.
    pub loss_percent: Option<Figure>,
    /// Jitter of the datagrams (RFC 3550).
    #[serde(rename = "jitter_seconds", with = "optional_seconds")]
    pub jitter: Option<Duration>,
    /// Names of the causes that limit the test.
    pub findings: Vec<String>,
    /// Capacity of the bottleneck, if it was known.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: Option<BitRate>,
    /// Reason for the end of the test.
    pub ended: EndReason,
    /// Path of a run with a known capacity; not stored.
    #[serde(skip)]
    pub(super) path: Option<PathProfile>,
    /// Both directions ran at the same time; not stored.
    #[serde(skip)]
    pub(super) bidirectional: bool,
    /// Standard error of the mean goodput; not stored.
    #[serde(skip)]
    pub(super) mean: Option<MeanError>,
}

/// Difference of a result to the first result of its direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct GoodputDifference {
    /// Index of the result in `results`.
    pub result: usize,
    /// Index of the base result in `results`.
    pub base: usize,
    /// Goodput minus the goodput of the base.
    #[serde(rename = "goodput_difference_bits_per_second")]
    pub goodput: Figure,
    /// Difference as a percentage of the base's goodput; null if that is zero.
    pub goodput_percent: Option<Figure>,
    /// Half width of the 95 % interval of the difference; null if one of the two runs is too short.
    #[serde(rename = "interval_bits_per_second")]
    pub interval: Option<Figure>,
    /// True if the interval does not contain zero. Null without an interval, and if the two results differ in protocol
    /// or in data path.
    pub significant: Option<bool>,
}

/// Compares the results of files; each result has the name of its file.
pub fn compare(files: &[(String, StoredResult)]) -> Comparison {
    let results: Vec<RunSummary> = files.iter().flat_map(|(file, stored)| summaries(file, stored)).collect();
    let base = |summary: &RunSummary| results.iter().position(|base| base.direction == summary.direction);
    let differences =
        results.iter().enumerate().filter_map(|(i, summary)| difference(base(summary)?, i, &results)).collect();
    let failed = files.iter().filter_map(|(file, stored)| failure_warning(file, stored));
    let warnings = warnings(&results).into_iter().chain(failed).collect();
    Comparison { schema: ComparisonSchema::V2, results, differences, warnings }
}

fn summaries(file: &str, stored: &StoredResult) -> Vec<RunSummary> {
    match stored {
        StoredResult::Test(document) => {
            document.runs.iter().enumerate().map(|(number, run)| lfn_summary(file, number, run, document)).collect()
        }
        StoredResult::Tuning(document) => {
            let document = document.as_ref().clone().into_test_document();
            document.runs.iter().enumerate().map(|(number, run)| lfn_summary(file, number, run, &document)).collect()
        }
        StoredResult::Iperf3(result) => result.summaries(file),
    }
}

impl RunSummary {
    /// Creates a summary with the interval of `mean`. The caller sets the other figures.
    pub(super) fn new(file: &str, mean: Option<MeanError>) -> Self {
        let interval = mean.and_then(|mean| Figure::new(mean.half_interval()));
        RunSummary {
            file: file.to_owned(),
            run: 0,
            source: ResultSource::Lfn,
            version: String::new(),
            started: None,
            direction: TestDirection::Forward,
            protocol: "tcp".into(),
            time: Duration::ZERO,
            streams: 0,
            record: None,
            congestion: None,
            mss: None,
            mtu: None,
            modes: None,
            data: None,
            goodput: BitRate::default(),
            interval,
            cpu_seconds_per_gigabyte: PerEnd::default(),
            retransmits: None,
            base_rtt: None,
            rtt: None,
            probe_p50: None,
            probe_p99: None,
            loss_percent: None,
            jitter: None,
            findings: Vec::new(),
            capacity: None,
            ended: EndReason::Completed,
            path: None,
            bidirectional: false,
            mean,
        }
    }

    /// Returns true if both goodputs measure the same kind of test. iperf3 copies payload by default.
    fn is_comparable(&self, other: &RunSummary) -> bool {
        let modes = |summary: &RunSummary| summary.modes.unwrap_or_default();
        let kind =
            |summary: &RunSummary| (summary.direction, summary.protocol.clone(), summary.bidirectional, modes(summary));
        kind(self) == kind(other)
    }
}

fn lfn_summary(file: &str, number: usize, run: &Run, document: &TestDocument) -> RunSummary {
    let sender = run.end(run.sender);
    let stream = sender.streams.first();
    let info = stream.and_then(|stream| stream.tcp_info.as_ref());
    let samples = sender.intervals.iter().flat_map(|interval| &interval.streams);
    let rtts: Vec<f64> = samples.filter_map(|s| Some(s.tcp_info.as_ref()?.rtt.as_secs_f64())).collect();
    let probes = run.latency.as_ref().and_then(|latency| latency.loaded.rtt);
    let datagrams = run.request.udp.is_some();
    let ramp = sender.streams.iter().find_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    // A ramp's goodput covers all its steps, so it is no measure of the path.
    let (goodput, mean) = match ramp {
        Some(ramp) => (ramp.highest_passed.unwrap_or_default(), None),
        None => (run.steady_goodput, mean_error(run)),
    };
    RunSummary {
        run: number,
        version: format!("lfn {}", document.origin.lfn_version),
        started: Some(document.origin.started.clone()),
        direction: run.direction,
        time: run.elapsed,
        streams: run.request.streams.into(),
        record: Some(record_size(run, stream)),
        congestion: stream
            .and_then(|s| s.socket.as_ref())
            .map(|s| s.congestion.clone())
            .filter(|name| !name.is_empty()),
        mss: info.map(|info| info.snd_mss_bytes),
        mtu: info.map(|info| info.pmtu_bytes).filter(|&mtu| mtu > 0),
        modes: Some(run.request.modes).filter(|_| run.iperf3.is_none()),
        data: Some(run.request.data).filter(|_| run.iperf3.is_none()),
        protocol: if ramp.is_some() {
            "udp ramp"
        } else if datagrams {
            "udp"
        } else {
            "tcp"
        }
        .into(),
        bidirectional: run.bidirectional,
        loss_percent: loss_percent(run),
        jitter: received(run).map(|got| got.jitter).max(),
        probe_p50: probes.map(|rtt| rtt.p50),
        probe_p99: probes.map(|rtt| rtt.p99),
        goodput,
        cpu_seconds_per_gigabyte: run.cpu_seconds_per_gigabyte,
        retransmits: run.retransmits,
        base_rtt: Some(run.base_rtt).filter(|rtt| !rtt.is_zero()),
        rtt: median(&rtts).and_then(|rtt| Duration::try_from_secs_f64(rtt).ok()),
        capacity: run.path.map(|path| path.capacity),
        ended: run.ended,
        path: run.path,
        findings: run.findings.iter().map(|finding| finding.name.clone()).collect(),
        ..RunSummary::new(file, mean)
    }
}

/// Returns the standard error that the run reports for its goodput, as it was printed after the test. Without a report,
/// it is computed from the receiver's intervals.
fn mean_error(run: &Run) -> Option<MeanError> {
    // The figures of an iperf3 server's test start after the warm-up.
    let omit = run.omit.map(|omit| if run.iperf3.is_some() { Duration::ZERO } else { omit });
    mean_error_of(run.estimate, &run.end(run.receiver).intervals, omit)
}

fn mean_error_of(
    estimate: Option<GoodputEstimate>,
    received: &[Interval],
    omit: Option<Duration>,
) -> Option<MeanError> {
    // A file may hold any figures.
    let known =
        estimate.filter(|known| known.blocks >= MIN_BLOCKS).or_else(|| stopping_rule::estimate(received, omit))?;
    let (error, freedom) = known.standard_error();
    Some(MeanError { error, degrees_of_freedom: freedom })
}

/// Returns the bytes of one write, or the payload of one datagram.
fn record_size(run: &Run, stream: Option<&StreamReport>) -> Bytes {
    let sent = stream.and_then(|stream| stream.udp.as_ref()?.sent.as_ref()).map(|sent| sent.datagram_bytes);
    let requested = run.request.udp.as_ref().and_then(|udp| udp.datagram_bytes).map(u64::from);
    sent.or(requested).map_or(run.request.record, Bytes)
}

/// Returns the receiver's figures of datagrams, for each stream.
fn received(run: &Run) -> impl Iterator<Item = &UdpReceived> {
    run.end(run.receiver).streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref())
}

fn loss_percent(run: &Run) -> Option<Figure> {
    // A file may hold any figures.
    let lost = received(run).fold(0u64, |sum, got| sum.saturating_add(got.lost));
    let sent = received(run).fold(lost, |sum, got| sum.saturating_add(got.datagrams));
    Figure::new(lost as f64 / sent as f64 * 100.0)
}

fn difference(base: usize, result: usize, results: &[RunSummary]) -> Option<GoodputDifference> {
    if base == result {
        return None;
    }
    let (first, second) = (&results[base], &results[result]);
    let by = second.goodput.as_f64() - first.goodput.as_f64();
    let half_interval_of = |(a, b): (MeanError, MeanError)| {
        Figure::new(stats::welch_half_width([a.error, b.error], [a.degrees_of_freedom, b.degrees_of_freedom]))
    };
    let interval = first.mean.zip(second.mean).and_then(half_interval_of);
    Some(GoodputDifference {
        result,
        base,
        goodput: Figure::new(by)?,
        goodput_percent: Figure::new(by / first.goodput.as_f64() * 100.0),
        interval,
        significant: interval.filter(|_| first.is_comparable(second)).map(|interval| by.abs() > interval.get()),
    })
}

/// Standard error of the mean of a run's steady goodput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeanError {
    /// Standard error in bits per second.
    error: f64,
    degrees_of_freedom: f64,
}

impl MeanError {
    /// Returns half the width of the 95 % interval.
    fn half_interval(self) -> f64 {
        stats::student_quantile(self.degrees_of_freedom) * self.error
    }

    /// Estimates the error from the goodput of the steady intervals, which have about the same length.
    pub(super) fn of(rates: &[f64]) -> Option<MeanError> {
        let slices: Vec<RateSample> = rates.iter().map(|&amount| RateSample { amount, seconds: 1.0 }).collect();
        BatchMeans::from_samples(&slices)
            .map(|known| MeanError { error: known.error, degrees_of_freedom: known.degrees_of_freedom() })
    }
}

impl Comparison {
    /// Returns the comparison as CSV: one row for each result, with its difference to the base.
    pub fn csv(&self) -> String {
        let mut table = String::new();
        super::csv::push_record(&mut table, CSV_HEAD.iter().map(|name| (*name).to_owned()));
        for (number, summary) in self.results.iter().enumerate() {
            let difference = self.differences.iter().find(|difference| difference.result == number);
            super::csv::push_record(&mut table, cells(summary, difference).into_iter().map(Option::unwrap_or_default));
        }
        table
    }
}

const CSV_HEAD: [&str; 20] = [
    "file",
    "run",
    "source",
    "version",
    "started",
    "direction",
    "protocol",
    "elapsed_seconds",
    "streams",
    "congestion",
    "goodput_bits_per_second",
    "goodput_interval_bits_per_second",
    "near_cpu_seconds_per_gigabyte",
    "far_cpu_seconds_per_gigabyte",
    "retransmits",
    "base_rtt_seconds",
    "loaded_rtt_seconds",
    "findings",
    "goodput_difference_bits_per_second",
    "significant",
];

fn cells(summary: &RunSummary, difference: Option<&GoodputDifference>) -> [Option<String>; 20] {
    let figure = |figure: Option<Figure>| figure.map(|figure| figure.get().to_string());
    let time = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string());
    let cpu = |side: Side| figure(*summary.cpu_seconds_per_gigabyte.get(side));
    [
        Some(summary.file.clone()),
        Some(summary.run.to_string()),
        Some(if summary.source == ResultSource::Lfn { "lfn" } else { "iperf3" }.into()),
        Some(summary.version.clone()),
        summary.started.clone(),
        Some(if summary.direction == TestDirection::Forward { "forward" } else { "reverse" }.into()),
        Some(summary.protocol.clone()),
        time(Some(summary.time)),
        Some(summary.streams.to_string()),
        summary.congestion.clone(),
        Some(summary.goodput.0.to_string()),
        figure(summary.interval),
        cpu(Side::Near),
        cpu(Side::Far),
        summary.retransmits.map(|count| count.to_string()),
        time(summary.base_rtt),
        time(summary.rtt),
        Some(summary.findings.join("; ")),
        difference.map(|difference| difference.goodput.get().to_string()),
        difference.and_then(|difference| difference.significant).map(|significant| significant.to_string()),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::stats::tests::noise;
    use crate::units::Ratio;
    use crate::wire::measure::Mode;

    pub(in super::super) fn summary(rates: Vec<f64>) -> RunSummary {
        let goodput = BitRate((rates.iter().sum::<f64>() / rates.len() as f64) as u64);
        RunSummary { goodput, ..RunSummary::new("x", MeanError::of(&rates)) }
    }

    #[test]
    fn only_a_significant_difference_is_reported() {
        let around = |mean: f64, seed| noise(40, seed).iter().map(|x| mean * (1.0 + 0.1 * x)).collect::<Vec<_>>();
        let results = [summary(around(1e9, 1)), summary(around(1e9, 99)), summary(around(1.1e9, 7))];
        let same = difference(0, 1, &results).unwrap();
        let other = difference(0, 2, &results).unwrap();
        assert_eq!((same.significant, other.significant), (Some(false), Some(true)), "{same:?} {other:?}");
        assert!((other.goodput_percent.unwrap().get() - 10.0).abs() < 2.0);
        let short = [summary(vec![1e9; 5]), summary(vec![2e9; 5])];
        assert_eq!(difference(0, 1, &short).unwrap().significant, None, "five intervals are too few");
        let zero = [summary(vec![0.0; 20]), summary(vec![0.0; 20])];
        assert_eq!(difference(0, 1, &zero).unwrap().goodput_percent, None);
    }

    #[test]
    fn different_kinds_of_tests_have_no_verdict() {
        let no_copy = Some(Modes { near: Mode::NoCopy, far: Mode::NoCopy });
        let of = |rate: f64| RunSummary { modes: Some(Modes::default()), ..summary(vec![rate; 10]) };
        let significant = |other: RunSummary| {
            let found = difference(0, 1, &[of(1e9), other]).unwrap();
            assert!(found.interval.is_some());
            found.significant
        };
        assert_eq!(significant(of(2e9)), Some(true));
        assert_eq!(significant(RunSummary { modes: None, ..of(2e9) }), Some(true), "iperf3 copies too");
        assert_eq!(significant(RunSummary { modes: no_copy, ..of(2e9) }), None);
        assert_eq!(significant(RunSummary { protocol: "udp".into(), ..of(2e9) }), None);
        let bidirectional = RunSummary { bidirectional: true, ..of(2e9) };
        let warned = warnings(&[of(1e9), bidirectional.clone()]);
        assert_eq!(significant(bidirectional), None);
        assert_eq!(warned, ["different load: one direction at a time, both directions at once"]);
    }

    /// The interval of a stored run equals the interval that was printed after the test.
    #[test]
    fn a_stored_run_keeps_its_interval() {
        let seconds = Duration::from_secs;
        let interval = |(n, bytes): (u64, &u64)| Interval {
            start: seconds(n),
            end: seconds(n + 1),
            bytes: *bytes,
            ..Interval::default()
        };
        let bytes: Vec<u64> = noise(30, 99).iter().map(|x| (1e6 * (1.0 + 0.1 * x)) as u64).collect();
        let intervals: Vec<Interval> = (0..).zip(&bytes).map(interval).collect();
        let estimate = stopping_rule::estimate(&intervals, None).unwrap();
        let half =
            |estimate, intervals: &[Interval]| Some(mean_error_of(estimate, intervals, None)?.half_interval().round());
        assert!(estimate.half_width_rate() > 1e4);
        assert_eq!(half(None, &intervals), Some(estimate.half_width_rate().round()));
        let other = GoodputEstimate { half_width: Ratio::new(0.5).unwrap(), ..estimate };
        assert_eq!(half(Some(other), &intervals), Some(other.half_width_rate().round()), "the stored estimate is used");
        assert_eq!(half(Some(GoodputEstimate { blocks: 0, ..estimate }), &[]), None, "an invalid estimate");
    }
}
