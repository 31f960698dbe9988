//! Enforces the rate and the byte quota of a session. Every loop that moves payload calls it, so the client's behaviour
//! does not matter.
//!
//! The rate uses virtual scheduling (GCRA, ITU-T I.371): one atomic time for all streams of a session, without a lock.
//! The bytes of a quota are leased in larger amounts from the admission gate, so that its lock is seldom contended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use parking_lot::Mutex;

use crate::limits::Denial;
use crate::wire::{Refusal, RefusalCode};

/// Maximum lead over the rate: enough for a delay of the scheduler, too little to matter in a second.
const BURST: Duration = Duration::from_millis(20);

/// Maximum sleep of a thread before it checks whether it must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum bytes that are leased from the quota at once.
const MAX_LEASE: u64 = 16 << 20;
/// Minimum bytes that are leased from the quota at once.
const MIN_LEASE: u64 = 64 << 10;

/// Error: the byte quota has no bytes left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's byte quota is exhausted")]
pub struct Exhausted;

impl Exhausted {
    /// Returns the refusal for the client, if the exhausted quota is not known more exactly.
    pub fn refusal(self) -> Refusal {
        Refusal::new(RefusalCode::Quota, self.to_string()).hint("try again later, or with fewer bytes")
    }
}

/// Source of leases of a byte quota.
pub(crate) trait ByteQuota: std::fmt::Debug + Send + Sync {
    /// Leases up to `wanted` bytes; returns zero bytes if nothing is left.
    fn lease(&self, wanted: Bytes) -> Bytes;

    /// Returns whether the quota has a limit.
    fn is_limited(&self) -> bool;

    /// Checks whether the quota has `all` bytes for the whole session, of which `requested` are new.
    fn check_affordable(&self, all: Bytes, requested: Bytes) -> Result<(), Denial>;
}

/// Rate limiter and byte quota of one session, shared by its streams.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Option<BitRate>,
    origin: Instant,
    /// Nanoseconds from `origin` to the time at which all counted bytes are due.
    due: AtomicU64,
    /// Bytes of the last lease that are not yet moved. Negative between the count and the next lease.
    lease_left: AtomicI64,
    /// Held by the stream that takes the next lease.
    lease_lock: Mutex<()>,
    moved: AtomicU64,
    exhausted: AtomicBool,
    quota: Option<Arc<dyn ByteQuota>>,
    /// Rate limiter that several sessions share.
    shared: Option<Arc<RateLimiter>>,
}

impl RateLimiter {
    pub(crate) fn new(rate: Option<BitRate>, quota: Option<Arc<dyn ByteQuota>>) -> Self {
        RateLimiter {
            rate: rate.filter(|rate| rate.0 > 0),
            origin: Instant::now(),
            due: AtomicU64::new(0),
            lease_left: AtomicI64::new(0),
            lease_lock: Mutex::default(),
            moved: AtomicU64::new(0),
            exhausted: AtomicBool::new(false),
            quota,
            shared: None,
        }
    }

    /// Adds the rate limiter that the session shares with other sessions.
    pub(super) fn with_shared(self, shared: Option<Arc<RateLimiter>>) -> Self {
        RateLimiter { shared, ..self }
    }

    /// Returns a limiter without rate and quota, for the end that sets no limits.
    pub fn unlimited() -> Arc<Self> {
        Arc::new(RateLimiter::new(None, None))
    }

    /// Returns the payload bytes counted so far.
    pub fn bytes_moved(&self) -> Bytes {
        Bytes(self.moved.load(Ordering::Relaxed))
    }

    /// Returns whether the byte quota is exhausted.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that a loop should move at once, at most `max_bytes`. A slow session uses small
    /// chunks, so that it moves evenly.
    pub fn chunk_size(&self, max_bytes: usize) -> usize {
        let max_bytes = self.shared.as_ref().map_or(max_bytes, |shared| shared.chunk_size(max_bytes));
        let Some(rate) = self.rate else { return max_bytes };
        let chunk = usize::try_from(rate.times(BURST).0).unwrap_or(usize::MAX);
        max_bytes.min(chunk.max(1400))
    }

    /// Returns whether the byte quota has a limit.
    pub fn has_byte_quota(&self) -> bool {
        self.quota.as_ref().is_some_and(|quota| quota.is_limited())
    }

    /// Checks whether the quota has `all` bytes for the whole session, of which `requested` are new.
    pub fn check_affordable(&self, all: Bytes, requested: Bytes) -> Result<(), Denial> {
        self.quota.as_ref().map_or(Ok(()), |quota| quota.check_affordable(all, requested))
    }

    /// Takes `bytes` from the quota that need not be moved.
    pub fn charge(&self, bytes: u64) -> Result<(), Exhausted> {
        self.quota.as_ref().map_or(Ok(()), |quota| self.pay_from_lease(quota.as_ref(), bytes))
    }

