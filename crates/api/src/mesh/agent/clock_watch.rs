//! The clock of this host against the clock of the hub. Loads of the schedule need clocks that agree.
//!
//! Each exchange with the hub gives the difference with an error of half the round trip. Between two exchanges, the monotonic
//! clock shows whether the clock of this host was set.

use std::time::Duration;

use lfn_sys::clock;

/// Maximum error of a difference that is recorded.
const MAX_ERROR: Duration = Duration::from_secs(1);

/// Clock of this host, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockState {
    /// No exchange with the hub yet. The clock is trusted.
    Unknown,
    Right,
    /// The clock differs by at least this much.
    Off {
        by: Duration,
    },
}

/// Both clocks of this host at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostClocks {
    /// Time since 1970 by the clock of the day.
    pub wall: Duration,
    /// Time since an origin that never changes while the process runs.
    pub monotonic: Duration,
}

impl HostClocks {
    /// Reads both clocks of this host.
    pub(super) fn now() -> Self {
        HostClocks { wall: clock::since_1970(), monotonic: clock::since_boot() }
    }
}

/// Difference of the clocks at the last exchange. All times but `difference` are those of this host.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    at: HostClocks,
    /// Clock of the hub minus clock of this host, nanoseconds.
    difference: i128,
    /// Maximum error of the difference.
    error: Duration,
}

/// Compares the clock of this host with that of the hub.
#[derive(Debug, Default)]
pub(super) struct ClockWatch {
    last: Option<Exchange>,
    /// First time of this host, to detect a set clock before the first exchange.
    first: Option<HostClocks>,
}

impl ClockWatch {
    /// Records an exchange: the hub's clock, and the clocks of this host before the request and after the answer. A slow answer
    /// says little about the clock, and is ignored.
    pub(super) fn record(&mut self, hub: Duration, before: HostClocks, after: HostClocks) {
        let round_trip = after.monotonic.saturating_sub(before.monotonic);
        let half = round_trip / 2;
        if half > MAX_ERROR {
            return;
        }
        let at = HostClocks { wall: before.wall + half, monotonic: before.monotonic + half };
        let difference = nanos(hub) - nanos(at.wall);
        self.last = Some(Exchange { at, difference, error: half });
    }

    /// Returns the state of the clock of this host now.
    pub(super) fn state(&mut self, now: HostClocks, permitted: Duration) -> ClockState {
        let first = *self.first.get_or_insert(now);
        let (difference, error, since) = match self.last {
            Some(last) => (last.difference, last.error, last.at),
            None => (0, Duration::ZERO, first),
        };
        let wall = nanos(now.wall) - nanos(since.wall);
        let monotonic = nanos(now.monotonic) - nanos(since.monotonic);
        let set_by = wall - monotonic;
        let off = (difference - set_by).unsigned_abs();
        let by = Duration::from_nanos(u64::try_from(off).unwrap_or(u64::MAX)).saturating_sub(error);
        match self.last {
            _ if by > permitted => ClockState::Off { by },
            Some(_) => ClockState::Right,
            None => ClockState::Unknown,
        }
    }
}

fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERMITTED: Duration = Duration::from_secs(1);

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn at(wall: u64, monotonic: u64) -> HostClocks {
        HostClocks { wall: ms(wall), monotonic: ms(monotonic) }
    }

    #[test]
    fn a_wrong_clock_is_found_by_the_exchange() {
        let mut watch = ClockWatch::default();
        assert_eq!(watch.state(at(100_000, 5_000), PERMITTED), ClockState::Unknown);
        watch.record(ms(103_000), at(100_000, 5_000), at(100_040, 5_040));
        assert_eq!(watch.state(at(100_100, 5_100), PERMITTED), ClockState::Off { by: ms(2_960) });
        watch.record(ms(103_900), at(103_000, 8_000), at(103_040, 8_040));
        assert_eq!(watch.state(at(104_000, 9_000), PERMITTED), ClockState::Right);
    }

    #[test]
    fn a_clock_that_was_set_is_found_without_the_hub() {
        let mut watch = ClockWatch::default();
        watch.record(ms(100_020), at(100_000, 5_000), at(100_040, 5_040));
        assert_eq!(watch.state(at(200_000, 105_000), PERMITTED), ClockState::Right);
        assert!(matches!(watch.state(at(210_000, 105_000), PERMITTED), ClockState::Off { .. }));
        assert!(matches!(watch.state(at(190_000, 105_000), PERMITTED), ClockState::Off { .. }));
        let mut never_connected = ClockWatch::default();
        assert_eq!(never_connected.state(at(1_000, 50), PERMITTED), ClockState::Unknown);
        assert!(matches!(never_connected.state(at(9_000, 60), PERMITTED), ClockState::Off { .. }));
    }

    #[test]
    fn a_slow_answer_says_nothing_about_the_clock() {
        let mut watch = ClockWatch::default();
        watch.record(ms(110_000), at(100_000, 5_000), at(120_000, 25_000));
        assert_eq!(watch.state(at(120_000, 25_000), PERMITTED), ClockState::Unknown);
        watch.record(ms(153_000), at(150_000, 55_000), at(150_040, 55_040));
        watch.record(ms(180_000), at(160_000, 65_000), at(200_000, 105_000));
        assert!(matches!(watch.state(at(200_000, 105_000), PERMITTED), ClockState::Off { .. }));
        watch.record(ms(210_900), at(210_000, 115_000), at(211_800, 116_800));
        assert_eq!(watch.state(at(212_000, 117_000), PERMITTED), ClockState::Right);
    }
}
