//! State of a running test for the live display.

use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;
use lfn_base::units::{BitRate, Bytes};
use lfn_measure::tester::{Test, TestProgress};
use lfn_results::evidence::Side;
use lfn_results::measure::{Interval, TestDirection, TestLoad, TestRequest};

/// State of one test.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TestState {
    pub(super) direction: Option<TestDirection>,
    /// True after the server answered.
    pub(super) is_connected: bool,
    /// Goodput of each interval so far.
    pub(super) rates: Vec<BitRate>,
    /// Receiver's time at the last interval.
    pub(super) elapsed: Duration,
    /// Receiver's time now; it never goes backwards.
    pub(super) clock: Duration,
    /// Value of `clock` at the last interval.
    pub(super) elapsed_at_update: Duration,
    /// Zero of the receiver's clock, in time of the display.
    pub(super) clock_start: Option<Duration>,
    pub(super) bytes: Bytes,
    /// End of the test, if it is known.
    pub(super) ends: Option<TestEnd>,
    /// True if the test may end earlier.
    pub(super) may_end_early: bool,
    pub(super) rtt: Duration,
    pub(super) min_rtt: Option<Duration>,
    pub(super) cwnd: Bytes,
    pub(super) rwnd: Option<Bytes>,
    pub(super) resent: u64,
    pub(super) limits: WaitShares,
    pub(super) datagrams: Option<DatagramCounts>,
    /// Sender's counters one interval before, of all streams: busy, limited by rwnd, limited by the send buffer.
    pub(super) previous_totals: [Duration; 3],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TestEnd {
    After(Duration),
    At(Bytes),
    /// Number of datagrams of all streams.
    Datagrams(u64),
}

/// Datagram counts of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct DatagramCounts {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) reordered: u64,
    /// Jitter of the worst stream in the last interval.
    pub(super) jitter: Option<Duration>,
}

/// Shares of the sender's waiting time in the last interval, by cause.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct WaitShares {
    pub(super) rwnd: f64,
    pub(super) sndbuf: f64,
    pub(super) cwnd: f64,
    pub(super) application: f64,
}

impl TestState {
    /// Creates the state of a test that starts.
    pub(super) fn new(test: &Test) -> TestState {
        let request = &test.request;
        TestState {
            direction: Some(request.direction),
            ends: ends(request),
            may_end_early: test.target_precision.is_some(),
            datagrams: request.udp.is_some().then(DatagramCounts::default),
            ..TestState::default()
        }
    }

    /// Updates the state with an event at `now`.
    pub(super) fn update(&mut self, progress: &TestProgress<'_>, now: Duration) {
        let (side, interval) = match progress {
            TestProgress::Near(interval) => (Side::Near, interval),
            TestProgress::Far(interval) => (Side::Far, interval),
            TestProgress::Connected(..) => {
                self.is_connected = true;
                self.clock_start = Some(now);
                return;
            }
            TestProgress::Step(_) => return,
        };
        let Some((sender, receiver)) = self.direction.map(Side::sender_and_receiver) else { return };
        if side == receiver {
            // The first interval sets the clock. Later intervals may be delayed and would move the clock back and
            // forth.
            if self.rates.is_empty() {
                self.clock_start = Some(now.saturating_sub(interval.end));
            }
            self.received(interval);
            self.tick(now);
            self.elapsed_at_update = self.clock;
        }
        if side == sender {
            self.sent(interval);
        }
    }

    /// Advances the clock to `now`.
    pub(super) fn tick(&mut self, now: Duration) {
        let since = self.clock_start.map(|zero| now.saturating_sub(zero)).unwrap_or_default();
        self.clock = self.clock.max(since);
    }

    fn received(&mut self, interval: &Interval) {
        self.rates.push(Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start)));
        self.elapsed = interval.end;
        self.bytes.0 += interval.bytes;
        let samples = || interval.streams.iter().filter_map(|stream| stream.udp.as_ref());
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.received += samples().map(|sample| sample.datagrams).sum::<u64>();
            datagrams.lost += samples().map(|sample| sample.lost).sum::<u64>();
            datagrams.reordered += samples().map(|sample| sample.reordered).sum::<u64>();
            datagrams.jitter = samples().filter_map(|sample| sample.jitter).max();
        }
    }

    fn sent(&mut self, interval: &Interval) {
        let infos: Vec<&TcpInfo> = interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref()).collect();
        let Ok(count) = u32::try_from(infos.len()) else { return };
        if count == 0 {
            return;
        }
        self.rtt = infos.iter().map(|info| info.rtt).sum::<Duration>() / count;
        self.min_rtt = infos.iter().filter_map(|info| info.min_rtt).min();
        self.cwnd = Bytes(infos.iter().map(|info| info.cwnd().0).sum());
        self.rwnd = infos.iter().map(|info| info.snd_wnd_bytes.map(u64::from)).sum::<Option<u64>>().map(Bytes);
        self.resent = infos.iter().map(|info| u64::from(info.retransmitted_segments)).sum();
        let sum = |figure: fn(&TcpInfo) -> Option<Duration>| infos.iter().filter_map(|info| figure(info)).sum();
        let now: [Duration; 3] =
            [sum(|info| info.busy), sum(|info| info.rwnd_limited), sum(|info| info.sndbuf_limited)];
        let [busy, rwnd, sndbuf] =
            [0, 1, 2].map(|i| now[i].saturating_sub(std::mem::replace(&mut self.previous_totals[i], now[i])));
        self.limits = WaitShares::of(interval.end.saturating_sub(interval.start) * count, busy, rwnd, sndbuf);
    }

    /// Returns the remaining time; for a counted load at the mean rate so far.
    pub(super) fn remaining(&self) -> Option<Duration> {
        match self.ends? {
            TestEnd::After(time) => Some(time.saturating_sub(self.clock)),
            TestEnd::At(bytes) => self.at_this_rate(self.bytes.0, bytes.0),
            TestEnd::Datagrams(count) => {
                // Lost datagrams do not arrive later.
                let passed = self.datagrams.map_or(0, |datagrams| datagrams.received.saturating_add(datagrams.lost));
                self.at_this_rate(passed, count)
            }
        }
    }

    fn at_this_rate(&self, done: u64, all: u64) -> Option<Duration> {
        let rate = done as f64 / self.elapsed.as_secs_f64();
        let left = Duration::try_from_secs_f64(all.saturating_sub(done) as f64 / rate).ok()?;
        Some(left.saturating_sub(self.clock.saturating_sub(self.elapsed_at_update)))
    }
}

