//! What holds a session to its rate and its bytes, whatever its client does: every loop that moves payload passes it.
//!
//! The rate is kept by virtual scheduling (GCRA, ITU-T I.371): one atomic instant for all streams of a session, no
//! lock. The bytes of a quota are taken from the gate in leases, so that its lock is seldom met.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::admission::Denied;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::{Refusal, RefusalCode};

use super::admission::Lender;

/// What may be moved ahead of the rate: enough for a scheduler's hiccup, too little to matter in a second.
const BURST: Duration = Duration::from_millis(20);

/// How long a thread sleeps at most before it looks whether it should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Most bytes taken from the gate at once, and the least.
const LEASE: (u64, u64) = (16 << 20, 64 << 10);

/// The quota's bytes are spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's quota of bytes is spent")]
pub struct Spent;

impl Spent {
    /// What the client is told where nobody knows whose quota it was.
    pub fn refusal(self) -> Refusal {
        Refusal::new(RefusalCode::Quota, self.to_string()).hint("ask for fewer bytes, or later")
    }
}

/// The rate and the bytes of one session, shared by its streams.
#[derive(Debug)]
pub struct Throttle {
    rate: Option<BitRate>,
    origin: Instant,
    /// Nanoseconds from the origin to when what was passed so far is due.
    due: AtomicU64,
    /// Bytes of the last lease that are not yet moved; below zero between passing and the next lease.
    credit: AtomicI64,
    /// Held by the stream that takes the next one.
    leasing: Mutex<()>,
    moved: AtomicU64,
    spent: AtomicBool,
    lender: Option<Arc<dyn Lender>>,
    /// What several sessions share.
    shared: Option<Arc<Throttle>>,
}

impl Throttle {
    pub(super) fn new(rate: Option<BitRate>, lender: Option<Arc<dyn Lender>>) -> Self {
        Throttle {
            rate: rate.filter(|rate| rate.0 > 0),
            origin: Instant::now(),
            due: AtomicU64::new(0),
            credit: AtomicI64::new(0),
            leasing: Mutex::default(),
            moved: AtomicU64::new(0),
            spent: AtomicBool::new(false),
            lender,
            shared: None,
        }
    }

    /// Holds it to what several sessions share, too.
    pub(super) fn sharing(self, shared: Option<Arc<Throttle>>) -> Self {
        Throttle { shared, ..self }
    }

    /// Holds nothing back: for the end that decides itself.
    pub fn none() -> Arc<Self> {
        Arc::new(Throttle::new(None, None))
    }

    /// Payload bytes passed so far.
    pub fn moved(&self) -> Bytes {
        Bytes(self.moved.load(Ordering::Relaxed))
    }

    /// Whether the quota's bytes were spent.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// How much a loop should move at once, at most `wanted`: a slow session in small parts, so that it moves evenly.
    pub fn part(&self, wanted: usize) -> usize {
        let wanted = self.shared.as_ref().map_or(wanted, |shared| shared.part(wanted));
        let Some(rate) = self.rate else { return wanted };
        let part = usize::try_from(rate.times(BURST).0).unwrap_or(usize::MAX);
        wanted.min(part.max(1400))
    }

    /// Whether the quota's bytes have an end.
    pub(crate) fn is_limited(&self) -> bool {
        self.lender.as_ref().is_some_and(|lender| lender.is_limited())
    }

    /// Whether the quota has `all` bytes for the session from its beginning to its end, `asked` of them newly asked for.
    pub(crate) fn affords(&self, all: Bytes, asked: Bytes) -> Result<(), Denied> {
        self.lender.as_ref().map_or(Ok(()), |lender| lender.affords(all, asked))
    }

