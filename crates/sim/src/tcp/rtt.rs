//! Round-trip time and retransmission timeout (RFC 6298), with Linux's bounds.

use std::time::Duration;

/// Estimates of the round-trip time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    min_rtt: Option<Duration>,
}

/// Initial timeout before any measurement (RFC 6298 §2.1).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// Linux's `TCP_RTO_MIN` is the minimum of the variation term, not of the whole timeout.
const MIN_VARIATION: Duration = Duration::from_millis(200);
/// Maximum timeout: Linux's `TCP_RTO_MAX`.
const MAX_TIMEOUT: Duration = Duration::from_secs(120);

impl RttEstimator {
    /// Adds a measurement of a segment that was sent only once.
    pub(super) fn sample(&mut self, rtt: Duration) {
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |min_rtt| min_rtt.min(rtt)));
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

    /// Returns the minimum measured RTT.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Returns the timeout after `backoff` consecutive timeouts.
    pub(super) fn timeout(&self, backoff: u32) -> Duration {
        let first = self.smoothed.map_or(INITIAL_TIMEOUT, |smoothed| smoothed + MIN_VARIATION.max(self.variation * 4));
        first.saturating_mul(1_u32 << backoff.min(20)).min(MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_the_rfc_and_doubles() {
        let ms = Duration::from_millis;
        let mut trip = RttEstimator::default();
        assert_eq!(trip.timeout(0), ms(1000));
        trip.sample(ms(539));
        assert_eq!(trip.timeout(0), ms(539 + 1078));
        for _ in 0..100 {
            trip.sample(ms(539));
        }
        assert_eq!((trip.timeout(0).as_millis(), trip.min_rtt()), (739, Some(ms(539))));
        assert_eq!(trip.timeout(1).as_millis(), 1478);
        assert_eq!(trip.timeout(60), ms(120_000));
    }
}
