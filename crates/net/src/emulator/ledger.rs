//! The fidelity ledger: what the link did, what happened to packets that the model knows nothing of, and how late
//! packets left; from that, whether the emulation may be believed.
//!
//! Packets are virtual packets throughout: a super-packet counts as what it stands for. The exceptions are those the
//! kernel dropped, which nobody could look at, and which count as one however large they were.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_core::link::DropCause;
use lfn_core::path::PathProfile;
use lfn_core::units::{BitRate, Bytes, Ratio, show_duration};
use serde::{Deserialize, Serialize};

use super::calibrate::Calibration;

/// The account of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Seed of the random draws.
    pub seed: u64,
    /// What this machine can do, if it was measured.
    #[serde(default)]
    pub calibration: Option<Calibration>,
    /// Of each path.
    pub paths: Vec<PathLedger>,
}

/// The account of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathLedger {
    /// What was emulated when it began, the queue filled in.
    pub path: PathProfile,
    /// The settings it was made from, link by link, as `--link` takes them.
    #[serde(default)]
    pub links: Vec<String>,
    /// What `lfn emulate set` changed while it ran, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// From the near side to the far side.
    pub near_to_far: DirectionLedger,
    /// And back.
    pub far_to_near: DirectionLedger,
}

/// A change of a path that ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Since the link came up.
    #[serde(rename = "at_seconds")]
    pub at: f64,
    /// Number of the link, from 1 at the near side; all without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<u32>,
    /// What was set, as `--link` takes it.
    pub settings: String,
    /// The base RTT since then.
    #[serde(rename = "base_rtt_seconds")]
    pub base_rtt: f64,
}

/// The account of one direction. `offered` + `duplicated` = `forwarded` + all of `dropped` + `in_flight` +
/// `unmodelled.send_failed`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionLedger {
    /// Taken in by the model.
    pub offered: u64,
    /// Made by the link.
    pub duplicated: u64,
    /// Sent on.
    pub forwarded: u64,
    /// The bytes of those, on the wire.
    pub forwarded_bytes: Bytes,
    /// Dropped by the model, as the link would; causes that dropped nothing are left out.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Forwarded with a mark of congestion that they did not bring (ECN).
    pub marked: u64,
    /// Forwarded with bits flipped.
    pub damaged: u64,
    /// Still in the link at the end.
    pub in_flight: u64,
    /// Most the queue ever held.
    #[serde(rename = "queue_peak_bytes")]
    pub queue_peak: Bytes,
    /// How long packets waited in queues.
    pub queueing: Queueing,
    /// From the first packet's arrival to the last one's departure.
    #[serde(rename = "active_seconds")]
    pub active: f64,
    /// Bytes forwarded in that time.
    #[serde(rename = "throughput_bits_per_second")]
    pub throughput: BitRate,
    /// Share of that time in which the bottleneck was sending.
    pub utilisation: Ratio,
    /// How much later than the model said packets left.
    pub lateness: Lateness,
    /// Processor time that the emulator spent on this direction, which includes the receiving kernel's work.
    #[serde(rename = "cpu_seconds")]
    pub cpu: f64,
    /// What the model did not do.
    pub unmodelled: Unmodelled,
}

/// What befell packets that is not in the model: they were dropped by something else, all but the last. All are zero in
/// a faithful run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmodelled {
    /// Found no room in the packet socket's receive buffer (`PACKET_STATISTICS`).
    pub kernel: u64,
    /// Found no room in the ring, or were longer than any slot of it (BIG TCP), and count as one.
    pub no_room: u64,
    /// Could not be sent.
    pub send_failed: u64,
    /// Dropped by the veth interfaces on the way in or out.
    pub interface: u64,
    /// Came when nobody knows, because the machine's clock was set meanwhile. They were not dropped; super-packets count
    /// as one.
    #[serde(default)]
    pub undated: u64,
}

/// How long packets waited in queues, their own sending not counted, over all packets forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queueing {
    /// Half waited less.
    #[serde(rename = "p50_seconds")]
    pub p50: f64,
    /// 9 of 10 waited less.
    #[serde(rename = "p90_seconds")]
    pub p90: f64,
    /// 99 of 100 waited less.
    #[serde(rename = "p99_seconds")]
    pub p99: f64,
    /// The longest.
    #[serde(rename = "max_seconds")]
    pub max: f64,
}

/// How much later than the model said packets left, over all packets forwarded.
///
/// A percentile is a value that was measured (nearest rank), never one between two of them: of fewer than 100 packets the
/// 99th is the latest. So the verdict says the same of any number of them: no more than 1 in 100 was later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// How many packets the figures rest on.
    #[serde(default)]
    pub packets: u64,
    /// Mean.
    #[serde(rename = "mean_seconds")]
    pub mean: f64,
    /// Half were less late.
    #[serde(rename = "p50_seconds")]
    pub p50: f64,
    /// 99 of 100 were less late.
    #[serde(rename = "p99_seconds")]
    pub p99: f64,
    /// The latest.
    #[serde(rename = "max_seconds")]
    pub max: f64,
    /// How many packets were at most so late and later than the bound before: bounds double from 1 µs on, and those
    /// that no packet fell under are left out.
    pub histogram: Vec<Bin>,
}

