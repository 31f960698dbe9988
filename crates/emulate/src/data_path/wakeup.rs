//! Planning of a forwarder's wake-ups: continue, spin or sleep.
//!
//! A wake-up costs as much as forwarding a packet, and the scheduler of the kernel delays it. So a busy thread does not
//! wake up for arrivals, because the kernel records their times anyway. It sleeps until the next packet is due, or for
//! a part of the delay in which no arrival can become due. The thread also measures how late it wakes up, sets its
//! timer earlier by this amount, and spins for the rest, within a budget. Precision is worth a small share of a
//! processor, but on a machine with two processors the senders and receivers of the packets need both.

use std::time::Duration;

use lfn_base::time::Instant;

/// Action of a forwarder until the next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// An event is already waiting.
    Continue,
    /// Read the clock in a loop until this time.
    Spin(Instant),
    /// Sleep until this time, without waiting for packets.
    Sleep(Instant),
    /// Sleep until this time, if there is one, or until a packet arrives.
    SleepOrPacket(Option<Instant>),
}

/// Wake-up planner of one forwarder.
#[derive(Debug)]
pub(super) struct WakeupScheduler {
    /// Maximum time that arrivals stay unread while there is traffic.
    max_unread: Duration,
    /// Delay of packets that follow others, so that more of them leave at one wake-up.
    batch_delay: Duration,
    /// Lateness that most wake-ups do not exceed.
    wakeup_lateness: Duration,
    /// Time that the thread may still spin.
    spin_credit: Duration,
    /// Time up to which credit was granted.
    credited_until: Instant,
}

/// Maximum time that arrivals stay unread. At 40 Gb/s, 5 MB arrive in this time.
const MAX_UNREAD: Duration = Duration::from_millis(1);
/// The batch delay is at most the delay of the link divided by this number.
const BATCH_DIVISOR: u32 = 1000;
/// Maximum batch delay: three packets at 135 Mb/s.
const MAX_BATCH_DELAY: Duration = Duration::from_micros(250);
/// A shorter sleep is not worth the wake-up.
const MIN_UNREAD: Duration = Duration::from_micros(100);
/// A shorter sleep ends late, because falling asleep takes longer than this. Spinning is cheaper.
const MIN_SLEEP: Duration = Duration::from_micros(8);
/// Maximum lateness to compensate. A later wake-up was delayed by other threads, and an earlier timer does not help.
const MAX_WAKEUP_LATENESS: Duration = Duration::from_micros(60);
/// The thread may spin for 1/20 of the time.
const SPIN_SHARE: u32 = 20;
/// Maximum spinning time that can be saved.
const MAX_SPIN_CREDIT: Duration = Duration::from_millis(2);

impl WakeupScheduler {
    /// Creates a planner for a link with this minimum delay.
    pub(super) fn new(min_delay: Duration, now: Instant) -> Self {
        let mut scheduler = WakeupScheduler {
            max_unread: Duration::ZERO,
            batch_delay: Duration::ZERO,
            wakeup_lateness: MAX_WAKEUP_LATENESS / 2,
            spin_credit: Duration::ZERO,
            credited_until: now,
        };
        scheduler.set_min_delay(min_delay);
        scheduler
    }

    /// Sets the minimum delay of packets that arrive from now on.
    pub(super) fn set_min_delay(&mut self, min_delay: Duration) {
        let max_unread = (min_delay / 4).min(MAX_UNREAD);
        self.max_unread = if max_unread < MIN_UNREAD { Duration::ZERO } else { max_unread };
        self.batch_delay = (min_delay / BATCH_DIVISOR).min(MAX_BATCH_DELAY);
    }

    /// Returns the action at `now`, when the next packet is due at `due`. `has_received` and `has_sent` describe the
    /// last batch.
    pub(super) fn next_wait(&mut self, now: Instant, due: Option<Instant>, has_received: bool, has_sent: bool) -> Wait {
        let due = match due {
            Some(due) if has_sent => Some(due.max(now + self.batch_delay)),
            due => due,
        };
        match due.map(|due| (due, due.saturating_since(now))) {
            Some((_, Duration::ZERO)) => Wait::Continue,
            Some((due, ahead)) if ahead <= MIN_SLEEP => Wait::Spin(due),
            Some((due, ahead)) if ahead <= self.max_unread.max(MAX_WAKEUP_LATENESS) => {
                self.sleep(now, due, ahead, Wait::Sleep)
            }
            _ if has_received && !self.max_unread.is_zero() => Wait::Sleep(now + self.max_unread),
            Some((due, ahead)) => self.sleep(now, due, ahead, |until| Wait::SleepOrPacket(Some(until))),
            None => Wait::SleepOrPacket(None),
        }
    }

    /// Records a wake-up at `woken` that was planned for `planned` and was not caused by a packet.
    pub(super) fn record_wakeup(&mut self, planned: Instant, woken: Instant) {
        // Rises quickly and falls slowly, so that the value is sufficient most of the time.
        let wakeup_lateness = woken.saturating_since(planned).min(MAX_WAKEUP_LATENESS);
        self.wakeup_lateness = match wakeup_lateness.checked_sub(self.wakeup_lateness) {
            Some(more) => self.wakeup_lateness + more / 4,
            None => self.wakeup_lateness - (self.wakeup_lateness - wakeup_lateness) / 16,
        };
    }

    /// Sleeps until `due`, or until earlier by the expected lateness if there is enough spin credit.
    fn sleep(&mut self, now: Instant, due: Instant, ahead: Duration, make_wait: impl Fn(Instant) -> Wait) -> Wait {
        let earned = now.saturating_since(self.credited_until) / SPIN_SHARE;
        self.spin_credit = (self.spin_credit + earned).min(MAX_SPIN_CREDIT);
        self.credited_until = now;
        if self.spin_credit < self.wakeup_lateness {
            return make_wait(due);
        }
        self.spin_credit -= self.wakeup_lateness.min(ahead);
        match ahead.checked_sub(self.wakeup_lateness) {
            Some(asleep) if asleep > MIN_SLEEP => make_wait(now + asleep),
            _ => Wait::Spin(due),
        }
    }
}
