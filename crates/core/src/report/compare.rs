//! Several results side by side: the figures that matter of each, how each differs from the first, and what was not the
//! same about them.
//!
//! Whether two goodputs differ is judged by the 95 % interval of their difference (Welch), of two means each known as
//! well as the run itself says ([`until`]). A run too short for that has no interval, and nothing is claimed of it;
//! nothing either of two that are not of one kind: TCP and datagrams, copying and not. Directions are compared each with
//! its own.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Figure;
use super::document::{Document, Ended, PerEnd, Run, Side};
use super::read::Stored;
use super::unlike::{failed, warnings};
use crate::path::{PathProfile, optional_seconds, seconds};
use crate::stats::{self, BatchMeans, FEWEST_BLOCKS, Slice, median};
use crate::udp::figures::Received;
use crate::units::{BitRate, Bytes};
use crate::stopping_rule::{self, Estimate};
use crate::wire::test::{Data, Direction, Interval, Modes, StreamReport};

/// Several results side by side, schema `lfn.show/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Comparison {
    /// What this is.
    pub schema: ComparisonSchema,
    /// One for each direction of each file.
    pub results: Vec<Summary>,
    /// Each result but the first, against the first of the same direction.
    pub differences: Vec<Difference>,
    /// What was not the same, so that a difference may have other causes than the one looked for.
    pub warnings: Vec<String>,
}

/// The name and version of the schema of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ComparisonSchema {
    /// This one.
    #[default]
    #[serde(rename = "lfn.show/1")]
    One,
}

/// Whose result it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Of `lfn test`.
    #[default]
    Lfn,
    /// Of iperf3.
    Iperf3,
}

/// The figures of one direction that are compared. What its source does not tell is null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// The file, as typed.
    pub file: String,
    /// Its number in the file, from 0.
    pub run: usize,
    /// Whose result it is.
    pub source: Source,
    /// Version of what measured.
    pub version: String,
    /// When it began: RFC 3339, UTC.
    pub started: Option<String>,
    /// Who sent, by who dialled.
    pub direction: Direction,
    /// `tcp`, `udp`, or `udp ramp`, whose goodput is the highest rate that passed.
    pub protocol: String,
    /// How long data was received.
    #[serde(rename = "elapsed_seconds", with = "seconds")]
    pub time: Duration,
    /// Streams side by side.
    pub streams: u32,
    /// Bytes handed to one write.
    #[serde(rename = "record_bytes")]
    pub record: Option<Bytes>,
    /// Congestion control of the sender.
    pub congestion: Option<String>,
    /// Payload bytes of a full segment.
    #[serde(rename = "mss_bytes")]
    pub mss: Option<u32>,
    /// IP MTU of the path, as the sender's kernel knew it.
    #[serde(rename = "mtu_bytes")]
    pub mtu: Option<u32>,
    /// How each end moved payload; iperf3 does not tell.
    pub modes: Option<Modes>,
    /// What payload consisted of; iperf3 does not tell.
    pub data: Option<Data>,
    /// Payload received over time, past start-up where that is known.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    /// Half the 95 % interval of its mean, where the run is long enough.
    #[serde(rename = "goodput_interval_bits_per_second")]
    pub interval: Option<Figure>,
    /// Processor time per 10⁹ bytes.
    pub cpu_seconds_per_gigabyte: PerEnd<Option<Figure>>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// The least RTT that was seen.
    #[serde(rename = "base_rtt_seconds", with = "optional_seconds")]
    pub base_rtt: Option<Duration>,
    /// The middle smoothed RTT of the data streams: under load.
    #[serde(rename = "loaded_rtt_seconds", with = "optional_seconds")]
    pub rtt: Option<Duration>,
    /// Round trips of probes under load, half of which were shorter.
    #[serde(rename = "probe_p50_seconds", with = "optional_seconds")]
    pub probe_p50: Option<Duration>,
    /// The same of 99 in a hundred.
    #[serde(rename = "probe_p99_seconds", with = "optional_seconds")]
    pub probe_p99: Option<Duration>,
    /// Share of the datagrams lost, per cent.
    pub loss_percent: Option<Figure>,
    /// Of the datagrams, RFC 3550.
    #[serde(rename = "jitter_seconds", with = "optional_seconds")]
    pub jitter: Option<Duration>,
    /// What was found to hold it back.
    pub findings: Vec<String>,
    /// What the path's bottleneck carries, where that was known.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: Option<BitRate>,
    /// Why it ended.
    pub ended: Ended,
    /// The path, where its capacity was known; not told.
    #[serde(skip)]
    pub(super) path: Option<PathProfile>,
    /// The other direction was under load at the same time; not told.
    #[serde(skip)]
    pub(super) at_once: bool,
    /// How well the mean is known; not told.
    #[serde(skip)]
    pub(super) mean: Option<Mean>,
}

