//! One rank in its group: the seat that its session has, and the state that the group keeps.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_session::SessionId;
use lfn_session::wire::copy::blockset::BlockSet;
use lfn_session::wire::copy::ranks::{RankState, RankStatus};
use lfn_session::wire::copy::{FileBlocks, ReceiverMessage};

use super::event::Applicant;
use super::mailbox::Mailbox;
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
    pub(super) seat: u64,
    pub(super) copy: SessionId,
    /// Place of the first byte of the rank's piece.
    pub(super) offset: Option<u64>,
    pub(super) link: SenderLink,
    pub(super) streams: Arc<StreamSet>,
    pub(super) numbers: Arc<RankList>,
    /// Numbers in the rank's list of unsettled entries, by their numbers in the common list.
    pub(super) own_numbers: HashMap<u32, u32>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Number of entries that the rank has listed.
    pub(super) listed: u32,
    /// Hash of the list so far.
    pub(super) list_hash: blake3::Hasher,
    /// Total number of assigned blocks.
    pub(super) assigned: u64,
    pub(super) last_heard: Instant,
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
        seat: u64,
        applicant: &Applicant,
        link: SenderLink,
        numbers: Arc<RankList>,
        now: Instant,
    ) -> Self {
        Member {
            seat,
            copy: applicant.copy,
            offset: applicant.request.offset.map(|offset| offset.0),
            link,
            streams: applicant.streams.clone(),
            numbers,
            own_numbers: HashMap::new(),
            mailbox: Arc::default(),
            listed: 0,
            list_hash: blake3::Hasher::new(),
            assigned: 0,
            last_heard: now,
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

/// The place of a rank, whether it is connected or not.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) member: Option<Member>,
    /// Since when the rank is absent. Ignored while it is connected.
    pub(super) absent_since: Instant,
    address: Option<IpAddr>,
    sessions: u32,
    bytes_before: u64,
    /// The list of the rank, once it was complete.
    pub(super) list: Option<ListSummary>,
    /// The others do without the list of this rank.
    pub(super) is_waived: bool,
    /// The rank knows the end of the copy.
    pub(super) is_done: bool,
    last_bytes: u64,
}

/// Length and hash of a complete list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListSummary {
    pub(super) entries: u32,
    pub(super) hash: [u8; 32],
}

impl Place {
    pub(super) fn new(now: Instant) -> Self {
        Place {
            member: None,
            absent_since: now,
            address: None,
            sessions: 0,
            bytes_before: 0,
            list: None,
            is_waived: false,
            is_done: false,
            last_bytes: 0,
        }
    }

    pub(super) fn sit(&mut self, member: Member, address: IpAddr) {
        self.leave(Instant::now());
        self.member = Some(member);
        self.address = Some(address);
        self.sessions += 1;
    }

    /// Removes the member, if there is one.
    pub(super) fn leave(&mut self, now: Instant) -> Option<Member> {
        let member = self.member.take()?;
        self.bytes_before += member.streams.progress().bytes.0;
        self.absent_since = now;
        Some(member)
    }

    pub(super) fn was_there(&self) -> bool {
        self.sessions > 0
    }

    pub(super) fn address(&self) -> Option<String> {
        self.address.map(|address| address.to_canonical().to_string())
    }

    /// Returns the figures of the rank, `interval` after the last call.
    pub(super) fn status(&mut self, rank: u16, interval: Duration) -> RankStatus {
        let now = self.member.as_ref().map_or(0, |member| member.streams.progress().bytes.0);
        let bytes = self.bytes_before + now;
        let moved = bytes - std::mem::replace(&mut self.last_bytes, bytes);
        self.status_with(rank, bytes, Bytes(moved).per(interval))
    }

    /// Returns the figures of the rank at the end of a copy that took `time`.
    pub(super) fn final_status(&self, rank: u16, time: Duration) -> RankStatus {
        let now = self.member.as_ref().map_or(0, |member| member.streams.progress().bytes.0);
        let bytes = self.bytes_before + now;
        self.status_with(rank, bytes, Bytes(bytes).per(time))
    }

    fn status_with(&self, rank: u16, bytes: u64, goodput: BitRate) -> RankStatus {
        RankStatus {
            rank,
            state: match (&self.member, self.sessions) {
                (Some(_), _) => RankState::Connected,
                (None, 0) => RankState::Absent,
                (None, _) => RankState::Lost,
            },
            address: self.address(),
            bytes: Bytes(bytes),
            streams: self.member.as_ref().map_or(0, |member| u16::try_from(member.streams.len()).unwrap_or(u16::MAX)),
            reconnects: self.sessions.saturating_sub(1),
            goodput,
        }
    }
}
