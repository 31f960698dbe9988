//! Progress of one stream.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use lfn_sys::process;
use lfn_sys::tcp::{self, CpuTime};

use super::state::LoadState;

/// Progress of one stream. Its thread counts, and the control thread reads.
#[derive(Debug, Default)]
pub(crate) struct StreamCounter {
    bytes: AtomicU64,
    /// Datagrams sent or received.
    datagrams: AtomicU64,
    /// Nanoseconds from the origin to the first byte, plus one; 0 before the first byte.
    first: AtomicU64,
    /// Nanoseconds from the origin to the last byte or to the end; 0 before.
    last: AtomicU64,
    /// Id of the thread that moves the data; 0 before the thread runs.
    thread: AtomicI32,
    /// Processor time of the thread when it first moved data after the warm-up.
    cpu_at_warm_up_end: OnceLock<CpuTime>,
}

impl StreamCounter {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of sent or received datagrams.
    pub(crate) fn datagrams(&self) -> u64 {
        self.datagrams.load(Ordering::Relaxed)
    }

    /// Returns the time from the origin to the first byte.
    pub(crate) fn first(&self) -> Option<Duration> {
        self.first.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    /// Returns the time from the origin to the end of the stream, zero before. See also
    /// [`LoadOptions::with_last_byte`].
    ///
    /// [`LoadOptions::with_last_byte`]: super::LoadOptions::with_last_byte
    pub(crate) fn last(&self) -> Duration {
        Duration::from_nanos(self.last.load(Ordering::Relaxed))
    }

    /// Returns the id of the thread that moves the data.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Counts moved bytes, and returns the bytes before. Only the stream's own thread calls this, because only that
    /// thread can read its processor time exactly.
    pub(crate) fn count(&self, bytes: usize, load: &LoadState) -> u64 {
        if load.is_warm_up_over() {
            self.cpu_at_warm_up_end.get_or_init(tcp::thread_cpu);
        }
        if load.options.with_last_byte {
            self.set_last(load.now());
        }
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed)
    }

    /// Counts datagrams with their bytes.
    pub(crate) fn count_datagrams(&self, datagrams: u64, bytes: usize, load: &LoadState) {
        self.datagrams.fetch_add(datagrams, Ordering::Relaxed);
        self.count(bytes, load);
    }

    /// Sets the time of the first byte.
    pub(super) fn begin(&self, now: Duration) {
        self.first.store(nanos(now) + 1, Ordering::Relaxed);
    }

    pub(super) fn set_last(&self, now: Duration) {
        self.last.store(nanos(now), Ordering::Relaxed);
    }

    /// Records that the calling thread moves the data.
    pub(super) fn set_thread(&self) {
        self.thread.store(process::thread_id(), Ordering::Relaxed);
    }

    /// Returns the thread's processor time at the end of the warm-up: the time `now`, if the thread has moved nothing
    /// since.
    pub(super) fn cpu_at_warm_up_end(&self, now: CpuTime) -> CpuTime {
        *self.cpu_at_warm_up_end.get_or_init(|| now)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
