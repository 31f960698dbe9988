//! Runs a copy over several sessions: a lost session is followed by the next one, until the retry time is over.
//!
//! Both ends keep the results of a broken session: partial files with journals, and complete files. The next session
//! sends the same request, finds these files, and moves the rest. This module keeps the state between sessions, decides
//! when to reconnect, and reports to the caller.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::Bytes;
use lfn_results::diagnose::random_loss;
use lfn_results::evidence::{ProgressSample, StreamTime};
use lfn_session::dial::{self, Target};
use lfn_session::wire::copy::CopyId;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::stream_change::StreamChange;

use super::TransferError;
use super::base_dir::current_time;
use super::copy_options::{ConnectionEvent, CopyObserver, CopyOptions, CopyOutcome};
use super::role::{CopyResult, ListedTotals};
use super::sample_course::SampleCourse;
use super::stream_pool::TargetCount;
use crate::proto::streams::StreamTuner;

/// First and maximum wait before a reconnect.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// Maximum time for a connection of a reconnect. While the path is down, this sends the next SYN sooner than the kernel
/// would.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum standstill. Shorter pauses are normal for a path or a busy disk.
const MIN_STANDSTILL: Duration = Duration::from_secs(3);

/// Maximum changes of streams in the report. Each change is also reported when it happens.
const MAX_CHANGES: usize = 1000;

/// Congestion control to which a sender may change.
const BBR: &str = "bbr";

/// Interval of checks for an interrupt during a wait.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A copy over all of its sessions.
pub(super) struct ResumableCopy<'a> {
    pub(super) target: Target,
    pub(super) options: CopyOptions,
    pub(super) id: CopyId,
    pub(super) interrupted: &'a AtomicBool,
    callbacks: CopyObserver<'a>,
    /// Start of the copy, without the time in a queue.
    pub(super) started: Instant,
    /// The right server was reached. Later failures can be repaired by another session.
    pub(super) server_reached: bool,
    /// The server admitted the session or put it into the queue.
    pub(super) was_admitted: bool,
    /// Time of the last progress.
    pub(super) last_progress_at: Instant,
    /// Digest of the only file, if an earlier session computed it.
    pub(super) digest: Option<Digest>,
    /// Count of replaced streams.
    pub(super) replaced: u32,
    /// Current target of the stream count.
    pub(super) target_count: TargetCount,
    /// `None` if another host decides about the streams.
    tuner: Option<StreamTuner>,
    changes: Vec<StreamChange>,
    outage: Option<Instant>,
    next_backoff: Duration,
    reconnects: u32,
    outage_time: Duration,
    /// Total progress at the last arrival of data, and its time; then the total time of standstills before.
    last_arrival: (u64, Instant),
    standstill_time: Duration,
    /// Counters of all earlier sessions, then of all sessions.
    totals_before_session: ProgressSample,
    totals: ProgressSample,
    course: SampleCourse,
    /// Bytes of all earlier sessions: sent, or not needed.
    bytes_before_session: u64,
    /// Maximum of finished entries in one session.
    max_finished: u64,
    listed: ListedTotals,
}

impl<'a> ResumableCopy<'a> {
    pub(super) fn new(target: &Target, options: &CopyOptions, watch: CopyObserver<'a>) -> Result<Self, TransferError> {
        let id = options.id.map_or_else(dial::new_session_id, Ok)?;
        let begun = Instant::now();
        Ok(ResumableCopy {
            target: target.clone(),
            options: options.clone(),
            id: CopyId { id, began: current_time(), since: None },
            interrupted: watch.interrupted,
            callbacks: watch,
            started: begun,
            server_reached: false,
            was_admitted: false,
            last_progress_at: begun,
            digest: None,
            replaced: 0,
            target_count: TargetCount::new(options.streams),
            tuner: Some(if options.grows_with_list {
                StreamTuner::for_unknown_size(options.streams, options.max_streams)
            } else {
                StreamTuner::new(options.streams, options.max_streams, options.predicted)
            }),
            changes: Vec::new(),
            outage: None,
            next_backoff: BACKOFF.0,
            reconnects: 0,
            outage_time: Duration::ZERO,
            last_arrival: (0, begun),
            standstill_time: Duration::ZERO,
            totals_before_session: ProgressSample::default(),
            totals: ProgressSample::default(),
            course: SampleCourse::default(),
            bytes_before_session: 0,
            max_finished: 0,
            listed: ListedTotals::default(),
        })
    }

    /// Switches to a copy between two other hosts, which this host only watches.
    pub(super) fn watch_only(self) -> Self {
        ResumableCopy { tuner: None, ..self }
    }

