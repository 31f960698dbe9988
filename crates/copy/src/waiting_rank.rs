//! A receiving rank before the server has appointed the lead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::wire::copy::preserve::SkippedEntries;
use lfn_session::wire::copy::{CopyTally, ReceiverMessage, SenderMessage};

use crate::role::{CopyResult, ListedTotals, Role, StreamWorker};
use crate::stream_set::StreamSet;
use crate::{SenderViolation, TransferError};

/// A rank that waits for its appointment.
#[derive(Debug, Default)]
pub(crate) struct WaitingRank {
    streams: StreamSet,
    is_lead: Option<bool>,
}

impl WaitingRank {
    /// Returns whether this rank was appointed as the lead.
    pub(crate) fn is_lead(&self) -> bool {
        self.is_lead == Some(true)
    }
}

impl Role for WaitingRank {
    type Outgoing = ReceiverMessage;
    type Incoming = SenderMessage;

    const MAX_IDLE_TIME: Duration = Duration::MAX;

    fn streams(&self) -> &StreamSet {
        &self.streams
    }

    fn listed(&self) -> ListedTotals {
        ListedTotals::default()
    }

    fn take_messages(&mut self, _now: Instant) -> Vec<ReceiverMessage> {
        Vec::new()
    }

    fn on_message(&mut self, message: SenderMessage, _now: Instant) -> Result<(), TransferError> {
        match message {
            SenderMessage::Appointed { is_lead } => {
                self.is_lead = Some(is_lead);
                Ok(())
            }
            SenderMessage::Alive(_) | SenderMessage::Ranks { tally: None, .. } => Ok(()),
            _ => Err(TransferError::SenderViolation(SenderViolation::UnexpectedRankMessage)),
        }
    }

    fn stream_worker(&self) -> StreamWorker {
        // No stream is used before the appointment.
        Arc::new(drop)
    }

    fn needs_streams(&self) -> bool {
        false
    }

    fn should_be_moving(&mut self) -> bool {
        false
    }

    fn result(&self) -> Option<CopyResult> {
        self.is_lead.map(|_| CopyResult {
            tally: CopyTally::default(),
            digest: None,
            path: None,
            bytes: Bytes(0),
            failures: Vec::new(),
            skipped: SkippedEntries::default(),
        })
    }
}
