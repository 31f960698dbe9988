//! The clock of this host against the clock of the hub. Loads of the schedule need clocks that agree.
//!
//! Each exchange with the hub gives the difference with an error of half the round trip. Between two exchanges, the monotonic
//! clock shows whether the clock of this host was set.

use std::time::Duration;

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

/// Difference of the clocks at the last exchange. All times but `difference` are those of this host.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    wall: Duration,
    monotonic: Duration,
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
    first: Option<(Duration, Duration)>,
}

impl ClockWatch {
    /// Records an exchange: the hub's clock, and the clocks of this host before the request and after the answer.
    pub(super) fn record(&mut self, hub: Duration, before: (Duration, Duration), after: (Duration, Duration)) {
        let round_trip = after.1.saturating_sub(before.1);
        let (wall, monotonic) = (before.0 + round_trip / 2, before.1 + round_trip / 2);
        let difference = nanos(hub) - nanos(wall);
        self.last = Some(Exchange { wall, monotonic, difference, error: round_trip / 2 });
    }

    /// Returns the state of the clock at these times of this host.
    pub(super) fn state(&mut self, wall: Duration, monotonic: Duration, permitted: Duration) -> ClockState {
        let first = *self.first.get_or_insert((wall, monotonic));
        let (difference, error, since) = match self.last {
            Some(last) => (last.difference, last.error, (last.wall, last.monotonic)),
            None => (0, Duration::ZERO, first),
        };
        let set_by = (nanos(wall) - nanos(since.0)) - (nanos(monotonic) - nanos(since.1));
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

    #[test]
    fn a_wrong_clock_is_found_by_the_exchange() {
        let mut watch = ClockWatch::default();
        assert_eq!(watch.state(ms(100_000), ms(5_000), PERMITTED), ClockState::Unknown);
        watch.record(ms(103_000), (ms(100_000), ms(5_000)), (ms(100_040), ms(5_040)));
        assert_eq!(watch.state(ms(100_100), ms(5_100), PERMITTED), ClockState::Off { by: ms(2_960) });
        watch.record(ms(103_900), (ms(103_000), ms(8_000)), (ms(103_040), ms(8_040)));
        assert_eq!(watch.state(ms(104_000), ms(9_000), PERMITTED), ClockState::Right);
    }

    #[test]
    fn a_clock_that_was_set_is_found_without_the_hub() {
        let mut watch = ClockWatch::default();
        watch.record(ms(100_020), (ms(100_000), ms(5_000)), (ms(100_040), ms(5_040)));
        assert_eq!(watch.state(ms(200_000), ms(105_000), PERMITTED), ClockState::Right);
        assert!(matches!(watch.state(ms(210_000), ms(105_000), PERMITTED), ClockState::Off { .. }));
        assert!(matches!(watch.state(ms(190_000), ms(105_000), PERMITTED), ClockState::Off { .. }));
        let mut never_connected = ClockWatch::default();
        assert_eq!(never_connected.state(ms(1_000), ms(50), PERMITTED), ClockState::Unknown);
        assert!(matches!(never_connected.state(ms(9_000), ms(60), PERMITTED), ClockState::Off { .. }));
    }

    #[test]
    fn a_slow_answer_does_not_accuse_the_clock() {
        let mut watch = ClockWatch::default();
        watch.record(ms(110_000), (ms(100_000), ms(5_000)), (ms(120_000), ms(25_000)));
        assert_eq!(watch.state(ms(120_000), ms(25_000), PERMITTED), ClockState::Right);
    }
}
