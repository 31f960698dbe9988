//! Measures the work of one side of a copy: the time that its threads spend on disks, hashes and the network. Also
//! holds the flag that stops these threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use lfn_results::evidence::StreamTime;
use lfn_session::wire::copy::progress::StreamActivity;

/// Activity of a thread of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activity {
    Disk,
    Hash,
    Network,
    /// Waiting for a server's rate limiter.
    RateLimited,
}

/// Times of all threads of one side, and the flag that stops them.
#[derive(Debug, Default)]
pub(crate) struct WorkMeter {
    stopped: AtomicBool,
    disk: TimeCounter,
    hash: TimeCounter,
    network: TimeCounter,
    rate_limited: TimeCounter,
    /// Threads that may wait for a disk for a long time. No progress is expected from the copy meanwhile.
    blocked: AtomicUsize,
}

/// Time spent on an activity, and the threads that are in it now.
#[derive(Debug, Default)]
struct TimeCounter {
    nanoseconds: AtomicU64,
    now: AtomicUsize,
}

impl WorkMeter {
    /// Stops the threads: each of them notices the flag between two steps of its work.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns the flag itself, for waits that check it.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stopped
    }

    /// Runs an activity and adds its time to the totals.
    pub(crate) fn measure<T>(&self, on: Activity, work: impl FnOnce() -> T) -> T {
        let (started, spent) = (Instant::now(), self.counter(on));
        spent.now.fetch_add(1, Ordering::Relaxed);
        let result = work();
        spent.now.fetch_sub(1, Ordering::Relaxed);
        spent.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// Runs `work` while this thread counts as blocked on a disk.
    pub(crate) fn while_blocked<T>(&self, work: impl FnOnce() -> T) -> T {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.blocked.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Runs `work` as disk work that may take long. Both ends then see activity, however long the work takes.
    pub(crate) fn do_disk_work<T>(&self, work: impl FnOnce() -> T) -> T {
        self.while_blocked(|| self.measure(Activity::Disk, work))
    }

    /// Returns whether a thread may wait for a disk for a long time.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) > 0
    }

    /// Returns the total time of each activity in seconds. Time counts when an activity ends.
    pub(crate) fn times(&self) -> StreamTime {
        let seconds = |spent: &TimeCounter| spent.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        StreamTime {
            disk: seconds(&self.disk),
            hash: seconds(&self.hash),
            network: seconds(&self.network),
            rate_limited: seconds(&self.rate_limited),
        }
    }

    /// Returns the number of threads that are in each activity now.
    pub(crate) fn activity(&self) -> StreamActivity {
        let now = |spent: &TimeCounter| spent.now.load(Ordering::Relaxed) as u32;
        StreamActivity { disk: now(&self.disk), hash: now(&self.hash), network: now(&self.network) }
    }

    /// Returns whether this side itself delays the streams now: by its disk or by the rate limiter.
    pub(crate) fn is_delayed(&self) -> bool {
        self.rate_limited.now.load(Ordering::Relaxed) > 0 || self.disk.now.load(Ordering::Relaxed) > 0
    }

    fn counter(&self, on: Activity) -> &TimeCounter {
        match on {
            Activity::Disk => &self.disk,
            Activity::Hash => &self.hash,
            Activity::Network => &self.network,
            Activity::RateLimited => &self.rate_limited,
        }
    }
}
