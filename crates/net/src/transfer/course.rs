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

/// What a sender may change to.
const BBR: &str = "bbr";

/// How often a wait looks up to see whether it was interrupted.
pub(super) const LOOK_UP: Duration = Duration::from_millis(50);

/// A copy, from its first session to its last.
pub(super) struct Course<'a> {
    pub(super) target: Target,
    pub(super) options: Options,
    pub(super) copy: CopyId,
    pub(super) interrupted: &'a AtomicBool,
    watch: Watch<'a>,
    /// When it began, less what it waited in a queue.
    pub(super) started: Instant,
    /// A server that is the right one was reached: whatever breaks from here on may be mended by another session.
    pub(super) reached: bool,
    /// When anything moved last.
    pub(super) moved: Instant,
    /// Of the one file, as far as an earlier session found it out.
    pub(super) digest: Option<Digest>,
    /// Streams that were replaced.
    pub(super) replaced: u32,
    /// How many streams there are to be.
    pub(super) wanted: Wanted,
    adapter: Adapter,
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

impl<'a> Course<'a> {
    pub(super) fn new(target: &Target, options: &Options, watch: Watch<'a>) -> Result<Self, TransferError> {
        let SessionId(id) = dial::new_session_id()?;
        let begun = Instant::now();
        Ok(Course {
            target: target.clone(),
            options: options.clone(),
            copy: CopyId { id: SessionId(id), began: now(), since: None },
            interrupted: watch.interrupted,
            watch,
            started: begun,
            reached: false,
            moved: begun,
            digest: None,
            replaced: 0,
            wanted: Wanted::new(options.streams),
            adapter: Adapter::new(options.streams, options.most_streams, options.predicted),
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

    /// Holds one session after the other until one of them ends well, or no other could mend what ended it.
    pub(super) fn run(
        mut self,
        mut session: impl FnMut(&mut Course<'a>) -> Result<Ended, TransferError>,
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

    /// The server lets the copy in.
    pub(super) fn enter(&mut self) {
        if let Some(since) = self.outage.take() {
            self.without += since.elapsed();
            self.reconnects += 1;
            (self.watch.connection)(&Connection::Back { after: since.elapsed() });
        }
        self.came.1 = Instant::now();
    }

    /// Looks at the session that runs; `total` is what it has listed.
    pub(super) fn observe(&mut self, total: Extent, look: &Look) {
        // What an earlier session has moved is there already for this one.
        let done = (look.bytes.0.saturating_add(total.passed.0)).max(self.done);
        self.last = Look { bytes: Bytes(self.before.bytes.0 + look.bytes.0), ..*look };
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
        if let Some(change) = self.adapter.look(&self.last) {
            self.wanted.set(change.streams);
            self.tell(change);
        }
        // It is the sender who decides that, here or there. Another session begins with it.
        let planned = self.options.congestion.as_ref().is_some_and(|wish| wish.name() == BBR);
        if look.sockets.is_some_and(|sockets| sockets.switched) && !planned {
            self.options.congestion = Some(CongestionWish::Planned(BBR.to_owned()));
            self.tell(Change::to_bbr(&self.last, self.wanted.get()));
        }
    }

    fn tell(&mut self, change: Change) {
        (self.watch.change)(&change);
        self.changes.push(change);
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
        if !self.reached || !error.may_be_tried_again() || self.interrupted.load(Ordering::Relaxed) {
            return Err(error);
        }
        let patience = self.options.patience;
        if self.outage.is_none() {
            (self.before, self.wait) = (self.last, WAITS.0);
            self.done = self.last.bytes.0.saturating_add(self.total.passed.0);
            self.outage = Some(self.moved);
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
        // Its name may lead elsewhere by now; if it leads nowhere, where it was is tried again.
        if let Ok(target) = self.target.resolve_again() {
            self.target = target;
        }
        self.target.within = self.target.within.min(DIALLED_WITHIN);
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

fn plus(a: Shares, b: Shares) -> Shares {
    Shares { disk: a.disk + b.disk, hash: a.hash + b.hash, network: a.network + b.network, held: a.held + b.held }
}