/// How a result differs from the first of the same direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Difference {
    /// The result, by its place in `results`.
    pub result: usize,
    /// What it is compared with.
    pub base: usize,
    /// Its goodput less that of the base.
    #[serde(rename = "goodput_difference_bits_per_second")]
    pub goodput: Figure,
    /// The same over that of the base, per cent; null where that is zero.
    pub goodput_percent: Option<Figure>,
    /// Half the 95 % interval of the difference; null where one of the two is too short to have one.
    #[serde(rename = "interval_bits_per_second")]
    pub interval: Option<Figure>,
    /// The interval leaves out zero: the difference is more than chance; null without an interval, and where the two are
    /// not of one kind: of another protocol, or with other ends that copy payload.
    pub significant: Option<bool>,
}

/// Compares what files held, each with its name.
pub fn compare(files: &[(String, Stored)]) -> Comparison {
    let results: Vec<Summary> = files.iter().flat_map(|(file, stored)| summaries(file, stored)).collect();
    let base = |summary: &Summary| results.iter().position(|base| base.direction == summary.direction);
    let differences =
        results.iter().enumerate().filter_map(|(i, summary)| difference((base(summary)?, i), &results)).collect();
    let failed = files.iter().filter_map(|(file, stored)| failed(file, stored));
    let warnings = warnings(&results).into_iter().chain(failed).collect();
    Comparison { schema: ComparisonSchema::One, results, differences, warnings }
}

fn summaries(file: &str, stored: &Stored) -> Vec<Summary> {
    match stored {
        Stored::Test(document) => {
            document.runs.iter().enumerate().map(|(number, run)| of_lfn(file, number, run, document)).collect()
        }
        Stored::Iperf3(result) => result.summaries(file),
    }
}

impl Summary {
    /// Of a mean that is known that well; the rest is to be filled in.
    pub(super) fn new(file: &str, mean: Option<Mean>) -> Self {
        let interval = mean.and_then(|mean| Figure::new(mean.half()));
        Summary {
            file: file.to_owned(),
            run: 0,
            source: Source::Lfn,
            version: String::new(),
            started: None,
            direction: Direction::Forward,
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
            ended: Ended::Done,
            path: None,
            at_once: false,
            mean,
        }
    }

    /// Whether its goodput is of the same kind of thing. iperf3 copies, if nothing else is asked of it.
    fn is_like(&self, other: &Summary) -> bool {
        let modes = |summary: &Summary| summary.modes.unwrap_or_default();
        let kind = |summary: &Summary| (summary.direction, summary.protocol.clone(), summary.at_once, modes(summary));
        kind(self) == kind(other)
    }
}

fn of_lfn(file: &str, number: usize, run: &Run, document: &Document) -> Summary {
    let sender = run.end(run.sender);
    let stream = sender.streams.first();
    let info = stream.and_then(|stream| stream.tcp_info.as_ref());
    let samples = sender.intervals.iter().flat_map(|interval| &interval.streams);
    let rtts: Vec<f64> = samples.filter_map(|s| Some(s.tcp_info.as_ref()?.rtt.as_secs_f64())).collect();
    let probes = run.latency.as_ref().and_then(|latency| latency.loaded.rtt);
    let datagrams = run.request.udp.is_some();
    let ramp = sender.streams.iter().find_map(|stream| stream.udp.as_ref()?.ramp.as_ref());
    // A ramp's goodput is of all its steps together, which says nothing of the path.
    let (goodput, mean) = match ramp {
        Some(ramp) => (ramp.highest.unwrap_or_default(), None),
        None => (run.steady_goodput, known(run)),
    };
    Summary {
        run: number,
        version: format!("lfn {}", document.origin.lfn_version),
        started: Some(document.origin.started.clone()),
        direction: run.direction,
        time: run.elapsed,
        streams: run.request.streams.into(),
        record: Some(record(run, stream)),
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
        at_once: run.at_once,
        loss_percent: loss(run),
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
        ..Summary::new(file, mean)
    }
}

