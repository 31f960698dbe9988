//! Request and progress of a test, common to all protocols (lfn over TCP, datagrams, iperf3). The result of each test
//! is its [`Evidence`](lfn_results::evidence::Evidence).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::Ratio;
use lfn_results::measure::{Interval, Kernel, SocketRequest, TestRequest};
use lfn_results::udp::ramp::RampReport;

/// A test to run: the request to the server, and the options of this end.
#[derive(Debug, Clone)]
pub struct Test {
    pub request: TestRequest,
    pub near_socket: SocketRequest,
    /// Path, if its capacity is known.
    pub path: Option<PathProfile>,
    /// Both ends use the buffers of the plan for `path`, not their own. A base RTT of zero is then measured before the
    /// data streams are dialled, which costs one round trip.
    pub tuned: bool,
    /// Round the interval up to whole round trips, if one burst more or less changes an interval's goodput visibly. A
    /// window-limited sender sends one burst per round trip, and an interval with an extra burst would show a wrong
    /// rate.
    pub round_to_rtt: bool,
    /// End the load when the 95 % confidence interval of the steady goodput is within this share of its mean.
    pub target_precision: Option<Ratio>,
    /// Time to ignore at the start; detected from the intervals if absent.
    pub omit: Option<Duration>,
    /// Set to end the load early, with a report.
    pub stop: Arc<AtomicBool>,
}

impl Test {
    /// Returns the interval to request on a path with this RTT.
    pub(super) fn interval(&self, rtt: Duration) -> Duration {
        /// Above this number of round trips per interval, one burst more or less does not matter.
        const MANY: u32 = 20;
        let asked = self.request.interval;
        if !self.round_to_rtt || rtt * MANY < asked {
            return asked;
        }
        let round_trips = asked.as_nanos().div_ceil(rtt.as_nanos().max(1));
        rtt * u32::try_from(round_trips).unwrap_or(1).max(1)
    }
}

/// Progress of a running test.
#[derive(Debug)]
pub enum TestProgress<'a> {
    /// The control connection is open: its RTT and the server's kernel.
    Connected(Duration, &'a Kernel),
    /// An interval of this end.
    Near(&'a Interval),
    /// An interval of the server, half a round trip late.
    Far(&'a Interval),
    /// A step of a ramp started: the results so far and the new rate.
    Step(&'a RampReport),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_rounded_to_whole_round_trips() {
        let request = TestRequest::default();
        let mut test = Test {
            request,
            near_socket: SocketRequest::default(),
            path: None,
            tuned: false,
            round_to_rtt: true,
            target_precision: None,
            omit: None,
            stop: Arc::default(),
        };
        let ms = Duration::from_millis;
        assert_eq!(test.interval(ms(539)), ms(1078));
        assert_eq!(test.interval(ms(3000)), ms(3000));
        assert_eq!(test.interval(ms(500)), ms(1000));
        assert_eq!(test.interval(ms(40)), ms(1000), "25 round trips");
        assert_eq!(test.interval(Duration::ZERO), ms(1000));
        test.round_to_rtt = false;
        assert_eq!(test.interval(ms(539)), ms(1000));
    }
}