impl WaitShares {
    /// Computes the shares. The congestion window is the limit if no other cause is. A sender without data waits for
    /// its application.
    pub(super) fn of(whole: Duration, busy: Duration, rwnd: Duration, sndbuf: Duration) -> WaitShares {
        let whole = whole.max(busy).as_secs_f64().max(f64::MIN_POSITIVE);
        let share = |time: Duration| time.as_secs_f64() / whole;
        let (busy, rwnd, sndbuf) = (share(busy), share(rwnd), share(sndbuf));
        WaitShares { rwnd, sndbuf, cwnd: (busy - rwnd - sndbuf).max(0.0), application: (1.0 - busy).max(0.0) }
    }
}

fn ends(request: &TestRequest) -> Option<TestEnd> {
    match request.load {
        // The number of steps of a ramp is not known before.
        _ if request.is_ramp() => None,
        TestLoad::TimeSeconds(time) => Some(TestEnd::After(time)),
        TestLoad::Records(count) if request.udp.is_some() => Some(TestEnd::Datagrams(count)),
        TestLoad::Records(_) | TestLoad::Bytes(_) => request.payload_bytes().map(Bytes).map(TestEnd::At),
    }
}

#[cfg(test)]
mod tests {
    use lfn_results::measure::Kernel;

    use super::*;

    #[test]
    fn remaining_datagrams_give_the_remaining_time() {
        let request = TestRequest { load: TestLoad::Records(100), udp: Some(Box::default()), ..TestRequest::default() };
        let datagrams = Some(DatagramCounts { received: 20, lost: 5, ..DatagramCounts::default() });
        let elapsed = Duration::from_secs(2);
        let state = TestState {
            ends: ends(&request),
            datagrams,
            elapsed,
            clock: elapsed,
            elapsed_at_update: elapsed,
            ..TestState::default()
        };
        assert_eq!(state.remaining(), Some(Duration::from_secs(6)));
    }

    #[test]
    fn the_clock_of_two_directions_never_goes_back() {
        let millis = Duration::from_millis;
        let time = TestRequest { load: TestLoad::TimeSeconds(millis(10_000)), ..TestRequest::default() };
        let state = |direction| TestState { direction: Some(direction), ends: ends(&time), ..TestState::default() };
        let mut both = [state(TestDirection::Forward), state(TestDirection::Reverse)];
        let connected =
            |state: &mut TestState, now| state.update(&TestProgress::Connected(millis(500), &Kernel::default()), now);
        both.iter_mut().for_each(|state| connected(state, millis(600)));
        let mut before = [Duration::ZERO; 2];
        // The near end's intervals arrive half a round trip earlier than the far end's.
        for now in (700..9_000).step_by(100).map(millis) {
            for (state, late) in both.iter_mut().zip([millis(900), millis(650)]) {
                let end = now.saturating_sub(late);
                if end >= millis(1000) && end.as_millis() % 1000 < 100 {
                    let interval = Interval { start: end - millis(1000), end, bytes: 1_000_000, ..Interval::default() };
                    match state.direction {
                        Some(TestDirection::Forward) => state.update(&TestProgress::Far(&interval), now),
                        _ => state.update(&TestProgress::Near(&interval), now),
                    }
                }
                state.tick(now);
            }
            let clocks = both.each_ref().map(|state| state.clock);
            assert!(clocks.iter().zip(before).all(|(clock, before)| *clock >= before), "{clocks:?} after {before:?}");
            assert!(
                clocks.iter().all(|clock| clock.abs_diff(now.saturating_sub(millis(800))) <= millis(300)),
                "{now:?} {clocks:?}"
            );
            before = clocks;
        }
        assert!(both.iter().all(|state| state.remaining() < Some(millis(2500))));
    }

    #[test]
    fn wait_shares_add_up() {
        let seconds = Duration::from_secs;
        let limits = WaitShares::of(seconds(10), seconds(8), seconds(4), seconds(1));
        assert!((limits.rwnd - 0.4).abs() < 1e-9 && (limits.cwnd - 0.3).abs() < 1e-9);
        assert!((limits.application - 0.2).abs() < 1e-9);
        let none = WaitShares::of(Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        assert!([none.rwnd, none.cwnd, none.application].iter().all(|share| share.is_finite()));
    }
}
