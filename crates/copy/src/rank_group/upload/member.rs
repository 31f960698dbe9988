//! One connected rank of an upload.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::{FileBlocks, ReceiverMessage};

use crate::rank_group::event::Applicant;
use crate::rank_group::mailbox::Mailbox;
use crate::receiver::{RankList, SenderLink};
use crate::stream_set::StreamSet;

/// Maximum number of blocks that a rank has and that have not arrived.
pub(super) const MAX_OUTSTANDING: u64 = 8192;

/// Minimum of the same: one write for each of some streams.
const MIN_OUTSTANDING: u64 = 16;

/// Interval of the measurement of a rank's rate.
const RATE_INTERVAL: Duration = Duration::from_millis(250);

/// A rank while it is connected.
#[derive(Debug)]
pub(super) struct Member {
    /// Place of the first byte of the rank's piece.
    pub(super) offset: Option<u64>,
    pub(super) link: SenderLink,
    pub(super) streams: Arc<StreamSet>,
    pub(super) numbers: Arc<RankList>,
    /// Numbers in the rank's list of unsettled entries, by their numbers in the common list.
    pub(super) own_numbers: HashMap<u32, u32>,
    pub(super) mailbox: Arc<Mailbox<ReceiverMessage>>,
    /// Number of entries that the rank has listed.
    pub(super) listed: u32,
    /// Hash of the list so far.
    pub(super) list_hash: blake3::Hasher,
    /// Total number of assigned blocks.
    pub(super) assigned: u64,
    rate: RateWindow,
}

/// Blocks that arrived in the last interval.
#[derive(Debug)]
struct RateWindow {
    since: Instant,
    blocks: u64,
    recent: u64,
}

impl Member {
    pub(super) fn new(
        applicant: &Applicant<ReceiverMessage>,
        link: SenderLink,
        numbers: Arc<RankList>,
        now: Instant,
    ) -> Self {
        Member {
            offset: applicant.request.offset.map(|offset| offset.0),
            link,
            streams: applicant.streams.clone(),
            numbers,
            own_numbers: HashMap::new(),
            mailbox: Arc::default(),
            listed: 0,
            list_hash: blake3::Hasher::new(),
            assigned: 0,
            rate: RateWindow { since: now, blocks: 0, recent: 0 },
        }
    }

    /// Returns how many more blocks the rank should get now: what it sends in about a second.
    pub(super) fn room(&mut self, now: Instant) -> u64 {
        let arrived = self.link.received_blocks();
        if now.saturating_duration_since(self.rate.since) >= RATE_INTERVAL {
            self.rate = RateWindow { since: now, blocks: arrived, recent: arrived - self.rate.blocks };
        }
        let outstanding = self.assigned.saturating_sub(arrived);
        self.mailbox.set_has_work(outstanding > 0);
        let streams = self.streams.len() as u64;
        let wanted = (4 * self.rate.recent).max(4 * streams).clamp(MIN_OUTSTANDING, MAX_OUTSTANDING);
        wanted.saturating_sub(outstanding)
    }

    /// Returns the entries with the rank's own numbers. Entries that the rank has not listed are skipped.
    pub(super) fn own_set(&self, entries: &BlockSet) -> BlockSet {
        let mut own = BlockSet::default();
        for (first, last) in entries.ranges() {
            for number in first..=last {
                // Entry numbers are u32.
                if let Some(number) = self.own_numbers.get(&(number as u32)) {
                    own.insert(u64::from(*number));
                }
            }
        }
        own
    }

    /// Returns the blocks with the rank's own entry numbers.
    pub(super) fn own_blocks(&self, parts: Vec<FileBlocks>) -> Vec<FileBlocks> {
        let own = |FileBlocks { file, blocks }| Some(FileBlocks { file: *self.own_numbers.get(&file)?, blocks });
        parts.into_iter().filter_map(own).collect()
    }

    /// Sends a message of the link, with the rank's own entry numbers.
    pub(super) fn send_own(&self, message: ReceiverMessage) {
        let message = match message {
            ReceiverMessage::Missing { blocks } => ReceiverMessage::Missing { blocks: self.own_blocks(blocks) },
            other => other,
        };
        self.mailbox.send(message);
    }
}

impl AsRef<StreamSet> for Member {
    fn as_ref(&self) -> &StreamSet {
        &self.streams
    }
}
