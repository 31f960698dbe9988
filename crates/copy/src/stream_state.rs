//! State of one data stream of a copy, shared with other threads: its progress, its unconfirmed blocks, and its
//! shutdown.
//!
//! A sender records the blocks that it wrote and that the receiver has not read yet. These blocks are lost if the
//! stream breaks. If the receiver reads none of them for a long time although it is alive and not delayed, the stream
//! is stalled.

use std::collections::{BTreeMap, VecDeque};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::DataStream;
use lfn_session::transport::Handle;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::{FileBlocks, StreamReceived, split_into_messages};
use lfn_sys::tcp;
use parking_lot::Mutex;

use super::TransferError;

/// Minimum round trips in which the receiver reads nothing, if they take longer than the minimum time.
const MIN_STALL_ROUND_TRIPS: u32 = 20;

/// Maximum ranges of blocks per message: at most 43 bytes each.
pub(super) const MAX_RANGES_PER_MESSAGE: usize = 16_384;

/// Maximum blocks that are sent over all streams before the receiver reads one: four of the largest default receive
/// buffers of Linux, full of headers of holes. A receiver accepts them all as lost, each of another file.
const MAX_UNACKED_BLOCKS: usize = 1 << 18;

/// State of an active data stream.
#[derive(Debug)]
pub(crate) struct StreamState {
    number: u16,
    pub(super) handle: Arc<dyn Handle>,
    shut_down: AtomicBool,
    stalled: AtomicBool,
    /// Bytes written or read.
    bytes: AtomicU64,
    blocks: AtomicU64,
    in_flight: Mutex<InFlight>,
}

/// A data stream that has ended.
#[derive(Debug)]
pub(crate) struct ClosedStream {
    pub(crate) stream: Arc<StreamState>,
    /// `None` if the stream ended in order.
    pub(crate) error: Option<TransferError>,
}

#[derive(Debug)]
struct InFlight {
    /// Sent blocks and holes that the receiver has not read, in order: file, with the first and the last block.
    unacked: VecDeque<(u32, u64, u64)>,
    acked: StreamReceived,
    /// At least one block was sent.
    is_sender: bool,
    /// Last time at which the receiver read something, or at which waiting for this began.
    last_acked_at: Instant,
    /// Totals of the last report.
    reported: StreamReceived,
}

impl StreamState {
    pub(super) fn new(stream: &DataStream) -> Self {
        let number = stream.stream();
        let taken = StreamReceived { stream: number, blocks: 0, bytes: Bytes(0) };
        let in_flight = InFlight {
            unacked: VecDeque::new(),
            acked: taken,
            is_sender: false,
            last_acked_at: Instant::now(),
            reported: taken,
        };
        StreamState {
            number,
            handle: stream.handle().clone(),
            shut_down: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            in_flight: Mutex::new(in_flight),
        }
    }

