//! The state that all threads of a sender share.

use std::collections::VecDeque;
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::preserve::SkippedEntries;
use lfn_session::wire::copy::{
    CopyEnd, CopyTally, EntryFailure, FileBlocks, MAX_FAILURES, ReceiverMessage, SenderMessage,
};

use super::hard_links::LinkedFiles;
use super::listing::Listing;
use super::source_file::ListedFile;
use crate::TransferError;
use crate::proto::schedule::BlockScheduler;
use crate::rank_board::RankBoard;

/// Totals of the entries that are listed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SourceTotals {
    pub(crate) entries: u32,
    /// Total length of all files.
    pub(crate) bytes: Bytes,
    pub(crate) skipped: SkippedEntries,
    pub(crate) is_complete: bool,
}

/// The list, the schedule and the messages of a sender. All its threads share this state under one lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) scheduler: BlockScheduler<Arc<ListedFile>>,
    /// Messages to the receiver, in order.
    pub(super) outbox: VecDeque<SenderMessage>,
    /// Maximum JSON length of the entries in the last message, if the last message is a list.
    pub(super) listed_bytes: usize,
    pub(super) totals: SourceTotals,
    /// Hard-linked files, if hard links are preserved.
    pub(super) linked_files: LinkedFiles,
    /// The first failures of both sides.
    pub(super) failures: Vec<EntryFailure>,
    /// Digest of entry 0, if entry 0 is a file.
    pub(super) digest: Option<Digest>,
    pub(super) reports_skipped: bool,
    /// Number of streams that are sending blocks now.
    pub(super) busy_streams: usize,
    pub(super) is_hashing: bool,
    pub(super) destination_path: Option<String>,
    /// Start of the copy by the clock of the receiver.
    pub(super) started_at: Option<Modified>,
    pub(super) final_tally: Option<CopyTally>,
    pub(super) rank_board: Option<RankBoard>,
}

impl State {
    /// Creates the state before the first entry is listed.
    pub(super) fn new(block_size: Bytes, listing: &Listing) -> Self {
        let mut scheduler = BlockScheduler::new(block_size);
        scheduler.set_wait_for_requests(listing.wait_for_ready);
        if listing.rank_board.is_some() {
            scheduler.wait_for_assignment();
        }
        State {
            scheduler,
            // A client starts to send after the receiver's first message. On one host, this side waits for the receiver
            // too.
            outbox: listing.same_host.then(|| SenderMessage::Alive(Box::default())).into_iter().collect(),
            listed_bytes: 0,
            totals: SourceTotals::default(),
            linked_files: LinkedFiles::new(listing.preserve.hard_links),
            failures: Vec::new(),
            digest: None,
            reports_skipped: listing.delete,
            busy_streams: 0,
            is_hashing: false,
            destination_path: None,
            started_at: None,
            final_tally: None,
            rank_board: listing.rank_board.clone(),
        }
    }

    /// Handles a message of the receiver.
    pub(super) fn apply(&mut self, message: ReceiverMessage) -> Result<(), TransferError> {
        match message {
            ReceiverMessage::Ready { path, on_request, started_at, .. } => {
                self.destination_path = path;
                self.started_at = started_at;
                self.scheduler.set_wait_for_requests(on_request);
            }
            ReceiverMessage::Request { up_to } => self.scheduler.request_up_to(up_to)?,
            ReceiverMessage::Have { file, blocks } => self.scheduler.skip_blocks(file, &blocks)?,
            ReceiverMessage::Resend { file, index } => self.scheduler.resend(file, index, index)?,
            ReceiverMessage::Settled { files } => self.scheduler.settle(&files)?,
            ReceiverMessage::Digests { files } => self.scheduler.digests_first(&files)?,
            ReceiverMessage::Send { files } => self.scheduler.send_files(&files)?,
            ReceiverMessage::Ranks { figures, digest } => {
                self.digest = digest;
                if let Some(board) = &self.rank_board {
                    board.set(figures);
                }
            }
            ReceiverMessage::Assign { files, blocks } => {
                self.scheduler.assign_files(&files)?;
                for FileBlocks { file, blocks } in &blocks {
                    self.scheduler.assign(*file, blocks)?;
                }
            }
            ReceiverMessage::Failed(failure) => {
                if let Some(file) = failure.file {
                    self.linked_files.remove(file);
                    self.scheduler.fail(file)?;
                }
                self.remember_failure(EntryFailure { end: CopyEnd::Receiver, ..failure });
            }
            ReceiverMessage::Missing { blocks } => self.resend_all(&blocks)?,
            ReceiverMessage::Received { .. }
            | ReceiverMessage::Broken { .. }
            | ReceiverMessage::Alive(_)
            | ReceiverMessage::Events { .. }
            // Messages of ranks, which the group handles.
            | ReceiverMessage::Opened { .. }
            | ReceiverMessage::Stored { .. } => {}
            ReceiverMessage::Done { tally, .. } => {
                self.scheduler.finish()?;
                self.final_tally = Some(tally);
            }
        }
        Ok(())
    }

    fn resend_all(&mut self, parts: &[FileBlocks]) -> Result<(), TransferError> {
        for part in parts {
            for (first, last) in part.blocks.ranges() {
                self.scheduler.resend(part.file, first, last)?;
            }
        }
        Ok(())
    }

    /// Reports that an entry of this side cannot be sent.
    pub(super) fn fail(&mut self, failure: EntryFailure) {
        self.remember_failure(failure.clone());
        self.outbox.push_back(SenderMessage::Failed(failure));
    }

    /// Reports that a file changed while it was sent.
    pub(super) fn fail_changed(&mut self, failure: EntryFailure) {
        self.remember_failure(failure.clone());
        self.outbox.push_back(SenderMessage::Changed(failure));
    }

    fn remember_failure(&mut self, failure: EntryFailure) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }
}
