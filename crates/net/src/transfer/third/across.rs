//! The client of a copy between two far ends: has a token lent by the receiver, gives it to the sender, and watches.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_core::wire::Request;
use lfn_core::wire::copy::{ALIVE_EVERY, Failure, From, MOST_FAILURES, To};
use lfn_core::wire::third::{
    Carried, CarriedEnd, FromBorrower, FromCarrier, FromLender, LendRequest, MOST_ADDRESSES, Receiver, SendRequest,
};

use crate::session::dial::{self, Target};
use crate::session::queue::{self, Entered};
use crate::session::{Control, DEAD_AFTER, Protection, SessionError};
use crate::transfer::TransferError;
use crate::transfer::client::{Connection, Options, Outcome, Watch, check_length, check_sources};

/// How often a wait looks up to see whether it was interrupted.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Most changes to its streams that are kept for the report; each is told when it comes.
const MOST_CHANGES: usize = 1000;

const WATCHING: &str = "while it watched the copy";

/// Has the far end `sender` send to the far end `receiver`.
pub fn across(
    (sender, from): (&Target, Vec<From>),
    (receiver, to): (&Target, To),
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, TransferError> {
    check_sources(&options.pick, from.len())?;
    check_length(&(&from, &options.pick))?;
    check_length(&options.manner.protect)?;
    let manner = Box::new(options.manner.clone());
    let lend = LendRequest { to: to.clone(), manner: manner.clone() };
    let mut lender = open(receiver, Request::Lend(Box::new(lend)), watch.interrupted).map_err(at(End::Receiver))?;
    let lent = lent(&mut lender, receiver, watch.interrupted).map_err(at(End::Receiver))?;
    if let Some(address) = lent.addresses.first().filter(|address| address.ip().is_loopback() && !sender.is_loopback())
    {
        return Err(TransferError::NotFromThere { address: *address });
    }
    let Options { streams, most_streams, block, pace, predicted, patience, .. } = *options;
    let request = SendRequest {
        from,
        pick: options.pick.clone(),
        receiver: lent,
        to,
        streams,
        most_streams,
        block,
        clear: options.protection == Protection::Clear,
        congestion: options.congestion.clone(),
        pace,
        predicted,
        patience,
        manner,
    };
    let carrier = open(sender, Request::Send(Box::new(request)), watch.interrupted).map_err(at(End::Sender))?;
    let mut pair = Pair { carrier, lender, spoke: Instant::now(), heard: Instant::now() };
    let result = pair.hold(options, watch);
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

/// Opens a session and waits until it is let in.
fn open(target: &Target, request: Request, interrupted: &AtomicBool) -> Result<Control, TransferError> {
    let mut control = dial::control(target, dial::new_session_id()?, request)?;
    // There are no data streams whose session it could matter for.
    let (Entered::AtOnce | Entered::After(_)) =
        queue::enter(&mut control, &target.patience, DEAD_AFTER, Some(interrupted), || ())?;
    Ok(control)
}

/// The receiver as the sender is to know it.
fn lent(control: &mut Control, target: &Target, interrupted: &AtomicBool) -> Result<Receiver, TransferError> {
    let deadline = Instant::now() + DEAD_AFTER;
    while Instant::now() < deadline {
        if interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let Some(FromLender::Lent { token, fingerprint, .. }) = control.poll(LOOK_UP, "before it lent a token")? else {
            continue;
        };
        // Where it was reached from here; a server behind a translated address knows another port as its own.
        let reached: Vec<SocketAddr> = control.socket().peer_addr().into_iter().collect();
        let others = target.addresses().iter().filter(|address| !reached.contains(address)).copied();
        let addresses = reached.iter().copied().chain(others).take(MOST_ADDRESSES).collect();
        return Ok(Receiver { host: target.host().to_owned(), addresses, token, fingerprint });
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
    fn hold(&mut self, options: &Options, watch: Watch<'_>) -> Result<Outcome, TransferError> {
        let (mut failures, mut changes) = (Vec::<Failure>::new(), Vec::new());
        let mut teller = options.teller.clone();
        let patience = options.patience;
        loop {
            if watch.interrupted.load(Ordering::Relaxed) {
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
                FromCarrier::Seen { extent, look } => (watch.observer)(&extent, &look),
                FromCarrier::Changed(change) => {
                    (watch.change)(&change);
                    if changes.len() < MOST_CHANGES {
                        changes.push(change);
                    }
                }
                FromCarrier::Lost { why } => {
                    let why =
                        &TransferError::Relayed { end: CarriedEnd::Sender, what: why, hint: None, resumable: true };
                    (watch.connection)(&Connection::Lost { why, patience });
                }
                FromCarrier::Trying { seconds } => {
                    (watch.connection)(&Connection::Trying { without: seconds, patience });
                }
                FromCarrier::Back { seconds } => (watch.connection)(&Connection::Back { after: seconds }),
                FromCarrier::Told { entries } => entries.iter().for_each(|told| teller.tell(told)),
                FromCarrier::Void => teller.anew(),
                FromCarrier::Failures { failures: more } => {
                    failures.extend(more);
                    failures.truncate(MOST_FAILURES);
                }
                FromCarrier::Failed { end, what, hint, resumable } => {
                    return Err(TransferError::Relayed { end, what, hint, resumable });
                }
                FromCarrier::Done(carried) => {
                    let Carried { bytes, digest, elapsed, path, tally, left_out, look, .. } = *carried;
                    let Carried { reconnects, without, replaced, .. } = *carried;
                    return Ok(Outcome {
                        bytes,
                        digest,
                        elapsed,
                        path,
                        tally,
                        left_out,
                        failures,
                        look,
                        reconnects,
                        without,
                        still: Duration::ZERO,
                        replaced,
                        changes,
                    });
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
