//! One side of a copy as seen by [`super::control_loop`]: its outgoing messages, its reaction to incoming messages, and
//! its result. The loop knows no other difference between sender and receiver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::DataStream;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::preserve::SkippedEntries;
pub use lfn_session::wire::copy::progress::ListedTotals;
use lfn_session::wire::copy::{CopyTally, EntryFailure, Progress, ReceiverMessage, SenderMessage};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TransferError;
use super::stream_set::StreamSet;

/// The work on one data stream, on the caller's thread, until nothing is left to do.
pub(crate) type StreamWorker = Arc<dyn Fn(DataStream) + Send + Sync>;

/// A sender or a receiver, as its control thread sees it. No method accesses a file or waits for
/// room in a queue: other threads do.
pub(crate) trait Role {
    type Outgoing: SideMessage;
    type Incoming: SideMessage;

    /// Maximum time without progress while no data should be moving: a receiver syncs or waits for free space.
    const MAX_IDLE_TIME: Duration = Duration::from_secs(15 * 60);

    /// Returns the data streams of this side.
    fn streams(&self) -> &StreamSet;

    /// Returns the totals of the entries that are listed so far.
    fn listed(&self) -> ListedTotals;

    /// Returns the messages to send now. Called every few milliseconds; usually empty.
    fn take_messages(&mut self, now: Instant) -> Vec<Self::Outgoing>;

    /// Processes a message. An error ends the copy.
    fn on_message(&mut self, message: Self::Incoming, now: Instant) -> Result<(), TransferError>;

    /// Returns the work for the threads of data streams.
    fn stream_worker(&self) -> StreamWorker;

    /// Reports whether data streams have work now or later.
    fn needs_streams(&self) -> bool;

    /// Reports whether data should be moving. False while the receiver waits for free space or syncs, when a standstill
    /// is no fault. Each call may change this state.
    fn should_be_moving(&mut self) -> bool;

    /// Returns the result once everything is settled and both sides know it.
    fn result(&self) -> Option<CopyResult>;
}

/// The messages of one side.
pub(crate) trait SideMessage: Serialize + DeserializeOwned + Send + 'static {
    /// The side sends blocks.
    const IS_OF_SENDER: bool;

    /// Returns the periodic message with the progress of this side.
    fn alive(progress: Progress) -> Self;

    /// Returns the progress of this side, if the message contains it.
    fn side_progress(&self) -> Option<Progress>;

    /// Reports whether the message is more than a proof of life.
    fn is_progress(&self) -> bool;

    /// Reports whether this side closed a stream because the other side read nothing for too long.
    fn reports_stall(&self) -> bool;
}

impl SideMessage for SenderMessage {
    const IS_OF_SENDER: bool = true;

    fn alive(progress: Progress) -> Self {
        SenderMessage::Alive(Box::new(progress))
    }

    fn side_progress(&self) -> Option<Progress> {
        match self {
            SenderMessage::Alive(progress) => Some(**progress),
            _ => None,
        }
    }

    fn is_progress(&self) -> bool {
        !matches!(self, SenderMessage::Lost { .. })
    }

    fn reports_stall(&self) -> bool {
        matches!(self, SenderMessage::Lost { stalled: true, .. })
    }
}

impl SideMessage for ReceiverMessage {
    const IS_OF_SENDER: bool = false;

    fn alive(progress: Progress) -> Self {
        ReceiverMessage::Alive(Box::new(progress))
    }

    fn side_progress(&self) -> Option<Progress> {
        match self {
            ReceiverMessage::Alive(progress) | ReceiverMessage::Done { progress, .. } => Some(**progress),
            _ => None,
        }
    }

    fn is_progress(&self) -> bool {
        !matches!(self, ReceiverMessage::Received { .. } | ReceiverMessage::Broken { .. })
    }

    fn reports_stall(&self) -> bool {
        false
    }
}

/// Result of a copy session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyResult {
    pub(crate) tally: CopyTally,
    /// Digest of the file, if there was only one.
    pub(crate) digest: Option<Digest>,
    /// Path of the copy, if this side may know it.
    pub(crate) path: Option<String>,
    /// Total length of all files to copy.
    pub(crate) bytes: Bytes,
    pub(crate) failures: Vec<EntryFailure>,
    /// Source entries that the sender did not list.
    pub(crate) skipped: SkippedEntries,
}
