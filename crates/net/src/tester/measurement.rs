//! A test as it is asked for and as it is found: what every front end (our own protocol, datagrams, iperf3) takes and gives.
//! How it is done is theirs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lfn_core::blocks::Caught;
use lfn_core::discover::report::PathReport;
use lfn_core::host::clock::Alignment;
use lfn_core::latency::Latency;
use lfn_core::path::PathProfile;
use lfn_core::report::Ended;
use lfn_core::udp::ramp::RampReport;
use lfn_core::units::Ratio;
use lfn_core::stopping_rule::Estimate;
use lfn_core::wire::test::{Direction, EndReport, Interval, Kernel, SocketWish, TestRequest};

/// A test to run: what the far end is asked, and what this end does.
#[derive(Debug, Clone)]
pub struct Test {
    /// What the far end is asked.
    pub request: TestRequest,
    /// Socket options of this end.
    pub near: SocketWish,
    /// The path, if its capacity is known: the plan's buffers are made from it at both ends. A base RTT of zero is not
    /// known yet and measured before the data streams are dialled, which costs them a round trip.
    pub path: Option<PathProfile>,
    /// Lengthen the interval to whole round trips, where that is no small change to what is counted in one: a sender
    /// that its window stops sends once a round trip, and an interval with one burst more shows what never was.
    pub whole_round_trips: bool,
    /// End the load as soon as the 95 % interval of the steady goodput is no wider than this to either side.
    pub until: Option<Ratio>,
    /// How much is start-up, if that is not to be found in the figures.
    pub omit: Option<Duration>,
    /// Set to end the load early, with its figures.
    pub stop: Arc<AtomicBool>,
}

impl Test {
    /// The interval to ask for, on a path of this round-trip time.
    pub(super) fn interval(&self, rtt: Duration) -> Duration {
        /// With more round trips than this in an interval, one burst more or less is lost in its goodput.
        const MANY: u32 = 20;
        let asked = self.request.interval;
        if !self.whole_round_trips || rtt * MANY < asked {
            return asked;
        }
        let round_trips = asked.as_nanos().div_ceil(rtt.as_nanos().max(1));
        rtt * u32::try_from(round_trips).unwrap_or(1).max(1)
    }
}

/// What a running test tells.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The control connection is up: the round-trip time measured on it, and what the far kernel allows.
    Connected(Duration, &'a Kernel),
    /// An interval of this end.
    Near(&'a Interval),
    /// An interval of the far end, half a round trip late.
    Far(&'a Interval),
    /// A step of a ramp was begun: what is known so far, and its rate.
    Step(&'a RampReport),
}

/// What a test found.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// The request it was.
    pub request: TestRequest,
    /// The least round-trip time of the control connection's handshake, before any load.
    pub rtt: Duration,
    /// This end.
    pub near: EndReport,
    /// The server's end; its intervals lie on this end's clock too, where the two clocks were compared.
    pub far: EndReport,
    /// How the server's clock stands to this end's.
    pub clock: Option<Alignment>,
    /// What lies between, if it was looked at.
    pub path: Option<PathReport>,
    /// When its blocks arrived, where that was asked for.
    pub blocks: Option<Caught>,
    /// What probes beside the load saw, if they were asked for.
    pub latency: Option<Latency>,
    /// How well its goodput is known, if that can be told.
    pub estimate: Option<Estimate>,
    /// Why it ended.
    pub ended: Ended,
    /// The other direction was under load at the same time.
    pub at_once: bool,
}

impl Measurement {
    /// Of both ends' reports alone.
    pub fn new(request: TestRequest, rtt: Duration, near: EndReport, far: EndReport) -> Self {
        Measurement {
            request,
            rtt,
            near,
            far,
            clock: None,
            path: None,
            blocks: None,
            latency: None,
            estimate: None,
            ended: Ended::Done,
            at_once: false,
        }
    }

    /// The end that sent.
    pub fn sender(&self) -> &EndReport {
        if self.request.direction == Direction::Forward { &self.near } else { &self.far }
    }

    /// The end that received, whose count and clock say what the goodput was.
    pub fn receiver(&self) -> &EndReport {
        if self.request.direction == Direction::Forward { &self.far } else { &self.near }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_whole_round_trips_where_one_more_would_show() {
        let request = TestRequest::default();
        let mut test = Test {
            request,
            near: SocketWish::default(),
            path: None,
            whole_round_trips: true,
            until: None,
            omit: None,
            stop: Arc::default(),
        };
        let ms = Duration::from_millis;
        assert_eq!(test.interval(ms(539)), ms(1078));
        assert_eq!(test.interval(ms(3000)), ms(3000));
        assert_eq!(test.interval(ms(500)), ms(1000));
        assert_eq!(test.interval(ms(40)), ms(1000), "25 of them");
        assert_eq!(test.interval(Duration::ZERO), ms(1000));
        test.whole_round_trips = false;
        assert_eq!(test.interval(ms(539)), ms(1000));
    }
}
