//! Several results side by side: the figures that matter of each, how each differs from the first, and what was not the
//! same about them.
//!
//! Whether two goodputs differ is judged by the 95 % interval of their difference. The steady intervals of a run are
//! put into blocks until neighbouring blocks no longer follow each other; the means of the blocks then count as
//! independent (batch means), and Welch's interval is taken of the two. A run too short for eight such blocks has no
//! interval, and nothing is claimed of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Figure;
use super::document::{Document, PerEnd, Run, Side};
use super::read::Stored;
use crate::path::{optional_seconds, seconds};
use crate::stats::median;
use crate::udp::figures::Received;
use crate::units::{BitRate, Bytes, show_duration};
use crate::wire::test::{Data, Direction, Mode, Modes, StreamReport};

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
    /// `tcp` or `udp`.
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
    /// The goodput of each steady interval; not told.
    #[serde(skip)]
    pub(super) rates: Vec<f64>,
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
    /// The interval leaves out zero: the difference is more than chance; null without an interval.
    pub significant: Option<bool>,
}

/// Compares what files held, each with its name.
pub fn compare(files: &[(String, Stored)]) -> Comparison {
    let results: Vec<Summary> = files.iter().flat_map(|(file, stored)| summaries(file, stored)).collect();
    let base = |summary: &Summary| results.iter().position(|base| base.direction == summary.direction);
    let differences =
        results.iter().enumerate().filter_map(|(i, summary)| difference((base(summary)?, i), &results)).collect();
    let warnings = warnings(&results);
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
    /// Of these steady intervals; the rest is to be filled in.
    pub(super) fn new(file: &str, rates: Vec<f64>) -> Self {
        let interval = Mean::of(&rates).and_then(|mean| Figure::new(quantile(mean.freedom) * mean.variance.sqrt()));
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
            rates,
        }
    }
}

fn of_lfn(file: &str, number: usize, run: &Run, document: &Document) -> Summary {
    let sender = run.end(run.sender);
    let stream = sender.streams.first();
    let info = stream.and_then(|stream| stream.tcp_info.as_ref());
    let samples = sender.intervals.iter().flat_map(|interval| &interval.streams);
    let rtts: Vec<f64> = samples.filter_map(|s| Some(s.tcp_info.as_ref()?.rtt.as_secs_f64())).collect();
    let steady = run.intervals.iter().filter(|slice| slice.steady);
    let probes = run.latency.as_ref().and_then(|latency| latency.loaded.rtt);
    let datagrams = run.request.udp.is_some();
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
        protocol: if datagrams { "udp" } else { "tcp" }.into(),
        loss_percent: loss(run),
        jitter: received(run).map(|got| got.jitter).max(),
        probe_p50: probes.map(|rtt| rtt.p50),
        probe_p99: probes.map(|rtt| rtt.p99),
        goodput: run.steady_goodput,
        cpu_seconds_per_gigabyte: run.cpu_seconds_per_gigabyte,
        retransmits: run.retransmits,
        base_rtt: Some(run.base_rtt).filter(|rtt| !rtt.is_zero()),
        rtt: median(&rtts).and_then(|rtt| Duration::try_from_secs_f64(rtt).ok()),
        findings: run.findings.iter().map(|finding| finding.name.clone()).collect(),
        ..Summary::new(file, steady.map(|slice| slice.goodput.as_f64()).collect())
    }
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
    let interval = Mean::of(&first.rates).zip(Mean::of(&second.rates)).and_then(|(a, b)| Figure::new(a.apart(&b)));
    Some(Difference {
        result,
        base,
        goodput: Figure::new(by)?,
        goodput_percent: Figure::new(by / first.goodput.as_f64() * 100.0),
        interval,
        significant: interval.map(|interval| by.abs() > interval.get()),
    })
}

/// What differs in how results of one direction were measured.
fn warnings(results: &[Summary]) -> Vec<String> {
    type Told = fn(&Summary) -> Option<String>;
    let settings: [(&str, Told); 9] = [
        ("way of moving bytes", |s| Some(s.modes.map_or("not told".into(), moved))),
        ("payload", |s| s.data.map(|data| if data == Data::Zero { "zeros" } else { "random" }.into())),
        ("path MTU", |s| s.mtu.map(|mtu| format!("{mtu} B"))),
        ("protocol", |s| Some(s.protocol.clone())),
        ("congestion control", |s| s.congestion.clone()),
        ("full segment", |s| s.mss.map(|mss| format!("{mss} B"))),
        ("streams", |s| Some(s.streams.to_string())),
        ("duration", |s| Some(show_duration(Duration::from_secs(s.time.as_secs_f64().round() as u64)))),
        ("record", |s| s.record.map(|record| record.to_string())),
    ];
    let mut warnings = Vec::new();
    for (name, told) in settings {
        let mut values: Vec<String> = Vec::new();
        for value in results.iter().filter_map(told) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        // What iperf3 does not tell is most likely what it does if nothing is asked.
        let likely = ["not told".to_owned(), moved(Modes::default())];
        if values.len() > 1 && !values.iter().all(|value| likely.contains(value)) {
            warnings.push(format!("not the same {name}: {}", values.join(", ")));
        }
    }
    warnings
}

