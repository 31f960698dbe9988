//! Round-trip time and the timeout that follows from it: RFC 6298, with Linux' bounds.

use std::time::Duration;

/// What has been learnt of the round-trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
}

/// Before anything is known (RFC 6298 §2.1).
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// Linux' `TCP_RTO_MIN` is the least the variation adds, not the least of the whole.
const LEAST_MARGIN: Duration = Duration::from_millis(200);
/// Linux' `TCP_RTO_MAX`.
const MOST_TIMEOUT: Duration = Duration::from_secs(120);

impl RoundTrip {
    /// One measurement of a segment that was sent once.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((smoothed * 7 + rtt) / 8);
            }
        }
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The least seen.
    pub(super) fn least(&self) -> Option<Duration> {
        self.least
    }

    /// The timeout after `backoff` timeouts in a row.
    pub(super) fn timeout(&self, backoff: u32) -> Duration {
        let first = self.smoothed.map_or(FIRST_TIMEOUT, |smoothed| smoothed + LEAST_MARGIN.max(self.variation * 4));
        first.saturating_mul(1_u32 << backoff.min(20)).min(MOST_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_that_of_the_rfc_and_doubles() {
        let ms = Duration::from_millis;
        let mut trip = RoundTrip::default();
        assert_eq!(trip.timeout(0), ms(1000));
        trip.sample(ms(539));
        assert_eq!(trip.timeout(0), ms(539 + 1078));
        for _ in 0..100 {
            trip.sample(ms(539));
        }
        assert_eq!((trip.timeout(0).as_millis(), trip.least()), (739, Some(ms(539))));
        assert_eq!(trip.timeout(1).as_millis(), 1478);
        assert_eq!(trip.timeout(60), ms(120_000));
    }
}
