//! Schedule of departing blocks and datagrams, and their lateness.
//!
//! Blocks leave in bursts of a fixed size: one block, unless the user requests more, or the rate is so high that one
//! call per datagram would cost too much. Burst n leaves n burst times after the start, so no error accumulates.
//! [`CatchUp`] has the ways in which a late sender catches up. The schedule gets `now` as an argument; [`super::wait`]
//! sleeps.

use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::udp::figures::Quantiles;

/// Maximum lateness behind the schedule with [`CatchUp::Doubled`]; the rest is skipped.
const MAX_DEBT: Duration = Duration::from_millis(250);

/// Lateness from which a burst is overdue. Smaller values come from the kernel's scheduling, not from a lack of
/// processor power.
const OVERDUE_AFTER: Duration = Duration::from_millis(1);

/// Minimum time between bursts; smaller bursts cost too many calls.
const MIN_BURST_INTERVAL: Duration = Duration::from_micros(100);

/// Maximum lateness behind the schedule with [`CatchUp::AtOnce`]; the rest is skipped. More would be a burst that the
/// user did not request.
const MAX_DEBT_AT_ONCE: Duration = Duration::from_millis(100);

/// Way in which a late sender catches up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatchUp {
    /// At once, as iperf3 does.
    AtOnce,
    /// At twice the rate, because a path need not carry a burst.
    Doubled,
}

/// A send schedule and its statistics.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    /// Time of one block as a fraction of nanoseconds: bits × 10⁹ over bits per second.
    numerator: u128,
    rate: BitRate,
    burst: u32,
    catch_up: CatchUp,
    /// Due time of block 0 of the schedule.
    origin: Instant,
    sent: u64,
    last: Option<Instant>,
    lateness: Option<Histogram<u64>>,
    behind: Duration,
    given_up: Duration,
}

impl Pacer {
    /// Creates a schedule for blocks of this length, at this payload rate, in bursts of `burst`.
    pub(crate) fn new(rate: BitRate, block: Bytes, burst: u32, catch_up: CatchUp, now: Instant) -> Self {
        Pacer {
            numerator: u128::from(block.0.max(1)) * 8 * 1_000_000_000,
            rate: BitRate(rate.0.max(1)),
            burst: burst.max(1),
            catch_up,
            origin: now,
            sent: 0,
            last: None,
            lateness: None,
            behind: Duration::ZERO,
            given_up: Duration::ZERO,
        }
    }

    /// Measures the lateness of the bursts from now on.
    pub(crate) fn with_lateness(self) -> Self {
        Pacer { lateness: Histogram::new_with_bounds(1, 60_000_000_000, 2).ok(), ..self }
    }

    /// Returns the number of datagrams per call at this rate; one call takes at most `max_burst`.
    pub(crate) fn burst_for(rate: BitRate, datagram: Bytes, max_burst: u32) -> u32 {
        let bits = u128::from(datagram.0.max(1)) * 8;
        let closest = u128::from(rate.0) * MIN_BURST_INTERVAL.as_nanos() / (bits * 1_000_000_000);
        u32::try_from(closest).unwrap_or(u32::MAX).clamp(1, max_burst.max(1))
    }

    /// Changes the rate and the burst from now on; lateness of the old schedule is dropped.
    pub(crate) fn change(&mut self, rate: BitRate, burst: u32, now: Instant) {
        self.rate = BitRate(rate.0.max(1));
        self.burst = burst.max(1);
        self.origin = now;
        self.sent = 0;
        self.last = None;
    }

    /// Returns the blocks per burst.
    pub(crate) fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time when the next burst may leave.
    pub(crate) fn next(&self) -> Instant {
        let due = self.due(self.sent);
        match self.last {
            // A late burst follows at half the interval, so at twice the rate.
            Some(last) if self.catch_up == CatchUp::Doubled => due.max(last + self.time_for(u64::from(self.burst)) / 2),
            _ => due,
        }
    }

    /// Returns whether the next block is the first of a burst.
    pub(crate) fn is_burst_start(&self) -> bool {
        self.sent.is_multiple_of(self.burst.into())
    }

    /// Records that `count` blocks left at `now`.
    pub(crate) fn record_sent(&mut self, count: u32, now: Instant) {
        let due = self.due(self.sent);
        let late = now.saturating_since(due);
        if let Some(lateness) = &mut self.lateness {
            let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
            lateness.saturating_record(nanos.max(1));
        }
        if late > OVERDUE_AFTER {
            self.behind += now.saturating_since(self.last.map_or(due, |last| due.max(last)));
        }
        let max_debt = match self.catch_up {
            CatchUp::AtOnce => MAX_DEBT_AT_ONCE,
            CatchUp::Doubled => MAX_DEBT,
        };
        if late > max_debt {
            self.origin += late - max_debt;
            self.given_up += late - max_debt;
        }
        self.sent += u64::from(count);
        self.last = Some(now);
    }

    /// Returns the lateness of the bursts.
    pub(crate) fn lateness(&self) -> Option<Quantiles> {
        self.lateness.as_ref().and_then(Quantiles::of)
    }

    /// Returns the time in which a burst was overdue.
    pub(crate) fn behind(&self) -> Duration {
        self.behind
    }

    /// Returns the skipped time of the schedule.
    pub(crate) fn given_up(&self) -> Duration {
        self.given_up
    }

    fn due(&self, block: u64) -> Instant {
        self.origin + self.time_for(block)
    }

    fn time_for(&self, blocks: u64) -> Duration {
        let nanos = self.numerator.saturating_mul(blocks.into()) / u128::from(self.rate.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: Bytes = Bytes(1472);

    /// Sends for `time` with the given wake-up delays; returns the departures.
    fn run(rate: BitRate, time: Duration, mut lateness: impl FnMut(usize) -> Duration) -> (Pacer, Vec<(Instant, u32)>) {
        let burst = Pacer::burst_for(rate, DATAGRAM, 44);
        let mut pace = Pacer::new(rate, DATAGRAM, burst, CatchUp::Doubled, Instant::ZERO).with_lateness();
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
        let burst = |rate| Pacer::burst_for(BitRate(rate), DATAGRAM, 44);
        assert_eq!((burst(0), burst(100_000_000), burst(1_000_000_000), burst(100_000_000_000)), (1, 1, 8, 44));
    }

    #[test]
    fn late_sender_catches_up_at_once_within_a_limit() {
        let (second, block) = (Duration::from_secs(1), Bytes(1_000_000));
        let mut pacer = Pacer::new(BitRate(80_000_000), block, 1, CatchUp::AtOnce, Instant::ZERO);
        pacer.record_sent(1, Instant::ZERO);
        assert_eq!(pacer.next(), Instant::ZERO + second / 10);
        // 50 ms late: the next block keeps its time. Five seconds late: the schedule starts again 100 ms ago.
        pacer.record_sent(1, Instant::ZERO + second * 3 / 20);
        assert_eq!(pacer.next(), Instant::ZERO + second / 5);
        pacer.record_sent(1, Instant::ZERO + 5 * second);
        assert_eq!(pacer.next(), Instant::ZERO + 5 * second);
    }
}
