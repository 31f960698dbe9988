//! Events of a group: sessions that ask for a seat, and messages of their ranks.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use lfn_base::units::Bytes;
use lfn_session::SessionId;
use lfn_session::wire::Refusal;
use lfn_session::wire::copy::CopyJob;
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::ranks::RankRequest;

use super::mailbox::Mailbox;
use crate::role::StreamWorker;
use crate::stream_set::StreamSet;

/// An event of a rank, for its group. The rank sends messages `I` and receives messages `O`.
#[derive(Debug)]
pub(super) enum Event<I, O> {
    Join(Box<Applicant<O>>),
    Message { rank: u16, seat: u64, message: Box<I> },
    Left { rank: u16, seat: u64 },
}

/// A session that asks for a seat.
#[derive(Debug)]
pub(super) struct Applicant<O> {
    pub(super) request: RankRequest,
    /// Identifies the client process across sessions.
    pub(super) copy: SessionId,
    pub(super) block: Bytes,
    pub(super) options: CommonOptions,
    pub(super) address: IpAddr,
    pub(super) streams: Arc<StreamSet>,
    pub(super) answer: SyncSender<Result<Seat<O>, Refusal>>,
}

/// Options that must be the same for all ranks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CommonOptions {
    pub(super) transfer: TransferOptions,
    pub(super) job: CopyJob,
}

/// The place of a session in its group.
pub(super) struct Seat<O> {
    /// Differs from the seats of earlier sessions of the rank.
    pub(super) number: u64,
    pub(super) mailbox: Arc<Mailbox<O>>,
    pub(super) worker: StreamWorker,
}

impl<O> std::fmt::Debug for Seat<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("number", &self.number).finish_non_exhaustive()
    }
}
