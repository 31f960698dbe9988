//! Exchanges: data that was sent and acknowledged before the next data followed, as in lock-step.

use std::sync::LazyLock;

use crate::on_demand::Part;

/// Sizes that are kept for their median.
const MAX_SIZES: usize = 64;
/// A wait longer than the RTT by this much is a delayed acknowledgement: the timers of Linux (40 ms) and of other
/// kernels (200 ms), in nanoseconds, with the jitter of both ends.
const DELAYED_ACK: [std::ops::Range<u64>; 2] = [33_000_000..62_000_000, 140_000_000..260_000_000];

/// Counts of the exchanges of one direction. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// Start of the current exchange, if data is in flight.
    current: Option<Current>,
    /// Exchanges after which the next data left at once.
    pub(crate) lockstep_blocks: u64,
    /// Time of these exchanges.
    pub(crate) lockstep: u64,
    /// Time of these exchanges in which the sender had sent the whole block and waited.
    pub(crate) lockstep_wait: u64,
    sizes: Vec<u64>,
    stride: u64,
    pub(crate) delayed_acks: u64,
    /// Time by which these were delayed.
    pub(crate) delayed_ack: u64,
    /// The last exchange, until the next data shows whether it was in lock-step.
    finished: Option<Finished>,
    pub(crate) count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    start: u64,
    bytes: u64,
    last_sent: u64,
    last_size: u32,
    packets: u64,
}

#[derive(Clone, Copy, Debug)]
struct Finished {
    exchange: Current,
    end: u64,
    has_timeout: bool,
}

impl Part for Exchanges {
    fn unchanged() -> &'static Self {
        static UNCHANGED: LazyLock<Exchanges> = LazyLock::new(Exchanges::default);
        &UNCHANGED
    }
}

impl Exchanges {
    /// Records new data of the sender.
    pub(crate) fn sent(&mut self, at: u64, payload: u32) {
        let current =
            self.current.get_or_insert(Current { start: at, bytes: 0, last_sent: at, last_size: 0, packets: 0 });
        current.bytes += u64::from(payload);
        current.last_sent = at;
        current.last_size = payload;
        current.packets += 1;
    }

    /// Records that all data is acknowledged. `rtt` is the RTT without a delay at the receiver, `mss` the largest payload.
    pub(crate) fn drained(&mut self, at: u64, rtt: u64, mss: u32, has_timeout: bool) {
        let Some(exchange) = self.current.take() else { return };
        self.count += 1;
        let wait = at.saturating_sub(exchange.last_sent);
        let excess = wait.saturating_sub(rtt);
        // The end of a long block waits behind its own packets, of which a super-packet has many.
        let is_short = exchange.bytes <= 2 * u64::from(mss) && (exchange.last_size < mss || exchange.packets == 1);
        if is_short && !has_timeout && DELAYED_ACK.iter().any(|range| range.contains(&excess)) {
            self.delayed_acks += 1;
            self.delayed_ack += excess;
        }
        self.finished = Some(Finished { exchange, end: at, has_timeout });
    }

    /// Records the start of new data after a pause. `pause` is the time that the sender's application took, and `limit` the
    /// maximum of this time in lock-step.
    pub(crate) fn resumed(&mut self, at: u64, pause: u64, limit: u64) {
        let Some(Finished { exchange, end, has_timeout }) = self.finished.take() else { return };
        if pause > limit || has_timeout {
            return;
        }
        self.lockstep_blocks += 1;
        self.lockstep += at.saturating_sub(exchange.start);
        self.lockstep_wait += end.saturating_sub(exchange.last_sent);
        self.stride = self.stride.max(1);
        if self.lockstep_blocks.is_multiple_of(self.stride) {
            if self.sizes.len() >= MAX_SIZES {
                let mut keep = false;
                self.sizes.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            self.sizes.push(exchange.bytes);
        }
    }

    /// Returns the median size of the blocks in lock-step.
    pub(crate) fn median_block(&self) -> u64 {
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable();
        sizes.get(sizes.len() / 2).copied().unwrap_or_default()
    }
}
