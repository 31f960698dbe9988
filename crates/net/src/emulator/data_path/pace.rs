//! When a forwarder looks again: spin, nap or rest.
//!
//! A wake-up costs as much as forwarding a packet, and comes late by what the machine takes to give the thread a
//! processor. So a thread with traffic does not wake for arrivals at all, whose times the kernel notes anyway: it sleeps
//! by the clock until the next packet is due, or for a part of the delay in which nothing that arrives can become due.
//! And it learns how late it is woken, asks to be woken as much earlier, and spins for the rest, within a budget:
//! precision is worth a little of a processor, but on two of them the packets' own senders and receivers need both.

use std::time::Duration;

use lfn_core::time::Instant;

/// What to do until something may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Nothing: it has happened.
    Go,
    /// Look at the clock until then.
    Spin(Instant),
    /// Sleep by the clock alone until then.
    Nap(Instant),
    /// Sleep until then, or without end, or until a packet comes.
    Rest(Option<Instant>),
}

/// What one forwarder has learnt.
#[derive(Debug)]
pub(super) struct Pace {
    /// How long arrivals may lie unread while there is traffic.
    hold: Duration,
    /// How long packets that follow others may wait, so that more of them leave at one wake-up.
    grain: Duration,
    /// How late the thread is woken, most times.
    late: Duration,
    /// How long it may spin.
    credit: Duration,
    /// Up to when credit was given.
    credited: Instant,
}

/// Longest that arrivals lie unread: what 40 Gb/s bring in that time is 5 MB.
const LONGEST_HOLD: Duration = Duration::from_millis(1);
/// One part of so many of the delay is small enough to be a grain,
const FINE: u32 = 1000;
/// and this is the largest: three packets at 135 Mb/s.
const LONGEST_GRAIN: Duration = Duration::from_micros(250);
/// Shorter than this, and a nap saves nothing.
const SHORTEST_HOLD: Duration = Duration::from_micros(100);
/// A sleep shorter than this ends later than asked: spinning costs less than going to sleep.
const SHORTEST_SLEEP: Duration = Duration::from_micros(8);
/// A thread that is woken later than this was kept waiting by others, and waking it earlier is no cure.
const LATEST: Duration = Duration::from_micros(60);
/// One of so many nanoseconds may be spent spinning.
const SPARING: u32 = 20;
/// Spinning that may be saved up.
const MOST_CREDIT: Duration = Duration::from_millis(2);

impl Pace {
    /// For a link in which every packet spends `least`.
    pub(super) fn new(least: Duration, now: Instant) -> Self {
        let mut pace = Pace {
            hold: Duration::ZERO,
            grain: Duration::ZERO,
            late: LATEST / 2,
            credit: Duration::ZERO,
            credited: now,
        };
        pace.set_least(least);
        pace
    }

    /// Every packet from now on spends `least` in the link.
    pub(super) fn set_least(&mut self, least: Duration) {
        let hold = (least / 4).min(LONGEST_HOLD);
        self.hold = if hold < SHORTEST_HOLD { Duration::ZERO } else { hold };
        self.grain = (least / FINE).min(LONGEST_GRAIN);
    }

    /// What to do at `now` if the next packet is due then, when packets have just come in, or have just left.
    pub(super) fn wait(&mut self, now: Instant, due: Option<Instant>, came: bool, left: bool) -> Wait {
        let due = match due {
            Some(due) if left => Some(due.max(now + self.grain)),
            due => due,
        };
        match due.map(|due| (due, due.saturating_since(now))) {
            Some((_, Duration::ZERO)) => Wait::Go,
            Some((due, ahead)) if ahead <= SHORTEST_SLEEP => Wait::Spin(due),
            Some((due, ahead)) if ahead <= self.hold.max(LATEST) => self.sleep(now, due, ahead, Wait::Nap),
            _ if came && !self.hold.is_zero() => Wait::Nap(now + self.hold),
            Some((due, ahead)) => self.sleep(now, due, ahead, |until| Wait::Rest(Some(until))),
            None => Wait::Rest(None),
        }
    }

    /// Sleeping was to end at `asked` and ended at `woken`, not because a packet came.
    pub(super) fn woke(&mut self, asked: Instant, woken: Instant) {
        // Rises fast and falls slowly: most times it is enough.
        let late = woken.saturating_since(asked).min(LATEST);
        self.late = match late.checked_sub(self.late) {
            Some(more) => self.late + more / 4,
            None => self.late - (self.late - late) / 16,
        };
    }

    /// Sleeps until `due`, or until so much earlier as is needed to be in time.
    fn sleep(&mut self, now: Instant, due: Instant, ahead: Duration, how: impl Fn(Instant) -> Wait) -> Wait {
        let earned = now.saturating_since(self.credited) / SPARING;
        self.credit = (self.credit + earned).min(MOST_CREDIT);
        self.credited = now;
        if self.credit < self.late {
            return how(due);
        }
        self.credit -= self.late.min(ahead);
        match ahead.checked_sub(self.late) {
            Some(asleep) if asleep > SHORTEST_SLEEP => how(now + asleep),
            _ => Wait::Spin(due),
        }
    }
}
