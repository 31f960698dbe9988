//! What the lines show, taken from what a running test tells.

use std::time::Duration;

use lfn_core::report::Side;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::test::{Direction, Interval, Load, TestRequest};
use lfn_net::tester::{Progress, Test};

/// One test as far as it has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    pub(super) direction: Option<Direction>,
    /// The server has answered.
    pub(super) begun: bool,
    /// Goodput of each interval so far.
    pub(super) rates: Vec<BitRate>,
    /// By the receiver's clock, as far as was told.
    pub(super) elapsed: Duration,
    /// The same as it goes on while nothing is told; never backwards.
    pub(super) clock: Duration,
    /// What that was when something was told last.
    pub(super) told: Duration,
    /// When the receiver's clock stood at zero: by the near one, since the lines are there.
    pub(super) zero: Option<Duration>,
    pub(super) bytes: Bytes,
    /// When it will be over, if that is known.
    pub(super) ends: Option<Ends>,
    /// It may end before.
    pub(super) early: bool,
    pub(super) rtt: Duration,
    pub(super) least_rtt: Option<Duration>,
    pub(super) cwnd: Bytes,
    pub(super) rwnd: Option<Bytes>,
    pub(super) resent: u64,
    pub(super) limits: Limits,
    pub(super) datagrams: Option<Datagrams>,
    /// The sender's counters an interval before: busy, stopped by rwnd, by the send buffer, of each stream together.
    pub(super) before: [Duration; 3],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ends {
    After(Duration),
    At(Bytes),
    /// So many of all streams.
    Datagrams(u64),
}

/// What the receiver saw of datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Datagrams {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) reordered: u64,
    /// Of the last interval and the worst stream.
    pub(super) jitter: Option<Duration>,
}

/// Shares of the sender's time in the last interval: what it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Limits {
    pub(super) rwnd: f64,
    pub(super) sndbuf: f64,
    pub(super) cwnd: f64,
    pub(super) application: f64,
}

impl State {
    /// Of a test that is to begin.
    pub(super) fn new(test: &Test) -> State {
        let request = &test.request;
        State {
            direction: Some(request.direction),
            ends: ends(request),
            early: test.until.is_some(),
            datagrams: request.udp.is_some().then(Datagrams::default),
            ..State::default()
        }
    }

    /// Takes in what happened by `now`.
    pub(super) fn take(&mut self, progress: &Progress<'_>, now: Duration) {
        let (side, interval) = match progress {
            Progress::Near(interval) => (Side::Near, interval),
            Progress::Far(interval) => (Side::Far, interval),
            Progress::Connected(..) => {
                self.begun = true;
                self.zero = Some(now);
                return;
            }
            Progress::Step(_) => return,
        };
        let Some((sender, receiver)) = self.direction.map(Side::of) else { return };
        if side == receiver {
            // Of the first, which is not behind others on its way: the clock is not set back and forth by the rest.
            if self.rates.is_empty() {
                self.zero = Some(now.saturating_sub(interval.end));
            }
            self.received(interval);
            self.tick(now);
            self.told = self.clock;
        }
        if side == sender {
            self.sent(interval);
        }
    }

    /// Time goes on.
    pub(super) fn tick(&mut self, now: Duration) {
        let since = self.zero.map(|zero| now.saturating_sub(zero)).unwrap_or_default();
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
        self.least_rtt = infos.iter().filter_map(|info| info.min_rtt).min();
        self.cwnd = Bytes(infos.iter().map(|info| info.cwnd().0).sum());
        self.rwnd = infos.iter().map(|info| info.snd_wnd_bytes.map(u64::from)).sum::<Option<u64>>().map(Bytes);
        self.resent = infos.iter().map(|info| u64::from(info.retransmitted_segments)).sum();
        let sum = |figure: fn(&TcpInfo) -> Option<Duration>| infos.iter().filter_map(|info| figure(info)).sum();
        let now: [Duration; 3] =
            [sum(|info| info.busy), sum(|info| info.rwnd_limited), sum(|info| info.sndbuf_limited)];
        let [busy, rwnd, sndbuf] =
            [0, 1, 2].map(|i| now[i].saturating_sub(std::mem::replace(&mut self.before[i], now[i])));
        self.limits = Limits::of(interval.end.saturating_sub(interval.start) * count, busy, rwnd, sndbuf);
    }

