//! Options of an examination, and the load that it plans.

use std::time::Duration;

use lfn_base::units::BitRate;
use lfn_results::report::PlannedLoad;

use super::disks::DiskPaths;

/// Maximum time of an examination.
const TIME: Duration = Duration::from_secs(60);
/// Maximum time of a quick examination.
const QUICK_TIME: Duration = Duration::from_secs(15);
/// Maximum time of a quick examination of a path with a larger RTT than [`VERY_LONG_RTT`].
const VERY_LONG_RTT_QUICK_TIME: Duration = Duration::from_secs(30);
/// RTT above which a quick examination takes longer: 300 ms, and the jitter of the handshake that measures it.
const VERY_LONG_RTT: Duration = Duration::from_millis(310);
/// RTT above which the trains of both directions run at the same time, and a quick examination omits the latency probes:
/// their session and the probes of the idle path take five round trips.
const LONG_RTT: Duration = Duration::from_millis(100);
/// Time of the first connection, of the facts and of the search of the path MTU.
const FACTS: Cost = Cost { time: Duration::from_millis(300), round_trips: 6 };
/// Time of a TCP load besides its load: its session, the latency probes of the idle path, and the reports.
const TCP_OVERHEAD: Cost = Cost { time: Duration::from_millis(400), round_trips: 9 };
const TCP_OVERHEAD_WITHOUT_PROBES: Cost = Cost { time: Duration::from_millis(200), round_trips: 3 };
/// Time of the trains of a direction with their session and their reports.
const TRAINS: Cost = Cost { time: Duration::from_millis(3000), round_trips: 11 };
const QUICK_TRAINS: Cost = Cost { time: Duration::from_millis(1200), round_trips: 8 };
/// Bounds of the TCP load in one direction.
const MIN_TCP_TIME: Duration = Duration::from_millis(2500);
const MAX_TCP_TIME: Duration = Duration::from_secs(15);
/// Maximum round trips of the TCP load in one direction: a longer load shows nothing more.
const MAX_TCP_ROUND_TRIPS: u32 = 200;
/// Time of the TCP load in one direction that a short RTT does not shorten further.
const USUAL_TCP_TIME: Duration = Duration::from_secs(8);
/// Time of the TCP load in one direction of a quick examination, without the round trips of its start.
const QUICK_TCP_TIME: Duration = Duration::from_secs(4);
/// Round trips of the start of a quick TCP load: slow start to the BDP of a long path, and as many to see its end.
const QUICK_START_ROUND_TRIPS: u32 = 20;
/// Time of a quick TCP load over an MTU black hole that probes have shown: the load only confirms it. A receiver without
/// data waits 3 s longer.
pub(super) const QUICK_HOLE_TIME: Duration = Duration::from_millis(1500);
/// Minimum rate of `--max-load`: the trains need datagrams, and the control connection needs room.
pub const MIN_MAX_LOAD: BitRate = BitRate(100_000);
/// Maximum time of `--time`: the evidence has each sample of the load.
pub const MAX_TIME: Duration = Duration::from_secs(3600);

/// Maximum RTT of the schedule: a handshake with lost segments takes longer than a round trip.
const MAX_RTT: Duration = Duration::from_secs(1);

/// Time that a part takes on a path: a fixed time and round trips.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) time: Duration,
    pub(super) round_trips: u32,
}

impl Cost {
    pub(super) fn at(self, rtt: Duration) -> Duration {
        self.time + rtt * self.round_trips
    }
}

/// Options of an examination of a path and its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Server: a saved name, a ticket, USER@HOST for ssh, or `far` inside an emulation.
    pub server: String,
    /// Time of the TCP load in each direction, at most an hour; none to choose it by the RTT.
    pub time: Option<Duration>,
    /// Examine within 15 s, or 30 s on a path with an RTT above 300 ms.
    pub quick: bool,
    /// Maximum rate of the load.
    pub max_load: Option<BitRate>,
    /// Capacity of the bottleneck, if known; otherwise the figures of the emulator are used.
    pub rate: Option<BitRate>,
    /// Paths whose disks are measured after the loads, in additional time.
    pub disks: DiskPaths,
    /// Arguments of the command for the origin of the result, without secrets.
    pub command: Vec<String>,
}

impl DoctorOptions {
    /// Creates options for an examination of the path to the server.
    pub fn new(server: impl Into<String>) -> Self {
        let server = server.into();
        let command = vec!["doctor".to_owned(), server.clone()];
        DoctorOptions {
            server,
            time: None,
            quick: false,
            max_load: None,
            rate: None,
            disks: DiskPaths::default(),
            command,
        }
    }

