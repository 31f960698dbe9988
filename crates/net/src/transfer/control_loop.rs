//! Control loop of a copy: one loop over the control connection for either [`Role`].
//!
//! Only this loop ends the copy. The streams move bytes and report. The loop exchanges the messages of both sides,
//! sends a proof of life at least every second, detects a silent peer after [`DEAD_PEER_TIMEOUT`] and a standstill
//! after [`STALL_TIMEOUT`]. It ends the copy once: with success, or with the one error that explains the failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::evidence::{ProgressSample, StreamTime};
use lfn_core::transfer::progress::stall_cause;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{ALIVE_INTERVAL, Progress};

use serde::de::IgnoredAny;

use super::role::{CopyResult, Role};
use super::{Stall, TransferError};
use crate::session::{Control, DEAD_PEER_TIMEOUT, DataStream, SessionError};

/// Maximum time in which nothing moves although both sides are connected. A server waits longer, so that the client,
/// which knows the near and the far end, reports the error.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const SERVER_EXTRA_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum time in which a receiver may sync or wait for free space without progress.
const MAX_SYNC_TIME: Duration = Duration::from_secs(15 * 60);

/// Time for which the loop waits for a message before its periodic checks.
const TICK: Duration = Duration::from_millis(4);

/// Maximum time for messages that arrive without a pause, before the periodic checks run again. Longer than any backlog
/// takes, however many messages the peer sends.
const MAX_RECEIVE_TIME: Duration = Duration::from_millis(100);

/// Interval in which a receiver reports new progress. The sender shows the received bytes, not the bytes that it gave
/// to its kernel.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum wait for the peer's reason after a broken stream.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns new data streams as they arrive.
pub(crate) type NewStreams<'a> = &'a mut dyn FnMut() -> Option<Result<DataStream, TransferError>>;

/// Control loop of one side.
pub(crate) struct ControlLoop<'a> {
    control: &'a mut Control,
    arrivals: NewStreams<'a>,
    /// Ends the copy when set by another thread.
    interrupted: &'a AtomicBool,
    /// Called several times a second with the progress.
    observer: &'a mut dyn FnMut(&ProgressSample),
    liveness: Liveness,
}

/// Times of the last messages and of the last progress.
struct Liveness {
    started: Instant,
    last_received: Instant,
    last_sent: Instant,
    /// Payload bytes in the last report to the peer.
    reported: Bytes,
    observed: Instant,
    began: Instant,
    /// Work counter of both sides together, and the time of its last change.
    progress: (u64, Instant),
    /// Payload bytes that arrived in this session, and the time of the last arrival.
    received: (Bytes, Option<Instant>),
    /// Last time at which a receiver had no reason to wait.
    last_active: Instant,
    peer_progress: Progress,
}

impl<'a> ControlLoop<'a> {
    pub(crate) fn new(
        control: &'a mut Control,
        started: Instant,
        arrivals: NewStreams<'a>,
        interrupted: &'a AtomicBool,
        observer: &'a mut dyn FnMut(&ProgressSample),
    ) -> Self {
        let now = Instant::now();
        let liveness = Liveness::new(started, now);
        ControlLoop { control, arrivals, interrupted, observer, liveness }
    }

