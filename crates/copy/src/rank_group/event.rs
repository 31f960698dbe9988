//! Events of a group: sessions that ask for a seat, and messages of their ranks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use lfn_base::units::Bytes;
use lfn_session::SessionId;
use lfn_session::wire::Refusal;
use lfn_session::wire::copy::SenderMessage;
use lfn_session::wire::copy::ranks::RankRequest;

use super::mailbox::Mailbox;
use super::settings::CommonOptions;
use crate::role::StreamWorker;
use crate::stream_set::StreamSet;

/// An event of a rank, for its group.
#[derive(Debug)]
pub(super) enum Event {
    Join(Box<Applicant>),
    Message { rank: u16, seat: u64, message: Box<SenderMessage> },
    Left { rank: u16, seat: u64 },
}

/// A session that asks for a seat.
#[derive(Debug)]
pub(super) struct Applicant {
    pub(super) request: RankRequest,
    /// Identifies the client process across sessions.
    pub(super) copy: SessionId,
    pub(super) block: Bytes,
    pub(super) options: CommonOptions,
    pub(super) address: IpAddr,
    pub(super) streams: Arc<StreamSet>,
    pub(super) answer: SyncSender<Result<Seat, Refusal>>,
}

/// The place of a session in its group.
pub(super) struct Seat {
    /// Differs from the seats of earlier sessions of the rank.
    pub(super) number: u64,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) worker: StreamWorker,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("number", &self.number).finish_non_exhaustive()
    }
}
