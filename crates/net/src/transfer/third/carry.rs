//! The sending half of a copy between two far ends: an upload of this server's own, to a receiver that a client names.
//!
//! The copy runs on a thread of its own. What its caller would be told goes to the client of the session, and when that is
//! gone the copy ends. A server that dials wherever it is asked to would be a way into its network, so it does so only where
//! whoever started it says so ([`Config::third_party`](crate::server::Config::third_party)).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::Ticket;
use lfn_core::transfer::limit::Look;
use lfn_core::transfer::streams::Change;
use lfn_core::wire::copy::{ALIVE_EVERY, CopyId, From, Told};
use lfn_core::wire::third::{
    Carried, CarriedEnd, FromBorrower, FromCarrier, MOST_ADDRESSES, SendRequest, TOLD_AT_ONCE,
};
use lfn_core::wire::{Refusal, RefusalCode};

use crate::server::ServerSession;
use crate::session::dial::Target;
use crate::session::{Control, Protection, SessionError};
use crate::transfer::client::{Connection, Open, Options, Outcome, Watch, upload_of};
use crate::transfer::serve::{Sources, check_streams};
use crate::transfer::side::Extent;
use crate::transfer::{Teller, TransferError};

/// Words of the copy that wait for the client; where it hears them more slowly, the copy waits.
const MOST_UNSAID: usize = 1024;

/// How often a wait looks up to see whether the session is to end.
const LOOK_UP: Duration = Duration::from_millis(50);

const CARRYING: &str = "while the copy it asked for ran";

/// Serves the request to its end.
pub(crate) fn carry(session: &mut ServerSession, request: &SendRequest) -> Result<(), SessionError> {
    if !session.is_sent_out() {
        let text = "this server does not dial others for its clients";
        let hint = "start it with `lfn serve --third-party`, or copy by way of this host";
        return Err(SessionError::Refused(Refusal::new(RefusalCode::Forbidden, text).hint(hint)));
    }
    check_streams(session, request.most_streams.max(request.streams), request.block)?;
    let files = request.from.iter().any(|from| matches!(from, From::File { .. }));
    if files && !session.rights().read {
        return Err(TransferError::NotAllowed("downloads").into());
    }
    let (target, options) = (target(request)?, options(request));
    let sources = Sources::of(session, &request.from, &request.pick)?;
    let throttle = session.throttle();
    let (say, unsaid) = sync_channel(MOST_UNSAID);
    let stop = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let (target, stop) = (&target, &stop);
        let sources = &sources;
        let copy = move || {
            let options = Options { teller: teller(&say), ..options };
            let open = |copy: &CopyId| sources.open(Some(copy), &|| ended(stop));
            let to = request.to.clone();
            let (how, copy) = ((&open as Open<'_>, Some(throttle)), Some(request.copy));
            let result = watched(&say, stop, |watch| upload_of(target, how, (copy, to), &options, watch));
            last_words(&say, &result);
            result.ok()
        };
        let copying = scope.spawn(copy);
        let told = relay(session, &unsaid, || copying.is_finished());
        stop.store(true, Ordering::Relaxed);
        // Nobody waits for room in a queue that nobody reads.
        drop(unsaid);
        let outcome = copying.join().ok().flatten();
        told.map(|()| outcome)
    })?;
    if let Some(outcome) = outcome {
        session.copied(|copied| (copied.tally, copied.digest) = (outcome.tally, outcome.digest));
    }
    Ok(())
}

fn ended(stop: &AtomicBool) -> Result<(), SessionError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the copy was ended"))),
        false => Ok(()),
    }
}