/// A bar of a histogram; `[0.000002, 17]` in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin(
    /// Upper bound, seconds.
    pub f64,
    /// Packets.
    pub u64,
);

/// Why a run was not faithful.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// `near to far` or `far to near`.
    pub direction: &'static str,
    /// What happened.
    pub what: String,
}

impl Ledger {
    /// True if every path behaved as the model says.
    pub fn is_faithful(&self) -> bool {
        self.faults().is_empty()
    }

    /// Everything that speaks against this run.
    pub fn faults(&self) -> Vec<Fault> {
        self.paths.iter().flat_map(PathLedger::faults).collect()
    }
}

impl PathLedger {
    /// The most lateness that 99 of 100 packets may have: 1 ms, or 1 % of the base RTT if that is more; of the shortest
    /// that the path had, if it was changed.
    pub fn lateness_limit(&self) -> Duration {
        let since = self.changes.iter().filter_map(|change| Duration::try_from_secs_f64(change.base_rtt).ok());
        let shortest = since.fold(self.path.base_rtt, Duration::min);
        (shortest / 100).max(Duration::from_millis(1))
    }

    /// The directions, each with its name.
    pub fn directions(&self) -> [(&'static str, &DirectionLedger); 2] {
        [("near to far", &self.near_to_far), ("far to near", &self.far_to_near)]
    }

    /// Everything that speaks against this path.
    fn faults(&self) -> Vec<Fault> {
        self.directions()
            .into_iter()
            .flat_map(|(name, ledger)| {
                ledger.faults(self.lateness_limit()).into_iter().map(move |what| Fault { direction: name, what })
            })
            .collect()
    }
}

impl DirectionLedger {
    fn faults(&self, limit: Duration) -> Vec<String> {
        let dropped = |count: u64, by: &str| (count > 0).then(|| format!("{count} packets dropped {by}"));
        let undated = (self.unmodelled.undated > 0).then(|| {
            format!("{} packets came when nobody knows: the machine's clock was set", self.unmodelled.undated)
        });
        let p99 = Duration::from_secs_f64(self.lateness.p99);
        let late = (p99 > limit).then(|| {
            let few = if self.lateness.is_of_few() {
                format!(" (latest of {})", self.lateness.packets)
            } else {
                String::new()
            };
            format!("p99 lateness {}{few} is above {}", show_duration(p99), show_duration(limit))
        });
        [
            dropped(self.unmodelled.kernel, "by the kernel before the emulator could read them"),
            dropped(self.unmodelled.no_room, "for want of room in the ring"),
            dropped(self.unmodelled.send_failed, "because they could not be sent"),
            dropped(self.unmodelled.interface, "by the veth interfaces"),
            undated,
            late,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Lateness {
    /// True of so few packets that the 99th percentile is the latest of them.
    pub fn is_of_few(&self) -> bool {
        (1..100).contains(&self.packets)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.direction, self.what)
    }
}

impl From<&Histogram<u64>> for Lateness {
    /// From a histogram of nanoseconds.
    fn from(nanos: &Histogram<u64>) -> Self {
        if nanos.is_empty() {
            return Lateness::default();
        }
        let bins = nanos.iter_log(LEAST_BOUND, 2.0).filter(|bin| bin.count_since_last_iteration() > 0);
        Lateness {
            packets: nanos.len(),
            mean: nanos.mean() / 1e9,
            p50: seconds_at(nanos, 0.5),
            p99: seconds_at(nanos, 0.99),
            max: seconds_at(nanos, 1.0),
            histogram: bins
                .map(|bin| Bin(seconds(bin.value_iterated_to() + 1), bin.count_since_last_iteration()))
                .collect(),
        }
    }
}

impl From<&Histogram<u64>> for Queueing {
    /// From a histogram of nanoseconds.
    fn from(nanos: &Histogram<u64>) -> Self {
        Queueing {
            p50: seconds_at(nanos, 0.5),
            p90: seconds_at(nanos, 0.9),
            p99: seconds_at(nanos, 0.99),
            max: seconds_at(nanos, 1.0),
        }
    }
}

/// First bound of the lateness histogram, nanoseconds.
const LEAST_BOUND: u64 = 1000;

/// What so large a share of the values does not exceed; 0 of none.
fn seconds_at(nanos: &Histogram<u64>, share: f64) -> f64 {
    // A bucket's upper end may lie above the largest value in it.
    seconds(nanos.value_at_quantile(share).min(nanos.max()))
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(rtt: Duration) -> Ledger {
        let path = PathLedger {
            path: PathProfile::new(BitRate(135_000_000), rtt),
            links: vec!["rtt=539ms,rate=135mbit".to_owned()],
            changes: vec![Change {
                at: 1.5,
                link: None,
                settings: "rate=10mbit".to_owned(),
                base_rtt: rtt.as_secs_f64(),
            }],
            near_to_far: DirectionLedger::default(),
            far_to_near: DirectionLedger::default(),
        };
        Ledger { seed: 1, calibration: None, paths: vec![path] }
    }

    #[test]
    fn modelled_drops_are_faithful_and_others_are_not() {
        let mut run = ledger(Duration::from_millis(539));
        run.paths[0].near_to_far.dropped = DropCause::ALL.map(|cause| (cause, 1000)).into();
        run.paths[0].near_to_far.in_flight = 1000;
        assert!(run.is_faithful());
        let kinds: [fn(&mut Unmodelled) -> &mut u64; 4] =
            [|u| &mut u.kernel, |u| &mut u.no_room, |u| &mut u.send_failed, |u| &mut u.interface];
        for kind in kinds {
            let mut run = run.clone();
            *kind(&mut run.paths[0].far_to_near.unmodelled) = 1;
            assert_eq!(run.faults().len(), 1);
            assert!(run.faults()[0].to_string().starts_with("far to near: 1 packets dropped"));
        }
        run.paths[0].near_to_far.unmodelled.undated = 2;
        assert!(run.faults()[0].to_string().starts_with("near to far: 2 packets came when nobody knows"));
    }

    #[test]
    fn lateness_is_judged_by_the_larger_of_a_millisecond_and_a_hundredth_of_the_rtt() {
        for (rtt_ms, limit) in [(1, 0.001), (100, 0.001), (539, 0.00539)] {
            let mut run = ledger(Duration::from_millis(rtt_ms));
            run.paths[0].far_to_near.lateness = Lateness { p99: limit, max: 1.0, ..Lateness::default() };
            assert!(run.is_faithful(), "{rtt_ms}");
            run.paths[0].far_to_near.lateness.p99 = limit * 1.01;
            assert!(!run.is_faithful(), "{rtt_ms}");
        }
    }

    #[test]
    fn a_path_that_was_changed_is_judged_by_the_shortest_rtt_it_had() {
        let mut run = ledger(Duration::from_millis(600));
        run.paths[0].far_to_near.lateness = Lateness { p99: 0.002, max: 0.002, ..Lateness::default() };
        assert!(run.is_faithful());
        run.paths[0].changes[0].base_rtt = 0.15;
        assert!(!run.is_faithful());
    }

    #[test]
    fn one_late_packet_in_a_hundred_is_forgiven_and_one_in_fewer_is_not() {
        for (packets, late, is_faithful) in
            [(1, 1, false), (20, 1, false), (99, 1, false), (100, 1, true), (100, 2, false)]
        {
            let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 2).unwrap();
            nanos.record_n(10_000, packets - late).unwrap();
            nanos.record_n(3_000_000, late).unwrap();
            let mut run = ledger(Duration::from_millis(20));
            run.paths[0].near_to_far.lateness = Lateness::from(&nanos);
            assert_eq!(run.is_faithful(), is_faithful, "{late} of {packets}");
            let said = run.faults().first().map(Fault::to_string).unwrap_or_default();
            assert_eq!(said.contains(&format!("(latest of {packets})")), packets < 100, "{said}");
            assert_eq!(run.paths[0].near_to_far.lateness.packets, packets);
        }
    }

    #[test]
    fn a_histogram_of_lateness_has_bounds_that_double() {
        let mut nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        assert_eq!(Lateness::from(&nanos), Lateness::default());
        nanos.record_n(0, 5).unwrap();
        nanos.record_n(1_500, 990).unwrap();
        nanos.record_n(50_000_000, 1).unwrap();
        let lateness = Lateness::from(&nanos);
        assert_eq!(lateness.histogram, [Bin(1e-6, 5), Bin(2e-6, 990), Bin(0.065_536, 1)]);
        assert!(
            lateness.p50 >= 1.5e-6 && lateness.p99 < 2e-6 && (0.05..0.0501).contains(&lateness.max),
            "{lateness:?}"
        );
        nanos.saturating_record(u64::MAX);
        assert_eq!(Lateness::from(&nanos).histogram.iter().map(|bin| bin.1).sum::<u64>(), 997);
    }

    #[test]
    fn a_ledger_survives_json() {
        let mut run = ledger(Duration::from_millis(20));
        run.paths[0].near_to_far.offered = u64::MAX;
        run.paths[0].near_to_far.lateness.mean = 1.25e-5;
        let text = serde_json::to_string(&run).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), run);
    }
}
