//! Options of an examination, and the load that it plans.

use std::time::Duration;

use lfn_base::units::BitRate;
use lfn_results::report::PlannedLoad;

/// Maximum time of an examination.
const TIME: Duration = Duration::from_secs(60);
/// Maximum time of a quick examination.
const QUICK_TIME: Duration = Duration::from_secs(15);
/// Maximum time of a quick examination of a path with a larger RTT than [`LONG_RTT`].
const QUICK_TIME_LONG_RTT: Duration = Duration::from_secs(40);
/// RTT above which a quick examination takes longer.
const LONG_RTT: Duration = Duration::from_millis(100);
/// Round trips of all sessions for their set-up and their end.
const SETUP_ROUND_TRIPS: u32 = 30;
/// Time of the hosts for all sessions, and for the path MTU.
const SETUP_TIME: Duration = Duration::from_secs(2);
/// Bounds of the TCP load in one direction.
const TCP_TIME: [Duration; 2] = [Duration::from_millis(2500), Duration::from_secs(15)];
/// Maximum round trips of the TCP load in one direction: a longer load shows nothing more.
const MAX_TCP_ROUND_TRIPS: u32 = 200;
/// Minimum time of the TCP load in one direction, unless the time is short.
const MIN_TCP_TIME: Duration = Duration::from_secs(8);
/// Time of the TCP load in one direction of a quick examination, without the round trips of its start.
const QUICK_TCP_TIME: Duration = Duration::from_secs(4);
/// Minimum rate of `--max-load`: the trains need datagrams, and the control connection needs room.
pub const MIN_MAX_LOAD: BitRate = BitRate(100_000);

/// Options of an examination of a path and its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorOptions {
    /// Server: a saved name, a ticket, USER@HOST for ssh, or `far` inside an emulation.
    pub server: String,
    /// Time of the TCP load in each direction; none to choose it by the RTT.
    pub time: Option<Duration>,
    /// Examine within 15 s, or 40 s on a path with an RTT above 100 ms.
    pub quick: bool,
    /// Maximum rate of the load.
    pub max_load: Option<BitRate>,
    /// Capacity of the bottleneck, if known; otherwise the figures of the emulator are used.
    pub rate: Option<BitRate>,
    /// Arguments of the command for the origin of the result, without secrets.
    pub command: Vec<String>,
}

impl DoctorOptions {
    /// Creates options for an examination of the path to the server.
    pub fn new(server: impl Into<String>) -> Self {
        let server = server.into();
        let command = vec!["doctor".to_owned(), server.clone()];
        DoctorOptions { server, time: None, quick: false, max_load: None, rate: None, command }
    }

    /// Returns the load that the examination plans on a path with this RTT.
    pub(super) fn planned_load(&self, rtt: Duration) -> PlannedLoad {
        let total = match self.quick {
            true if rtt > LONG_RTT => QUICK_TIME_LONG_RTT,
            true => QUICK_TIME,
            false => TIME,
        };
        let setup = SETUP_TIME + rtt * SETUP_ROUND_TRIPS;
        // A train and the answer about it take about a second and three round trips together.
        let trains = (Duration::from_secs(2) + rtt * 4).min(total.saturating_sub(setup) / 4);
        let left = (total.saturating_sub(setup) / 2).saturating_sub(trains);
        let [min, max] = TCP_TIME;
        let enough = match self.quick {
            true => QUICK_TCP_TIME + rtt * 10,
            false => (rtt * MAX_TCP_ROUND_TRIPS).max(MIN_TCP_TIME),
        };
        let tcp = self.time.unwrap_or_else(|| left.min(enough).clamp(min, max));
        let total = (setup + (tcp + trains) * 2).max(rtt);
        PlannedLoad { max_rate: self.max_load, tcp, trains, total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examination_fits_into_its_time_at_any_rtt() {
        for millis in [0, 1, 20, 100, 101, 300, 450, 600] {
            let rtt = Duration::from_millis(millis);
            let normal = DoctorOptions::new("far");
            let quick = DoctorOptions { quick: true, ..DoctorOptions::new("far") };
            let (normal, quick) = (normal.planned_load(rtt), quick.planned_load(rtt));
            assert!(normal.total <= Duration::from_secs(60), "{millis} ms: {normal:?}");
            let max_quick = if millis > 100 { 40 } else { 15 };
            assert!(quick.total <= Duration::from_secs(max_quick), "{millis} ms: {quick:?}");
            assert!(quick.tcp <= normal.tcp && quick.tcp >= TCP_TIME[0], "{millis} ms: {quick:?} {normal:?}");
        }
    }

    #[test]
    fn requested_time_is_kept() {
        let options = DoctorOptions { time: Some(Duration::from_secs(90)), ..DoctorOptions::new("far") };
        assert_eq!(options.planned_load(Duration::from_millis(10)).tcp, Duration::from_secs(90));
    }
}
