//! The conversation of a copy over its control connection: one loop for either [`Side`], whoever dialled.
//!
//! The loop is the copy's only judge. Streams move bytes and report; the loop passes on what the two sides have to say
//! to each other, says every second at least that this one is there, notices who is silent for [`DEAD_AFTER`] and what
//! does not move for
//! [`STALLED_AFTER`], and ends the copy once: whole, or with the one error that says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::limit::{Look, Shares, Standstill, standstill};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{ALIVE_EVERY, Progress};

use serde::de::IgnoredAny;

use super::TransferError;
use super::side::{Ended, Side};
use crate::session::{Control, DEAD_AFTER, DataStream, SessionError};

/// How long nothing may move though both sides are there. A server waits a little longer: it is the client that knows how to
/// say which end is far.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(60);
pub(super) const SERVER_WAITS: Duration = Duration::from_secs(15);

/// How long a receiver may sync, or make room, with nothing moving meanwhile.
const SYNCED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// How long the loop listens before it looks around.
const TICK: Duration = Duration::from_millis(4);

/// How long it hears what comes without a pause before it looks around again: longer than what is there already takes,
/// however long the peer goes on.
const HEARD_AT_ONCE: Duration = Duration::from_millis(100);

/// How often a receiver says how much has come, if more has: the sender tells that, not what it handed to its kernel.
const TELLS_EVERY: Duration = Duration::from_millis(200);

/// How long a peer has to say why it broke a stream.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Gives data streams as they arrive.
pub(crate) type Arrivals<'a> = &'a mut dyn FnMut() -> Option<Result<DataStream, TransferError>>;

/// One side's end of the conversation.
pub(crate) struct Talk<'a> {
    control: &'a mut Control,
    arrivals: Arrivals<'a>,
    /// Set from outside to end the copy.
    interrupted: &'a AtomicBool,
    /// Told how far the copy is, several times a second.
    observer: &'a mut dyn FnMut(&Look),
    pulse: Pulse,
}

/// Who was heard when, and what moved when.
struct Pulse {
    started: Instant,
    heard: Instant,
    spoke: Instant,
    /// Payload that the peer was told of.
    told: Bytes,
    observed: Instant,
    began: Instant,
    /// What was done on both sides together, and when that changed.
    moved: (u64, Instant),
    /// Payload that arrived in this session, and when some did last.
    received: (Bytes, Option<Instant>),
    /// When a receiver had no reason to wait last.
    at_work: Instant,
    theirs: Progress,
}

impl<'a> Talk<'a> {
    pub(crate) fn new(
        control: &'a mut Control,
        started: Instant,
        arrivals: Arrivals<'a>,
        interrupted: &'a AtomicBool,
        observer: &'a mut dyn FnMut(&Look),
    ) -> Self {
        let now = Instant::now();
        let pulse = Pulse::new(started, now);
        Talk { control, arrivals, interrupted, observer, pulse }
    }