/// How well the run itself says that its goodput is known: the figure that was printed when it was measured; of what the
/// receiver counted, where it says nothing.
fn known(run: &Run) -> Option<Mean> {
    // Of an iperf3 server's test the figures begin where the warm-up ended.
    let omit = run.omit.map(|omit| if run.iperf3.is_some() { Duration::ZERO } else { omit });
    told(run.estimate, &run.end(run.receiver).intervals, omit)
}

fn told(estimate: Option<Estimate>, received: &[Interval], omit: Option<Duration>) -> Option<Mean> {
    // A file may hold any figures.
    let known = estimate.filter(|known| known.blocks >= FEWEST_BLOCKS).or_else(|| stopping_rule::estimate(received, omit))?;
    let (error, freedom) = known.error();
    Some(Mean { error, freedom })
}

/// Bytes handed to one write: of datagrams, the payload of each.
fn record(run: &Run, stream: Option<&StreamReport>) -> Bytes {
    let sent = stream.and_then(|stream| stream.udp.as_ref()?.sent.as_ref()).map(|sent| sent.datagram_bytes);
    let asked = run.request.udp.as_ref().and_then(|udp| udp.datagram_bytes).map(u64::from);
    sent.or(asked).map_or(run.request.record, Bytes)
}

/// What the receiver saw of datagrams.
fn received(run: &Run) -> impl Iterator<Item = &Received> {
    run.end(run.receiver).streams.iter().filter_map(|stream| stream.udp.as_ref()?.received.as_ref())
}

fn loss(run: &Run) -> Option<Figure> {
    // A file may hold any figures.
    let lost = received(run).fold(0u64, |sum, got| sum.saturating_add(got.lost));
    let sent = received(run).fold(lost, |sum, got| sum.saturating_add(got.datagrams));
    Figure::new(lost as f64 / sent as f64 * 100.0)
}

fn difference((base, result): (usize, usize), results: &[Summary]) -> Option<Difference> {
    if base == result {
        return None;
    }
    let (first, second) = (&results[base], &results[result]);
    let by = second.goodput.as_f64() - first.goodput.as_f64();
    let apart = |(a, b): (Mean, Mean)| Figure::new(stats::apart((a.error, a.freedom), (b.error, b.freedom)));
    let interval = first.mean.zip(second.mean).and_then(apart);
    Some(Difference {
        result,
        base,
        goodput: Figure::new(by)?,
        goodput_percent: Figure::new(by / first.goodput.as_f64() * 100.0),
        interval,
        significant: interval.filter(|_| first.is_like(second)).map(|interval| by.abs() > interval.get()),
    })
}

/// How well the mean of a run's steady goodput is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mean {
    /// Its standard error, bits per second.
    error: f64,
    /// Degrees of freedom.
    freedom: f64,
}

impl Mean {
    /// Half its 95 % interval.
    fn half(self) -> f64 {
        stats::student(self.freedom) * self.error
    }

    /// Of the goodput of each steady interval, about as long as each other.
    pub(super) fn of(rates: &[f64]) -> Option<Mean> {
        let slices: Vec<Slice> = rates.iter().map(|&amount| Slice { amount, seconds: 1.0 }).collect();
        BatchMeans::of(&slices).map(|known| Mean { error: known.error, freedom: known.freedom() })
    }
}

