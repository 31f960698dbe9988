//! The streams of one rank, as a receiver with several senders has them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::{FileBlocks, ReceiverMessage};

use super::Receiver;
use super::rank_list::RankList;
use super::receive::BlockReceiver;
use super::recovery::StreamRecovery;
use super::timeouts::ReceiverTimeouts;
use crate::TransferError;
use crate::role::StreamWorker;
use crate::stream_set::StreamSet;

/// The data streams of one rank. Their blocks go into the files of the receiver.
#[derive(Debug)]
pub(crate) struct SenderLink {
    recovery: StreamRecovery,
    blocks: BlockReceiver,
}

impl Receiver {
    /// Creates the link of a rank with these streams, and this list.
    pub(crate) fn link(&self, streams: Arc<StreamSet>, list: Arc<RankList>) -> SenderLink {
        let blocks = BlockReceiver {
            streams: streams.clone(),
            list: Some(list),
            read_blocks: Arc::default(),
            ..self.blocks.clone()
        };
        SenderLink {
            recovery: StreamRecovery::new(streams, self.assembler.clone(), ReceiverTimeouts::default()),
            blocks,
        }
    }

    /// Returns the messages of the link to its rank. Entry numbers are those of the common list.
    pub(crate) fn poll_link(&self, link: &mut SenderLink, now: Instant) -> Vec<ReceiverMessage> {
        link.recovery.poll(&self.reporter, now)
    }

    /// Returns those of `blocks` that have not arrived and are not arriving now.
    pub(crate) fn missing_blocks(&self, file: u32, blocks: &BlockSet) -> Result<BlockSet, TransferError> {
        self.assembler.missing_blocks(file, blocks)
    }

    /// Returns whether a copy of one file gives the file the name of the destination. Known once the destination is open.
    pub(crate) fn takes_single_name(&self) -> bool {
        self.assembler.takes_single_name()
    }

    /// Returns whether the list has room for an entry of this weight now.
    pub(crate) fn has_room(&mut self, weight: usize) -> bool {
        self.reporter.has_room(weight)
    }
}

impl SenderLink {
    /// Returns the work of the threads of the rank's streams.
    pub(crate) fn stream_worker(&self) -> StreamWorker {
        let blocks = self.blocks.clone();
        Arc::new(move |stream| blocks.run(stream))
    }

    /// Returns the number of blocks that the rank's streams have read.
    pub(crate) fn received_blocks(&self) -> u64 {
        self.blocks.read_blocks.load(Ordering::Relaxed)
    }

    /// Handles the rank's report that a stream is lost. Entry numbers are those of the common list.
    pub(crate) fn on_stream_lost(
        &mut self,
        stream: u16,
        blocks: Vec<FileBlocks>,
        has_more: bool,
    ) -> Result<(), TransferError> {
        self.recovery.on_stream_lost(stream, blocks, has_more)
    }
}
