//! Server of a copy that several ranks send or receive: joins their sessions into one copy.
//!
//! ```text
//! upload
//! session of rank 0 ── list, lost streams ──▶┐                       ┌──▶ receiver: plan, files, the one journal
//! session of rank 1 ── list, lost streams ──▶├─ group: common list, ─┤
//! session of rank n ── list, lost streams ──▶┘  assignment of blocks └──◀ settled entries, damaged blocks, the end
//!      │  ▲
//!      │  └── assigned blocks, settled entries, figures of all ranks
//!      └──── blocks, on the data streams of the rank ──▶ files of the receiver
//!
//! download
//! session of the lead ◀── list, opened files, stored blocks ──▶┐
//! session of rank 1 ◀── opened files ──▶ stored blocks ────────├─ group ── sender: list, schedule
//! session of rank n ◀── opened files ──▶ stored blocks ────────┘
//!      ▲
//!      └──── blocks, on the data streams of each rank ◀── schedule of the sender
//! ```
//!
//! One thread owns a group: the [`upload`] group has the receiver, the common list and the assignment; the [`download`]
//! group has the sender. The thread of each session exchanges messages with its rank ([`session`]) and owns nothing else.
//! The receiver and the sender are those of every copy ([`crate::receiver`], [`crate::sender`]).
//!
//! [`RankGroups`] finds the group of a session. A group ends when its copy is complete, when it cannot become complete,
//! or when all its ranks are gone. The next ranks then resume from the journal.

mod download;
mod error;
mod event;
mod mailbox;
mod place;
mod registry;
mod session;
mod settings;
mod upload;

use std::time::Duration;

use lfn_session::wire::Refusal;
use lfn_session::wire::copy::ranks::RankRequest;

pub(crate) use self::download::DownloadSources;
use self::error::RankError;
pub use self::registry::RankGroups;
pub(crate) use self::session::{serve_receiving_rank, serve_sending_rank};
use crate::TransferError;

/// Interval of the periodic work of a group.
const TICK: Duration = Duration::from_millis(4);

/// Maximum number of events that are handled before the periodic work.
const EVENTS_PER_TURN: usize = 256;

/// Interval of the figures of all ranks, for rank 0.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of the figures of all ranks, for the others.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// Time without any rank after which a group ends. The next ranks resume from the journal.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time after the end of a copy in which a rank without the name of a job is taken for a rank of this copy.
const LATE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum wait for the threads of a lost rank's streams.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the time for which a group waits after its end for ranks that have not seen the end.
fn late_timeout(request: &RankRequest) -> Duration {
    if request.job.is_some() { request.patience } else { request.patience.min(LATE_TIMEOUT) }
}

/// Reason why a group ends before its copy is complete.
#[derive(Debug)]
enum GroupError {
    Ranks(RankError),
    Transfer(TransferError),
}

impl GroupError {
    fn refusal(self) -> Refusal {
        match self {
            GroupError::Ranks(error) => error.into(),
            GroupError::Transfer(error) => Refusal::from(&error),
        }
    }
}

impl From<RankError> for GroupError {
    fn from(error: RankError) -> Self {
        GroupError::Ranks(error)
    }
}

impl From<TransferError> for GroupError {
    fn from(error: TransferError) -> Self {
        GroupError::Transfer(error)
    }
}