    /// Runs until this side has its result, or until an error ends the copy. All streams are shut down afterwards.
    pub(crate) fn run<S: Role + 'static>(&mut self, side: &Arc<S>) -> Result<CopyResult, TransferError> {
        let result = self.process(side);
        let mut sample = self.sample(side.as_ref());
        if result.is_ok() {
            // All sent bytes have arrived, whatever the receiver's last report.
            sample.bytes = side.streams().progress().bytes;
        }
        (self.observer)(&sample);
        let Err(error) = result else { return result };
        side.streams().shut_down();
        let broke = matches!(
            error,
            TransferError::Stream { .. }
                | TransferError::Header(_)
                | TransferError::Session(
                    SessionError::Closed { .. } | SessionError::Io { .. } | SessionError::Timeout { .. }
                )
        );
        Err(if broke { await_refusal(self.control, error) } else { error })
    }

    /// Returns the time of the last arrival of payload; in a long session also of the last work. A session that breaks
    /// early and repeatedly before any payload arrives makes no progress.
    pub(crate) fn last_progress(&self) -> Option<Instant> {
        self.liveness.last_progress(Instant::now())
    }

    fn process<S: Role + 'static>(&mut self, side: &Arc<S>) -> Result<CopyResult, TransferError> {
        loop {
            while let Some(stream) = (self.arrivals)() {
                let (side, stream) = (side.clone(), stream?);
                start(move || side.run(stream))?;
            }
            for message in side.take_messages() {
                self.control.send(&message)?;
            }
            if let Some(ended) = side.result() {
                return Ok(ended);
            }
            self.poll(side.as_ref())?;
            // All waiting messages are read before the next send, because a list arrives in many frames.
            let (mut wait, until) = (TICK, Instant::now() + TICK + MAX_RECEIVE_TIME);
            while let Some(message) = self.control.poll(wait, "before the copy was done")? {
                self.liveness.last_received = Instant::now();
                match S::peer_progress(&message) {
                    Some(progress) => self.liveness.peer_progress = progress,
                    // A list, or results of entries, are progress too.
                    None if S::is_progress(&message) => self.liveness.progress.1 = self.liveness.last_received,
                    None => {}
                }
                side.on_message(message)?;
                // The peer may close the connection after its last message.
                if side.result().is_some() || self.liveness.last_received >= until {
                    break;
                }
                wait = Duration::ZERO;
            }
        }
    }

    /// Runs the periodic checks: errors, silence, stalls, proof of life, observer.
    fn poll<S: Role>(&mut self, side: &S) -> Result<(), TransferError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if let Some(error) = side.streams().take_error() {
            return Err(error);
        }
        let now = Instant::now();
        let progress = side.streams().progress();
        let peer = &self.liveness.peer_progress;
        let moved = progress_counter(&progress).wrapping_add(progress_counter(peer));
        let received = if S::IS_SENDER { peer.bytes } else { progress.bytes };
        if received != self.liveness.received.0 {
            self.liveness.received = (received, Some(now));
        }
        let standstill = self.liveness.update(moved, side.should_be_moving(), now);
        if now > self.liveness.last_received + DEAD_PEER_TIMEOUT {
            let peer = self.control.peer();
            return Err(SessionError::Timeout { peer, after: DEAD_PEER_TIMEOUT, while_doing: "while copying" }.into());
        }
        let client = self.control.peer() == "the server";
        let stall_timeout = if client { STALL_TIMEOUT } else { STALL_TIMEOUT + SERVER_EXTRA_TIMEOUT };
        if standstill > stall_timeout {
            let (sender, receiver) = if S::IS_SENDER {
                (progress, self.liveness.peer_progress)
            } else {
                (self.liveness.peer_progress, progress)
            };
            let cause = stall_cause(&sender.activity, &receiver.activity);
            let stall = Stall { cause, is_upload: S::IS_SENDER == client };
            return Err(TransferError::Stalled { after: stall_timeout, stall });
        }
        let report_due = !S::IS_SENDER
            && progress.bytes != self.liveness.reported
            && now >= self.liveness.last_sent + REPORT_INTERVAL;
        if report_due || now >= self.liveness.last_sent + ALIVE_INTERVAL {
            (self.liveness.last_sent, self.liveness.reported) = (now, progress.bytes);
            self.control.send(&S::alive_message(own_progress(side)))?;
        }
        if now >= self.liveness.observed + Duration::from_millis(200) {
            self.liveness.observed = now;
            let sample = self.sample(side);
            if S::IS_SENDER {
                side.streams().update_congestion(&sample);
            }
            (self.observer)(&sample);
        }
        Ok(())
    }

    /// Returns the counters of both sides.
    fn sample<S: Role>(&self, side: &S) -> ProgressSample {
        let ours = own_progress(side);
        let (sender, receiver) =
            if S::IS_SENDER { (ours, self.liveness.peer_progress) } else { (self.liveness.peer_progress, ours) };
        ProgressSample {
            at: self.liveness.started.elapsed(),
            bytes: if S::IS_SENDER { self.liveness.peer_progress.bytes.min(ours.bytes) } else { ours.bytes },
            sender: sender.shares,
            receiver: receiver.shares,
            sockets: sender.sockets,
        }
    }
}

impl Liveness {
    fn new(started: Instant, now: Instant) -> Self {
        Liveness {
            started,
            last_received: now,
            last_sent: now,
            reported: Bytes(0),
            observed: now,
            began: now,
            received: (Bytes(0), None),
            progress: (0, now),
            last_active: now,
            peer_progress: Progress::default(),
        }
    }