    /// Talks until this side is through, or something ends the copy before; then no stream is at work any more.
    pub(crate) fn hold<S: Side + 'static>(&mut self, side: &Arc<S>) -> Result<Ended, TransferError> {
        let result = self.go_on(side);
        let mut look = self.look(side.as_ref());
        if result.is_ok() {
            // All that was sent is there, whatever the receiver said last.
            look.bytes = side.flow().progress().bytes;
        }
        (self.observer)(&look);
        let Err(error) = result else { return result };
        side.flow().cut();
        let broke = matches!(
            error,
            TransferError::Stream { .. }
                | TransferError::Header(_)
                | TransferError::Session(
                    SessionError::Closed { .. } | SessionError::Io { .. } | SessionError::Timeout { .. }
                )
        );
        Err(if broke { last_words(self.control, error) } else { error })
    }

    /// When payload arrived last; of a session that has lasted, when anything was done, if that was later. One that is
    /// cut again and again before anything arrives gets nowhere, however much it begins.
    pub(crate) fn moved(&self) -> Option<Instant> {
        self.pulse.last_moved(Instant::now())
    }

    fn go_on<S: Side + 'static>(&mut self, side: &Arc<S>) -> Result<Ended, TransferError> {
        loop {
            while let Some(stream) = (self.arrivals)() {
                let (side, stream) = (side.clone(), stream?);
                start(move || side.run(stream))?;
            }
            for message in side.words() {
                self.control.send(&message)?;
            }
            if let Some(ended) = side.ended() {
                return Ok(ended);
            }
            self.look_around(side.as_ref())?;
            // What is there is heard before anything is said: a list comes in many frames.
            let (mut wait, until) = (TICK, Instant::now() + TICK + HEARD_AT_ONCE);
            while let Some(message) = self.control.poll(wait, "before the copy was done")? {
                self.pulse.heard = Instant::now();
                match S::progress_in(&message) {
                    Some(progress) => self.pulse.theirs = progress,
                    // A list, or what becomes of it, is progress too.
                    None if S::advances(&message) => self.pulse.moved.1 = self.pulse.heard,
                    None => {}
                }
                side.heard(message)?;
                // Whoever said the last word may have hung up.
                if side.ended().is_some() || self.pulse.heard >= until {
                    break;
                }
                wait = Duration::ZERO;
            }
        }
    }

    /// What every turn of the loop does: failures, silence, stalls, a sign of life, the observer.
    fn look_around<S: Side>(&mut self, side: &S) -> Result<(), TransferError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if let Some(error) = side.flow().take_failure() {
            return Err(error);
        }
        let now = Instant::now();
        let progress = side.flow().progress();
        let theirs = &self.pulse.theirs;
        let moved = work_of(&progress).wrapping_add(work_of(theirs));
        let received = if S::SENDS { theirs.bytes } else { progress.bytes };
        if received != self.pulse.received.0 {
            self.pulse.received = (received, Some(now));
        }
        let still = self.pulse.beat(moved, side.moving(), now);
        if now > self.pulse.heard + DEAD_AFTER {
            let peer = self.control.peer();
            return Err(SessionError::Timeout { peer, after: DEAD_AFTER, while_doing: "while copying" }.into());
        }
        let client = self.control.peer() == "the server";
        let allowed = if client { STALLED_AFTER } else { STALLED_AFTER + SERVER_WAITS };
        if still > allowed {
            let (sender, receiver) =
                if S::SENDS { (progress, self.pulse.theirs) } else { (self.pulse.theirs, progress) };
            let what = stall(standstill(&sender.doing, &receiver.doing), S::SENDS == client);
            return Err(TransferError::Stalled { after: allowed, what });
        }
        let tells = !S::SENDS && progress.bytes != self.pulse.told && now >= self.pulse.spoke + TELLS_EVERY;
        if tells || now >= self.pulse.spoke + ALIVE_EVERY {
            (self.pulse.spoke, self.pulse.told) = (now, progress.bytes);
            self.control.send(&S::alive(progress_of(side)))?;
        }
        if now >= self.pulse.observed + Duration::from_millis(200) {
            self.pulse.observed = now;
            let look = self.look(side);
            if S::SENDS {
                side.flow().reconsider(&look);
            }
            (self.observer)(&look);
        }
        Ok(())
    }

    /// Both sides as they stand.
    fn look<S: Side>(&self, side: &S) -> Look {
        let ours = progress_of(side);
        let (sender, receiver) = if S::SENDS { (ours, self.pulse.theirs) } else { (self.pulse.theirs, ours) };
        Look {
            at: self.pulse.started.elapsed(),
            bytes: if S::SENDS { self.pulse.theirs.bytes.min(ours.bytes) } else { ours.bytes },
            sender: sender.shares,
            receiver: receiver.shares,
            sockets: sender.sockets,
        }
    }
}

impl Pulse {
    fn new(started: Instant, now: Instant) -> Self {
        Pulse {
            started,
            heard: now,
            spoke: now,
            told: Bytes(0),
            observed: now,
            began: now,
            received: (Bytes(0), None),
            moved: (0, now),
            at_work: now,
            theirs: Progress::default(),
        }
    }

    /// As [`Talk::moved`].
    fn last_moved(&self, now: Instant) -> Option<Instant> {
        let lasted = now.saturating_duration_since(self.began) > STALLED_AFTER;
        self.received.1.max(lasted.then_some(self.moved.1))
    }