    /// How long is left; of a counted test at the mean rate so far.
    pub(super) fn remaining(&self) -> Option<Duration> {
        match self.ends? {
            Ends::After(time) => Some(time.saturating_sub(self.clock)),
            Ends::At(bytes) => self.at_this_rate(self.bytes.0, bytes.0),
            Ends::Datagrams(count) => {
                // What was lost does not come any more.
                let passed = self.datagrams.map_or(0, |datagrams| datagrams.received.saturating_add(datagrams.lost));
                self.at_this_rate(passed, count)
            }
        }
    }

    fn at_this_rate(&self, done: u64, all: u64) -> Option<Duration> {
        let rate = done as f64 / self.elapsed.as_secs_f64();
        let left = Duration::try_from_secs_f64(all.saturating_sub(done) as f64 / rate).ok()?;
        Some(left.saturating_sub(self.clock.saturating_sub(self.told)))
    }
}

impl Limits {
    /// The congestion window stops what nothing else does; a sender with nothing to send waits for its application.
    pub(super) fn of(whole: Duration, busy: Duration, rwnd: Duration, sndbuf: Duration) -> Limits {
        let whole = whole.max(busy).as_secs_f64().max(f64::MIN_POSITIVE);
        let share = |time: Duration| time.as_secs_f64() / whole;
        let (busy, rwnd, sndbuf) = (share(busy), share(rwnd), share(sndbuf));
        Limits { rwnd, sndbuf, cwnd: (busy - rwnd - sndbuf).max(0.0), application: (1.0 - busy).max(0.0) }
    }
}

fn ends(request: &TestRequest) -> Option<Ends> {
    match request.load {
        // How many steps a ramp takes shows on the way.
        _ if request.is_ramp() => None,
        Load::TimeSeconds(time) => Some(Ends::After(time)),
        Load::Records(count) if request.udp.is_some() => Some(Ends::Datagrams(count)),
        Load::Records(_) | Load::Bytes(_) => request.payload_bytes().map(Bytes).map(Ends::At),
    }
}

#[cfg(test)]
mod tests {
    use lfn_core::wire::test::Kernel;

    use super::*;

    #[test]
    fn what_is_left_of_datagrams_is_counted_in_datagrams() {
        let request = TestRequest { load: Load::Records(100), udp: Some(Box::default()), ..TestRequest::default() };
        let datagrams = Some(Datagrams { received: 20, lost: 5, ..Datagrams::default() });
        let elapsed = Duration::from_secs(2);
        let state =
            State { ends: ends(&request), datagrams, elapsed, clock: elapsed, told: elapsed, ..State::default() };
        assert_eq!(state.remaining(), Some(Duration::from_secs(6)));
    }

    #[test]
    fn the_clock_of_two_directions_goes_on_and_never_back() {
        let millis = Duration::from_millis;
        let time = TestRequest { load: Load::TimeSeconds(millis(10_000)), ..TestRequest::default() };
        let state = |direction| State { direction: Some(direction), ends: ends(&time), ..State::default() };
        let mut both = [state(Direction::Forward), state(Direction::Reverse)];
        let connected = |state: &mut State, now| state.take(&Progress::Connected(millis(500), &Kernel::default()), now);
        both.iter_mut().for_each(|state| connected(state, millis(600)));
        let mut before = [Duration::ZERO; 2];
        // What comes back is told half a round trip earlier than what is received there.
        for now in (700..9_000).step_by(100).map(millis) {
            for (state, late) in both.iter_mut().zip([millis(900), millis(650)]) {
                let end = now.saturating_sub(late);
                if end >= millis(1000) && end.as_millis() % 1000 < 100 {
                    let interval = Interval { start: end - millis(1000), end, bytes: 1_000_000, ..Interval::default() };
                    match state.direction {
                        Some(Direction::Forward) => state.take(&Progress::Far(&interval), now),
                        _ => state.take(&Progress::Near(&interval), now),
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
    fn limits_are_shares_of_the_time() {
        let seconds = Duration::from_secs;
        let limits = Limits::of(seconds(10), seconds(8), seconds(4), seconds(1));
        assert!((limits.rwnd - 0.4).abs() < 1e-9 && (limits.cwnd - 0.3).abs() < 1e-9);
        assert!((limits.application - 0.2).abs() < 1e-9);
        let none = Limits::of(Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        assert!([none.rwnd, none.cwnd, none.application].iter().all(|share| share.is_finite()));
    }
}
