//! A receiving rank that is not the lead: writes blocks into the files that the lead has opened.
//!
//! The streams verify and write blocks ([`BlockWriter`]). One thread syncs the written files, because the lead, on another
//! host, must find each reported block. Only then a block is reported as stored. The lead plans, resumes and publishes the
//! files.

mod block_writer;
mod shared_files;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::options::{FsyncPolicy, TransferOptions};
use lfn_session::wire::copy::preserve::SkippedEntries;
use lfn_session::wire::copy::requested_entries::RequestedEntries;
use lfn_session::wire::copy::{ReceiverMessage, SenderMessage};

use self::block_writer::BlockWriter;
use self::shared_files::SharedFiles;
use super::start::Destination;
use super::stream_reports::{ProgressReports, broken_stream};
use crate::rank_board::RankBoard;
use crate::role::{CopyResult, ListedTotals, Role, StreamWorker};
use crate::stream_set::StreamSet;
use crate::threads::spawn;
use crate::{SenderViolation, TransferError};

/// Maximum wait for the threads of the streams at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A receiving rank that is not the lead.
#[derive(Debug)]
pub(crate) struct RankWriter {
    writer: Arc<BlockWriter>,
    board: RankBoard,
    progress: ProgressReports,
    result: Option<CopyResult>,
}

impl RankWriter {
    /// Starts the thread that syncs files. Nothing is opened before the lead has opened a file.
    pub(crate) fn start(
        destination: Destination,
        requested: RequestedEntries,
        transfer: &TransferOptions,
        block_size: Bytes,
        board: RankBoard,
        streams: StreamSet,
    ) -> Result<Self, TransferError> {
        let files = SharedFiles::new(destination, requested, block_size);
        let syncs = transfer.fsync != FsyncPolicy::None;
        let writer = Arc::new(BlockWriter::new(files, streams, transfer.verify, block_size));
        let syncer = writer.clone();
        spawn("sync", move || syncer.sync_until_closed(syncs))?;
        Ok(RankWriter { writer, board, progress: ProgressReports::default(), result: None })
    }

    /// Ends the work. Waits for a limited time until no thread writes any more.
    pub(crate) fn close(&mut self) {
        self.writer.streams.shut_down();
        self.writer.close();
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.writer.streams.len() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Role for RankWriter {
    type Outgoing = ReceiverMessage;
    type Incoming = SenderMessage;

    /// A small file goes to the lead, so this rank may wait for long.
    const MAX_IDLE_TIME: Duration = Duration::MAX;

    fn streams(&self) -> &StreamSet {
        &self.writer.streams
    }

    fn listed(&self) -> ListedTotals {
        self.board.figures().map(|figures| figures.totals).unwrap_or_default()
    }

    fn take_messages(&mut self, now: Instant) -> Vec<ReceiverMessage> {
        self.writer.tick(now);
        let streams = &self.writer.streams;
        let mut messages = self.writer.take_messages();
        for closed in streams.take_closed() {
            if self.result.is_none() {
                messages.push(broken_stream(&closed.stream, closed.error.as_ref()));
            }
            if let Some(error) = closed.error {
                streams.record_failure(error);
            }
        }
        messages.extend(self.progress.poll(streams, now));
        messages
    }

    fn on_message(&mut self, message: SenderMessage, _now: Instant) -> Result<(), TransferError> {
        match message {
            SenderMessage::Opened { file, name, bytes, identity } => self.writer.files.add(file, name, bytes, identity),
            SenderMessage::Closed { files } => {
                self.writer.files.close(&files);
                Ok(())
            }
            SenderMessage::Ranks { figures, digest, tally } => {
                let bytes = figures.totals.bytes;
                self.board.set(figures);
                self.result = tally.map(|tally| CopyResult {
                    tally,
                    digest,
                    path: None,
                    bytes,
                    failures: Vec::new(),
                    skipped: SkippedEntries::default(),
                });
                Ok(())
            }
            SenderMessage::Alive(_) => Ok(()),
            _ => Err(TransferError::SenderViolation(SenderViolation::UnexpectedRankMessage)),
        }
    }

    fn stream_worker(&self) -> StreamWorker {
        let writer = self.writer.clone();
        Arc::new(move |stream| writer.run(stream))
    }

    fn needs_streams(&self) -> bool {
        self.result.is_none()
    }

    fn should_be_moving(&mut self) -> bool {
        false
    }

    fn result(&self) -> Option<CopyResult> {
        self.result.clone()
    }
}
