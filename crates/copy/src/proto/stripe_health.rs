//! State of one stripe: up or down, its outages, and the time of its next dial. Times count from the start of the copy.
//!
//! A stripe is down when none of its streams works. One stream at a time then tries the stripe again, with a wait that
//! doubles until data arrives. The other stripes carry the copy meanwhile.

use std::time::Duration;

/// First wait before a stripe is dialled again.
const MIN_WAIT: Duration = Duration::from_millis(250);

/// Maximum wait before a stripe is dialled again.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// Minimum time between two rounds of dialling.
const MIN_ROUND: Duration = Duration::from_millis(100);

/// State of a stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripeState {
    /// The first streams are dialled.
    #[default]
    Connecting,
    /// At least one stream is open.
    Up,
    /// Every stream of the stripe failed.
    Down,
}

/// Change of the state of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeChange {
    /// No stream works any more.
    Down {
        /// A stream was open before.
        has_worked: bool,
    },
    /// A stream works again.
    Up {
        /// Time since the stripe went down.
        after: Duration,
    },
}

/// State and failures of a stripe.
#[derive(Clone, Debug, Default)]
pub struct StripeHealth {
    state: StripeState,
    has_worked: bool,
    down_since: Option<Duration>,
    down_time: Duration,
    outages: u32,
    /// Wait before the next round; zero without a failure since the last arrival of data.
    wait: Duration,
    next_round: Option<Duration>,
}

impl StripeHealth {
    /// Returns the state of the stripe.
    pub fn state(&self) -> StripeState {
        self.state
    }

    /// Returns how often the stripe went down.
    pub fn outages(&self) -> u32 {
        self.outages
    }

    /// Returns the total time in which the stripe was down.
    pub fn down_time(&self, now: Duration) -> Duration {
        self.down_time + self.down_since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Records that a stream is open.
    pub fn on_opened(&mut self, now: Duration) -> Option<StripeChange> {
        self.state = StripeState::Up;
        self.has_worked = true;
        let after = now.saturating_sub(self.down_since.take()?);
        self.down_time += after;
        Some(StripeChange::Up { after })
    }

    /// Records that data arrived.
    pub fn on_arrival(&mut self) {
        self.wait = Duration::ZERO;
    }

    /// Records that a stream could not be opened or broke. `open` streams still work. Failures of one round count once.
    pub fn on_failure(&mut self, open: usize, now: Duration) -> Option<StripeChange> {
        if self.wait.is_zero() || self.next_round.is_none_or(|next| now >= next) {
            self.wait = (self.wait * 2).clamp(MIN_WAIT, MAX_WAIT);
            self.next_round = Some(now + self.wait);
        }
        if open > 0 || self.state == StripeState::Down {
            return None;
        }
        self.state = StripeState::Down;
        self.down_since = Some(now);
        self.outages += 1;
        Some(StripeChange::Down { has_worked: self.has_worked })
    }

    /// Returns how many streams to dial now. `dialled` streams are dialled or open, `wanted` is their target.
    pub fn streams_to_dial(&mut self, dialled: u16, wanted: u16, now: Duration) -> u16 {
        let missing = match self.state {
            StripeState::Down => wanted.min(1).saturating_sub(dialled),
            StripeState::Connecting | StripeState::Up => wanted.saturating_sub(dialled),
        };
        if missing == 0 || self.next_round.is_some_and(|next| now < next) {
            return 0;
        }
        self.next_round = Some(now + self.wait.max(MIN_ROUND));
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn stripe_is_down_when_its_last_stream_breaks() {
        let start = Duration::ZERO;
        let mut health = StripeHealth::default();
        assert_eq!(health.streams_to_dial(0, 4, start), 4);
        assert_eq!(health.on_opened(start), None);
        health.on_arrival();
        for open in [3, 2, 1] {
            assert_eq!(health.on_failure(open, at(1000)), None);
        }
        assert_eq!(health.on_failure(0, at(1000)), Some(StripeChange::Down { has_worked: true }));
        assert_eq!((health.state(), health.outages()), (StripeState::Down, 1));
        assert_eq!(health.on_opened(at(4000)), Some(StripeChange::Up { after: Duration::from_secs(3) }));
        assert_eq!(health.down_time(at(9000)), Duration::from_secs(3));
    }

    #[test]
    fn stripe_that_is_down_is_tried_by_one_stream() {
        let start = Duration::ZERO;
        let mut health = StripeHealth::default();
        assert_eq!(health.on_failure(0, start), Some(StripeChange::Down { has_worked: false }));
        assert_eq!(health.streams_to_dial(0, 4, at(249)), 0);
        assert_eq!(health.streams_to_dial(0, 4, at(250)), 1);
        assert_eq!(health.streams_to_dial(1, 4, at(9000)), 0);
        // After the stream is open, the others follow.
        health.on_opened(at(9000));
        assert_eq!(health.streams_to_dial(1, 4, at(9000)), 3);
    }

    #[test]
    fn wait_doubles_until_data_arrives() {
        let start = Duration::ZERO;
        let mut health = StripeHealth::default();
        let (mut now, mut waits) = (start, Vec::new());
        for _ in 0..7 {
            // The failures of four streams in one round count once.
            for _ in 0..4 {
                health.on_failure(0, now);
            }
            let wait = (0..).find(|wait| health.streams_to_dial(0, 4, now + Duration::from_millis(*wait)) > 0);
            waits.push(wait.unwrap_or_default());
            now += Duration::from_millis(wait.unwrap_or_default()) + MAX_WAIT;
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 4000, 4000]);
        health.on_opened(now);
        health.on_failure(0, now);
        assert_eq!(health.streams_to_dial(0, 4, now + Duration::from_millis(3999)), 0);
        health.on_opened(now + MAX_WAIT);
        health.on_arrival();
        health.on_failure(0, now + MAX_WAIT);
        assert_eq!(health.streams_to_dial(0, 4, now + MAX_WAIT + MIN_WAIT), 1);
    }
}
