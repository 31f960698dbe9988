//! Accuracy report of an emulation: counters of the link, packets lost outside the model, and the lateness of
//! departures. From these, the report decides whether the emulation was accurate.
//!
//! All counts are virtual packets: a super-packet counts as the packets that it contains. A packet that the kernel
//! dropped counts as one, however large it was, because the emulator could not read it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;
use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes, Ratio, show_duration};
use lfn_link::DropCause;
use serde::{Deserialize, Serialize};

use super::calibrate::Calibration;

/// Accuracy report of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccuracyReport {
    /// Seed of the random draws.
    pub seed: u64,
    /// Measured speed of this machine; `None` without a calibration.
    #[serde(default)]
    pub calibration: Option<Calibration>,
    /// Reports of the parallel paths, in order.
    pub paths: Vec<EmulatedPathReport>,
}

/// Accuracy report of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EmulatedPathReport {
    /// The path at the start of the run. The queue has its computed size.
    pub path: PathProfile,
    /// The settings of the links, as `--link` takes them.
    #[serde(default)]
    pub links: Vec<String>,
    /// Changes by `lfn emulate set` during the run, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<LinkChange>,
    pub near_to_far: DirectionReport,
    pub far_to_near: DirectionReport,
}

/// A change of a running path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkChange {
    /// Since the link started.
    #[serde(rename = "at_seconds")]
    pub at: f64,
    /// Number of the link, from 1 at the near side. `None` stands for all links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// The changed settings, as `--link` takes them.
    pub settings: String,
    /// Base RTT after the change.
    #[serde(rename = "base_rtt_seconds")]
    pub base_rtt: f64,
}

/// Counters and figures of one direction. `offered` + `duplicated` = `forwarded` + the sum of `dropped` + `in_flight` +
/// `unmodelled.send_failed`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DirectionReport {
    /// Packets that entered the model.
    pub offered: u64,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Packets that left the link.
    pub forwarded: u64,
    /// Bytes of the forwarded packets, with Ethernet headers.
    pub forwarded_bytes: Bytes,
    /// Dropped by the model as intended. Causes without drops are skipped.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Forwarded packets that the link marked with "congestion experienced" (ECN).
    pub marked: u64,
    /// Forwarded packets with a flipped bit.
    pub corrupted: u64,
    /// In the link at the end of the run.
    pub in_flight: u64,
    /// Largest fill level of any queue.
    #[serde(rename = "queue_peak_bytes")]
    pub queue_peak: Bytes,
    pub queueing_delay: QueueingDelay,
    /// From the arrival of the first packet to the departure of the last one.
    #[serde(rename = "active_seconds")]
    pub active: f64,
    /// Forwarded bytes in the active time.
    #[serde(rename = "throughput_bits_per_second")]
    pub throughput: BitRate,
    /// Share of the active time in which the bottleneck was sending.
    pub utilisation: Ratio,
    pub lateness: Lateness,
    /// Processor time of the forwarding thread, which includes the work of the receiving kernel.
    #[serde(rename = "cpu_seconds")]
    pub cpu: f64,
    pub unmodelled: Unmodelled,
}

/// Events outside the model. All of them are lost packets, except `arrival_time_unknown`. All counts are zero in an
/// accurate run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unmodelled {
    /// No room in the receive buffer of the packet socket (`PACKET_STATISTICS`).
    pub socket_buffer_full: u64,
    /// No room in the ring, or longer than a slot of the ring (BIG TCP). A longer packet counts as one.
    pub ring_full: u64,
    /// The kernel refused to send the packets.
    pub send_failed: u64,
    /// Dropped by the veth interfaces, on the way in or out.
    pub interface_dropped: u64,
    /// The clock of the machine was set while these packets waited. The packets were not dropped. A super-packet counts
    /// as one.
    #[serde(default)]
    pub arrival_time_unknown: u64,
}

