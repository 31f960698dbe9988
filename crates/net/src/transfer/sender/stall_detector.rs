//! Watches the streams of a sender: reports the blocks of broken streams, and closes stalled ones.
//!
//! The receiver reports the bytes that it received on each stream. A stream is stalled if none of its bytes in flight
//! arrive, while the receiver is alive and not delayed itself. Then the connection is dead, or its retransmissions
//! become ever more rare. The stream is closed like a broken one, and another stream replaces it.

use std::time::{Duration, Instant};

use lfn_core::wire::copy::{ReceiverMessage, SenderMessage};

use super::{Sender, State};
use crate::transfer::TransferError;
use crate::transfer::stream_set::lock;
use crate::transfer::stream_state::{ClosedStream, MAX_RANGES_PER_MESSAGE, STREAM_STALL_TIMEOUT};

/// Maximum silence of the receiver. After a longer silence, no stream counts as stalled.
const PEER_SILENCE: Duration = Duration::from_secs(3);

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Decides whether streams should show progress, from the messages of the receiver.
#[derive(Debug)]
pub(super) struct StallDetector {
    checked_at: Instant,
    heard_at: Instant,
    /// The time since when the receiver has sent messages without a long silence and without delays.
    active_since: Instant,
    is_delayed: bool,
    /// [`STREAM_STALL_TIMEOUT`]; shorter in tests.
    pub(super) timeout: Duration,
}

impl StallDetector {
    pub(super) fn new(now: Instant) -> Self {
        StallDetector {
            checked_at: now,
            heard_at: now,
            active_since: now,
            is_delayed: false,
            timeout: STREAM_STALL_TIMEOUT,
        }
    }

    /// Handles any message of the receiver.
    pub(super) fn on_message(&mut self, now: Instant) {
        if now.saturating_duration_since(self.heard_at) > PEER_SILENCE {
            self.active_since = now;
        }
        self.heard_at = now;
    }

    fn set_delayed(&mut self, delayed: bool, now: Instant) {
        if delayed || self.is_delayed {
            self.active_since = now;
        }
        self.is_delayed = delayed;
    }

    /// Returns the time since when streams should have shown progress. `None` if it is too early, or if the receiver is
    /// silent or delayed.
    fn check(&mut self, now: Instant) -> Option<Instant> {
        if now.saturating_duration_since(self.checked_at) < CHECK_INTERVAL {
            return None;
        }
        self.checked_at = now;
        (!self.is_delayed && now.saturating_duration_since(self.heard_at) < PEER_SILENCE).then_some(self.active_since)
    }
}

impl Sender {
    /// Reports the blocks of broken streams, and closes stalled streams.
    pub(super) fn maintain_streams(&self, now: Instant) {
        let streams = &self.shared.streams;
        for ClosedStream { stream: closed, error } in streams.take_closed() {
            let Some(error) = error else { continue };
            let mut state = lock(&self.shared.state);
            let parts = closed.unacked_blocks(MAX_RANGES_PER_MESSAGE);
            let last = parts.len();
            let (stream, stalled) = (closed.number(), closed.is_stalled());
            for (at, blocks) in parts.into_iter().enumerate() {
                state.outbox.push_back(SenderMessage::Lost { stream, blocks, more: at + 1 < last, stalled });
            }
            drop(state);
            if stalled {
                streams.record_stall(now);
            }
            streams.record_failure(error);
        }
        let (since, timeout) = {
            let detector = &mut lock(&self.shared.state).stall_detector;
            (detector.check(now), detector.timeout)
        };
        let Some(since) = since else { return };
        for stream_state in streams.active() {
            if stream_state.has_stalled(since, timeout, now) {
                stream_state.shut_down_stalled();
                // Threads that wait for work on this stream must notice.
                self.shared.work_available.notify_all();
            }
        }
    }

    /// Handles the receiver's reports about streams.
    pub(super) fn on_stream_message(&self, state: &mut State, message: &ReceiverMessage) -> Result<(), TransferError> {
        let streams = &self.shared.streams;
        match message {
            ReceiverMessage::Received { streams: totals, delayed } => {
                state.stall_detector.set_delayed(*delayed, Instant::now());
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
                self.shared.work_available.notify_all();
            }
            _ => {}
        }
        Ok(())
    }
}