    /// Returns the time of the last progress, as in [`ControlLoop::last_progress`].
    fn last_progress(&self, now: Instant) -> Option<Instant> {
        let lasted = now.saturating_duration_since(self.began) > STALL_TIMEOUT;
        self.received.1.max(lasted.then_some(self.progress.1))
    }

    /// Updates the state with the work counter and with whether data should be moving. Returns for how long data should
    /// have moved but did not.
    fn update(&mut self, moved: u64, moving: bool, now: Instant) -> Duration {
        if moved != self.progress.0 || moving {
            self.last_active = now;
        }
        if moved != self.progress.0 || (!moving && now < self.last_active + MAX_SYNC_TIME) {
            self.progress = (moved, now);
        }
        now.saturating_duration_since(self.progress.1)
    }
}

/// Returns a number that changes whenever a side moves, reads, writes or hashes data. Time counts when an activity
/// ends.
fn progress_counter(progress: &Progress) -> u64 {
    let StreamTime { disk, hash, .. } = progress.shares;
    progress.bytes.0.wrapping_add(((disk + hash) * 1e9) as u64)
}

/// Returns the progress of this side. Only a sender's sockets show its bottleneck.
fn own_progress<S: Role>(side: &S) -> Progress {
    let stream_set = side.streams();
    Progress { sockets: S::IS_SENDER.then(|| stream_set.sockets()).flatten(), ..stream_set.progress() }
}

/// Returns the peer's reason, if one arrives within [`REFUSAL_TIMEOUT`]; otherwise `error`.
pub(crate) fn await_refusal(control: &mut Control, error: TransferError) -> TransferError {
    let deadline = Instant::now() + REFUSAL_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match control.poll::<IgnoredAny>(left, "before the copy was done") {
            Ok(Some(_)) if !left.is_zero() => {}
            Err(refused @ SessionError::Refused(_)) => return refused.into(),
            // A closed connection is more specific than a broken stream.
            Err(closed @ SessionError::Closed { .. }) => return closed.into(),
            _ => return error,
        }
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
    let spawned = thread::Builder::new().name("data stream".into()).spawn(work);
    spawned.map(drop).map_err(|source| SessionError::Io { peer: "the kernel", source }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the second at which a copy counts as stalled. The copy moves data for ten seconds; `moving` reports
    /// whether data should be moving.
    fn stalled(moving: impl Fn(u64) -> bool) -> Option<u64> {
        let begun = Instant::now();
        let mut liveness = Liveness::new(begun, begun);
        (0..3600).find(|second| {
            let now = begun + Duration::from_secs(*second);
            liveness.update(1000 * second.min(&10), moving(*second), now) > STALL_TIMEOUT
        })
    }

    #[test]
    fn disk_and_hash_time_count_as_work() {
        let done = |shares| progress_counter(&Progress { shares, ..Progress::default() });
        let nothing = done(StreamTime::default());
        assert!(done(StreamTime { hash: 0.001, ..StreamTime::default() }) != nothing);
        assert!(done(StreamTime { disk: 0.001, ..StreamTime::default() }) != nothing);
        assert_eq!(done(StreamTime { network: 60.0, rate_limited: 60.0, ..StreamTime::default() }), nothing);
    }

    #[test]
    fn hashing_after_last_payload_is_progress() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut liveness = Liveness::new(begun, begun);
        liveness.received = (Bytes(1), Some(after(1)));
        liveness.update(1, true, after(50));
        assert_eq!(liveness.last_progress(after(50)), Some(after(1)));
        liveness.update(2, true, after(1200));
        assert_eq!(liveness.last_progress(after(1200)), Some(after(1200)));
        // A session that breaks early has made no progress.
        assert_eq!(Liveness::new(begun, begun).last_progress(after(50)), None);
    }

    #[test]
    fn syncing_is_no_stall_for_15_minutes() {
        assert_eq!(stalled(|_| true), Some(71));
        // No more data is expected and the receiver syncs: 15 minutes are allowed.
        assert_eq!(stalled(|second| second < 12), Some(12 + 15 * 60 + 60 - 1));
        assert_eq!(stalled(|second| !(12..=600).contains(&second)), Some(600 + 60 + 1));
    }
}
