//! Reports the blocks of broken streams, and closes stalled streams.

use std::time::Instant;

use lfn_session::wire::copy::{FileBlocks, ReceiverMessage, SenderMessage};

use super::shared::Shared;
use super::state::State;
use crate::stream_state::{ClosedStream, MAX_RANGES_PER_MESSAGE};

impl Shared {
    /// Reports the blocks of broken streams, and closes stalled streams.
    pub(super) fn maintain_streams(&self, now: Instant) {
        let streams = &self.streams;
        for ClosedStream { stream: closed, error } in streams.take_closed() {
            let Some(error) = error else { continue };
            let parts = closed.unacked_blocks(MAX_RANGES_PER_MESSAGE);
            let (stream, stalled) = (closed.number(), closed.is_stalled());
            match self.share.as_deref().filter(|share| !share.is_lead()) {
                Some(share) => share.return_blocks(&mut self.state.lock(), parts.into_iter().flatten()),
                None => self.state.lock().report_lost(stream, parts, stalled),
            }
            self.work_available.notify_all();
            if stalled {
                streams.record_stall(now);
            }
            streams.record_failure(error);
        }
        let Some(since) = self.stall_detector.lock().check(now) else { return };
        let timeout = streams.stall_timeouts().stream;
        for stream_state in streams.active() {
            if stream_state.has_stalled(since, timeout, now) {
                stream_state.shut_down_stalled();
                // Threads that wait for work on this stream must notice.
                self.work_available.notify_all();
            }
        }
    }

    /// Handles the receiver's reports about streams.
    pub(super) fn on_stream_message(&self, message: &ReceiverMessage, now: Instant) {
        let streams = &self.streams;
        self.stall_detector.lock().on_message(now);
        match message {
            ReceiverMessage::Received { streams: totals, delayed } => {
                self.stall_detector.lock().set_delayed(*delayed, now);
                for received in totals {
                    if let Some(stream_state) = streams.get(received.stream) {
                        streams.add_arrived_blocks(stream_state.record_acked(*received));
                    }
                }
            }
            ReceiverMessage::Broken { stream, blocks, reason } => {
                streams.add_arrived_blocks(*blocks);
                if let Some(reason) = reason {
                    streams.set_peer_error(reason);
                }
                streams.reject_stream(*stream);
                self.work_available.notify_all();
            }
            _ => {}
        }
    }
}

impl State {
    /// Reports a broken stream to the receiver, with the blocks that it carried.
    fn report_lost(&mut self, stream: u16, parts: Vec<Vec<FileBlocks>>, stalled: bool) {
        let last = parts.len();
        for (at, blocks) in parts.into_iter().enumerate() {
            self.outbox.push_back(SenderMessage::Lost { stream, blocks, more: at + 1 < last, stalled });
        }
    }
}