impl Comparison {
    /// A row a result, and how it differs from its base.
    pub fn csv(&self) -> String {
        let mut table = String::new();
        super::csv::line(&mut table, HEAD.iter().map(|name| (*name).to_owned()));
        for (number, summary) in self.results.iter().enumerate() {
            let difference = self.differences.iter().find(|difference| difference.result == number);
            super::csv::line(&mut table, cells(summary, difference).into_iter().map(Option::unwrap_or_default));
        }
        table
    }
}

const HEAD: [&str; 20] = [
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

fn cells(summary: &Summary, difference: Option<&Difference>) -> [Option<String>; 20] {
    let figure = |figure: Option<Figure>| figure.map(|figure| figure.get().to_string());
    let time = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string());
    let cpu = |side: Side| figure(*summary.cpu_seconds_per_gigabyte.get(side));
    [
        Some(summary.file.clone()),
        Some(summary.run.to_string()),
        Some(if summary.source == Source::Lfn { "lfn" } else { "iperf3" }.into()),
        Some(summary.version.clone()),
        summary.started.clone(),
        Some(if summary.direction == Direction::Forward { "forward" } else { "reverse" }.into()),
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
    use crate::wire::test::Mode;

    pub(in super::super) fn summary(rates: Vec<f64>) -> Summary {
        let goodput = BitRate((rates.iter().sum::<f64>() / rates.len() as f64) as u64);
        Summary { goodput, ..Summary::new("x", Mean::of(&rates)) }
    }

    #[test]
    fn only_a_difference_beyond_chance_is_called_one() {
        let around = |mean: f64, seed| noise(40, seed).iter().map(|x| mean * (1.0 + 0.1 * x)).collect::<Vec<_>>();
        let results = [summary(around(1e9, 1)), summary(around(1e9, 99)), summary(around(1.1e9, 7))];
        let same = difference((0, 1), &results).unwrap();
        let other = difference((0, 2), &results).unwrap();
        assert_eq!((same.significant, other.significant), (Some(false), Some(true)), "{same:?} {other:?}");
        assert!((other.goodput_percent.unwrap().get() - 10.0).abs() < 2.0);
        let short = [summary(vec![1e9; 5]), summary(vec![2e9; 5])];
        assert_eq!(difference((0, 1), &short).unwrap().significant, None, "five intervals tell nothing");
        let zero = [summary(vec![0.0; 20]), summary(vec![0.0; 20])];
        assert_eq!(difference((0, 1), &zero).unwrap().goodput_percent, None);
    }

    #[test]
    fn a_difference_between_kinds_is_neither_chance_nor_more() {
        let no_copy = Some(Modes { near: Mode::NoCopy, far: Mode::NoCopy });
        let of = |rate: f64| Summary { modes: Some(Modes::default()), ..summary(vec![rate; 10]) };
        let significant = |other: Summary| {
            let found = difference((0, 1), &[of(1e9), other]).unwrap();
            assert!(found.interval.is_some());
            found.significant
        };
        assert_eq!(significant(of(2e9)), Some(true));
        assert_eq!(significant(Summary { modes: None, ..of(2e9) }), Some(true), "iperf3 copies too");
        assert_eq!(significant(Summary { modes: no_copy, ..of(2e9) }), None);
        assert_eq!(significant(Summary { protocol: "udp".into(), ..of(2e9) }), None);
        let at_once = Summary { at_once: true, ..of(2e9) };
        let warned = warnings(&[of(1e9), at_once.clone()]);
        assert_eq!(significant(at_once), None);
        assert_eq!(warned, ["not the same load: one direction at a time, both directions at once"]);
    }

    /// What `show` says of a stored run is what was printed when it was measured.
    #[test]
    fn a_stored_run_has_the_interval_it_told_of_itself() {
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
        let half = |estimate, intervals: &[Interval]| Some(told(estimate, intervals, None)?.half().round());
        assert!(estimate.half() > 1e4);
        assert_eq!(half(None, &intervals), Some(estimate.half().round()));
        let other = Estimate { half_width: Ratio::new(0.5).unwrap(), ..estimate };
        assert_eq!(half(Some(other), &intervals), Some(other.half().round()), "no second opinion");
        assert_eq!(half(Some(Estimate { blocks: 0, ..estimate }), &[]), None, "nonsense of a file");
    }
}
