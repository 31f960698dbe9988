//! The course of a copy over all of its sessions: one that is lost is followed by another, until patience is over.
//!
//! A session that breaks leaves at either end what the next one goes on with: partial files with journals, and files that
//! are whole. So the next one asks for the same, finds that much of it is there, and moves the rest. Here is what has to
//! be remembered between them, when to try again, and what the caller is told meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::SessionId;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::limit::{Look, Shares};
use lfn_core::transfer::streams::{Adapter, Change};
use lfn_core::units::Bytes;
use lfn_core::wire::CongestionWish;
use lfn_core::wire::copy::CopyId;

use super::TransferError;
use super::client::{Connection, Options, Outcome, Watch};
use super::place::now;
use super::side::{Ended, Extent};
use super::supply::Wanted;
use crate::session::dial::{self, Target};

/// The first wait before a new attempt, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// How long a connection of a new attempt may take: on a path that is down, the next SYN comes sooner than the kernel's.
const DIALLED_WITHIN: Duration = Duration::from_secs(5);

/// What is longer than a pause of a path or a disk that works.
const STILL: Duration = Duration::from_secs(3);

/// Most changes to its streams that are kept for the report; each is told when it comes.
const MOST_CHANGES: usize = 1000;

/// What a sender may change to.
const BBR: &str = "bbr";

/// How often a wait looks up to see whether it was interrupted.
pub(super) const LOOK_UP: Duration = Duration::from_millis(50);

/// A copy, from its first session to its last.
pub(super) struct ResumableCopy<'a> {
    pub(super) target: Target,
    pub(super) options: Options,
    pub(super) copy: CopyId,
    pub(super) interrupted: &'a AtomicBool,
    watch: Watch<'a>,
    /// When it began, less what it waited in a queue.
    pub(super) started: Instant,
    /// A server that is the right one was reached: whatever breaks from here on may be mended by another session.
    pub(super) reached: bool,
    /// A server let it in, or let it wait for its turn.
    pub(super) welcome: bool,
    /// When anything moved last.
    pub(super) moved: Instant,
    /// Of the one file, as far as an earlier session found it out.
    pub(super) digest: Option<Digest>,
    /// Streams that were replaced.
    pub(super) replaced: u32,
    /// How many streams there are to be.
    pub(super) wanted: Wanted,
    /// `None` where another decides how many.
    adapter: Option<Adapter>,
    changes: Vec<Change>,
    outage: Option<Instant>,
    wait: Duration,
    reconnects: u32,
    without: Duration,
    /// How far it was when anything came last, and when that was; how long nothing had come before, in all.
    came: (u64, Instant),
    still: Duration,
    /// Of the sessions before this one, and of all.
    before: Look,
    last: Look,
    /// How far the sessions before this one came: moved, or not to be moved.
    done: u64,
    /// The most entries that were through in one session.
    settled: u64,
    total: Extent,
}

impl<'a> ResumableCopy<'a> {
    pub(super) fn new(target: &Target, options: &Options, watch: Watch<'a>) -> Result<Self, TransferError> {
        let SessionId(id) = dial::new_session_id()?;
        let begun = Instant::now();
        Ok(ResumableCopy {
            target: target.clone(),
            options: options.clone(),
            copy: CopyId { id: SessionId(id), began: now(), since: None },
            interrupted: watch.interrupted,
            watch,
            started: begun,
            reached: false,
            welcome: false,
            moved: begun,
            digest: None,
            replaced: 0,
            wanted: Wanted::new(options.streams),
            adapter: Some(Adapter::new(options.streams, options.most_streams, options.predicted)),
            changes: Vec::new(),
            outage: None,
            wait: WAITS.0,
            reconnects: 0,
            without: Duration::ZERO,
            came: (0, begun),
            still: Duration::ZERO,
            before: Look::default(),
            last: Look::default(),
            done: 0,
            settled: 0,
            total: Extent::default(),
        })
    }

    /// Of a copy that others hold: here it is watched.
    pub(super) fn of_others(self) -> Self {
        ResumableCopy { adapter: None, ..self }
    }

