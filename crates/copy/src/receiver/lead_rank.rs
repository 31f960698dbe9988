//! The lead of several ranks that receive: opens files for the others, and records the blocks that they have stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as ChannelReceiver, sync_channel};
use std::time::Duration;

use lfn_session::SessionId;
use lfn_session::dial::new_session_id;
use lfn_session::wire::copy::ranks::RankFigures;
use lfn_session::wire::copy::{ReceiverMessage, SharedFileId, StoredBlock};
use parking_lot::{Condvar, Mutex};

use super::assemble::Assembler;
use super::inbox::POLL_INTERVAL;
use super::report::Reports;
use crate::rank_board::RankBoard;
use crate::storage::Storage;
use crate::stream_set::StreamSet;
use crate::threads::spawn;
use crate::{SenderViolation, TransferError};

/// Maximum number of stored blocks and files to open that wait for the thread of the lead, each in 48 bytes.
const MAX_WAITING: usize = 1 << 18;

/// Maximum wait for the thread at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The part of a receiver that serves the other ranks. Its thread opens files and writes the journal.
#[derive(Debug)]
pub(super) struct LeadRank {
    desk: Arc<Desk>,
    /// Disconnected when the thread has ended.
    ended: ChannelReceiver<()>,
    board: RankBoard,
    /// The server has reported the final figures of all ranks.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct DeskState {
    jobs: VecDeque<Job>,
    waiting: usize,
    is_closed: bool,
}

/// The destination with the marker by which the other ranks recognise it.
#[derive(Debug)]
struct MarkedStorage {
    storage: Arc<dyn Storage>,
    marker: String,
}

impl MarkedStorage {
    /// Creates a random marker.
    fn create(storage: &Arc<dyn Storage>) -> Result<Self, TransferError> {
        let SessionId(random) = new_session_id()?;
        let marker = random.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        storage.create_marker(&marker)?;
        Ok(MarkedStorage { storage: storage.clone(), marker })
    }
}

#[derive(Debug)]
enum Job {
    Open(u32),
    Store(u32, Vec<StoredBlock>),
}

impl Job {
    fn weight(&self) -> usize {
        match self {
            Job::Open(_) => 1,
            Job::Store(_, blocks) => blocks.len(),
        }
    }
}

impl LeadRank {
    pub(super) fn start(
        board: RankBoard,
        assembler: Arc<Assembler>,
        reports: Reports,
        streams: Arc<StreamSet>,
    ) -> Result<Self, TransferError> {
        let desk = Arc::<Desk>::default();
        let inbox = desk.clone();
        let (running, ended) = sync_channel::<()>(0);
        spawn("lead", move || {
            let mut marked = None;
            while let Some(job) = inbox.next() {
                if let Err(error) = run(job, &assembler, &reports, &streams, &mut marked) {
                    streams.fail(error);
                }
            }
            if let Some(MarkedStorage { storage, marker }) = marked {
                storage.remove_marker(&marker);
            }
            drop(running);
        })?;
        Ok(LeadRank { desk, ended, board, is_over: false })
    }

    /// Opens a file for the other ranks.
    pub(super) fn open(&self, file: u32) -> Result<(), TransferError> {
        self.desk.add(Job::Open(file))
    }

    /// Records blocks that other ranks have stored.
    pub(super) fn store(&self, file: u32, blocks: Vec<StoredBlock>) -> Result<(), TransferError> {
        self.desk.add(Job::Store(file, blocks))
    }

    /// Shows the figures of all ranks.
    pub(super) fn set_figures(&mut self, figures: RankFigures, is_final: bool) {
        self.board.set(figures);
        self.is_over |= is_final;
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl Drop for LeadRank {
    fn drop(&mut self) {
        self.desk.state.lock().is_closed = true;
        self.desk.changed.notify_all();
        // The thread removes the marker, unless its disk does not answer.
        let _ = self.ended.recv_timeout(CLOSE_TIMEOUT);
    }
}

impl Desk {
    fn add(&self, job: Job) -> Result<(), TransferError> {
        let mut state = self.state.lock();
        state.waiting += job.weight();
        if state.waiting > MAX_WAITING {
            return Err(TransferError::SenderViolation(SenderViolation::TooManyStoredBlocks));
        }
        state.jobs.push_back(job);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the next job. Returns `None` when the receiver is gone.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.waiting -= job.weight();
                return Some(job);
            }
            self.changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }
}

fn run(
    job: Job,
    assembler: &Assembler,
    reports: &Reports,
    streams: &StreamSet,
    marked: &mut Option<MarkedStorage>,
) -> Result<(), TransferError> {
    match job {
        Job::Open(file) => {
            // The server requests only files that the planner has decided about.
            let Some(needed) = assembler.wait_for_file(file, || streams.is_stopped())? else { return Ok(()) };
            if needed.layout.blocks() < 2 {
                return Err(TransferError::SenderViolation(SenderViolation::UnexpectedRankMessage));
            }
            if let Some(partial) = assembler.open_for_ranks(&needed) {
                if marked.is_none() {
                    *marked = Some(MarkedStorage::create(&needed.target.storage)?);
                }
                let inode = partial.id().map(|(_, inode)| inode);
                let marker = marked.as_ref().map(|marked| marked.marker.clone());
                reports.message(ReceiverMessage::Opened { file, identity: SharedFileId { inode, marker } });
            }
        }
        Job::Store(file, blocks) => {
            let Some(needed) = assembler.needed_file(file) else { return Ok(()) };
            for StoredBlock { index, hash } in blocks {
                if let Some(block) = needed.claim_stored(index)? {
                    assembler.accept_stored(&needed, block, hash)?;
                    streams.add_arrived_blocks(1);
                }
            }
        }
    }
    Ok(())
}