    /// Notes what both sides have moved by now, and whether something should be moving; tells for how long it should have and
    /// did not.
    fn beat(&mut self, moved: u64, moving: bool, now: Instant) -> Duration {
        if moved != self.moved.0 || moving {
            self.at_work = now;
        }
        if moved != self.moved.0 || (!moving && now < self.at_work + SYNCED_WITHIN) {
            self.moved = (moved, now);
        }
        now.saturating_duration_since(self.moved.1)
    }
}

/// What a copy stalls for, as the client sees it: `up` is its own sending.
pub(super) fn stall(at: Standstill, up: bool) -> &'static str {
    match (at, up) {
        (Standstill::SourceDisk, true) | (Standstill::DestinationDisk, false) => "the near disk does not answer",
        (Standstill::SourceDisk, false) | (Standstill::DestinationDisk, true) => "the far disk does not answer",
        (Standstill::Network, _) => "the network does not carry what is sent, though both ends hear each other",
        (Standstill::Nobody, true) => "both ends wait for each other, the far one for blocks that are not sent",
        (Standstill::Nobody, false) => "both ends wait for each other, this one for blocks that are not sent",
    }
}

/// A number that changes with everything that a side moves, reads, writes or hashes: time is added when something is done.
fn work_of(progress: &Progress) -> u64 {
    let Shares { disk, hash, .. } = progress.shares;
    progress.bytes.0.wrapping_add(((disk + hash) * 1e9) as u64)
}

/// How far this side is; only a sender's sockets say what holds it back.
fn progress_of<S: Side>(side: &S) -> Progress {
    let flow = side.flow();
    Progress { sockets: S::SENDS.then(|| flow.sockets()).flatten(), ..flow.progress() }
}

/// What the peer says about it, if it says something within [`LAST_WORDS`]; otherwise `error`.
pub(crate) fn last_words(control: &mut Control, error: TransferError) -> TransferError {
    let deadline = Instant::now() + LAST_WORDS;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match control.poll::<IgnoredAny>(left, "before the copy was done") {
            Ok(Some(_)) if !left.is_zero() => {}
            Err(refused @ SessionError::Refused(_)) => return refused.into(),
            // That the peer is gone says more than that a stream broke.
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

    /// After how many seconds a copy is stalled that moved for ten, and of which something should be moving when
    /// `moving` says so.
    fn stalled(moving: impl Fn(u64) -> bool) -> Option<u64> {
        let begun = Instant::now();
        let mut pulse = Pulse::new(begun, begun);
        (0..3600).find(|second| {
            let now = begun + Duration::from_secs(*second);
            pulse.beat(1000 * second.min(&10), moving(*second), now) > STALLED_AFTER
        })
    }

    #[test]
    fn what_is_hashed_or_read_is_work_and_what_waits_is_none() {
        let done = |shares| work_of(&Progress { shares, ..Progress::default() });
        let nothing = done(Shares::default());
        assert!(done(Shares { hash: 0.001, ..Shares::default() }) != nothing);
        assert!(done(Shares { disk: 0.001, ..Shares::default() }) != nothing);
        assert_eq!(done(Shares { network: 60.0, held: 60.0, ..Shares::default() }), nothing);
    }

    #[test]
    fn what_is_hashed_after_the_last_payload_uses_up_no_patience() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut pulse = Pulse::new(begun, begun);
        pulse.received = (Bytes(1), Some(after(1)));
        pulse.beat(1, true, after(50));
        assert_eq!(pulse.last_moved(after(50)), Some(after(1)));
        pulse.beat(2, true, after(1200));
        assert_eq!(pulse.last_moved(after(1200)), Some(after(1200)));
        // One that is cut soon has got nowhere.
        assert_eq!(Pulse::new(begun, begun).last_moved(after(50)), None);
    }

    #[test]
    fn a_disk_that_syncs_for_minutes_is_no_stall_and_one_that_never_ends_is() {
        assert_eq!(stalled(|_| true), Some(71));
        // Nothing more is to come, and the receiver syncs: a quarter of an hour is allowed for that.
        assert_eq!(stalled(|second| second < 12), Some(12 + 15 * 60 + 60 - 1));
        assert_eq!(stalled(|second| !(12..=600).contains(&second)), Some(600 + 60 + 1));
    }
}
