//! Use of bytes or time in the last window: a ring of sixty-one slots, each a sixtieth of the window long.
//!
//! The use of a slot counts until the complete slot is older than the window. The use in any window of that length
//! therefore never exceeds the limit. It expires at most a sixtieth of the window late.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Instant;

const SLOTS: u64 = 60;

/// Bytes, or nanoseconds, that one client or all clients used.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    slots: VecDeque<Slot>,
    used: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    used: u64,
}

impl Usage {
    /// Returns the use in the window that ends now.
    pub(super) fn used(&mut self, window: Duration, now: Instant) -> u64 {
        let current = now.as_nanos() / slot_length(window);
        while let Some(oldest) = self.slots.front().filter(|slot| slot.number + SLOTS < current) {
            self.used -= oldest.used;
            self.slots.pop_front();
        }
        self.used
    }

    /// Returns whether nothing was used in the last window.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds an amount. The sum saturates at 584 years and 18 EB.
    pub(super) fn add(&mut self, amount: u64, window: Duration, now: Instant) {
        let amount = amount.min(u64::MAX - self.used(window, now));
        let number = now.as_nanos() / slot_length(window);
        match self.slots.back_mut().filter(|slot| slot.number >= number) {
            Some(slot) => slot.used += amount,
            None => self.slots.push_back(Slot { number, used: amount }),
        }
        self.used += amount;
    }

    /// Removes an amount that was added and not used, newest first.
    pub(super) fn refund(&mut self, amount: u64) {
        let mut left = amount;
        for slot in self.slots.iter_mut().rev() {
            let returned = left.min(slot.used);
            slot.used -= returned;
            self.used -= returned;
            left -= returned;
        }
    }

    /// Returns the time until at most `amount` of the use still counts.
    pub(super) fn time_until(&self, amount: u64, window: Duration, now: Instant) -> Duration {
        let (mut counted, mut until) = (self.used, now);
        for slot in &self.slots {
            if counted <= amount {
                break;
            }
            counted -= slot.used;
            until = Instant::from_nanos((slot.number + SLOTS + 1).saturating_mul(slot_length(window)));
        }
        until.saturating_since(now)
    }
}

fn slot_length(window: Duration) -> u64 {
    (u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / SLOTS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn usage_expires_after_window_and_one_slot() {
        let mut usage = Usage::default();
        usage.add(100, WINDOW, at(10));
        usage.add(10, WINDOW, at(30));
        assert_eq!([10, 0, 110].map(|left| usage.time_until(left, WINDOW, at(40)).as_secs()), [31, 51, 0]);
        assert_eq!([70, 71, 91].map(|now| usage.used(WINDOW, at(now))), [110, 10, 0]);
        assert!(usage.is_empty());
    }

    #[test]
    fn refund_removes_newest_usage() {
        let mut usage = Usage::default();
        usage.add(100, WINDOW, at(0));
        usage.add(50, WINDOW, at(30));
        usage.refund(60);
        assert_eq!([30, 61].map(|now| usage.used(WINDOW, at(now))), [90, 0]);
    }
}
