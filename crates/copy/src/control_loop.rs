//! Control loop of a copy: one loop over the control connection for either [`Role`].
//!
//! Only this loop ends the copy. The streams move bytes and report. The loop exchanges the messages of both sides,
//! sends a proof of life at least every second, detects a silent peer after [`StallTimeouts::silence`] and a standstill
//! after [`STALL_TIMEOUT`]. It ends the copy once: with success, or with the one error that explains the failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_results::evidence::{ProgressSample, StreamTime};
use lfn_session::wire::copy::progress::stall_cause;
use lfn_session::wire::copy::{ALIVE_INTERVAL, Progress};
use lfn_session::{Control, DataStream, SessionError};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::role::{CopyResult, ListedTotals, Role, SideMessage};
use super::stall::{SERVER_EXTRA_TIMEOUT, STALL_TIMEOUT, StallTimeouts};
use super::stream_set::StreamSet;
use super::{Stall, TransferError};

/// Time for which the loop waits for a message before its periodic checks.
const TICK: Duration = Duration::from_millis(4);

/// Maximum time for messages that arrive without a pause, before the periodic checks run again. Longer than any backlog
/// takes, however many messages the peer sends.
const MAX_RECEIVE_TIME: Duration = Duration::from_millis(100);

/// Interval in which a receiver reports new progress. The sender shows the received bytes, not the bytes that it gave
/// to its kernel.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of the observations without a report of the peer.
const OBSERVATION_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum time between two observations of reports of the peer.
const MIN_REPORT_DISTANCE: Duration = Duration::from_millis(100);

/// Maximum wait for the peer's reason after a broken stream.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// The need of one side for data streams.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamDemand<'a> {
    pub(crate) streams: &'a StreamSet,
    /// Data streams have work now or later.
    pub(crate) is_needed: bool,
}

