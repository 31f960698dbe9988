//! Usage in the last window: a ring of sixty-one slots, each a sixtieth of the window long.
//!
//! The usage of a slot counts until the complete slot is older than the window. The usage in any window of that length
//! therefore never exceeds the limit. It expires at most a sixtieth of the window late.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Instant;
use crate::units::Bytes;

const SLOTS: u64 = 60;

/// Bytes and time that one client, or all clients, used.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowUsage {
    slots: VecDeque<Slot>,
    bytes: u64,
    nanos: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    bytes: u64,
    nanos: u64,
}

impl WindowUsage {
    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes usage that is older than the window.
    pub(super) fn expire(&mut self, window: Duration, now: Instant) {
        let current = number(window, now);
        while let Some(oldest) = self.slots.front().filter(|slot| slot.number + SLOTS < current) {
            self.bytes -= oldest.bytes;
            self.nanos -= oldest.nanos;
            self.slots.pop_front();
        }
    }

    pub(super) fn add(&mut self, bytes: Bytes, time: Duration, window: Duration, now: Instant) {
        self.expire(window, now);
        let number = number(window, now);
        if self.slots.back().is_none_or(|slot| slot.number < number) {
            self.slots.push_back(Slot { number, bytes: 0, nanos: 0 });
        }
        let Some(slot) = self.slots.back_mut() else { return };
        // Saturates at the maximum of the sums: 584 years and 18 EB.
        let bytes = bytes.0.min(u64::MAX - self.bytes);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX - self.nanos);
        slot.bytes += bytes;
        slot.nanos += nanos;
        self.bytes += bytes;
        self.nanos += nanos;
    }

    /// Removes bytes that were added and not used, newest first.
    pub(super) fn refund(&mut self, bytes: Bytes) {
        let mut left = bytes.0;
        for slot in self.slots.iter_mut().rev() {
            let back = left.min(slot.bytes);
            slot.bytes -= back;
            self.bytes -= back;
            left -= back;
        }
    }

    /// Returns the time until at most `bytes` and `time` of the usage still count.
    pub(super) fn time_until(&self, bytes: Bytes, time: Duration, window: Duration, now: Instant) -> Duration {
        let (mut counted, mut nanos) = (self.bytes, u128::from(self.nanos));
        let mut until = now;
        for slot in &self.slots {
            if counted <= bytes.0 && nanos <= time.as_nanos() {
                break;
            }
            counted -= slot.bytes;
            nanos -= u128::from(slot.nanos);
            until = Instant::from_nanos((slot.number + SLOTS + 1).saturating_mul(length(window)));
        }
        until.saturating_since(now)
    }
}

fn length(window: Duration) -> u64 {
    (u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / SLOTS).max(1)
}

fn number(window: Duration, now: Instant) -> u64 {
    now.as_nanos() / length(window)
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
        let mut usage = WindowUsage::default();
        usage.add(Bytes(100), Duration::from_secs(5), WINDOW, at(10));
        usage.add(Bytes(10), Duration::ZERO, WINDOW, at(30));
        usage.expire(WINDOW, at(70));
        assert_eq!((usage.bytes(), usage.time()), (Bytes(110), Duration::from_secs(5)));
        assert_eq!(usage.time_until(Bytes(10), Duration::MAX, WINDOW, at(40)), Duration::from_secs(31));
        assert_eq!(usage.time_until(Bytes(0), Duration::MAX, WINDOW, at(40)), Duration::from_secs(51));
        assert_eq!(usage.time_until(Bytes(110), Duration::MAX, WINDOW, at(40)), Duration::ZERO);
        usage.expire(WINDOW, at(71));
        assert_eq!((usage.bytes(), usage.time()), (Bytes(10), Duration::ZERO));
        usage.expire(WINDOW, at(91));
        assert!(usage.is_empty());
    }

    #[test]
    fn give_back_removes_newest_usage() {
        let mut usage = WindowUsage::default();
        usage.add(Bytes(100), Duration::ZERO, WINDOW, at(0));
        usage.add(Bytes(50), Duration::ZERO, WINDOW, at(30));
        usage.refund(Bytes(60));
        assert_eq!(usage.bytes(), Bytes(90));
        usage.expire(WINDOW, at(61));
        assert_eq!(usage.bytes(), Bytes(0));
    }
}
