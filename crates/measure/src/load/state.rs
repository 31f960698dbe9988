//! State that the streams of one end and one direction share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lfn_base::time;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::measure::Mode;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::DEAD_PEER_TIMEOUT;
use lfn_sys::clock::monotonic_nanos;

use super::pacer::{CatchUp, Pacer};
use super::wait::{WaitPrecision, wait_until};

/// Amount of a load without a limit.
const UNLIMITED: u64 = u64::MAX;

/// Bytes of the blocks and datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadKind {
    Zero,
    /// Pseudo-random bytes, a function of the position and of the stream's number.
    Seeded,
    /// Random bytes from the system.
    Unpredictable,
    /// The digits that iperf 2 sends.
    Digits,
}

/// A front end's choices for the streams of one direction.
#[derive(Debug, Clone)]
pub(crate) struct LoadOptions {
    pub(crate) sends: bool,
    pub(crate) block_bytes: usize,
    pub(crate) read_bytes: usize,
    pub(crate) mode: Mode,
    pub(crate) payload: PayloadKind,
    /// The receiver compares the payload with the sender's.
    pub(crate) check: bool,
    pub(crate) with_block_times: bool,
    /// The receiver acknowledges each block, and the sender waits for this before it sends the next one.
    pub(crate) lockstep: bool,
    /// Count the time of the last byte after every read and write, not only at the end of the stream.
    pub(crate) with_last_byte: bool,
    /// Rate of each stream.
    pub(crate) rate: Option<BitRate>,
    /// Blocks that leave together at a rate.
    pub(crate) burst: u32,
    /// Maximum time of a read.
    pub(crate) read_timeout: Option<Duration>,
    /// End the sending direction of a stream after its last block.
    pub(crate) finish_sending: bool,
    /// Time after the origin at which the streams end by themselves, even if the control thread is delayed.
    pub(crate) end_after: Duration,
}

/// State that the streams of one end and one direction share.
#[derive(Debug)]
pub(crate) struct LoadState {
    /// Origin of all times.
    pub(crate) origin: Instant,
    pub(crate) options: LoadOptions,
    /// Set to end the streams, before their sockets are shut down.
    pub(super) stop: AtomicBool,
    /// Set when the warm-up is over.
    warm_up_over: AtomicBool,
    /// Bytes or datagrams that all streams still have to send.
    left: AtomicU64,
    rate_limiter: Arc<RateLimiter>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            sends: true,
            block_bytes: 1,
            read_bytes: 1,
            mode: Mode::Copying,
            payload: PayloadKind::Zero,
            check: false,
            with_block_times: false,
            lockstep: false,
            with_last_byte: false,
            rate: None,
            burst: 1,
            read_timeout: Some(DEAD_PEER_TIMEOUT),
            finish_sending: true,
            end_after: Duration::MAX,
        }
    }
}

impl LoadState {
    /// Creates the state of a load without a limited amount.
    pub(crate) fn new(options: LoadOptions, origin: Instant, rate_limiter: Arc<RateLimiter>) -> Arc<Self> {
        Arc::new(LoadState {
            origin,
            options,
            stop: AtomicBool::new(false),
            warm_up_over: AtomicBool::new(false),
            left: AtomicU64::new(UNLIMITED),
            rate_limiter,
        })
    }

    /// Limits the bytes or datagrams that all streams together send from now on.
    pub(crate) fn limit(&self, amount: u64) {
        self.left.store(amount, Ordering::Relaxed);
    }

    /// Takes up to `max_amount` of what is left to send; zero means the end of the load.
    pub(crate) fn take(&self, max_amount: u64) -> u64 {
        let take = |left: u64| (left != UNLIMITED).then(|| left.saturating_sub(max_amount));
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(left) => left.min(max_amount),
            Err(_unlimited) => max_amount,
        }
    }

    /// Returns the maximum bytes that a stream moves in one call under the server's limits.
    pub(crate) fn chunk_size(&self, max_bytes: usize) -> usize {
        self.rate_limiter.chunk_size(max_bytes)
    }

    /// Counts moved bytes, and waits as the server's limits require.
    pub(crate) fn count_and_wait(&self, bytes: u64) -> io::Result<()> {
        self.rate_limiter.count_and_wait(bytes, &self.stop).map_err(io::Error::other)
    }

    /// Returns the schedule of one stream from now on; `None` without a rate.
    pub(crate) fn pacer(&self) -> Option<Pacer> {
        let rate = self.options.rate.filter(|rate| rate.0 > 0)?;
        let block = Bytes(self.options.block_bytes as u64);
        let now = time::Instant::from_nanos(monotonic_nanos());
        Some(Pacer::new(rate, block, self.options.burst, CatchUp::AtOnce, now))
    }

    /// Waits until the next block of a schedule may leave, or until the stop.
    pub(crate) fn wait_for_burst(&self, pacer: &Pacer) {
        if pacer.is_burst_start() {
            wait_until(pacer.next(), WaitPrecision::Sleep, &self.stop);
        }
    }

    /// Ends the streams at their next check.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || (self.options.end_after < Duration::MAX && self.now() >= self.options.end_after)
    }

    /// Ends the warm-up: the processor time of the threads counts from now on.
    pub(crate) fn end_warm_up(&self) {
        self.warm_up_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_warm_up_over(&self) -> bool {
        self.warm_up_over.load(Ordering::Relaxed)
    }

    /// Returns the time since the origin.
    pub(crate) fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limited_amount_is_taken_once() {
        let load = LoadState::new(LoadOptions::default(), Instant::now(), RateLimiter::unlimited());
        assert_eq!(load.take(1 << 40), 1 << 40);
        load.limit(10);
        assert_eq!([load.take(4), load.take(4), load.take(4), load.take(4)], [4, 4, 2, 0]);
    }
}