    /// Returns the schedule of an examination of a path with this RTT.
    pub(super) fn schedule(&self, rtt: Duration) -> Schedule {
        let rtt = rtt.min(MAX_RTT);
        let max_total = match self.quick {
            true if rtt > VERY_LONG_RTT => VERY_LONG_RTT_QUICK_TIME,
            true => QUICK_TIME,
            false => TIME,
        };
        let is_long = rtt > LONG_RTT;
        let latency_probes = !(self.quick && is_long);
        let trains = if self.quick { QUICK_TRAINS } else { TRAINS }.at(rtt);
        let after_loads = trains * if is_long { 1 } else { 2 };
        let overhead = if latency_probes { TCP_OVERHEAD } else { TCP_OVERHEAD_WITHOUT_PROBES }.at(rtt);
        let fixed = FACTS.at(rtt) + overhead * 2 + after_loads;
        let enough = match self.quick {
            true => QUICK_TCP_TIME + rtt * QUICK_START_ROUND_TRIPS,
            false => (rtt * MAX_TCP_ROUND_TRIPS).max(USUAL_TCP_TIME),
        };
        let left = max_total.saturating_sub(fixed) / 2;
        let tcp = self.time.unwrap_or_else(|| left.min(enough).clamp(MIN_TCP_TIME, MAX_TCP_TIME));
        let disks = self.disks.planned_time(self.quick);
        let load = PlannedLoad { max_rate: self.max_load, tcp, trains, total: fixed + tcp * 2, disks };
        let has_fixed_time = self.time.is_some();
        let limit = max_total.max(load.total);
        Schedule { rtt, load, limit, trains_at_once: is_long, latency_probes, overhead, after_loads, has_fixed_time }
    }
}

/// Times of an examination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Schedule {
    pub(super) rtt: Duration,
    pub(super) load: PlannedLoad,
    /// Maximum time of the examination, which is above the planned time.
    limit: Duration,
    /// The trains of both directions run at the same time.
    pub(super) trains_at_once: bool,
    /// Probes measure the delay during a TCP load.
    pub(super) latency_probes: bool,
    /// Time of a TCP load besides its load.
    overhead: Duration,
    /// Time of the parts after the loads.
    after_loads: Duration,
    /// The user has set the time of the load.
    has_fixed_time: bool,
}

impl Schedule {
    /// Returns the schedule for a quick examination if the server does not answer datagrams: without trains, and without
    /// probes during the loads, which would wait for an answer first.
    pub(super) fn without_datagrams(self, is_silent: bool) -> Schedule {
        match is_silent {
            true => Schedule { latency_probes: false, after_loads: Duration::ZERO, ..self },
            false => self,
        }
    }

    /// Returns true if the trains end within the maximum time.
    pub(super) fn has_time_for_trains(&self, elapsed: Duration) -> bool {
        elapsed + self.after_loads <= self.limit
    }

    /// Returns the time of the next TCP load: shorter than planned if earlier parts took longer than planned.
    pub(super) fn tcp_time(&self, elapsed: Duration, loads: u32) -> Duration {
        if self.has_fixed_time {
            return self.load.tcp;
        }
        let left = self.load.total.saturating_sub(elapsed + self.after_loads) / loads.max(1);
        left.saturating_sub(self.overhead).min(self.load.tcp).max(MIN_TCP_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examination_fits_into_its_time_at_any_rtt() {
        for millis in [0, 1, 20, 100, 101, 200, 300, 301, 450, 600] {
            let rtt = Duration::from_millis(millis);
            let normal = DoctorOptions::new("far");
            let quick = DoctorOptions { quick: true, ..DoctorOptions::new("far") };
            let (normal, quick) = (normal.schedule(rtt).load, quick.schedule(rtt).load);
            assert!(normal.total <= Duration::from_secs(60), "{millis} ms: {normal:?}");
            let max_quick = if millis > 310 { 30 } else { 15 };
            assert!(quick.total <= Duration::from_secs(max_quick), "{millis} ms: {quick:?}");
            // Slow start to 10,000 packets takes 10 round trips.
            assert!(normal.tcp > rtt * 20 && quick.tcp > rtt * 11, "{millis} ms: {quick:?} {normal:?}");
        }
    }

    #[test]
    fn requested_time_is_kept() {
        let options = DoctorOptions { time: Some(Duration::from_secs(90)), ..DoctorOptions::new("far") };
        let schedule = options.schedule(Duration::from_millis(10));
        assert_eq!(schedule.tcp_time(Duration::from_secs(80), 1), Duration::from_secs(90));
    }

    #[test]
    fn load_is_shorter_after_a_slow_part() {
        let options = DoctorOptions { quick: true, ..DoctorOptions::new("far") };
        let schedule = options.schedule(Duration::from_millis(20));
        let on_time = schedule.tcp_time(Duration::from_millis(400), 2);
        let late = schedule.tcp_time(Duration::from_secs(3), 2);
        assert_eq!(on_time, schedule.load.tcp);
        assert!(late < on_time && late >= MIN_TCP_TIME, "{late:?}");
    }
}
