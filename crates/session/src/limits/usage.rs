//! Use of bytes or time in the last window: a ring of sixty-one slots, each a sixtieth of the window long.
//!
//! The use of a slot counts until the complete slot is older than the window. The use in any window of that length
//! therefore never exceeds the limit. It expires at most a sixtieth of the window late.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::time::Instant;

const SLOTS: u64 = 60;

/// Bytes, or nanoseconds, that one client or all clients used. The next use removes the slots that no longer count.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    /// Use in each slot, by the number of the slot since the origin of time.
    slots: BTreeMap<u64, u64>,
}

impl Usage {
    /// Returns the use in the window that ends now.
    pub(super) fn used(&self, window: Duration, now: Instant) -> u64 {
        self.slots.range(oldest_slot(window, now)..).map(|(_, used)| used).sum()
    }

    /// Returns the number of the newest slot.
    pub(super) fn newest_slot(&self) -> Option<u64> {
        self.slots.keys().next_back().copied()
    }

    /// Adds an amount. The sum saturates at 584 years and 18 EB.
    pub(super) fn add(&mut self, amount: u64, window: Duration, now: Instant) {
        self.slots = self.slots.split_off(&oldest_slot(window, now));
        let amount = amount.min(u64::MAX - self.used(window, now));
        *self.slots.entry(now.as_nanos() / slot_length(window)).or_default() += amount;
    }

    /// Removes an amount that was added and not used, newest first.
    pub(super) fn refund(&mut self, amount: u64) {
        let mut left = amount;
        for used in self.slots.values_mut().rev() {
            let returned = left.min(*used);
            *used -= returned;
            left -= returned;
        }
    }

    /// Returns the time until at most `amount` of the use still counts.
    pub(super) fn time_until(&self, amount: u64, window: Duration, now: Instant) -> Duration {
        let (mut counted, mut until) = (self.used(window, now), now);
        for (number, used) in self.slots.range(oldest_slot(window, now)..) {
            if counted <= amount {
                break;
            }
            counted -= used;
            until = Instant::from_nanos((number + SLOTS + 1).saturating_mul(slot_length(window)));
        }
        until.saturating_since(now)
    }
}

/// Returns the number of the oldest slot that counts.
fn oldest_slot(window: Duration, now: Instant) -> u64 {
    (now.as_nanos() / slot_length(window)).saturating_sub(SLOTS)
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
