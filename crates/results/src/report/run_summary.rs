//! Figures of one direction of one result that a comparison shows.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::{PathProfile, optional_seconds, seconds};
use lfn_base::stats::{self, BatchMeans, RateSample};
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use crate::evidence::{EndReason, PerEnd};
use crate::measure::{Modes, PayloadData, TestDirection};

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
    pub(super) fn is_comparable(&self, other: &RunSummary) -> bool {
        let modes = |summary: &RunSummary| summary.modes.unwrap_or_default();
        let kind =
            |summary: &RunSummary| (summary.direction, summary.protocol.clone(), summary.bidirectional, modes(summary));
        kind(self) == kind(other)
    }
}

/// Standard error of the mean of a run's steady goodput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MeanError {
    /// Standard error in bits per second.
    pub(super) error: f64,
    pub(super) degrees_of_freedom: f64,
}

impl MeanError {
    /// Returns half the width of the 95 % interval.
    pub(super) fn half_interval(self) -> f64 {
        stats::student_quantile(self.degrees_of_freedom) * self.error
    }

    /// Estimates the error from the goodput of the steady intervals, which have about the same length.
    pub(super) fn of(rates: &[f64]) -> Option<MeanError> {
        let slices: Vec<RateSample> = rates.iter().map(|&amount| RateSample { amount, seconds: 1.0 }).collect();
        BatchMeans::from_samples(&slices)
            .map(|known| MeanError { error: known.error, degrees_of_freedom: known.degrees_of_freedom() })
    }
}