/// Time that forwarded packets waited in queues, without their own transmission time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueingDelay {
    /// Median of the delay.
    #[serde(rename = "p50_seconds")]
    pub p50: f64,
    /// Percentile 90 of the delay.
    #[serde(rename = "p90_seconds")]
    pub p90: f64,
    /// Percentile 99 of the delay.
    #[serde(rename = "p99_seconds")]
    pub p99: f64,
    /// Maximum of the delay.
    #[serde(rename = "max_seconds")]
    pub max: f64,
    /// Numbers of packets by delay, in at most 100 bins of the same width. Bins without packets are skipped.
    #[serde(default)]
    pub histogram: Vec<HistogramBin>,
}

/// Lateness of all forwarded packets: the departure time minus the time that the model computed.
///
/// A percentile is a measured value (nearest rank), never an interpolated one. At most 1 in 100 packets may be later
/// than the limit. Fewer than 100 packets are too few to judge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lateness {
    /// Number of packets behind these figures.
    #[serde(default)]
    pub packets: u64,
    /// Mean of the lateness.
    #[serde(rename = "mean_seconds")]
    pub mean: f64,
    /// Median of the lateness.
    #[serde(rename = "p50_seconds")]
    pub p50: f64,
    /// Percentile 99 of the lateness.
    #[serde(rename = "p99_seconds")]
    pub p99: f64,
    /// Maximum of the lateness.
    #[serde(rename = "max_seconds")]
    pub max: f64,
    /// Numbers of packets by lateness. The bounds double from 1 µs. Bins without packets are skipped.
    pub histogram: Vec<HistogramBin>,
}

/// Bin of a histogram, `[0.000002, 17]` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistogramBin(
    /// Upper bound in seconds.
    pub f64,
    pub u64,
);

/// Reason why a run was not accurate.
#[derive(Clone, Debug, PartialEq)]
pub struct Inaccuracy {
    /// `near to far` or `far to near`.
    pub direction: &'static str,
    pub cause: String,
}

impl AccuracyReport {
    /// Returns true if every path behaved as the model requires.
    pub fn is_accurate(&self) -> bool {
        self.inaccuracies().is_empty()
    }

    /// Returns all reasons why this run was not accurate.
    pub fn inaccuracies(&self) -> Vec<Inaccuracy> {
        self.paths.iter().flat_map(EmulatedPathReport::inaccuracies).collect()
    }
}

impl EmulatedPathReport {
    /// Returns the maximum accurate p99 lateness: 1 ms, or 1 % of the base RTT if this is more. If the path was
    /// changed, its minimum base RTT counts.
    pub fn lateness_limit(&self) -> Duration {
        let rtts = self.changes.iter().filter_map(|change| Duration::try_from_secs_f64(change.base_rtt).ok());
        let min_rtt = rtts.fold(self.path.base_rtt, Duration::min);
        (min_rtt / 100).max(Duration::from_millis(1))
    }

