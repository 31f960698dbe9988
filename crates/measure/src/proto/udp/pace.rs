//! Schedule of departing datagrams, and their lateness.
//!
//! Datagrams leave in bursts of a fixed size: one datagram, unless the rate is so high that one call per datagram would
//! cost too much. Burst n leaves n burst times after the start, so no error accumulates. A late sender catches up at
//! twice the rate, and never at once, because a path need not carry such a burst. Lateness beyond [`MAX_DEBT`] is
//! skipped and reported.

use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::udp::figures::Quantiles;

/// Maximum lateness behind the schedule; the rest is skipped.
pub const MAX_DEBT: Duration = Duration::from_millis(250);

/// Lateness from which a burst is overdue. Smaller values come from the kernel's scheduling, not from a lack of
/// processor power.
const OVERDUE_AFTER: Duration = Duration::from_millis(1);

/// Minimum time between bursts; smaller bursts cost too many calls.
const MIN_BURST_INTERVAL: Duration = Duration::from_micros(100);

/// A send schedule and its statistics.
#[derive(Debug, Clone)]
pub struct UdpPace {
    /// Time of one datagram as a fraction of nanoseconds: bits × 10⁹ over bits per second.
    numerator: u128,
    rate: BitRate,
    burst: u32,
    /// Due time of datagram 0 of the schedule.
    origin: Instant,
    sent: u64,
    last: Option<Instant>,
    lateness: Option<Histogram<u64>>,
    behind: Duration,
    given_up: Duration,
}

impl UdpPace {
    /// Creates a schedule for datagrams with this payload, at this payload rate, in bursts of `burst`.
    pub fn new(rate: BitRate, datagram: Bytes, burst: u32, now: Instant) -> Self {
        UdpPace {
            numerator: u128::from(datagram.0.max(1)) * 8 * 1_000_000_000,
            rate: BitRate(rate.0.max(1)),
            burst: burst.max(1),
            origin: now,
            sent: 0,
            last: None,
            lateness: Histogram::new_with_bounds(1, 60_000_000_000, 2).ok(),
            behind: Duration::ZERO,
            given_up: Duration::ZERO,
        }
    }

    /// Returns the number of datagrams per call at this rate; one call takes at most `max_burst`.
    pub fn burst_for(rate: BitRate, datagram: Bytes, max_burst: u32) -> u32 {
        let bits = u128::from(datagram.0.max(1)) * 8;
        let closest = u128::from(rate.0) * MIN_BURST_INTERVAL.as_nanos() / (bits * 1_000_000_000);
        u32::try_from(closest).unwrap_or(u32::MAX).clamp(1, max_burst.max(1))
    }

    /// Changes the rate and the burst from now on; lateness of the old schedule is dropped.
    pub fn change(&mut self, rate: BitRate, burst: u32, now: Instant) {
        (self.rate, self.burst) = (BitRate(rate.0.max(1)), burst.max(1));
        (self.origin, self.sent, self.last) = (now, 0, None);
    }

    /// Returns the datagrams per burst.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time when the next burst may leave.
    pub fn next(&self) -> Instant {
        let due = self.due(self.sent);
        match self.last {
            // A late burst follows at half the interval, so at twice the rate.
            Some(last) => due.max(last + self.time_for(u64::from(self.burst)) / 2),
            None => due,
        }
    }

    /// Records that `count` datagrams left at `now`.
    pub fn record_sent(&mut self, count: u32, now: Instant) {
        let due = self.due(self.sent);
        let late = now.saturating_since(due);
        if let Some(lateness) = &mut self.lateness {
            let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
            lateness.saturating_record(nanos.max(1));
        }
        if late > OVERDUE_AFTER {
            self.behind += now.saturating_since(self.last.map_or(due, |last| due.max(last)));
        }
        if late > MAX_DEBT {
            self.origin += late - MAX_DEBT;
            self.given_up += late - MAX_DEBT;
        }
        self.sent += u64::from(count);
        self.last = Some(now);
    }

    /// Returns the lateness of the bursts.
    pub fn lateness(&self) -> Option<Quantiles> {
        self.lateness.as_ref().and_then(Quantiles::of)
    }

