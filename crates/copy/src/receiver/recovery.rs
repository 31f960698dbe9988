//! Stream recovery of the receiver: reports the progress of streams, reports streams that ended, and requests the
//! blocks that were lost with them.
//!
//! The sender lists the blocks that a broken stream carried. The receiver compares them with the blocks it has only
//! when no thread works on that stream any more. So blocks still in flight are not requested again, and lost blocks
//! always are. The control thread owns this state.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::{FileBlocks, ReceiverMessage, split_into_messages};

use super::assemble::Assembler;
use super::report::Reporter;
use super::stream_reports::{ProgressReports, broken_stream};
use super::timeouts::ReceiverTimeouts;
use crate::stream_set::StreamSet;
use crate::stream_state::{ClosedStream, MAX_RANGES_PER_MESSAGE};
use crate::{SenderViolation, TransferError};

/// Maximum number of broken streams with threads that have not ended yet.
const MAX_WAITING_STREAMS: usize = 1024;

/// Maximum number of ranges of blocks in all lists of lost blocks. Each file counts as one more.
const MAX_LOST_RANGES: usize = 1 << 19;

/// Streams that have ended, with the work left for each.
#[derive(Debug)]
pub(super) struct StreamRecovery {
    streams: Arc<StreamSet>,
    assembler: Arc<Assembler>,
    timeouts: ReceiverTimeouts,
    lost: Vec<LostStream>,
    /// The time since when no stream has existed, after there was at least one.
    without_streams_since: Option<Instant>,
    /// Streams that ended without an error on this side.
    ended_in_order: HashSet<u16>,
    progress: ProgressReports,
}

/// A stream that the sender reported as lost.
#[derive(Debug)]
struct LostStream {
    number: u16,
    blocks: Vec<FileBlocks>,
    /// More messages about the stream follow.
    has_more: bool,
}

impl StreamRecovery {
    pub(super) fn new(streams: Arc<StreamSet>, assembler: Arc<Assembler>, timeouts: ReceiverTimeouts) -> Self {
        StreamRecovery {
            streams,
            assembler,
            timeouts,
            lost: Vec::new(),
            without_streams_since: None,
            ended_in_order: HashSet::new(),
            progress: ProgressReports::default(),
        }
    }

    /// Returns the messages about progress and ended streams, and the requests of lost blocks. Fails the copy if the
    /// sender has opened no stream for too long while blocks are missing.
    pub(super) fn poll(&mut self, reporter: &Reporter, now: Instant) -> Vec<ReceiverMessage> {
        let mut messages = Vec::new();
        for ClosedStream { stream: state, error } in self.streams.take_closed() {
            self.without_streams_since = Some(now);
            if !reporter.is_finished() {
                messages.push(broken_stream(&state, error.as_ref()));
            }
            match error {
                Some(error) => self.streams.record_failure(error),
                None => {
                    self.ended_in_order.insert(state.number());
                }
            }
        }
        let streams = self.streams.clone();
        let ended = self.lost.extract_if(.., |lost| !lost.has_more && streams.get(lost.number).is_none());
        let lost: Vec<FileBlocks> = ended.flat_map(|lost| lost.blocks).collect();
        messages.extend(self.request_missing(lost));
        messages.extend(self.progress.poll(&self.streams, now));
        if self.is_abandoned(reporter, now) {
            self.streams.fail(TransferError::Incomplete);
        }
        messages
    }

    /// Handles the sender's report that a stream is lost, with the blocks that it carried.
    ///
    /// # Errors
    /// [`TransferError::SenderViolation`] if the lists are longer than a sender can need.
    pub(super) fn on_stream_lost(
        &mut self,
        number: u16,
        blocks: Vec<FileBlocks>,
        has_more: bool,
    ) -> Result<(), TransferError> {
        self.streams.reject_stream(number);
        if self.ended_in_order.remove(&number) {
            let source = io::ErrorKind::UnexpectedEof.into();
            self.streams.record_failure(TransferError::Stream { stream: number, source });
        }
        let ranges = self.lost.iter().map(|lost| count_ranges(&lost.blocks)).sum::<usize>() + count_ranges(&blocks);
        if ranges > MAX_LOST_RANGES || self.lost.len() >= MAX_WAITING_STREAMS {
            return Err(TransferError::SenderViolation(SenderViolation::TooManyLostBlocks));
        }
        match self.lost.iter_mut().find(|lost| lost.number == number && lost.has_more) {
            Some(lost) => {
                lost.blocks.extend(blocks);
                lost.has_more = has_more;
            }
            None => self.lost.push(LostStream { number, blocks, has_more }),
        }
        Ok(())
    }

    /// Requests those of the blocks that are missing here. A block is requested once, however often it was reported, so
    /// the memory is that of the gaps in all files.
    fn request_missing(&self, lost: Vec<FileBlocks>) -> Vec<ReceiverMessage> {
        let mut files: BTreeMap<u32, BlockSet> = BTreeMap::new();
        for FileBlocks { file, blocks } in lost {
            let all = files.entry(file).or_default();
            blocks.ranges().for_each(|(first, last)| all.insert_range(first, last));
        }
        let mut missing = Vec::new();
        for (file, blocks) in files {
            match self.assembler.missing_blocks(file, &blocks) {
                Ok(blocks) if blocks.is_empty() => {}
                Ok(blocks) => missing.push(FileBlocks { file, blocks }),
                Err(error) => {
                    self.streams.fail(error);
                    return Vec::new();
                }
            }
        }
        let messages = split_into_messages(missing, MAX_RANGES_PER_MESSAGE);
        messages.into_iter().map(|blocks| ReceiverMessage::Missing { blocks }).collect()
    }

    /// Returns whether blocks are missing and no stream has existed for too long.
    fn is_abandoned(&mut self, reporter: &Reporter, now: Instant) -> bool {
        let Some(since) = self.without_streams_since else { return false };
        let has_streams = !self.streams.active().is_empty();
        if has_streams || !reporter.is_list_complete() || !self.assembler.is_waiting_for_blocks() {
            self.without_streams_since = Some(now);
            return false;
        }
        let timeout =
            if self.streams.failed_streams() == 0 { self.timeouts.closed_streams } else { self.timeouts.broken_stream };
        now.saturating_duration_since(since) > timeout
    }
}

fn count_ranges(parts: &[FileBlocks]) -> usize {
    parts.iter().map(|part| 1 + part.blocks.ranges().count()).sum()
}