    /// Returns both directions, each with its name.
    pub fn directions(&self) -> [(&'static str, &DirectionReport); 2] {
        [("near to far", &self.near_to_far), ("far to near", &self.far_to_near)]
    }

    /// Returns all reasons why this path was not accurate.
    fn inaccuracies(&self) -> Vec<Inaccuracy> {
        self.directions()
            .into_iter()
            .flat_map(|(name, direction)| {
                direction
                    .inaccuracies(self.lateness_limit())
                    .into_iter()
                    .map(move |cause| Inaccuracy { direction: name, cause })
            })
            .collect()
    }
}

impl DirectionReport {
    fn inaccuracies(&self, limit: Duration) -> Vec<String> {
        let dropped = |count: u64, by: &str| (count > 0).then(|| format!("{count} packets dropped {by}"));
        let unknown_arrivals = (self.unmodelled.arrival_time_unknown > 0).then(|| {
            format!(
                "{} packets with an unknown arrival time: the clock of this machine was set",
                self.unmodelled.arrival_time_unknown
            )
        });
        // A stored report may have any number.
        let p99 = Duration::try_from_secs_f64(self.lateness.p99).unwrap_or_default();
        let late = (p99 > limit && !self.lateness.has_few_packets())
            .then(|| format!("p99 lateness {} is above {}", show_duration(p99), show_duration(limit)));
        [
            dropped(self.unmodelled.socket_buffer_full, "by the kernel before the emulator could read them"),
            dropped(self.unmodelled.ring_full, "because the ring was full"),
            dropped(self.unmodelled.send_failed, "because they could not be sent"),
            dropped(self.unmodelled.interface_dropped, "by the veth interfaces"),
            unknown_arrivals,
            late,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Lateness {
    /// Returns true if there are packets, but fewer than 100. Their 99th percentile is the maximum, so it shows nothing
    /// about the share of late packets.
    pub fn has_few_packets(&self) -> bool {
        (1..100).contains(&self.packets)
    }
}

impl fmt::Display for Inaccuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.direction, self.cause)
    }
}

impl From<&Histogram<u64>> for Lateness {
    /// Summarises a histogram of nanoseconds.
    fn from(nanos: &Histogram<u64>) -> Self {
        if nanos.is_empty() {
            return Lateness::default();
        }
        Lateness {
            packets: nanos.len(),
            mean: nanos.mean() / 1e9,
            p50: quantile_seconds(nanos, 0.5),
            p99: quantile_seconds(nanos, 0.99),
            max: quantile_seconds(nanos, 1.0),
            histogram: bins(nanos.iter_log(FIRST_BOUND, 2.0)),
        }
    }
}

impl From<&Histogram<u64>> for QueueingDelay {
    /// Summarises a histogram of nanoseconds.
    fn from(nanos: &Histogram<u64>) -> Self {
        QueueingDelay {
            p50: quantile_seconds(nanos, 0.5),
            p90: quantile_seconds(nanos, 0.9),
            p99: quantile_seconds(nanos, 0.99),
            max: quantile_seconds(nanos, 1.0),
            histogram: bins(nanos.iter_linear(nanos.max() / MAX_DELAY_BINS + 1)),
        }
    }
}

/// Returns the bins that have packets.
fn bins(values: impl Iterator<Item = IterationValue<u64>>) -> Vec<HistogramBin> {
    let bin = |value: IterationValue<u64>| {
        HistogramBin(seconds(value.value_iterated_to().saturating_add(1)), value.count_since_last_iteration())
    };
    values.map(bin).filter(|bin| bin.1 > 0).collect()
}

/// Maximum number of bins of the queueing delay.
const MAX_DELAY_BINS: u64 = 100;
/// First bound of the lateness histogram, nanoseconds.
const FIRST_BOUND: u64 = 1000;

/// Returns the value that `share` of the values do not exceed, or 0 for an empty histogram.
fn quantile_seconds(nanos: &Histogram<u64>, share: f64) -> f64 {
    // The upper end of a bucket can be above the largest value in the bucket.
    seconds(nanos.value_at_quantile(share).min(nanos.max()))
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_report(rtt: Duration) -> AccuracyReport {
        let path = EmulatedPathReport {
            path: PathProfile::new(BitRate(135_000_000), rtt),
            links: vec!["rtt=539ms,rate=135mbit".to_owned()],
            changes: vec![LinkChange {
                at: 1.5,
                link: None,
                settings: "rate=10mbit".to_owned(),
                base_rtt: rtt.as_secs_f64(),
            }],
            near_to_far: DirectionReport::default(),
            far_to_near: DirectionReport::default(),
        };
        AccuracyReport { seed: 1, calibration: None, paths: vec![path] }
    }

    #[test]
    fn only_unmodelled_drops_make_a_run_inaccurate() {
        let mut run = run_report(Duration::from_millis(539));
        run.paths[0].near_to_far.dropped = DropCause::ALL.map(|cause| (cause, 1000)).into();
        run.paths[0].near_to_far.in_flight = 1000;
        assert!(run.is_accurate());
        let kinds: [fn(&mut Unmodelled) -> &mut u64; 4] =
            [|u| &mut u.socket_buffer_full, |u| &mut u.ring_full, |u| &mut u.send_failed, |u| &mut u.interface_dropped];
        for kind in kinds {
            let mut run = run.clone();
            *kind(&mut run.paths[0].far_to_near.unmodelled) = 1;
            assert_eq!(run.inaccuracies().len(), 1);
            assert!(run.inaccuracies()[0].to_string().starts_with("far to near: 1 packets dropped"));
        }
        run.paths[0].near_to_far.unmodelled.arrival_time_unknown = 2;
        assert!(run.inaccuracies()[0].to_string().starts_with("near to far: 2 packets with an unknown arrival time"));
    }

    #[test]
    fn lateness_limit_is_1_ms_or_1_percent_of_rtt() {
        for (rtt_ms, limit) in [(1, 0.001), (100, 0.001), (539, 0.00539)] {
            let mut run = run_report(Duration::from_millis(rtt_ms));
            run.paths[0].far_to_near.lateness = Lateness { p99: limit, max: 1.0, ..Lateness::default() };
            assert!(run.is_accurate(), "{rtt_ms}");
            run.paths[0].far_to_near.lateness.p99 = limit * 1.01;
            assert!(!run.is_accurate(), "{rtt_ms}");
        }
    }

    #[test]
    fn lateness_limit_uses_minimum_rtt_of_changed_path() {
        let mut run = run_report(Duration::from_millis(600));
        run.paths[0].far_to_near.lateness = Lateness { p99: 0.002, max: 0.002, ..Lateness::default() };
        assert!(run.is_accurate());
        run.paths[0].changes[0].base_rtt = 0.15;
        assert!(!run.is_accurate());
    }

    #[test]
    fn at_most_one_packet_in_100_may_be_late() {
        for (packets, late, is_accurate) in [(1, 1, true), (99, 99, true), (100, 1, true), (100, 2, false)] {
            let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
            nanos.record_n(10_000, packets - late).unwrap();
            nanos.record_n(3_000_000, late).unwrap();
            let mut run = run_report(Duration::from_millis(20));
            run.paths[0].near_to_far.lateness = Lateness::from(&nanos);
            assert_eq!(run.is_accurate(), is_accurate, "{late} of {packets}");
            assert_eq!(run.paths[0].near_to_far.lateness.has_few_packets(), packets < 100, "{packets}");
            // Drops need no statistics.
            run.paths[0].near_to_far.unmodelled.ring_full = 1;
            assert!(!run.is_accurate());
        }
    }

    #[test]
    fn lateness_histogram_bounds_double() {
        let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        assert_eq!(Lateness::from(&nanos), Lateness::default());
        nanos.record_n(0, 5).unwrap();
        nanos.record_n(1_500, 990).unwrap();
        nanos.record_n(50_000_000, 1).unwrap();
        let lateness = Lateness::from(&nanos);
        assert_eq!(lateness.histogram, [HistogramBin(1e-6, 5), HistogramBin(2e-6, 990), HistogramBin(0.065_536, 1)]);
        assert!(
            lateness.p50 >= 1.5e-6 && lateness.p99 < 2e-6 && (0.05..0.0501).contains(&lateness.max),
            "{lateness:?}"
        );
        nanos.saturating_record(u64::MAX);
        assert_eq!(Lateness::from(&nanos).histogram.iter().map(|bin| bin.1).sum::<u64>(), 997);
    }

    #[test]
    fn queueing_delay_has_at_most_100_bins_of_equal_width() {
        let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
        assert_eq!(QueueingDelay::from(&nanos), QueueingDelay::default());
        nanos.record_n(0, 7).unwrap();
        (1..=1000).for_each(|number| nanos.record(number * 100_000).unwrap());
        let histogram = QueueingDelay::from(&nanos).histogram;
        assert!((95..=100).contains(&histogram.len()), "{}", histogram.len());
        assert_eq!(histogram.iter().map(|bin| bin.1).sum::<u64>(), 1007);
        assert!(histogram[0].1 > 7 && (0.9e-3..1.1e-3).contains(&histogram[0].0), "{:?}", histogram[0]);
        let half: u64 = histogram.iter().filter(|bin| bin.0 <= 0.0505).map(|bin| bin.1).sum();
        assert!((490..=520).contains(&half), "{half}");
    }

    #[test]
    fn accuracy_report_survives_json() {
        let mut run = run_report(Duration::from_millis(20));
        run.paths[0].near_to_far.offered = u64::MAX;
        run.paths[0].near_to_far.lateness.mean = 1.25e-5;
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<AccuracyReport>(&text).unwrap(), run);
    }
}