    /// Holds one session after the other until one of them ends well, or no other could mend what ended it.
    pub(super) fn run(
        mut self,
        mut session: impl FnMut(&mut ResumableCopy<'a>) -> Result<Ended, TransferError>,
    ) -> Result<Outcome, TransferError> {
        loop {
            match session(&mut self) {
                Ok(ended) => return Ok(self.outcome(ended)),
                Err(error) => {
                    self.wait_after(error)?;
                    self.options.teller.anew();
                }
            }
        }
    }

    /// Whether no session was lost so far.
    pub(super) fn is_first(&self) -> bool {
        self.outage.is_none() && self.reconnects == 0
    }

    /// Its turn has come after others, for which it waited so long.
    pub(super) fn has_its_turn(&mut self, waited: Duration) {
        // In a queue nothing can move.
        self.moved += waited;
        if self.is_first() {
            self.started = Instant::now();
        }
    }

    /// The server lets the copy in.
    pub(super) fn enter(&mut self) {
        self.welcome = true;
        if let Some(since) = self.outage.take() {
            self.connection(&Connection::Back { after: since.elapsed() });
        }
        self.came.1 = Instant::now();
    }

    /// Looks at the session that runs; `total` is what it has listed.
    pub(super) fn observe(&mut self, total: Extent, look: &Look) {
        // What an earlier session has moved is there already for this one.
        let done = (look.bytes.0.saturating_add(total.passed.0)).max(self.done);
        self.last = Look { bytes: Bytes(self.before.bytes.0.saturating_add(look.bytes.0)), ..*look };
        (self.last.sender, self.last.receiver) =
            (plus(self.before.sender, look.sender), plus(self.before.receiver, look.receiver));
        // A later session lists it again.
        if total.complete || total.bytes >= self.total.bytes {
            self.total = total;
        }
        self.total.passed = Bytes(done.saturating_sub(self.last.bytes.0));
        if total.settled > self.settled {
            (self.settled, self.moved) = (total.settled, Instant::now());
        }
        let came = self.last.bytes.0.saturating_add(total.settled);
        if came != self.came.0 {
            self.still += Some(self.came.1.elapsed()).filter(|time| *time >= STILL).unwrap_or_default();
            self.came = (came, Instant::now());
        }
        (self.watch.observer)(&self.total, &self.last);
        let Some(adapter) = &mut self.adapter else { return };
        if let Some(change) = adapter.look(&self.last) {
            self.wanted.set(change.streams);
            self.changed(change);
        }
        // It is the sender who decides that, here or there. Another session begins with it.
        let planned = self.options.congestion.as_ref().is_some_and(|wish| wish.name() == BBR);
        if look.sockets.is_some_and(|sockets| sockets.switched) && !planned {
            self.options.congestion = Some(CongestionWish::Planned(BBR.to_owned()));
            self.changed(Change::to_bbr(&self.last, self.wanted.get()));
        }
    }

    /// The streams are changed.
    pub(super) fn changed(&mut self, change: Change) {
        (self.watch.change)(&change);
        if self.changes.len() < MOST_CHANGES {
            self.changes.push(change);
        }
    }

    /// What becomes of the connection between the others.
    pub(super) fn connection(&mut self, connection: &Connection<'_>) {
        (self.watch.connection)(connection);
        if let Connection::Back { after } = connection {
            // Of another's connection it is what that one says.
            self.without = self.without.saturating_add(*after);
            self.reconnects += 1;
        }
    }

    /// Tells that there is no connection, if there is none; from time to time.
    pub(super) fn tick(&mut self) {
        if let Some(since) = self.outage {
            let patience = self.options.patience;
            (self.watch.connection)(&Connection::Trying { without: since.elapsed(), patience });
        }
    }

    /// After a session that ended with `error`: returns when it is time for the next one.
    fn wait_after(&mut self, error: TransferError) -> Result<(), TransferError> {
        // How long to wait for a place is the queue's to say, unless the copy had one already. Whom a server that stops
        // does not even let wait has nothing to go on with.
        let turned_away = self.is_first() && (error.is_of_a_queue() || (!self.welcome && error.is_of_a_stop()));
        if turned_away || !error.may_be_tried_again() {
            return Err(error);
        }
        // Whoever has interrupted it no longer cares what was lost.
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if !self.reached {
            return Err(error);
        }
        let patience = self.options.patience;
        if self.outage.is_none() {
            (self.before, self.wait) = (self.last, WAITS.0);
            self.done = self.last.bytes.0.saturating_add(self.total.passed.0);
            // Not before there was a connection again, should nothing have moved by it.
            self.outage = Some(self.moved.max(self.came.1));
            if !patience.is_zero() {
                (self.watch.connection)(&Connection::Lost { why: &error, patience });
            }
        }
        let until = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(WAITS.1);
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            if self.moved.elapsed() >= patience {
                let after = if patience.is_zero() { patience } else { self.moved.elapsed() };
                return Err(TransferError::Lost { after, source: Box::new(error) });
            }
            self.tick();
            if Instant::now() >= until {
                break;
            }
            thread::sleep(LOOK_UP);
        }
        self.target = again(&self.target);
        Ok(())
    }