    /// Runs one session after another until one succeeds, or fails with an error that another session cannot repair.
    pub(super) fn run(
        mut self,
        mut session: impl FnMut(&mut ResumableCopy<'a>) -> Result<CopyResult, TransferError>,
    ) -> Result<CopyOutcome, TransferError> {
        loop {
            match session(&mut self) {
                Ok(ended) => return Ok(self.outcome(ended)),
                Err(error) => {
                    self.backoff_after(error)?;
                    self.options.listener.reset_for_session();
                }
            }
        }
    }

    /// Reports whether no session was lost so far.
    pub(super) fn is_first(&self) -> bool {
        self.outage.is_none() && self.reconnects == 0
    }

    /// Records that the session was admitted after a wait.
    pub(super) fn on_admitted(&mut self, waited: Duration) {
        // Nothing can move while the session waits in the queue.
        self.last_progress_at += waited;
        if self.is_first() {
            self.started = Instant::now();
        }
    }

    /// Records that the server admitted the copy.
    pub(super) fn enter(&mut self) {
        self.was_admitted = true;
        if let Some(since) = self.outage.take() {
            self.connection(&ConnectionEvent::Reconnected { after: since.elapsed() });
        }
        self.last_arrival.1 = Instant::now();
    }

    /// Processes a progress sample of the running session; `total` are its listed totals.
    pub(super) fn observe(&mut self, total: ListedTotals, sample: &ProgressSample) {
        self.options.stripes.sample(Instant::now());
        // Bytes that an earlier session sent are up to date in this session.
        let done = (sample.bytes.0.saturating_add(total.not_needed.0)).max(self.bytes_before_session);
        self.totals = ProgressSample {
            bytes: Bytes(self.totals_before_session.bytes.0.saturating_add(sample.bytes.0)),
            ..*sample
        };
        self.totals.sender = add_times(self.totals_before_session.sender, sample.sender);
        self.totals.receiver = add_times(self.totals_before_session.receiver, sample.receiver);
        // A later session lists everything again.
        if total.complete || total.bytes >= self.listed.bytes {
            self.listed = total;
        }
        self.listed.not_needed = Bytes(done.saturating_sub(self.totals.bytes.0));
        if total.finished > self.max_finished {
            self.max_finished = total.finished;
            self.last_progress_at = Instant::now();
        }
        let arrived = self.totals.bytes.0.saturating_add(total.finished);
        if arrived != self.last_arrival.0 {
            self.standstill_time +=
                Some(self.last_arrival.1.elapsed()).filter(|time| *time >= MIN_STANDSTILL).unwrap_or_default();
            self.last_arrival = (arrived, Instant::now());
        }
        // The counters of the sockets begin again with each session.
        match self.is_first() {
            true => self.course.add(&self.totals),
            false => self.course = SampleCourse::default(),
        }
        (self.callbacks.observer)(&self.listed, &self.totals);
        let Some(tuner) = &mut self.tuner else { return };
        let change = tuner.on_list(&self.listed, self.totals.at);
        if let Some(change) = change.or_else(|| tuner.update(&self.totals)) {
            self.target_count.set(change.streams);
            self.changed(change);
        }
        // The sender decides about BBR, here or on the other host. The next session starts with it.
        let planned = self.options.congestion.as_ref().is_some_and(|congestion| congestion.name() == BBR);
        if sample.sockets.is_some_and(|sockets| sockets.switched_to_bbr) && !planned {
            self.options.congestion = Some(CongestionRequest::Planned(BBR.to_owned()));
            self.changed(StreamChange::to_bbr(
                self.totals.at,
                self.target_count.get(),
                random_loss::reason(&self.totals),
            ));
        }
    }

    /// Records and reports a change of the streams.
    pub(super) fn changed(&mut self, change: StreamChange) {
        (self.callbacks.change)(&change);
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(change);
        }
    }

    /// Reports an event of the connection.
    pub(super) fn connection(&mut self, connection: &ConnectionEvent<'_>) {
        (self.callbacks.connection)(connection);
        if let ConnectionEvent::Reconnected { after } = connection {
            // For a copy between two other hosts, this is their own figure.
            self.outage_time = self.outage_time.saturating_add(*after);
            self.reconnects += 1;
        }
    }

    /// Reports that there is no connection, if there is none.
    pub(super) fn tick(&mut self) {
        if let Some(since) = self.outage {
            let retry_for = self.options.retry_for;
            (self.callbacks.connection)(&ConnectionEvent::Reconnecting { without: since.elapsed(), retry_for });
        }
    }

