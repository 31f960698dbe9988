//! The client of a copy between two far ends: has a token lent by the receiver, gives it to the sender, and watches.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::transfer::entry::Modified;
use lfn_core::transfer::limit::Look;
use lfn_core::transfer::streams::Change;
use lfn_core::units::Bytes;
use lfn_core::wire::Request;
use lfn_core::wire::copy::{ALIVE_EVERY, Failure, From, MOST_FAILURES, To};
use lfn_core::wire::third::{
    Carried, CarriedEnd, FromBorrower, FromCarrier, FromLender, LendRequest, MOST_ADDRESSES, Receiver, SendRequest,
};
use serde::de::IgnoredAny;

use crate::session::dial::{self, Target};
use crate::session::queue::{self, Entered};
use crate::session::{Control, DEAD_AFTER, Protection, SessionError};
use crate::transfer::TransferError;
use crate::transfer::client::{Connection, Options, Outcome, Watch, check_length, check_sources};
use crate::transfer::course::{ResumableCopy, again};
use crate::transfer::side::{Ended, Extent};
use crate::transfer::talk::STALLED_AFTER;

/// How often a wait looks up to see whether it was interrupted.
const LOOK_UP: Duration = Duration::from_millis(50);

/// `TCP_CA_NAME_MAX`: no congestion control has a longer name.
const LONGEST_NAME: usize = 16;

const WATCHING: &str = "while it watched the copy";

/// Has the far end `sender` send to the far end `receiver`; where one of them is lost, it is asked again.
pub fn across(
    (sender, from): (&Target, Vec<From>),
    (receiver, to): (&Target, To),
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    check_sources(&options.pick, from.len())?;
    let mut receiver = receiver.clone();
    ResumableCopy::new(sender, options, watch)?.of_others().run(|course| {
        if !course.is_first() {
            receiver = again(&receiver);
        }
        once(course, &from, (&receiver, &to))
    })
}

fn once(course: &mut ResumableCopy<'_>, from: &[From], (receiver, to): (&Target, &To)) -> Result<Ended, TransferError> {
    let (interrupted, sender) = (course.interrupted, course.target.clone());
    let options = course.options.clone();
    let manner = Box::new(options.manner.clone());
    let (since, pick) = (course.copy.since, options.pick.clone());
    let lend = LendRequest { to: to.clone(), manner: manner.clone(), from: from.to_vec(), pick, since };
    check_length(&lend)?;
    let lend = open(receiver, Request::Lend(Box::new(lend)), interrupted);
    let (mut lender, _) = lend.map_err(at(End::Receiver))?;
    let (lent, since) = lent(&mut lender, receiver, interrupted).map_err(at(End::Receiver))?;
    if let Some(address) = lent.addresses.first().filter(|address| address.ip().is_loopback() && !sender.is_loopback())
    {
        return Err(TransferError::NotFromThere { address: *address });
    }
    let Options { streams, most_streams, block, pace, predicted, patience, .. } = options;
    let request = SendRequest {
        from: from.to_vec(),
        pick: options.pick,
        receiver: lent,
        to: to.clone(),
        streams,
        most_streams,
        block,
        clear: options.protection == Protection::Clear,
        congestion: options.congestion,
        pace,
        predicted,
        copy: course.copy,
        patience,
        manner,
    };
    check_length(&request)?;
    let request = Request::Send(Box::new(request));
    // The sender may have it wait for its turn.
    let asked = Instant::now();
    let send = staying(&mut lender, || open(&sender, request, interrupted));
    let (carrier, waited) = send.map_err(at(End::Sender))?;
    if waited {
        course.has_its_turn(asked.elapsed());
    }
    let begun = Instant::now();
    course.reached = true;
    course.copy.since.get_or_insert(since);
    course.enter();
    let mut pair = Pair { carrier, lender, spoke: Instant::now(), heard: Instant::now() };
    let result = pair.hold(course);
    if begun.elapsed() > STALLED_AFTER {
        // One in which nothing is done for so long is ended by the sender itself.
        course.moved = course.moved.max(pair.heard);
    }
    // The sender first: it ends the copy in order, while its token is still good.
    let Pair { carrier, lender, .. } = pair;
    carrier.close();
    lender.close();
    result
}

/// Which of the two far ends.
#[derive(Clone, Copy)]
enum End {
    Sender,
    Receiver,
}

/// Says at which end it was.
fn at(end: End) -> impl Fn(TransferError) -> TransferError {
    move |error| match error {
        TransferError::Interrupted => TransferError::Interrupted,
        error => {
            let end = match end {
                End::Sender => "the source",
                End::Receiver => "the destination",
            };
            TransferError::End { end, source: Box::new(error) }
        }
    }
}

/// Opens a session and waits until it is let in; tells whether there was a queue.
fn open(target: &Target, request: Request, interrupted: &AtomicBool) -> Result<(Control, bool), TransferError> {
    let mut control = dial::control(target, dial::new_session_id()?, request)?;
    // There are no data streams whose session it could matter for.
    let entered = queue::enter(&mut control, &target.patience, DEAD_AFTER, Some(interrupted), || ())?;
    if control.is_refused()? {
        // It is read here, and is the error.
        control.poll::<IgnoredAny>(LOOK_UP, "before it let the copy in")?;
    }
    Ok((control, matches!(entered, Entered::After(_))))
}

