//! Jitter of arriving datagrams: the smoothed jitter of RFC 3550 §6.4.1, and the distribution of the underlying
//! difference in transit time between consecutive datagrams (absolute IPDV of RFC 3393).
//!
//! The clocks of the two ends need not agree, because only differences are used.

use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_results::udp::figures::Quantiles;

/// Maximum difference, nanoseconds; longer differences count as this value.
const MAX_DIFFERENCE: u64 = 60_000_000_000;

/// The jitter estimate of RFC 3550.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SmoothedJitter {
    last: Option<(u64, u64)>,
    nanos: f64,
}

impl SmoothedJitter {
    /// Adds a datagram that was sent and received at these times, each in nanoseconds of its own end's clock. Returns
    /// the absolute change of the transit time since the previous datagram.
    pub fn arrived(&mut self, sent: u64, received: u64) -> Option<u64> {
        let (sent_before, received_before) = self.last.replace((sent, received))?;
        let gap_received = i128::from(received) - i128::from(received_before);
        let gap_sent = i128::from(sent) - i128::from(sent_before);
        let difference =
            u64::try_from((gap_received - gap_sent).unsigned_abs()).unwrap_or(MAX_DIFFERENCE).min(MAX_DIFFERENCE);
        self.nanos += (difference as f64 - self.nanos) / 16.0;
        Some(difference)
    }

    /// Returns the current estimate in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanos / 1e9
    }
}

/// Jitter of a stream: estimate and distribution.
#[derive(Debug, Clone)]
pub struct JitterMeter {
    smoothed: SmoothedJitter,
    /// Two digits of precision: 30 kB per stream.
    differences: Option<Histogram<u64>>,
}

impl Default for JitterMeter {
    fn default() -> Self {
        JitterMeter {
            smoothed: SmoothedJitter::default(),
            differences: Histogram::new_with_bounds(1, MAX_DIFFERENCE, 2).ok(),
        }
    }
}

impl JitterMeter {
    /// Adds a datagram that was sent and received at these times, each in nanoseconds of its own end's clock.
    pub fn arrived(&mut self, sent: u64, received: u64) {
        let difference = self.smoothed.arrived(sent, received);
        if let (Some(difference), Some(differences)) = (difference, &mut self.differences) {
            // The histogram starts at 1, so zero counts as 1.
            differences.saturating_record(difference.max(1));
        }
    }

    /// Returns the jitter of RFC 3550.
    pub fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed.nanos as u64)
    }

    /// Returns the distribution of the differences; `None` before the second datagram.
    pub fn variation(&self) -> Option<Quantiles> {
        self.differences.as_ref().and_then(Quantiles::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_have_no_jitter() {
        let mut jitter = JitterMeter::default();
        for n in 0..1000 {
            jitter.arrived(5_000_000_000 + n * 1000, n * 1000);
        }
        assert_eq!(jitter.smoothed(), Duration::ZERO);
        assert_eq!(jitter.variation().unwrap().max, Duration::from_nanos(1));
    }

    #[test]
    fn late_datagram_counts_a_sixteenth() {
        let mut jitter = JitterMeter::default();
        jitter.arrived(0, 0);
        jitter.arrived(1000, 17_000);
        assert_eq!(jitter.smoothed(), Duration::from_nanos(1000));
        // An invalid timestamp changes the estimate at most as much as a difference of a minute.
        jitter.arrived(0, u64::MAX);
        assert!(jitter.smoothed() < Duration::from_secs(4));
    }
}
