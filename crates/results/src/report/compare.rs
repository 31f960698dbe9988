//! Comparison of several results: the main figures of each, the difference of each to the first, and the settings that
//! differ.
//!
//! The 95 % interval of the difference (Welch) decides if two goodputs differ. The standard error of each mean comes
//! from its run ([`stopping_rule`]). A run that is too short has no interval, and its difference has
//! no verdict. The difference of two kinds has no verdict either: TCP and datagrams, or copying and not copying. Each
//! direction is compared with its own first result.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::stats::{self, MIN_BLOCKS, median};
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use super::comparability::{failure_warning, warnings};
use super::document::TestDocument;
use super::read::StoredResult;
use super::run::Run;
use super::run_summary::{MeanError, ResultSource, RunSummary};
use crate::evidence::Side;
use crate::measure::{Interval, StreamReport, TestDirection};
use crate::stopping_rule::{self, GoodputEstimate};
use crate::udp::figures::UdpReceived;

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

fn lfn_summary(file: &str, number: usize, run: &Run, document: &TestDocument) -> RunSummary {
    let sender = run.evidence.end(run.sender);
    let stream = sender.streams.first();
    let info = stream.and_then(|stream| stream.tcp_info.as_ref());
    let samples = sender.intervals.iter().flat_map(|interval| &interval.streams);
    let rtts: Vec<f64> = samples.filter_map(|s| Some(s.tcp_info.as_ref()?.rtt.as_secs_f64())).collect();
    let probes = run.evidence.latency.as_ref().and_then(|latency| latency.loaded.rtt);
    let datagrams = run.evidence.request.udp.is_some();
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
        streams: run.evidence.request.streams.into(),
        record: Some(record_size(run, stream)),
        congestion: stream
            .and_then(|s| s.socket.as_ref())
            .map(|s| s.congestion.clone())
            .filter(|name| !name.is_empty()),
        mss: info.map(|info| info.snd_mss_bytes),
        mtu: info.map(|info| info.pmtu_bytes).filter(|&mtu| mtu > 0),
        modes: Some(run.evidence.request.modes).filter(|_| run.evidence.iperf3.is_none()),
        data: Some(run.evidence.request.data).filter(|_| run.evidence.iperf3.is_none()),
        protocol: if ramp.is_some() {
            "udp ramp"
        } else if datagrams {
            "udp"
        } else {
            "tcp"
        }
        .into(),
        bidirectional: run.evidence.bidirectional,
        loss_percent: loss_percent(run),
        jitter: received(run).map(|got| got.jitter).max(),
        probe_p50: probes.map(|rtt| rtt.p50),
        probe_p99: probes.map(|rtt| rtt.p99),
        goodput,
        cpu_seconds_per_gigabyte: run.cpu_seconds_per_gigabyte,
        retransmits: run.retransmits,
        base_rtt: Some(run.base_rtt).filter(|rtt| !rtt.is_zero()),
        rtt: median(&rtts).and_then(|rtt| Duration::try_from_secs_f64(rtt).ok()),
        capacity: run.evidence.path.map(|path| path.capacity),
        ended: run.evidence.ended,
        path: run.evidence.path,
        findings: run.diagnosis.findings.iter().map(|finding| finding.name.clone()).collect(),
        ..RunSummary::new(file, mean)
    }
}

/// Returns the standard error that the run reports for its goodput, as it was printed after the test. Without a report,
/// it is computed from the receiver's intervals.
fn mean_error(run: &Run) -> Option<MeanError> {
    // The figures of an iperf3 server's test start after the warm-up.
    let omit = run.evidence.omit.map(|omit| if run.evidence.iperf3.is_some() { Duration::ZERO } else { omit });
    mean_error_of(run.estimate, &run.evidence.end(run.receiver).intervals, omit)
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
    let requested = run.evidence.request.udp.as_ref().and_then(|udp| udp.datagram_bytes).map(u64::from);
    sent.or(requested).map_or(run.evidence.request.record, Bytes)
}

/// Returns the receiver's figures of datagrams, for each stream.
fn received(run: &Run) -> impl Iterator<Item = &UdpReceived> {
    run.evidence.end(run.receiver).streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref())
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
    use lfn_base::units::{BitRate, Ratio};

    use super::*;
    use crate::measure::{Mode, Modes};

    pub(in super::super) fn summary(rates: Vec<f64>) -> RunSummary {
        let goodput = BitRate((rates.iter().sum::<f64>() / rates.len() as f64) as u64);
        RunSummary { goodput, ..RunSummary::new("x", MeanError::of(&rates)) }
    }

    /// Generates uniform values from -0.5 to 0.5 with a 48-bit generator.
    fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(11) & ((1 << 48) - 1);
            (state >> 16) as f64 / f64::from(u32::MAX) - 0.5
        };
        (0..count).map(|_| next()).collect()
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
