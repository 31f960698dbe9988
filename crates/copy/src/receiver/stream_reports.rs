//! Reports of a receiver about its data streams: their progress, and their end.

use std::time::{Duration, Instant};

use lfn_session::wire::copy::ReceiverMessage;

use crate::TransferError;
use crate::stream_set::StreamSet;
use crate::stream_state::StreamState;

/// Interval of progress reports to the sender.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Reports the totals of the streams a few times a second.
#[derive(Debug, Default)]
pub(super) struct ProgressReports {
    reported_at: Option<Instant>,
    is_limited: bool,
}

impl ProgressReports {
    /// Returns the report, if it is time for it and something has changed.
    pub(super) fn poll(&mut self, streams: &StreamSet, now: Instant) -> Option<ReceiverMessage> {
        if self.reported_at.is_some_and(|at| now.saturating_duration_since(at) < REPORT_INTERVAL) {
            return None;
        }
        let meter = streams.meter();
        let is_limited = meter.is_delayed() || meter.is_blocked();
        let moved: Vec<_> = streams.active().iter().filter_map(|state| state.take_progress()).collect();
        if moved.is_empty() && is_limited == self.is_limited {
            return None;
        }
        self.reported_at = Some(now);
        self.is_limited = is_limited;
        Some(ReceiverMessage::Received { streams: moved, delayed: is_limited })
    }
}

/// Returns the report of a stream that ended before everything was settled.
pub(super) fn broken_stream(state: &StreamState, error: Option<&TransferError>) -> ReceiverMessage {
    let reason = error.map(ToString::to_string);
    ReceiverMessage::Broken { stream: state.number(), blocks: state.unreported_blocks(), reason }
}