    /// Waits after a session that ended with `error`. Returns when the next session may start.
    fn backoff_after(&mut self, error: TransferError) -> Result<(), TransferError> {
        // The queue has its own wait limit, unless the copy was admitted before. A server that is stopping refused the
        // copy before it was queued: there is nothing to resume.
        let is_rejected =
            self.is_first() && (error.is_queue_refusal() || (!self.was_admitted && error.is_server_stopping()));
        if is_rejected || !error.is_retryable() {
            return Err(error);
        }
        // After an interrupt, the lost session no longer matters.
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if !self.server_reached {
            return Err(error);
        }
        let retry_for = self.options.retry_for;
        if self.outage.is_none() {
            self.totals_before_session = self.totals;
            self.next_backoff = BACKOFF.0;
            self.bytes_before_session = self.totals.bytes.0.saturating_add(self.listed.not_needed.0);
            // If the last connection carried no data, the outage starts when that connection was made.
            self.outage = Some(self.last_progress_at.max(self.last_arrival.1));
            if !retry_for.is_zero() {
                (self.callbacks.connection)(&ConnectionEvent::Lost { cause: &error, retry_for });
            }
        }
        let until = Instant::now() + self.next_backoff;
        self.next_backoff = (self.next_backoff * 2).min(BACKOFF.1);
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            if self.last_progress_at.elapsed() >= retry_for {
                let after = if retry_for.is_zero() { retry_for } else { self.last_progress_at.elapsed() };
                return Err(TransferError::Lost { after, source: Box::new(error) });
            }
            self.tick();
            if Instant::now() >= until {
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        self.target = resolve_target(&self.target);
        Ok(())
    }

    fn outcome(self, ended: CopyResult) -> CopyOutcome {
        let stripes = self.options.stripes.finish(Instant::now());
        let CopyResult { tally, digest, path, bytes, failures, skipped } = ended;
        let samples = if self.is_first() { self.course.finish(&self.totals) } else { Vec::new() };
        CopyOutcome {
            bytes,
            digest: digest.or(self.digest),
            elapsed: self.started.elapsed(),
            path,
            tally,
            skipped,
            failures,
            sample: self.totals,
            samples,
            reconnects: self.reconnects,
            outage_time: self.outage_time,
            standstill_time: self.standstill_time,
            replaced: self.replaced,
            changes: self.changes,
            stripes,
        }
    }
}

/// Returns the target of the next connection. The name is resolved again; if this fails, the old addresses are used.
pub(super) fn resolve_target(target: &Target) -> Target {
    let mut target = target.resolve_again().unwrap_or_else(|_| target.clone());
    target.connect_timeout = target.connect_timeout.min(RECONNECT_TIMEOUT);
    target
}

fn add_times(a: StreamTime, b: StreamTime) -> StreamTime {
    StreamTime {
        disk: a.disk + b.disk,
        hash: a.hash + b.hash,
        network: a.network + b.network,
        rate_limited: a.rate_limited + b.rate_limited,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_session::wire::{Refusal, RefusalCode};
    use lfn_session::{Fingerprint, SessionError, Ticket, Token};

    use super::*;

    /// Runs a copy with these sessions, which may set the interrupt flag. Returns its error.
    fn ends_with(mut session: impl FnMut(&mut ResumableCopy<'_>, &AtomicBool) -> SessionError) -> TransferError {
        let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
        let target = Target::new(Ticket { host: "127.0.0.1".into(), port: 9, token, fingerprint }).unwrap();
        let interrupted = AtomicBool::new(false);
        let options = CopyOptions { retry_for: Duration::from_secs(600), ..CopyOptions::default() };
        let watch = CopyObserver {
            observer: &mut |_, _| {},
            change: &mut |_| {},
            connection: &mut |_| {},
            interrupted: &interrupted,
        };
        let copy = ResumableCopy::new(&target, &options, watch).unwrap();
        copy.run(|copy| Err(session(copy, &interrupted).into())).unwrap_err()
    }

    #[test]
    fn interrupt_ends_a_lost_copy() {
        for reached in [true, false] {
            let error = ends_with(|copy, interrupted| {
                copy.server_reached = reached;
                interrupted.store(true, Ordering::Relaxed);
                SessionError::Closed { peer: "the server", while_doing: "before the copy was done" }
            });
            assert!(matches!(error, TransferError::Interrupted), "{error}");
        }
    }

    #[test]
    fn stopping_server_ends_only_unadmitted_copies() {
        let stopping = || SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server is stopping"));
        let mut sessions = 0;
        let refused = ends_with(|copy, _| {
            sessions += 1;
            copy.server_reached = true;
            stopping()
        });
        assert_eq!((sessions, refused.is_resumable()), (1, false));
        assert_eq!(refused.to_string(), "the server is stopping");
        for waits in [true, false] {
            let mut sessions = 0;
            ends_with(|copy, interrupted| {
                sessions += 1;
                copy.server_reached = true;
                match (sessions, waits) {
                    (1, true) => copy.was_admitted = true,
                    (1, false) => copy.enter(),
                    _ => interrupted.store(true, Ordering::Relaxed),
                }
                stopping()
            });
            assert_eq!(sessions, 2, "{waits}");
        }
    }
}