    fn outcome(self, ended: Ended) -> Outcome {
        let Ended { tally, digest, path, bytes, failures, left_out } = ended;
        Outcome {
            bytes,
            digest: digest.or(self.digest),
            elapsed: self.started.elapsed(),
            path,
            tally,
            left_out,
            failures,
            look: self.last,
            reconnects: self.reconnects,
            without: self.without,
            still: self.still,
            replaced: self.replaced,
            changes: self.changes,
        }
    }
}

/// The target of a new attempt: its name may lead elsewhere by now; if it leads nowhere, where it was is tried again.
pub(super) fn again(target: &Target) -> Target {
    let mut target = target.resolve_again().unwrap_or_else(|_| target.clone());
    target.within = target.within.min(DIALLED_WITHIN);
    target
}

fn plus(a: Shares, b: Shares) -> Shares {
    Shares { disk: a.disk + b.disk, hash: a.hash + b.hash, network: a.network + b.network, held: a.held + b.held }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_core::session::{Fingerprint, Ticket, Token};
    use lfn_core::wire::{Refusal, RefusalCode};

    use super::*;
    use crate::session::SessionError;

    /// What ends a copy that holds such sessions, which can be interrupted.
    fn ends_with(mut session: impl FnMut(&mut ResumableCopy<'_>, &AtomicBool) -> SessionError) -> TransferError {
        let (token, fingerprint) = (Token::from_bytes([0; 16]), Fingerprint([0; 32]));
        let target = Target::new(Ticket { host: "127.0.0.1".into(), port: 9, token, fingerprint }).unwrap();
        let interrupted = AtomicBool::new(false);
        let options = Options { patience: Duration::from_secs(600), ..Options::default() };
        let watch =
            Watch { observer: &mut |_, _| {}, change: &mut |_| {}, connection: &mut |_| {}, interrupted: &interrupted };
        let course = ResumableCopy::new(&target, &options, watch).unwrap();
        course.run(|course| Err(session(course, &interrupted).into())).unwrap_err()
    }

    #[test]
    fn an_interrupt_ends_it_whatever_is_lost_with_it() {
        for reached in [true, false] {
            let error = ends_with(|course, interrupted| {
                course.reached = reached;
                interrupted.store(true, Ordering::Relaxed);
                SessionError::Closed { peer: "the server", while_doing: "before the copy was done" }
            });
            assert!(matches!(error, TransferError::Interrupted), "{error}");
        }
    }

    #[test]
    fn a_server_that_stops_ends_what_it_never_let_in_and_nothing_else() {
        let stopping = || SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server is stopping"));
        let mut sessions = 0;
        let refused = ends_with(|course, _| {
            (sessions, course.reached) = (sessions + 1, true);
            stopping()
        });
        assert_eq!((sessions, refused.is_resumable()), (1, false));
        assert_eq!(refused.to_string(), "the server is stopping");
        for waits in [true, false] {
            let mut sessions = 0;
            ends_with(|course, interrupted| {
                (sessions, course.reached) = (sessions + 1, true);
                match (sessions, waits) {
                    (1, true) => course.welcome = true,
                    (1, false) => course.enter(),
                    _ => interrupted.store(true, Ordering::Relaxed),
                }
                stopping()
            });
            assert_eq!(sessions, 2, "{waits}");
        }
    }
}
