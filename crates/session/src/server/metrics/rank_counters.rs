//! Counters of the copies that several ranks send together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of all copies of several ranks.
#[derive(Debug, Default)]
pub struct RankCounters {
    copies: AtomicU64,
    connected: AtomicU64,
    absent: AtomicU64,
    bytes: AtomicU64,
}

/// The figures of one copy, or of all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTotals {
    /// Number of running copies.
    pub copies: u64,
    /// Number of connected ranks.
    pub connected: u64,
    /// Number of ranks that are not connected.
    pub absent: u64,
    /// Payload of all ranks.
    pub bytes: u64,
}

impl RankCounters {
    /// Replaces the figures of one copy by new ones.
    pub fn update(&self, old: RankTotals, new: RankTotals) {
        let change = |counter: &AtomicU64, old: u64, new: u64| {
            counter.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
        };
        change(&self.copies, old.copies, new.copies);
        change(&self.connected, old.connected, new.connected);
        change(&self.absent, old.absent, new.absent);
        change(&self.bytes, old.bytes, new.bytes);
    }

    /// Returns the figures of all copies.
    pub fn totals(&self) -> RankTotals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RankTotals {
            copies: get(&self.copies),
            connected: get(&self.connected),
            absent: get(&self.absent),
            bytes: get(&self.bytes),
        }
    }
}