    /// Returns the time in which a burst was overdue.
    pub fn behind(&self) -> Duration {
        self.behind
    }

    /// Returns the skipped time of the schedule.
    pub fn given_up(&self) -> Duration {
        self.given_up
    }

    fn due(&self, datagram: u64) -> Instant {
        self.origin + self.time_for(datagram)
    }

    fn time_for(&self, datagrams: u64) -> Duration {
        let nanos = self.numerator.saturating_mul(datagrams.into()) / u128::from(self.rate.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: Bytes = Bytes(1472);

    /// Sends for `time` with the given wake-up delays; returns the departures.
    fn run(
        rate: BitRate,
        time: Duration,
        mut lateness: impl FnMut(usize) -> Duration,
    ) -> (UdpPace, Vec<(Instant, u32)>) {
        let burst = UdpPace::burst_for(rate, DATAGRAM, 44);
        let mut pace = UdpPace::new(rate, DATAGRAM, burst, Instant::ZERO);
        let (mut now, mut departures) = (Instant::ZERO, Vec::new());
        while now < Instant::ZERO + time {
            now = now.max(pace.next()) + lateness(departures.len());
            pace.record_sent(burst, now);
            departures.push((now, burst));
        }
        (pace, departures)
    }

    fn rate_of(departures: &[(Instant, u32)], time: Duration) -> f64 {
        departures.iter().map(|(_, count)| u64::from(*count) * DATAGRAM.0 * 8).sum::<u64>() as f64 / time.as_secs_f64()
    }

    #[test]
    fn rate_is_accurate_to_a_thousandth() {
        for rate in [1_000_000, 97_000_001, 1_000_000_000, 10_000_000_000] {
            let time = Duration::from_secs(if rate < 2_000_000 { 20 } else { 2 });
            let (_, departures) = run(BitRate(rate), time, |n| Duration::from_nanos((n as u64 * 7919) % 20_000));
            let share = rate_of(&departures, time) / rate as f64;
            assert!((share - 1.0).abs() < 1e-3, "{rate}: {share}");
        }
    }

    #[test]
    fn stall_is_caught_up_without_a_burst() {
        let rate = BitRate(100_000_000);
        let stall = |n: usize| if n == 1000 { Duration::from_millis(100) } else { Duration::ZERO };
        let (pace, departures) = run(rate, Duration::from_secs(2), stall);
        assert!((rate_of(&departures, Duration::from_secs(2)) / rate.as_f64() - 1.0).abs() < 1e-3);
        assert_eq!(pace.given_up(), Duration::ZERO);
        // The rate is never more than twice the target, to a datagram.
        let window = Duration::from_millis(10);
        for (at, &(from, _)) in departures.iter().enumerate() {
            let in_window = departures[at..].iter().take_while(|(when, _)| *when < from + window).count() as u64;
            assert!(
                in_window * DATAGRAM.0 * 8 <= 2 * rate.times(window).0 * 8 + 2 * DATAGRAM.0 * 8,
                "{at}: {in_window}"
            );
        }
        assert!(pace.behind() >= Duration::from_millis(190), "{:?}", pace.behind());
        assert_eq!(pace.lateness().unwrap().p50, Duration::from_nanos(1));
    }

    #[test]
    fn excess_lateness_is_skipped_and_reported() {
        let rate = BitRate(100_000_000);
        let slow = |_| Duration::from_micros(300);
        let (pace, departures) = run(rate, Duration::from_secs(2), slow);
        let share = rate_of(&departures, Duration::from_secs(2)) / rate.as_f64();
        assert!(share < 0.5, "{share}");
        assert!(pace.given_up() > Duration::from_millis(800), "{:?}", pace.given_up());
        assert!(pace.behind() > Duration::from_millis(1900), "{:?}", pace.behind());
    }

    #[test]
    fn bursts_are_as_small_as_possible() {
        let burst = |rate| UdpPace::burst_for(BitRate(rate), DATAGRAM, 44);
        assert_eq!((burst(0), burst(100_000_000), burst(1_000_000_000), burst(100_000_000_000)), (1, 1, 8, 44));
    }
}
