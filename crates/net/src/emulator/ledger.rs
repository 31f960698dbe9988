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
use lfn_core::units::{Bytes, show_duration};
use serde::{Deserialize, Serialize};

/// The account of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Seed of the random draws.
    pub seed: u64,
    /// Of each path.
    pub paths: Vec<PathLedger>,
}

/// The account of one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathLedger {
    /// What was emulated, the queue filled in.
    pub path: PathProfile,
    /// From the near side to the far side.
    pub near_to_far: DirectionLedger,
    /// And back.
    pub far_to_near: DirectionLedger,
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
    /// Dropped by the model, as the link would; causes that dropped nothing are left out.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Still in the link at the end.
    pub in_flight: u64,
    /// Most the queue ever held.
    #[serde(rename = "queue_peak_bytes")]
    pub queue_peak: Bytes,
    /// How much later than the model said packets left.
    pub lateness: Lateness,
    /// Processor time that the emulator spent on this direction, which includes the receiving kernel's work.
    #[serde(rename = "cpu_seconds")]
    pub cpu: f64,
    /// What the model did not do.
    pub unmodelled: Unmodelled,
}

/// Packets that were dropped by something else than the model. All are zero in a faithful run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmodelled {
    /// Found no room in the packet socket's receive buffer (`PACKET_STATISTICS`).
    pub kernel: u64,
    /// Found no room in the ring.
    pub no_room: u64,
    /// Could not be sent.
    pub send_failed: u64,
    /// Dropped by the veth interfaces on the way in or out.
    pub interface: u64,
}

/// How much later than the model said packets left, over all packets forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
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
}

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
    /// The most lateness that 99 of 100 packets may have: 1 ms, or 1 % of the base RTT if that is more.
    pub fn lateness_limit(&self) -> Duration {
        (self.path.base_rtt / 100).max(Duration::from_millis(1))
    }

    /// Everything that speaks against this path.
    fn faults(&self) -> Vec<Fault> {
        let directions = [("near to far", &self.near_to_far), ("far to near", &self.far_to_near)];
        directions
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
        let p99 = Duration::from_secs_f64(self.lateness.p99);
        let late =
            (p99 > limit).then(|| format!("p99 lateness {} is above {}", show_duration(p99), show_duration(limit)));
        [
            dropped(self.unmodelled.kernel, "by the kernel before the emulator could read them"),
            dropped(self.unmodelled.no_room, "for want of room in the ring"),
            dropped(self.unmodelled.send_failed, "because they could not be sent"),
            dropped(self.unmodelled.interface, "by the veth interfaces"),
            late,
        ]
        .into_iter()
        .flatten()
        .collect()
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
        let seconds = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
        if nanos.is_empty() {
            return Lateness::default();
        }
        Lateness {
            mean: nanos.mean() / 1e9,
            p50: seconds(nanos.value_at_quantile(0.5)),
            p99: seconds(nanos.value_at_quantile(0.99)),
            max: seconds(nanos.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lfn_core::units::BitRate;

    fn ledger(rtt: Duration) -> Ledger {
        let path = PathLedger {
            path: PathProfile::new(BitRate(135_000_000), rtt),
            near_to_far: DirectionLedger::default(),
            far_to_near: DirectionLedger::default(),
        };
        Ledger { seed: 1, paths: vec![path] }
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
    }

    #[test]
    fn lateness_is_judged_by_the_larger_of_a_millisecond_and_a_hundredth_of_the_rtt() {
        for (rtt_ms, limit) in [(1, 0.001), (100, 0.001), (539, 0.00539)] {
            let mut run = ledger(Duration::from_millis(rtt_ms));
            run.paths[0].far_to_near.lateness = Lateness { mean: 1.0, p50: 1.0, p99: limit, max: 1.0 };
            assert!(run.is_faithful(), "{rtt_ms}");
            run.paths[0].far_to_near.lateness.p99 = limit * 1.01;
            assert!(!run.is_faithful(), "{rtt_ms}");
        }
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