    /// Takes from the quota for `bytes` that need not be moved.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Spent> {
        self.lender.as_ref().map_or(Ok(()), |lender| self.pay(lender.as_ref(), bytes))
    }

    /// Counts `bytes` just moved, and sleeps until that many may have been. Returns early once `stopped` is set.
    pub fn pass(&self, bytes: u64, stopped: &AtomicBool) -> Result<(), Spent> {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        if let Some(lender) = &self.lender {
            self.pay(lender.as_ref(), bytes)?;
        }
        if let Some(shared) = &self.shared {
            shared.pass(bytes, stopped)?;
        }
        let Some(rate) = self.rate else { return Ok(()) };
        let cost = nanos(rate.time_for(Bytes(bytes)));
        let now = nanos(self.origin.elapsed());
        let earliest = now.saturating_sub(nanos(BURST));
        let next = |due: u64| Some(due.max(earliest).saturating_add(cost));
        let before = self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let due = before.unwrap_or_else(|due| due).max(earliest).saturating_add(cost);
        while !stopped.load(Ordering::Relaxed) {
            let left = due.saturating_sub(nanos(self.origin.elapsed()));
            if left == 0 {
                break;
            }
            thread::sleep(Duration::from_nanos(left).min(POLL_INTERVAL));
        }
        Ok(())
    }

    fn pay(&self, lender: &dyn Lender, bytes: u64) -> Result<(), Spent> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.credit.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let _leasing = self.leasing.lock().unwrap_or_else(PoisonError::into_inner);
        // Another stream took a lease meanwhile, and there may be nothing left behind it.
        if self.credit.load(Ordering::Relaxed) >= 0 {
            return Ok(());
        }
        let (most, least) = LEASE;
        // A tenth of a second of a rate that is limited.
        let usual = self.rate.map_or(most, |rate| rate.times(BURST * 5).0.clamp(least, most));
        let wanted = u64::try_from(bytes).unwrap_or(0).max(usual);
        let got = lender.lend(Bytes(wanted)).0;
        self.credit.fetch_add(i64::try_from(got).unwrap_or(i64::MAX), Ordering::Relaxed);
        if got == 0 {
            self.spent.store(true, Ordering::Relaxed);
            return Err(Spent);
        }
        Ok(())
    }

    /// What was leased and not moved.
    pub(super) fn unmoved(&self) -> Bytes {
        Bytes(u64::try_from(self.credit.swap(0, Ordering::Relaxed)).unwrap_or(0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Purse(Mutex<u64>);

    impl Lender for Purse {
        fn lend(&self, wanted: Bytes) -> Bytes {
            let mut left = self.0.lock().unwrap();
            let lent = wanted.0.min(*left);
            *left -= lent;
            Bytes(lent)
        }

        fn is_limited(&self) -> bool {
            true
        }

        fn affords(&self, _: Bytes, _: Bytes) -> Result<(), Denied> {
            Ok(())
        }
    }

    /// Lends all it has at once, and takes its time.
    #[derive(Debug)]
    struct Slow(Purse);

    impl Lender for Slow {
        fn lend(&self, wanted: Bytes) -> Bytes {
            let lent = self.0.lend(wanted);
            thread::sleep(Duration::from_millis(100));
            lent
        }

        fn is_limited(&self) -> bool {
            true
        }

        fn affords(&self, _: Bytes, _: Bytes) -> Result<(), Denied> {
            Ok(())
        }
    }

    /// While one of them takes all that is left for both, the other does not find that nothing is.
    #[test]
    fn streams_that_pay_together_share_the_last_lease() {
        let throttle = Throttle::new(None, Some(Arc::new(Slow(Purse(Mutex::new(5_000_000))))));
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| throttle.pass(1_000, &stopped).unwrap());
            }
        });
        assert_eq!((throttle.unmoved(), throttle.is_spent()), (Bytes(5_000_000 - 4_000), false));
    }

    #[test]
    fn many_streams_together_keep_the_rate() {
        let throttle = Throttle::new(Some(BitRate(80_000_000)), None);
        let stopped = AtomicBool::new(false);
        let started = Instant::now();
        // 4 MB at 10 MB/s, less the 20 ms that may be ahead.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| throttle.pass(10_000, &stopped).unwrap()));
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(380), "{:?}", started.elapsed());
        assert_eq!(throttle.moved(), Bytes(4_000_000));
        assert_eq!(throttle.part(1 << 20), 200_000);
    }

    #[test]
    fn sessions_that_share_a_rate_keep_it_together() {
        let shared = Arc::new(Throttle::new(Some(BitRate(80_000_000)), None));
        let stopped = AtomicBool::new(false);
        let started = Instant::now();
        // 4 MB at 10 MB/s, less the 20 ms that may be ahead.
        thread::scope(|scope| {
            for _ in 0..2 {
                let session = Throttle::new(None, None).sharing(Some(shared.clone()));
                let stopped = &stopped;
                assert_eq!(session.part(1 << 20), 200_000);
                scope.spawn(move || (0..200).for_each(|_| session.pass(10_000, stopped).unwrap()));
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(380), "{:?}", started.elapsed());
    }

    #[test]
    fn a_thread_that_is_stopped_does_not_wait_for_its_turn() {
        let throttle = Throttle::new(Some(BitRate(8)), None);
        let started = Instant::now();
        throttle.pass(1 << 30, &AtomicBool::new(true)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn bytes_are_paid_for_and_what_is_left_of_a_lease_is_known() {
        let purse = Arc::new(Purse(Mutex::new(100_000)));
        let throttle = Throttle::new(Some(BitRate(1 << 40)), Some(purse.clone()));
        let stopped = AtomicBool::new(false);
        throttle.pass(60_000, &stopped).unwrap();
        throttle.pass(40_000, &stopped).unwrap();
        assert_eq!(throttle.pass(1, &stopped), Err(Spent));
        assert!(throttle.is_spent());
        let throttle = Throttle::new(None, Some(Arc::new(Purse(Mutex::new(500)))));
        throttle.pass(100, &stopped).unwrap();
        assert_eq!(throttle.unmoved(), Bytes(400));
        // What need not be moved is paid for all the same.
        let throttle = Throttle::new(Some(BitRate(8)), Some(Arc::new(Purse(Mutex::new(500)))));
        throttle.charge(500).unwrap();
        assert_eq!((throttle.charge(1), throttle.moved()), (Err(Spent), Bytes(0)));
    }
}