/// Returns new data streams as they arrive.
pub(crate) type NewStreams<'a> = &'a mut dyn FnMut(StreamDemand<'_>) -> Option<Result<DataStream, TransferError>>;

/// Called several times a second with the totals of the list and the progress.
pub(crate) type LoopObserver<'a> = &'a mut dyn FnMut(ListedTotals, &ProgressSample);

/// The control connection of a copy, with the clock that all time limits use.
pub(crate) trait ControlLink {
    /// Sends one message to the peer.
    fn send<T: Serialize>(&mut self, message: &T) -> Result<(), SessionError>;

    /// Returns the next message if one arrives within `timeout`.
    fn poll<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<Option<T>, SessionError>;

    /// Returns the name of the peer in errors: "the server" or "the client".
    fn peer(&self) -> &'static str;

    fn now(&self) -> Instant;
}

impl ControlLink for Control {
    fn send<T: Serialize>(&mut self, message: &T) -> Result<(), SessionError> {
        Control::send(self, message)
    }

    fn poll<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<Option<T>, SessionError> {
        Control::poll(self, timeout, "before the copy was done")
    }

    fn peer(&self) -> &'static str {
        Control::peer(self)
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Control loop of one side.
pub(crate) struct ControlLoop<'a, C> {
    control: &'a mut C,
    arrivals: NewStreams<'a>,
    /// Ends the copy when set by another thread.
    interrupted: &'a AtomicBool,
    observer: LoopObserver<'a>,
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
    /// Time of the last observation of a report of the peer.
    report_observed: Instant,
    began: Instant,
    /// Work counter of both sides together, and the time of its last change.
    progress: (u64, Instant),
    /// Payload bytes that arrived in this session, and the time of the last arrival.
    received: (Bytes, Option<Instant>),
    /// Last time at which a receiver had no reason to wait.
    last_active: Instant,
    peer_progress: Progress,
    /// Arrival of the last report of the peer.
    peer_reported: Instant,
}

impl<'a, C: ControlLink> ControlLoop<'a, C> {
    pub(crate) fn new(
        control: &'a mut C,
        started: Instant,
        arrivals: NewStreams<'a>,
        interrupted: &'a AtomicBool,
        observer: LoopObserver<'a>,
    ) -> Self {
        let liveness = Liveness::new(started, control.now());
        ControlLoop { control, arrivals, interrupted, observer, liveness }
    }

    /// Runs until this side has its result, or until an error ends the copy. All streams are shut down afterwards.
    pub(crate) fn run<S: Role>(&mut self, side: &mut S) -> Result<CopyResult, TransferError> {
        let result = self.process(side);
        let mut sample = self.sample(side);
        if result.is_ok() {
            // All sent bytes have arrived, whatever the receiver's last report.
            sample.bytes = side.streams().progress().bytes;
        }
        (self.observer)(side.listed(), &sample);
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
        self.liveness.last_progress(self.control.now())
    }

    fn process<S: Role>(&mut self, side: &mut S) -> Result<CopyResult, TransferError> {
        let worker = side.stream_worker();
        loop {
            let demand = StreamDemand { streams: side.streams(), is_needed: side.needs_streams() };
            while let Some(stream) = (self.arrivals)(demand) {
                let (worker, stream) = (worker.clone(), stream?);
                start(move || worker(stream))?;
            }
            for message in side.take_messages(self.control.now()) {
                self.control.send(&message)?;
            }
            if let Some(ended) = side.result() {
                return Ok(ended);
            }
            self.poll(side)?;
            // All waiting messages are read before the next send, because a list arrives in many frames.
            let (mut wait, until) = (TICK, self.control.now() + TICK + MAX_RECEIVE_TIME);
            while let Some(message) = self.control.poll::<S::Incoming>(wait)? {
                let now = self.control.now();
                self.liveness.last_received = now;
                match message.side_progress() {
                    Some(progress) => {
                        self.liveness.peer_progress = progress;
                        self.liveness.peer_reported = now;
                    }
                    // A list, or results of entries, are progress too.
                    None if message.is_progress() => self.liveness.progress.1 = now,
                    None => {}
                }
                side.on_message(message, now)?;
                // The peer may close the connection after its last message.
                if side.result().is_some() || now >= until {
                    break;
                }
                wait = Duration::ZERO;
            }
        }
    }

    /// Runs the periodic checks: errors, silence, stalls, proof of life, observer.
    fn poll<S: Role>(&mut self, side: &mut S) -> Result<(), TransferError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if let Some(error) = side.streams().take_error() {
            return Err(error);
        }
        let now = self.control.now();
        let progress = side.streams().progress();
        let peer = &self.liveness.peer_progress;
        let moved = progress_counter(&progress).wrapping_add(progress_counter(peer));
        let received = if S::Outgoing::IS_OF_SENDER { peer.bytes } else { progress.bytes };
        if received != self.liveness.received.0 {
            self.liveness.received = (received, Some(now));
        }
        let standstill = self.liveness.update(moved, side.should_be_moving(), S::MAX_IDLE_TIME, now);
        let after = side.streams().stall_timeouts().silence;
        if now > self.liveness.last_received + after {
            let peer = self.control.peer();
            return Err(SessionError::Timeout { peer, after, while_doing: "while copying" }.into());
        }
        let client = self.control.peer() == "the server";
        let StallTimeouts { copy, .. } = side.streams().stall_timeouts();
        let stall_timeout = if client { copy } else { copy + SERVER_EXTRA_TIMEOUT };
        if standstill > stall_timeout {
            let (sender, receiver) = if S::Outgoing::IS_OF_SENDER {
                (progress, self.liveness.peer_progress)
            } else {
                (self.liveness.peer_progress, progress)
            };
            let cause = stall_cause(&sender.activity, &receiver.activity);
            let stall = Stall { cause, is_upload: S::Outgoing::IS_OF_SENDER == client };
            return Err(TransferError::Stalled { after: stall_timeout, stall });
        }
        let report_due = !S::Outgoing::IS_OF_SENDER
            && progress.bytes != self.liveness.reported
            && now >= self.liveness.last_sent + REPORT_INTERVAL;
        if report_due || now >= self.liveness.last_sent + ALIVE_INTERVAL {
            self.liveness.last_sent = now;
            self.liveness.reported = progress.bytes;
            self.control.send(&S::Outgoing::alive(own_progress(side)))?;
        }
        if self.liveness.is_observed(now) {
            let sample = self.sample(side);
            if S::Outgoing::IS_OF_SENDER {
                side.streams().update_congestion(&sample);
            }
            (self.observer)(side.listed(), &sample);
        }
        Ok(())
    }

    /// Returns the counters of both sides.
    fn sample<S: Role>(&self, side: &S) -> ProgressSample {
        let ours = own_progress(side);
        let (sender, receiver) = if S::Outgoing::IS_OF_SENDER {
            (ours, self.liveness.peer_progress)
        } else {
            (self.liveness.peer_progress, ours)
        };
        let now = self.control.now();
        ProgressSample {
            at: now.saturating_duration_since(self.liveness.started),
            peer_age: now.saturating_duration_since(self.liveness.peer_reported),
            bytes: if S::Outgoing::IS_OF_SENDER {
                self.liveness.peer_progress.bytes.min(ours.bytes)
            } else {
                ours.bytes
            },
            sender: sender.shares,
            receiver: receiver.shares,
            sockets: sender.sockets,
            receiver_sockets: receiver.sockets,
            sender_host: sender.host,
            receiver_host: receiver.host,
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
            report_observed: now,
            began: now,
            received: (Bytes(0), None),
            progress: (0, now),
            last_active: now,
            peer_progress: Progress::default(),
            peer_reported: now,
        }
    }

    /// Returns true if the counters are to be observed now: at regular times, and when a report of the peer has arrived.
    fn is_observed(&mut self, now: Instant) -> bool {
        let reported = self.peer_reported > self.observed && now >= self.report_observed + MIN_REPORT_DISTANCE;
        if reported {
            self.report_observed = now;
        }
        let is_due = reported || now >= self.observed + OBSERVATION_INTERVAL;
        if is_due {
            self.observed = now;
        }
        is_due
    }

    /// Returns the time of the last progress, as in [`ControlLoop::last_progress`].
    fn last_progress(&self, now: Instant) -> Option<Instant> {
        let lasted = now.saturating_duration_since(self.began) > STALL_TIMEOUT;
        self.received.1.max(lasted.then_some(self.progress.1))
    }

    /// Updates the state with the work counter and with whether data should be moving. Returns for how long data should
    /// have moved but did not.
    fn update(&mut self, moved: u64, moving: bool, max_idle: Duration, now: Instant) -> Duration {
        if moved != self.progress.0 || moving {
            self.last_active = now;
        }
        if moved != self.progress.0 || (!moving && now.saturating_duration_since(self.last_active) < max_idle) {
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

/// Returns the progress of this side with the counters of its sockets and of its host.
fn own_progress<S: Role>(side: &S) -> Progress {
    let stream_set = side.streams();
    Progress { sockets: stream_set.sockets(), host: stream_set.host(), ..stream_set.progress() }
}

/// Returns the peer's reason, if one arrives within [`REFUSAL_TIMEOUT`]; otherwise `error`.
fn await_refusal(control: &mut impl ControlLink, error: TransferError) -> TransferError {
    let deadline = control.now() + REFUSAL_TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(control.now());
        match control.poll::<IgnoredAny>(left) {
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
    use lfn_session::DEAD_PEER_TIMEOUT;
    use lfn_session::wire::copy::blocks::DEFAULT_BLOCK;
    use lfn_session::wire::copy::options::TransferOptions;
    use lfn_session::wire::copy::{ReceiverMessage, SenderMessage};

    use super::*;
    use crate::entry_listener::EntryListener;
    use crate::receiver::{Destination, Receiver, ReceiverOptions, ReceiverRanks, ReceiverTimeouts};

    /// Returns the second at which a copy counts as stalled. The copy moves data for ten seconds; `moving` reports
    /// whether data should be moving.
    fn stalled(moving: impl Fn(u64) -> bool) -> Option<u64> {
        let begun = Instant::now();
        let mut liveness = Liveness::new(begun, begun);
        (0..3600).find(|second| {
            let now = begun + Duration::from_secs(*second);
            liveness.update(1000 * second.min(&10), moving(*second), Receiver::MAX_IDLE_TIME, now) > STALL_TIMEOUT
        })
    }

    /// A control connection in virtual time: a wait for a message moves the clock, and nothing else does.
    struct VirtualLink {
        now: Instant,
        peer: &'static str,
        /// The peer sends a proof of life each second until this time.
        alive_until: Instant,
        next_alive: Instant,
    }

    impl ControlLink for VirtualLink {
        fn send<T: Serialize>(&mut self, _message: &T) -> Result<(), SessionError> {
            Ok(())
        }

        fn poll<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<Option<T>, SessionError> {
            self.now += timeout;
            if self.now < self.next_alive || self.next_alive > self.alive_until {
                return Ok(None);
            }
            self.next_alive += ALIVE_INTERVAL;
            let alive = serde_json::to_value(SenderMessage::Alive(Box::default())).unwrap();
            Ok(Some(serde_json::from_value(alive).unwrap()))
        }

        fn peer(&self) -> &'static str {
            self.peer
        }

        fn now(&self) -> Instant {
            self.now
        }
    }

    /// Runs a receiver whose peer proves to be alive for this time and sends nothing else. Returns the virtual time
    /// until the copy ends, and its error.
    fn receive_nothing(peer: &'static str, alive_for: Duration) -> (Duration, TransferError) {
        let begun = Instant::now();
        let mut link = VirtualLink { now: begun, peer, alive_until: begun + alive_for, next_alive: begun };
        let options = ReceiverOptions {
            transfer: TransferOptions::default(),
            listener: EntryListener::default(),
            since: None,
            block_size: DEFAULT_BLOCK,
            timeouts: ReceiverTimeouts::default(),
            ranks: ReceiverRanks::None,
        };
        let mut receiver = Receiver::start(Destination::Null, options, StreamSet::default()).unwrap();
        // The threads of the receiver run in real time, so they must have nothing to do when virtual time starts.
        while !receiver.take_messages(begun).iter().any(|message| matches!(message, ReceiverMessage::Ready { .. })) {
            thread::sleep(Duration::from_millis(1));
        }
        let (interrupted, mut observer) = (AtomicBool::new(false), |_, _: &ProgressSample| {});
        let mut arrivals = |_: StreamDemand<'_>| None;
        let mut control_loop = ControlLoop::new(&mut link, begun, &mut arrivals, &interrupted, &mut observer);
        let error = control_loop.run(&mut receiver).unwrap_err();
        receiver.close();
        (link.now - begun, error)
    }

    #[test]
    fn peer_that_moves_nothing_for_a_minute_is_stalled() {
        for (peer, timeout) in [("the server", STALL_TIMEOUT), ("the client", STALL_TIMEOUT + SERVER_EXTRA_TIMEOUT)] {
            let (after, error) = receive_nothing(peer, Duration::from_secs(600));
            assert!(matches!(error, TransferError::Stalled { after, .. } if after == timeout), "{error}");
            assert!((timeout..timeout + Duration::from_secs(1)).contains(&after), "{peer}: {after:?}");
        }
    }

    #[test]
    fn silent_peer_is_dead_after_its_timeout() {
        for alive_for in [Duration::ZERO, Duration::from_secs(20)] {
            let (after, error) = receive_nothing("the server", alive_for);
            let is_timeout = matches!(error, TransferError::Session(SessionError::Timeout { .. }));
            assert!(is_timeout, "{error}");
            // The loop waits for a reason after the error.
            let expected = alive_for + DEAD_PEER_TIMEOUT;
            let latest = expected + REFUSAL_TIMEOUT + Duration::from_millis(100);
            assert!((expected..latest).contains(&after), "{after:?}");
        }
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
        liveness.update(1, true, Receiver::MAX_IDLE_TIME, after(50));
        assert_eq!(liveness.last_progress(after(50)), Some(after(1)));
        liveness.update(2, true, Receiver::MAX_IDLE_TIME, after(1200));
        assert_eq!(liveness.last_progress(after(1200)), Some(after(1200)));
        // A session that breaks early has made no progress.
        assert_eq!(Liveness::new(begun, begun).last_progress(after(50)), None);
    }

    #[test]
    fn a_report_of_the_peer_is_observed_when_it_arrives() {
        let begun = Instant::now();
        let mut liveness = Liveness::new(begun, begun);
        let mut observed = Vec::new();
        for at in (0..=1000_u64).step_by(4) {
            let now = begun + Duration::from_millis(at);
            if at > 0 && at.is_multiple_of(204) {
                liveness.peer_reported = now;
            }
            observed.extend(liveness.is_observed(now).then_some(at));
        }
        assert_eq!(observed, [200, 204, 404, 408, 608, 612, 812, 816]);
    }

    #[test]
    fn syncing_is_no_stall_for_15_minutes() {
        assert_eq!(stalled(|_| true), Some(71));
        // No more data is expected and the receiver syncs: 15 minutes are allowed.
        assert_eq!(stalled(|second| second < 12), Some(12 + 15 * 60 + 60 - 1));
        assert_eq!(stalled(|second| !(12..=600).contains(&second)), Some(600 + 60 + 1));
    }
}
