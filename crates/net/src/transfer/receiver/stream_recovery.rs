//! Stream recovery of the receiver: reports the progress of streams, reports streams that ended, and requests the
//! blocks that were lost with them.
//!
//! The sender lists the blocks that a broken stream carried. The receiver compares them with the blocks it has only
//! when no thread works on that stream any more. So blocks still in flight are not requested again, and lost blocks
//! always are.

use std::collections::HashSet;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lfn_core::wire::copy::{FileBlocks, MAX_LOST_BLOCKS, ReceiverMessage, split_into_messages};

use super::Receiver;
use crate::session::DEAD_PEER_TIMEOUT;
use crate::transfer::stream_set::lock;
use crate::transfer::stream_state::{ClosedStream, MAX_RANGES_PER_MESSAGE};
use crate::transfer::{SenderViolation, TransferError};

/// Maximum time without any stream, after all streams were closed without an error. After that the sender has sent too
/// little.
const CLOSED_STREAMS_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time without any stream after one broke. The sender may open another stream.
const BROKEN_STREAM_TIMEOUT: Duration = DEAD_PEER_TIMEOUT;

/// Interval of progress reports to the sender.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of broken streams with threads that have not ended yet.
const MAX_WAITING_STREAMS: usize = 1024;

/// Maximum number of ranges of blocks in all lists of lost blocks. Each file counts as one more.
const MAX_LOST_RANGES: usize = 1 << 19;

/// Streams that have ended, with the work left for each.
#[derive(Debug, Default)]
pub(super) struct LostStreams(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Streams that the sender reported as lost: number, lost blocks, and whether more messages about the stream
    /// follow.
    lost: Vec<(u16, Vec<FileBlocks>, bool)>,
    /// The time since when no stream has existed, after there was at least one.
    without_streams_since: Option<Instant>,
    /// Streams that ended without an error on this side.
    ended_in_order: HashSet<u16>,
    reported_at: Option<Instant>,
    is_limited: bool,
}

impl Receiver {
    /// Reports progress and ended streams, and requests lost blocks. Fails the copy if the sender has opened no stream
    /// for too long while blocks are missing.
    pub(super) fn maintain_streams(&self) {
        let mut inner = lock(&self.lost_streams.0);
        for ClosedStream { stream: line, error: why } in self.streams.take_closed() {
            inner.without_streams_since = Some(Instant::now());
            if !self.table.is_finished() {
                let why = why.as_ref().map(ToString::to_string);
                let (stream, blocks) = (line.number(), line.unreported_blocks());
                self.table.queue_message(ReceiverMessage::Broken { stream, blocks, reason: why });
            }
            match why {
                Some(why) => self.streams.record_failure(why),
                None => {
                    inner.ended_in_order.insert(line.number());
                }
            }
        }
        let (ended, lost) = std::mem::take(&mut inner.lost)
            .into_iter()
            .partition(|(stream, _, more)| !more && self.streams.get(*stream).is_none());
        inner.lost = lost;
        let ended: Vec<_> = ended;
        for (_, blocks, _) in ended {
            self.request_missing(blocks);
        }
        self.report_received(&mut inner);
        if self.is_abandoned(&mut inner) {
            self.streams.fail(TransferError::Incomplete);
        }
    }

    /// Handles the sender's report that a stream is lost, with the blocks that it carried.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the lists are longer than a sender can need.
    pub(super) fn on_stream_lost(&self, stream: u16, blocks: Vec<FileBlocks>, more: bool) -> Result<(), TransferError> {
        self.streams.reject_stream(stream);
        let mut inner = lock(&self.lost_streams.0);
        if inner.ended_in_order.remove(&stream) {
            self.streams.record_failure(TransferError::Stream { stream, source: io::ErrorKind::UnexpectedEof.into() });
        }
        let number = |part: &FileBlocks| part.blocks.len();
        let count = blocks.iter().map(number).fold(0, u64::saturating_add);
        let ranges = |parts: &Vec<FileBlocks>| parts.iter().map(|part| 1 + part.blocks.ranges().count()).sum::<usize>();
        let all = inner.lost.iter().map(|(_, parts, _)| ranges(parts)).sum::<usize>() + ranges(&blocks);
        if count > MAX_LOST_BLOCKS || all > MAX_LOST_RANGES || inner.lost.len() >= MAX_WAITING_STREAMS {
            return Err(TransferError::SenderViolation(SenderViolation::TooManyLostBlocks));
        }
        match inner.lost.iter_mut().find(|(lost, _, more)| *lost == stream && *more) {
            Some((_, all, last)) => {
                all.extend(blocks);
                *last = more;
                let count = all.iter().map(number).fold(0, u64::saturating_add);
                if count > MAX_LOST_BLOCKS {
                    return Err(TransferError::SenderViolation(SenderViolation::TooManyLostBlocks));
                }
            }
            None => inner.lost.push((stream, blocks, more)),
        }
        Ok(())
    }

    /// Requests those of the blocks that are missing here.
    fn request_missing(&self, blocks: Vec<FileBlocks>) {
        let mut missing = Vec::new();
        for FileBlocks { file, blocks } in blocks {
            match self.table.missing_blocks(file, &blocks) {
                Ok(blocks) if blocks.is_empty() => {}
                Ok(blocks) => missing.push(FileBlocks { file, blocks }),
                Err(error) => return self.streams.fail(error),
            }
        }
        for blocks in split_into_messages(missing, MAX_RANGES_PER_MESSAGE) {
            self.table.queue_message(ReceiverMessage::Missing { blocks });
        }
    }

    fn report_received(&self, inner: &mut Inner) {
        if inner.reported_at.is_some_and(|at| at.elapsed() < REPORT_INTERVAL) {
            return;
        }
        let is_limited = self.streams.is_delaying_streams() || !self.has_no_disk_wait();
        let streams: Vec<_> = self.streams.active().iter().filter_map(|line| line.take_progress()).collect();
        if !streams.is_empty() || is_limited != inner.is_limited {
            (inner.reported_at, inner.is_limited) = (Some(Instant::now()), is_limited);
            self.table.queue_message(ReceiverMessage::Received { streams, delayed: is_limited });
        }
    }

    /// Returns whether blocks are missing and no stream has existed for too long.
    fn is_abandoned(&self, inner: &mut Inner) -> bool {
        let Some(since) = inner.without_streams_since else { return false };
        if !self.streams.active().is_empty() || !self.table.is_waiting_for_blocks() {
            inner.without_streams_since = Some(Instant::now());
            return false;
        }
        let timeout = if self.streams.failed_streams() == 0 { CLOSED_STREAMS_TIMEOUT } else { BROKEN_STREAM_TIMEOUT };
        since.elapsed() > timeout
    }
}
