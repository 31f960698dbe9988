//! How unevenly datagrams arrive: the smoothed jitter of RFC 3550 §6.4.1, and the spread of what it is made of, the
//! difference in transit time from one datagram to the next (RFC 3393's IPDV, its absolute value).
//!
//! The two ends' clocks need not agree: only differences are used.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::figures::Quantiles;

/// Longer differences are counted as this.
const MOST: u64 = 60_000_000_000;

/// RFC 3550's estimate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Smoothed {
    last: Option<(u64, u64)>,
    nanos: f64,
}

impl Smoothed {
    /// A datagram sent and received at these times, each in nanoseconds of its own end's clock; how much longer or shorter
    /// it was on its way than the one before.
    pub fn arrived(&mut self, sent: u64, received: u64) -> Option<u64> {
        let (sent_before, received_before) = self.last.replace((sent, received))?;
        let gap_received = i128::from(received) - i128::from(received_before);
        let gap_sent = i128::from(sent) - i128::from(sent_before);
        let difference = u64::try_from((gap_received - gap_sent).unsigned_abs()).unwrap_or(MOST).min(MOST);
        self.nanos += (difference as f64 - self.nanos) / 16.0;
        Some(difference)
    }

    /// By now, seconds.
    pub fn seconds(&self) -> f64 {
        self.nanos / 1e9
    }
}

/// Jitter of a stream.
#[derive(Debug, Clone)]
pub struct Jitter {
    smoothed: Smoothed,
    /// To two digits: 30 kB a stream.
    differences: Option<Histogram<u64>>,
}

impl Default for Jitter {
    fn default() -> Self {
        Jitter { smoothed: Smoothed::default(), differences: Histogram::new_with_bounds(1, MOST, 2).ok() }
    }
}

impl Jitter {
    /// A datagram sent and received at these times, each in nanoseconds of its own end's clock.
    pub fn arrived(&mut self, sent: u64, received: u64) {
        let difference = self.smoothed.arrived(sent, received);
        if let (Some(difference), Some(differences)) = (difference, &mut self.differences) {
            // Zero is below the first value a histogram tells apart.
            differences.saturating_record(difference.max(1));
        }
    }

    /// RFC 3550's jitter.
    pub fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed.nanos as u64)
    }

    /// How the differences are distributed; nothing before the second datagram.
    pub fn variation(&self) -> Option<Quantiles> {
        self.differences.as_ref().and_then(Quantiles::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_have_none_whatever_the_clocks_say() {
        let mut jitter = Jitter::default();
        for n in 0..1000 {
            jitter.arrived(5_000_000_000 + n * 1000, n * 1000);
        }
        assert_eq!(jitter.smoothed(), Duration::ZERO);
        assert_eq!(jitter.variation().unwrap().most, Duration::from_nanos(1));
    }

    #[test]
    fn one_late_datagram_counts_a_sixteenth() {
        let mut jitter = Jitter::default();
        jitter.arrived(0, 0);
        jitter.arrived(1000, 17_000);
        assert_eq!(jitter.smoothed(), Duration::from_nanos(1000));
        // A stamp that is nonsense moves it no further than a minute would.
        jitter.arrived(0, u64::MAX);
        assert!(jitter.smoothed() < Duration::from_secs(4));
    }
}