fn moved(modes: Modes) -> String {
    let name = |mode| if mode == Mode::NoCopy { "no copy" } else { "copying" };
    match (name(modes.near), name(modes.far)) {
        (near, far) if near == far => near.to_owned(),
        (near, far) => format!("{near} near and {far} far"),
    }
}

/// The mean of a run's steady goodput, as far as it can be told from its blocks.
struct Mean {
    /// Of the mean.
    variance: f64,
    /// Degrees of freedom.
    freedom: f64,
}

/// Fewer blocks tell nothing of how far apart they lie.
const FEWEST_BLOCKS: usize = 8;

impl Mean {
    fn of(rates: &[f64]) -> Option<Mean> {
        let mut blocks = rates.to_vec();
        while blocks.len() >= FEWEST_BLOCKS {
            if independent(&blocks) {
                let count = blocks.len() as f64;
                return Some(Mean { variance: variance(&blocks) / count, freedom: count - 1.0 });
            }
            blocks = blocks.chunks_exact(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        }
        None
    }

    /// Half the 95 % interval of the difference of two means (Welch).
    fn apart(&self, other: &Mean) -> f64 {
        let (a, b) = (self.variance, other.variance);
        let freedom = (a + b).powi(2) / (a * a / self.freedom + b * b / other.freedom);
        // Of runs without any variance there is none, and no doubt either.
        if freedom.is_finite() { quantile(freedom) * (a + b).sqrt() } else { 0.0 }
    }
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = average(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// Whether neighbours follow each other no more than chance makes them: the first autocorrelation of n independent
/// values stays below 1.64 / √n nineteen times of twenty.
fn independent(values: &[f64]) -> bool {
    let (mean, count) = (average(values), values.len() as f64);
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let follow: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    spread <= 0.0 || follow / spread < 1.64 / count.sqrt()
}

/// The 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5; within 0.5 % from 4 degrees on).
fn quantile(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let (z3, z5, z7) = (Z.powi(3), Z.powi(5), Z.powi(7));
    Z + (z3 + Z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * freedom.powi(3))
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
mod tests {
    use super::*;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, t) in [(4.0, 2.776), (7.0, 2.365), (9.0, 2.262), (20.0, 2.086), (1e9, 1.960)] {
            assert!((quantile(freedom) / t - 1.0).abs() < 0.005, "{freedom}: {}", quantile(freedom));
        }
    }

    /// What a generator of 48 bits makes of a seed, from -0.5 to 0.5.
    fn noise(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5_deec_e66d).wrapping_add(11) & ((1 << 48) - 1);
            (state >> 16) as f64 / f64::from(u32::MAX) - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    fn summary(rates: Vec<f64>) -> Summary {
        let goodput = BitRate(average(&rates) as u64);
        Summary { goodput, ..Summary::new("x", rates) }
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
    fn ways_of_moving_bytes_are_never_mixed_up() {
        let of = |modes, mtu| Summary { modes, mtu, ..summary(vec![1e9; 9]) };
        let no_copy = Modes { near: Mode::NoCopy, far: Mode::Copying };
        let warned = |results: &[Summary]| warnings(results).join("; ");
        let copying = Some(Modes::default());
        assert_eq!(warned(&[of(copying, Some(1500)), of(copying, Some(1500)), of(None, None)]), "");
        assert_eq!(
            warned(&[of(copying, Some(1500)), of(Some(no_copy), Some(9000)), of(None, None)]),
            "not the same way of moving bytes: copying, no copy near and copying far, not told; \
             not the same path MTU: 1500 B, 9000 B"
        );
    }

    /// A rate that wanders is not made certain by many intervals of it.
    #[test]
    fn what_wanders_slowly_has_a_wider_interval_than_noise() {
        let steps = noise(64, 3);
        let wandering: Vec<f64> = steps
            .iter()
            .scan(0.0, |at, step| {
                *at += step;
                Some(1e9 + 1e7 * *at)
            })
            .collect();
        let mut shuffled = wandering.clone();
        shuffled.sort_by_key(|value| (*value as u64).wrapping_mul(0x9e37_79b9) % 1009);
        let width = |rates: &[f64]| Mean::of(rates).map(|mean| mean.variance);
        match (width(&wandering), width(&shuffled)) {
            (Some(wandering), Some(shuffled)) => assert!(wandering > 2.0 * shuffled),
            (wandering, shuffled) => assert!(wandering.is_none() && shuffled.is_some()),
        }
    }
}