/// Does what may take long, and says meanwhile to a far end that somebody is there.
fn staying<T>(there: &mut Control, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let stays = scope.spawn(|| {
            // Why it is gone, if it is, is heard when it is listened to.
            while !over.load(Ordering::Relaxed) && there.send(&FromBorrower::Alive).is_ok() {
                thread::park_timeout(ALIVE_EVERY);
            }
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        stays.thread().unpark();
        done
    })
}

/// The receiver as the sender is to know it, and since when by its own clock.
fn lent(
    control: &mut Control,
    target: &Target,
    interrupted: &AtomicBool,
) -> Result<(Receiver, Modified), TransferError> {
    let deadline = Instant::now() + DEAD_AFTER;
    while Instant::now() < deadline {
        if interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let said = control.poll(LOOK_UP, "before it lent a token")?;
        let Some(FromLender::Lent { token, fingerprint, since, .. }) = said else { continue };
        // Where it was reached from here; a server behind a translated address knows another port as its own.
        let reached: Vec<SocketAddr> = control.socket().peer_addr().into_iter().collect();
        let others = target.addresses().iter().filter(|address| !reached.contains(address)).copied();
        let addresses = reached.iter().copied().chain(others).take(MOST_ADDRESSES).collect();
        return Ok((Receiver { host: target.host().to_owned(), addresses, token, fingerprint }, since));
    }
    let (peer, after) = (control.peer(), DEAD_AFTER);
    Err(SessionError::Timeout { peer, after, while_doing: "before it lent a token" }.into())
}

/// Both control connections while the copy runs.
struct Pair {
    carrier: Control,
    lender: Control,
    spoke: Instant,
    heard: Instant,
}

impl Pair {
    fn hold(&mut self, course: &mut ResumableCopy<'_>) -> Result<Ended, TransferError> {
        let (mut failures, mut moved, mut listed) = (Vec::<Failure>::new(), Bytes(0), Extent::default());
        let mut teller = course.options.teller.clone();
        let patience = course.options.patience;
        loop {
            if course.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            self.stay_alive()?;
            let said = self.carrier.poll::<FromCarrier>(LOOK_UP, WATCHING).map_err(|e| at(End::Sender)(e.into()))?;
            let Some(said) = said else {
                if self.heard.elapsed() > DEAD_AFTER {
                    let (peer, after) = (self.carrier.peer(), DEAD_AFTER);
                    let error = SessionError::Timeout { peer, after, while_doing: WATCHING };
                    return Err(at(End::Sender)(error.into()));
                }
                continue;
            };
            self.heard = Instant::now();
            match said {
                FromCarrier::Alive => {}
                FromCarrier::Seen { extent, look } => {
                    if look.bytes > moved {
                        (moved, course.moved) = (look.bytes, Instant::now());
                    }
                    listed = extent;
                    course.observe(extent, &Look { at: course.started.elapsed(), ..look });
                }
                FromCarrier::Changed(change) => {
                    let congestion = change.congestion.filter(|name| name.len() <= LONGEST_NAME);
                    course.changed(Change { congestion, ..change });
                }
                FromCarrier::Lost { why } => {
                    let why =
                        &TransferError::Relayed { end: CarriedEnd::Sender, what: why, hint: None, resumable: true };
                    course.connection(&Connection::Lost { why, patience });
                }
                FromCarrier::Trying { seconds } => {
                    course.connection(&Connection::Trying { without: seconds, patience });
                }
                FromCarrier::Back { seconds } => course.connection(&Connection::Back { after: seconds }),
                FromCarrier::Told { entries } => entries.iter().for_each(|told| teller.tell(told)),
                FromCarrier::Void => teller.anew(),
                FromCarrier::Failures { failures: more } => {
                    failures.extend(more);
                    failures.truncate(MOST_FAILURES);
                }
                // It was restarted, or has lost this client: it is asked for another.
                FromCarrier::Failed { forgotten: true, .. } => {
                    let error = SessionError::Closed { peer: self.lender.peer(), while_doing: WATCHING };
                    return Err(at(End::Receiver)(error.into()));
                }
                FromCarrier::Failed { end, what, hint, resumable, .. } => {
                    return Err(TransferError::Relayed { end, what, hint, resumable });
                }
                FromCarrier::Done(carried) => {
                    let Carried { bytes, digest, path, tally, left_out, look, replaced, .. } = *carried;
                    course.observe(listed, &Look { at: course.started.elapsed(), ..look });
                    course.replaced += replaced;
                    return Ok(Ended { tally, digest, path, bytes, failures, left_out });
                }
            }
        }
    }

    /// Says to both that somebody is there, and hears whether the receiver is.
    fn stay_alive(&mut self) -> Result<(), TransferError> {
        if self.spoke.elapsed() >= ALIVE_EVERY {
            self.spoke = Instant::now();
            self.carrier.send(&FromBorrower::Alive).map_err(|e| at(End::Sender)(e.into()))?;
            self.lender.send(&FromBorrower::Alive).map_err(|e| at(End::Receiver)(e.into()))?;
        }
        // It has nothing more to say; what comes is why it ends.
        let said = self.lender.poll::<FromLender>(Duration::ZERO, WATCHING);
        said.map(drop).map_err(|e| at(End::Receiver)(e.into()))
    }
}
