//! Use of bytes or time in the last window: a ring of sixty-one slots, each a sixtieth of the window long.
//!
//! The use of a slot counts until the complete slot is older than the window. The use in any window of that length
//! therefore never exceeds the limit. It expires at most a sixtieth of the window late.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Instant;

const SLOTS: u64 = 60;

/// Bytes, or nanoseconds, that one client or all clients used. Slots that no longer count are removed by the next use.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    slots: VecDeque<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    used: u64,
}

impl Usage {
    /// Returns the use in the window that ends now.
    pub(super) fn used(&self, window: Duration, now: Instant) -> u64 {
        self.counted_slots(window, now).map(|slot| slot.used).sum()
    }

    /// Returns the number of the newest slot.
    pub(super) fn newest_slot(&self) -> Option<u64> {
        self.slots.back().map(|slot| slot.number)
    }

    /// Adds an amount. The sum saturates at 584 years and 18 EB.
    pub(super) fn add(&mut self, amount: u64, window: Duration, now: Instant) {
        let used = self.used(window, now);
        let (number, counted) = (slot_number(window, now), self.counted_slots(window, now).count());
        self.slots.drain(..self.slots.len() - counted);
        let amount = amount.min(u64::MAX - used);
        match self.slots.back_mut().filter(|slot| slot.number >= number) {
            Some(slot) => slot.used += amount,
            None => self.slots.push_back(Slot { number, used: amount }),
        }
    }

    /// Removes an amount that was added and not used, newest first.
    pub(super) fn refund(&mut self, amount: u64) {
        let mut left = amount;
        for slot in self.slots.iter_mut().rev() {
            let returned = left.min(slot.used);
            slot.used -= returned;
            left -= returned;
        }
    }

    /// Returns the time until at most `amount` of the use still counts.
    pub(super) fn time_until(&self, amount: u64, window: Duration, now: Instant) -> Duration {
        let (mut counted, mut until) = (self.used(window, now), now);
        for slot in self.counted_slots(window, now) {
            if counted <= amount {
                break;
            }
            counted -= slot.used;
            until = Instant::from_nanos((slot.number + SLOTS + 1).saturating_mul(slot_length(window)));
        }
        until.saturating_since(now)
    }

    /// Returns the slots whose use counts, oldest first.
    fn counted_slots(&self, window: Duration, now: Instant) -> impl Iterator<Item = &Slot> {
        let current = slot_number(window, now);
        self.slots.iter().skip_while(move |slot| slot.number + SLOTS < current)
    }
}

fn slot_number(window: Duration, now: Instant) -> u64 {
    now.as_nanos() / slot_length(window)
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