/// Says what is to be said, until the copy is through or the session ends.
fn relay(
    session: &mut ServerSession,
    unsaid: &Queue<FromCarrier>,
    is_through: impl Fn() -> bool,
) -> Result<(), SessionError> {
    let silence = session.limits().silence.max(2 * ALIVE_EVERY);
    let (mut heard, mut spoke) = (Instant::now(), Instant::now());
    loop {
        session.check()?;
        let through = is_through();
        if spoke.elapsed() >= ALIVE_EVERY {
            spoke = Instant::now();
            session.control.send(&FromCarrier::Alive)?;
        }
        match unsaid.recv_timeout(LOOK_UP) {
            Ok(word) => {
                spoke = Instant::now();
                say_all(&mut session.control, word, unsaid)?;
            }
            // What it said last was in the queue before it was through.
            Err(RecvTimeoutError::Timeout) if through => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        match session.control.poll::<FromBorrower>(Duration::ZERO, CARRYING)? {
            Some(FromBorrower::Alive) => heard = Instant::now(),
            None if heard.elapsed() > silence => {
                return Err(SessionError::Timeout { peer: "the client", after: silence, while_doing: CARRYING });
            }
            None => {}
        }
    }
}

/// Says a word and those that wait behind it; entries that are told go together.
fn say_all(control: &mut Control, first: FromCarrier, unsaid: &Queue<FromCarrier>) -> Result<(), SessionError> {
    let mut told = Vec::new();
    for word in std::iter::once(first).chain(unsaid.try_iter().take(MOST_UNSAID)) {
        if let FromCarrier::Told { entries } = &word
            && told.len() < TOLD_AT_ONCE
        {
            told.extend_from_slice(entries);
            continue;
        }
        tell(control, &mut told)?;
        control.send(&word)?;
    }
    tell(control, &mut told)
}

fn tell(control: &mut Control, told: &mut Vec<Told>) -> Result<(), SessionError> {
    match told.is_empty() {
        true => Ok(()),
        false => control.send(&FromCarrier::Told { entries: std::mem::take(told) }),
    }
}

/// Calls `copy` with a watch that puts everything into the queue. What is only for the eye is left out when that is full.
fn watched<T>(say: &SyncSender<FromCarrier>, stop: &AtomicBool, copy: impl FnOnce(Watch<'_>) -> T) -> T {
    let mut observer = |extent: &Extent, look: &Look| {
        let _ = say.try_send(FromCarrier::Seen { extent: *extent, look: *look });
    };
    // Nobody hears it once the session is over.
    let mut change = |change: &Change| drop(say.send(FromCarrier::Changed(change.clone())));
    let mut connection = |connection: &Connection<'_>| {
        let word = match connection {
            Connection::Lost { why, .. } => FromCarrier::Lost { why: why.to_string() },
            Connection::Trying { without, .. } => {
                let _ = say.try_send(FromCarrier::Trying { seconds: *without });
                return;
            }
            Connection::Back { after } => FromCarrier::Back { seconds: *after },
        };
        drop(say.send(word));
    };
    copy(Watch { observer: &mut observer, change: &mut change, connection: &mut connection, interrupted: stop })
}

fn teller(say: &SyncSender<FromCarrier>) -> Teller {
    let (tell, void) = (say.clone(), say.clone());
    let take = move |told: &Told| drop(tell.send(FromCarrier::Told { entries: vec![told.clone()] }));
    Teller::new(take, move || drop(void.send(FromCarrier::Void)))
}

fn last_words(say: &SyncSender<FromCarrier>, result: &Result<Outcome, TransferError>) {
    let last = match result {
        Ok(outcome) => {
            for failures in outcome.failures.chunks(TOLD_AT_ONCE) {
                let _ = say.send(FromCarrier::Failures { failures: failures.to_vec() });
            }
            FromCarrier::Done(Box::new(Carried {
                bytes: outcome.bytes,
                digest: outcome.digest,
                path: outcome.path.clone(),
                tally: outcome.tally,
                left_out: outcome.left_out,
                look: outcome.look,
                replaced: outcome.replaced,
            }))
        }
        Err(error) => {
            let (what, hint, resumable) = (error.to_string(), error.hint(), error.is_resumable());
            // What comes with a session is the receiver's.
            let refusal = match error {
                TransferError::Session(SessionError::Refused(refusal)) => Some(refusal.code),
                _ => None,
            };
            let end = if refusal.is_some() { CarriedEnd::Receiver } else { CarriedEnd::Sender };
            let forgotten = refusal == Some(RefusalCode::WrongToken);
            FromCarrier::Failed { end, what, hint, resumable, forgotten }
        }
    };
    let _ = say.send(last);
}

/// The receiver, at the addresses that the client gave; it is known by its key wherever that is.
fn target(request: &SendRequest) -> Result<Target, SessionError> {
    let receiver = &request.receiver;
    let Some(first) = receiver.addresses.first().filter(|_| receiver.addresses.len() <= MOST_ADDRESSES) else {
        let text = format!("{} addresses of the receiver: 1 to {MOST_ADDRESSES} expected", receiver.addresses.len());
        return Err(SessionError::Refused(Refusal::new(RefusalCode::Other, text)));
    };
    let (host, port) = (receiver.host.clone(), first.port());
    let ticket = Ticket { host, port, token: receiver.token, fingerprint: receiver.fingerprint };
    Target::at(ticket, receiver.addresses.clone())
}

fn options(request: &SendRequest) -> Options {
    Options {
        // What was granted is the most.
        streams: request.streams.min(request.most_streams),
        most_streams: request.most_streams,
        block: request.block,
        protection: if request.clear { Protection::Clear } else { Protection::Tls },
        congestion: request.congestion.clone(),
        pace: request.pace,
        predicted: request.predicted,
        pick: request.pick.clone(),
        patience: request.patience,
        manner: (*request.manner).clone(),
        teller: Teller::default(),
    }
}