    /// Returns the stream number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Shuts the stream down. Its thread ends with an error.
    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Ordering::SeqCst);
        // The peer may have closed it before.
        let _ = self.handle.shut_down(Shutdown::Both);
    }

    /// Shuts the stream down because the receiver reads nothing.
    pub(crate) fn shut_down_stalled(&self) {
        self.stalled.store(true, Ordering::SeqCst);
        self.shut_down();
    }

    /// Reports whether the stream was shut down as stalled.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }

    /// Reports whether this side shut the stream down.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::SeqCst)
    }

    /// Counts written or read bytes.
    pub(super) fn count_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the bytes that arrived. At a sender these are the bytes that the receiver reported; with `all`, every
    /// written byte has arrived.
    pub(crate) fn carried_bytes(&self, all: bool) -> u64 {
        let moved = self.bytes.load(Ordering::Relaxed);
        let in_flight = self.in_flight.lock();
        if in_flight.is_sender && !all { in_flight.acked.bytes.0.min(moved) } else { moved }
    }

    /// Reports whether the stream is a connection of Multipath TCP, at both ends.
    pub(crate) fn is_multipath(&self) -> bool {
        self.handle.socket().and_then(tcp::mptcp_subflows).is_some()
    }

    /// Reports whether this side sends.
    pub(crate) fn is_sender(&self) -> bool {
        self.in_flight.lock().is_sender
    }

    /// Returns the retransmitted segments of this end.
    pub(crate) fn retransmitted_segments(&self) -> u64 {
        self.handle.info().map_or(0, |info| info.retransmitted_segments.into())
    }

    /// Counts a received block.
    pub(crate) fn record_received(&self) {
        self.blocks.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the count of received blocks.
    pub(crate) fn received_blocks(&self) -> u64 {
        self.blocks.load(Ordering::SeqCst)
    }

    /// Returns the received totals, if they changed since the last report.
    pub(crate) fn take_progress(&self) -> Option<StreamReceived> {
        let bytes = Bytes(self.bytes.load(Ordering::Relaxed));
        let taken = StreamReceived { stream: self.number, blocks: self.received_blocks(), bytes };
        let mut in_flight = self.in_flight.lock();
        let new = taken != in_flight.reported;
        in_flight.reported = taken;
        new.then_some(taken)
    }

    /// Returns the count of received blocks that are not reported yet.
    pub(crate) fn unreported_blocks(&self) -> u64 {
        self.received_blocks().saturating_sub(self.in_flight.lock().reported.blocks)
    }

    /// Records blocks and holes that are about to be sent: file, with the first and the last block.
    pub(crate) fn record_sent(&self, blocks: impl Iterator<Item = (u32, u64, u64)>) {
        let mut in_flight = self.in_flight.lock();
        if in_flight.acked.bytes.0 >= self.bytes.load(Ordering::Relaxed) {
            in_flight.last_acked_at = Instant::now();
        }
        in_flight.is_sender = true;
        in_flight.unacked.extend(blocks);
    }

    /// Reports whether sent blocks are not confirmed.
    pub(crate) fn has_unacked_blocks(&self) -> bool {
        !self.in_flight.lock().unacked.is_empty()
    }

    /// Reports whether the stream carries its maximum of unconfirmed blocks, as one of `streams` streams. Nothing more
    /// is sent until the receiver reads a block.
    pub(crate) fn is_full(&self, streams: usize) -> bool {
        self.in_flight.lock().unacked.len() >= MAX_UNACKED_BLOCKS / streams.max(1)
    }

    /// Removes the blocks that the receiver has read. Returns their count.
    pub(crate) fn record_acked(&self, taken: StreamReceived) -> u64 {
        let mut in_flight = self.in_flight.lock();
        if taken.bytes > in_flight.acked.bytes {
            in_flight.last_acked_at = Instant::now();
        }
        // Ignore blocks that were never sent.
        let new = taken.blocks.saturating_sub(in_flight.acked.blocks).min(in_flight.unacked.len() as u64);
        in_flight.unacked.drain(..new as usize);
        in_flight.acked.blocks += new;
        in_flight.acked.bytes = in_flight.acked.bytes.max(taken.bytes);
        new
    }

    /// Reports whether the receiver read nothing for too long, counted from `since` at the earliest: longer than
    /// `least`, and longer than [`MIN_STALL_ROUND_TRIPS`].
    pub(crate) fn has_stalled(&self, since: Instant, least: Duration, now: Instant) -> bool {
        let in_flight = self.in_flight.lock();
        let pending = self.bytes.load(Ordering::Relaxed) > in_flight.acked.bytes.0;
        let still = now.saturating_duration_since(in_flight.last_acked_at.max(since));
        drop(in_flight);
        pending && still > least && still > MIN_STALL_ROUND_TRIPS * self.handle.min_rtt()
    }

    /// Returns the sent blocks that are not confirmed, in messages of at most `most` ranges.
    pub(crate) fn unacked_blocks(&self, most: usize) -> Vec<Vec<FileBlocks>> {
        let mut files: BTreeMap<u32, BlockSet> = BTreeMap::new();
        for &(file, first, last) in &self.in_flight.lock().unacked {
            files.entry(file).or_default().insert_range(first, last);
        }
        let mut messages =
            split_into_messages(files.into_iter().map(|(file, blocks)| FileBlocks { file, blocks }), most);
        if messages.is_empty() {
            // A stream without unconfirmed blocks is reported too.
            messages.push(Vec::new());
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use lfn_session::transport::memory;

    use super::*;
    use crate::stall::STREAM_STALL_TIMEOUT;

    #[test]
    fn stream_without_figures_stalls_by_time_alone() {
        let (near, _far) = memory::pair();
        let line = StreamState::new(&DataStream::clear(0, Box::new(near)));
        assert_eq!(line.handle.info(), None);
        line.record_sent([(0, 0, 0)].into_iter());
        line.count_bytes(100);
        let since = Instant::now();
        let stalled = |after| line.has_stalled(since, STREAM_STALL_TIMEOUT, since + after);
        assert!(!stalled(STREAM_STALL_TIMEOUT) && stalled(STREAM_STALL_TIMEOUT + Duration::from_millis(1)));
    }

    #[test]
    fn stream_without_confirmed_blocks_becomes_full() {
        let (near, _far) = memory::pair();
        let line = StreamState::new(&DataStream::clear(0, Box::new(near)));
        line.record_sent((1..MAX_UNACKED_BLOCKS as u64).map(|index| (0, 2 * index, 2 * index)));
        assert!(!line.is_full(1));
        line.record_sent([(1, 0, 0)].into_iter());
        line.record_acked(StreamReceived { stream: 0, blocks: 0, bytes: Bytes(1 << 40) });
        assert!(line.is_full(1));
        // Every second block of a file is a separate range, and a message has a maximum of ranges.
        let messages = line.unacked_blocks(1 << 10);
        assert!(messages.iter().flatten().all(|part| part.blocks.ranges().count() <= 1 << 10));
        assert_eq!(messages.iter().flatten().map(|part| part.blocks.len()).sum::<u64>(), MAX_UNACKED_BLOCKS as u64);
        assert!(messages.len() > MAX_UNACKED_BLOCKS >> 11, "{}", messages.len());
        assert!(line.is_full(256));
        line.record_acked(StreamReceived { stream: 0, blocks: 1, bytes: Bytes(1 << 40) });
        assert!(!line.is_full(1));
    }
}
