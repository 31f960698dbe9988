//! The deadline of a lease, and the time to renew it.
//!
//! The lease is renewed while the copy is alive. A copy that is not alive for a whole lease loses it, so that another
//! mover gets the part. All times count from the start of the lease. A mover that was frozen notices the end of its lease before it does anything else.

use std::time::Duration;

/// Renewals in the time of one lease.
const RENEWALS_PER_LEASE: u32 = 4;

/// Action of the mover that holds a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Nothing before this time since the start of the lease.
    Wait(Duration),
    Renew,
    /// The lease may belong to another mover.
    Lost,
}

/// The deadline of a lease.
#[derive(Debug, Clone)]
pub struct LeaseTimer {
    lease: Duration,
    /// Time when the last confirmed renewal was sent; zero before the first.
    renewed_at: Duration,
    /// Time of the last attempt.
    tried_at: Duration,
    /// Time at which the copy was last alive.
    alive_at: Duration,
    is_lost: bool,
}

impl LeaseTimer {
    /// Creates the timer of a lease that begins now.
    pub fn new(lease: Duration) -> Self {
        let zero = Duration::ZERO;
        LeaseTimer { lease, renewed_at: zero, tried_at: zero, alive_at: zero, is_lost: false }
    }

    /// Records that the copy is alive.
    pub fn on_alive(&mut self, now: Duration) {
        self.alive_at = self.alive_at.max(now);
    }

    /// Records that a renewal is sent.
    pub fn on_try(&mut self, now: Duration) {
        self.tried_at = now;
    }

    /// Records that the server confirmed the renewal that was sent at `sent_at`.
    pub fn on_renewed(&mut self, sent_at: Duration) {
        self.renewed_at = self.renewed_at.max(sent_at);
    }

    /// Returns the action that is due.
    pub fn poll(&mut self, now: Duration) -> LeaseAction {
        // A lost lease stays lost, also if a late answer arrives.
        self.is_lost |= now >= self.renewed_at + self.lease;
        if self.is_lost {
            return LeaseAction::Lost;
        }
        let interval = self.lease / RENEWALS_PER_LEASE;
        let is_alive = self.alive_at + self.lease > now && self.alive_at > self.renewed_at.min(self.tried_at);
        let due = self.tried_at + interval;
        if now >= due && is_alive {
            return LeaseAction::Renew;
        }
        let next = if now >= due { now + interval / 2 } else { due };
        LeaseAction::Wait(next.min(self.renewed_at + self.lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lease_is_renewed_while_the_copy_is_alive() {
        let start = Duration::ZERO;
        let mut timer = LeaseTimer::new(LEASE);
        let mut renewals = Vec::new();
        for second in 0..100 {
            let now = start + seconds(second);
            timer.on_alive(now);
            if timer.poll(now) == LeaseAction::Renew {
                timer.on_try(now);
                timer.on_renewed(now);
                renewals.push(second);
            }
        }
        assert_eq!(renewals, (1..13).map(|n| n * 8).collect::<Vec<_>>());
    }

    #[test]
    fn silent_copy_loses_the_lease() {
        let start = Duration::ZERO;
        let mut timer = LeaseTimer::new(LEASE);
        for second in 1..30 {
            assert!(matches!(timer.poll(start + seconds(second)), LeaseAction::Wait(_)), "{second}");
        }
        assert_eq!(timer.poll(start + LEASE), LeaseAction::Lost);
    }

    #[test]
    fn absent_server_ends_the_lease() {
        let start = Duration::ZERO;
        let mut timer = LeaseTimer::new(LEASE);
        let mut tries = 0;
        for second in 1..30 {
            let now = start + seconds(second);
            timer.on_alive(now);
            if timer.poll(now) == LeaseAction::Renew {
                timer.on_try(now);
                tries += 1;
            }
        }
        assert_eq!(tries, 3);
        assert_eq!(timer.poll(start + LEASE), LeaseAction::Lost);
        // The answer to an old renewal comes too late.
        timer.on_renewed(start + seconds(25));
        assert_eq!(timer.poll(start + LEASE), LeaseAction::Lost);
    }

    #[test]
    fn frozen_mover_finds_its_lease_lost() {
        let start = Duration::ZERO;
        let mut timer = LeaseTimer::new(LEASE);
        let woken = start + seconds(500);
        timer.on_alive(woken);
        assert_eq!(timer.poll(woken), LeaseAction::Lost);
    }

    proptest! {
        /// The server redelivers a message after one lease without a renewal. The mover must have given up by then.
        #[test]
        fn no_lease_outlives_the_deadline_of_the_server(steps in proptest::collection::vec((1_u64..20_000, any::<bool>(), any::<bool>()), 1..200)) {
            let start = Duration::ZERO;
            let mut timer = LeaseTimer::new(LEASE);
            let (mut now, mut deadline) = (start, start + LEASE);
            for (pause, is_alive, answers) in steps {
                now += Duration::from_millis(pause);
                if is_alive {
                    timer.on_alive(now);
                }
                match timer.poll(now) {
                    LeaseAction::Lost => prop_assert!(now >= deadline),
                    LeaseAction::Renew => {
                        prop_assert!(now < deadline);
                        timer.on_try(now);
                        if answers {
                            timer.on_renewed(now);
                            deadline = now + LEASE;
                        }
                    }
                    LeaseAction::Wait(until) => prop_assert!(now < deadline && until > now && until <= deadline),
                }
            }
        }
    }
}
