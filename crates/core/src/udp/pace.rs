//! When each datagram is to leave, and how well that went.
//!
//! Datagrams leave in bursts of a fixed number (one, unless the rate is so high that a call each would cost too much),
//! burst n at n bursts' worth of time after the start: no error adds up. A sender that was held up catches up at twice
//! the rate, never in one gulp, because a gulp is a burst that no path was asked to carry; and what it is behind by more
//! than [`MOST_DEBT`] is given up and said so.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::figures::Quantiles;
use crate::time::Instant;
use crate::units::{BitRate, Bytes};

/// More than this behind the schedule is given up.
pub const MOST_DEBT: Duration = Duration::from_millis(250);

/// A burst later than this was overdue: below it the schedule of the machine's kernel is seen, not a lack of power.
const OVERDUE: Duration = Duration::from_millis(1);

/// Bursts closer together than this cost more calls than they are worth.
const CLOSEST: Duration = Duration::from_micros(100);

/// A schedule, and what became of it.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Time for one datagram at the rate, as a fraction of nanoseconds: bits × 10⁹ over bits per second.
    numerator: u128,
    rate: BitRate,
    burst: u32,
    /// When datagram 0 of the schedule was due.
    origin: Instant,
    /// Datagrams since the origin.
    sent: u64,
    last: Option<Instant>,
    lateness: Option<Histogram<u64>>,
    behind: Duration,
    given_up: Duration,
}

impl Pace {
    /// A schedule for datagrams of this payload at this rate of payload, in bursts of so many.
    pub fn new(rate: BitRate, datagram: Bytes, burst: u32, now: Instant) -> Self {
        Pace {
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

    /// How many datagrams to send in one call at this rate, if one call takes `most`.
    pub fn burst_for(rate: BitRate, datagram: Bytes, most: u32) -> u32 {
        let bits = u128::from(datagram.0.max(1)) * 8;
        let closest = u128::from(rate.0) * CLOSEST.as_nanos() / (bits * 1_000_000_000);
        u32::try_from(closest).unwrap_or(u32::MAX).clamp(1, most.max(1))
    }

    /// Another rate and burst from here on; what the old one was behind is forgotten.
    pub fn change(&mut self, rate: BitRate, burst: u32, now: Instant) {
        (self.rate, self.burst) = (BitRate(rate.0.max(1)), burst.max(1));
        (self.origin, self.sent, self.last) = (now, 0, None);
    }

    /// Datagrams in a burst.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// When the next burst may leave.
    pub fn next(&self) -> Instant {
        let due = self.due(self.sent);
        match self.last {
            // Behind: at half the distance, so at twice the rate.
            Some(last) => due.max(last + self.time_for(u64::from(self.burst)) / 2),
            None => due,
        }
    }

    /// So many datagrams left at `now`.
    pub fn left(&mut self, count: u32, now: Instant) {
        let due = self.due(self.sent);
        let late = now.saturating_since(due);
        if let Some(lateness) = &mut self.lateness {
            let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
            lateness.saturating_record(nanos.max(1));
        }
        if late > OVERDUE {
            self.behind += now.saturating_since(self.last.map_or(due, |last| due.max(last)));
        }
        if late > MOST_DEBT {
            self.origin += late - MOST_DEBT;
            self.given_up += late - MOST_DEBT;
        }
        self.sent += u64::from(count);
        self.last = Some(now);
    }

    /// How late bursts left.
    pub fn lateness(&self) -> Option<Quantiles> {
        self.lateness.as_ref().and_then(Quantiles::of)
    }

    /// Time in which a burst was overdue.
    pub fn behind(&self) -> Duration {
        self.behind
    }

    /// Schedule given up.
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

    /// Sends for `time` with wake-ups as late as `lateness` says; the departures.
    fn run(rate: BitRate, time: Duration, mut lateness: impl FnMut(usize) -> Duration) -> (Pace, Vec<(Instant, u32)>) {
        let burst = Pace::burst_for(rate, DATAGRAM, 44);
        let mut pace = Pace::new(rate, DATAGRAM, burst, Instant::ZERO);
        let (mut now, mut departures) = (Instant::ZERO, Vec::new());
        while now < Instant::ZERO + time {
            now = now.max(pace.next()) + lateness(departures.len());
            pace.left(burst, now);
            departures.push((now, burst));
        }
        (pace, departures)
    }

    fn rate_of(departures: &[(Instant, u32)], time: Duration) -> f64 {
        departures.iter().map(|(_, count)| u64::from(*count) * DATAGRAM.0 * 8).sum::<u64>() as f64 / time.as_secs_f64()
    }

    #[test]
    fn the_rate_is_kept_to_a_thousandth_at_any_rate() {
        for rate in [1_000_000, 97_000_001, 1_000_000_000, 10_000_000_000] {
            let time = Duration::from_secs(if rate < 2_000_000 { 20 } else { 2 });
            let (_, departures) = run(BitRate(rate), time, |n| Duration::from_nanos((n as u64 * 7919) % 20_000));
            let share = rate_of(&departures, time) / rate as f64;
            assert!((share - 1.0).abs() < 1e-3, "{rate}: {share}");
        }
    }

    #[test]
    fn after_a_stall_the_rate_is_made_good_without_a_gulp() {
        let rate = BitRate(100_000_000);
        let stall = |n: usize| if n == 1000 { Duration::from_millis(100) } else { Duration::ZERO };
        let (pace, departures) = run(rate, Duration::from_secs(2), stall);
        assert!((rate_of(&departures, Duration::from_secs(2)) / rate.as_f64() - 1.0).abs() < 1e-3);
        assert_eq!(pace.given_up(), Duration::ZERO);
        // Nowhere more than twice the rate, to a datagram.
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
    fn what_cannot_be_caught_up_with_is_given_up_and_told() {
        let rate = BitRate(100_000_000);
        let slow = |_| Duration::from_micros(300);
        let (pace, departures) = run(rate, Duration::from_secs(2), slow);
        let share = rate_of(&departures, Duration::from_secs(2)) / rate.as_f64();
        assert!(share < 0.5, "{share}");
        assert!(pace.given_up() > Duration::from_millis(800), "{:?}", pace.given_up());
        assert!(pace.behind() > Duration::from_millis(1900), "{:?}", pace.behind());
    }

    #[test]
    fn bursts_are_as_small_as_calls_allow() {
        let burst = |rate| Pace::burst_for(BitRate(rate), DATAGRAM, 44);
        assert_eq!((burst(0), burst(100_000_000), burst(1_000_000_000), burst(100_000_000_000)), (1, 1, 8, 44));
    }
}