    /// Counts `bytes` that were just moved, and sleeps until the rate allows them. Returns early when `stopped` is set.
    pub fn count_and_wait(&self, bytes: u64, stopped: &AtomicBool) -> Result<(), Exhausted> {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        if let Some(quota) = &self.quota {
            self.pay_from_lease(quota.as_ref(), bytes)?;
        }
        if let Some(shared) = &self.shared {
            shared.count_and_wait(bytes, stopped)?;
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

    fn pay_from_lease(&self, quota: &dyn ByteQuota, bytes: u64) -> Result<(), Exhausted> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.lease_left.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
            return Ok(());
        }
        let _lease_lock = self.lease_lock.lock();
        // Another stream may have taken a lease in the meantime; the quota may then be empty although bytes of that
        // lease are left.
        if self.lease_left.load(Ordering::Relaxed) >= 0 {
            return Ok(());
        }
        // With a rate limit: a tenth of a second of the rate.
        let usual = self.rate.map_or(MAX_LEASE, |rate| rate.times(BURST * 5).0.clamp(MIN_LEASE, MAX_LEASE));
        let wanted = u64::try_from(bytes).unwrap_or(0).max(usual);
        let leased = quota.lease(Bytes(wanted)).0;
        self.lease_left.fetch_add(i64::try_from(leased).unwrap_or(i64::MAX), Ordering::Relaxed);
        if leased == 0 {
            self.exhausted.store(true, Ordering::Relaxed);
            return Err(Exhausted);
        }
        Ok(())
    }

    /// Returns the leased bytes that were not moved, and resets them to zero.
    pub(super) fn take_unused_lease(&self) -> Bytes {
        Bytes(u64::try_from(self.lease_left.swap(0, Ordering::Relaxed)).unwrap_or(0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct TestQuota(Mutex<u64>);

    impl ByteQuota for TestQuota {
        fn lease(&self, max_bytes: Bytes) -> Bytes {
            let mut left = self.0.lock();
            let leased = max_bytes.0.min(*left);
            *left -= leased;
            Bytes(leased)
        }

        fn is_limited(&self) -> bool {
            true
        }

        fn check_affordable(&self, _: Bytes, _: Bytes) -> Result<(), Denial> {
            Ok(())
        }
    }

    /// A quota that leases all its bytes at once, slowly.
    #[derive(Debug)]
    struct SlowQuota(TestQuota);

    impl ByteQuota for SlowQuota {
        fn lease(&self, max_bytes: Bytes) -> Bytes {
            let leased = self.0.lease(max_bytes);
            thread::sleep(Duration::from_millis(100));
            leased
        }

        fn is_limited(&self) -> bool {
            true
        }

        fn check_affordable(&self, _: Bytes, _: Bytes) -> Result<(), Denial> {
            Ok(())
        }
    }

    /// One stream takes the last lease for several; the others must not find the quota exhausted.
    #[test]
    fn concurrent_streams_share_the_last_lease() {
        let rate_limiter = RateLimiter::new(None, Some(Arc::new(SlowQuota(TestQuota(Mutex::new(5_000_000))))));
        let stopped = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| rate_limiter.count_and_wait(1_000, &stopped).unwrap());
            }
        });
        assert_eq!((rate_limiter.take_unused_lease(), rate_limiter.is_exhausted()), (Bytes(5_000_000 - 4_000), false));
    }

    #[test]
    fn streams_of_a_session_share_its_rate() {
        let rate_limiter = RateLimiter::new(Some(BitRate(80_000_000)), None);
        let stopped = AtomicBool::new(false);
        let started = Instant::now();
        // 4 MB at 10 MB/s, less a lead of 20 ms.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..100).for_each(|_| rate_limiter.count_and_wait(10_000, &stopped).unwrap()));
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(380), "{:?}", started.elapsed());
        assert_eq!(rate_limiter.bytes_moved(), Bytes(4_000_000));
        assert_eq!(rate_limiter.chunk_size(1 << 20), 200_000);
    }

    #[test]
    fn sessions_with_a_shared_rate_keep_it_together() {
        let shared = Arc::new(RateLimiter::new(Some(BitRate(80_000_000)), None));
        let stopped = AtomicBool::new(false);
        let started = Instant::now();
        // 4 MB at 10 MB/s, less a lead of 20 ms.
        thread::scope(|scope| {
            for _ in 0..2 {
                let session = RateLimiter::new(None, None).with_shared(Some(shared.clone()));
                let stopped = &stopped;
                assert_eq!(session.chunk_size(1 << 20), 200_000);
                scope.spawn(move || (0..200).for_each(|_| session.count_and_wait(10_000, stopped).unwrap()));
            }
        });
        assert!(started.elapsed() >= Duration::from_millis(380), "{:?}", started.elapsed());
    }

    #[test]
    fn stopped_thread_does_not_wait() {
        let rate_limiter = RateLimiter::new(Some(BitRate(8)), None);
        let started = Instant::now();
        rate_limiter.count_and_wait(1 << 30, &AtomicBool::new(true)).unwrap();
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn unused_lease_is_reported() {
        let quota = Arc::new(TestQuota(Mutex::new(100_000)));
        let rate_limiter = RateLimiter::new(Some(BitRate(1 << 40)), Some(quota.clone()));
        let stopped = AtomicBool::new(false);
        rate_limiter.count_and_wait(60_000, &stopped).unwrap();
        rate_limiter.count_and_wait(40_000, &stopped).unwrap();
        assert_eq!(rate_limiter.count_and_wait(1, &stopped), Err(Exhausted));
        assert!(rate_limiter.is_exhausted());
        let rate_limiter = RateLimiter::new(None, Some(Arc::new(TestQuota(Mutex::new(500)))));
        rate_limiter.count_and_wait(100, &stopped).unwrap();
        assert_eq!(rate_limiter.take_unused_lease(), Bytes(400));
        // Bytes that need not be moved are charged too.
        let rate_limiter = RateLimiter::new(Some(BitRate(8)), Some(Arc::new(TestQuota(Mutex::new(500)))));
        rate_limiter.charge(500).unwrap();
        assert_eq!((rate_limiter.charge(1), rate_limiter.bytes_moved()), (Err(Exhausted), Bytes(0)));
    }
}
