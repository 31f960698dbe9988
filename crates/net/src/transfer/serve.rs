//! The server's end of a copy: checks what is asked, and is then a sender or a receiver like any other.

use std::path::Path;
use std::time::{Duration, Instant};

use lfn_core::transfer::blocks::Layout;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{CopyRequest, From, FromSender, Job, Offer, To};
use lfn_core::wire::{CongestionWish, Refusal, RefusalCode};

use super::TransferError;
use super::client::random_seed;
use super::flow::Flow;
use super::place::{Base, Destination, SourceFile};
use super::receiver::Sink;
use super::sender::{Sending, Source};
use super::talk::Talk;
use crate::server::ServerSession;
use crate::session::congestion;
use crate::session::{DataStream, SessionError};

/// What one session's block buffers may hold; 256 streams of 1 MiB.
const MEMORY: Bytes = Bytes(256 << 20);

/// The server's side.
pub(crate) fn serve(session: &mut ServerSession, request: &CopyRequest) -> Result<(), SessionError> {
    check(session, request)?;
    let result = match &request.job {
        Job::Put { offer, to } => receive(session, request, offer, to),
        Job::Get { from } => send(session, request, from),
    };
    match result {
        Err(TransferError::Interrupted) => {
            Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server was stopped")))
        }
        result => Ok(result?),
    }
}

fn check(session: &ServerSession, request: &CopyRequest) -> Result<(), TransferError> {
    let CopyRequest { streams, block, .. } = *request;
    let most = session.limits().streams;
    if streams == 0 || streams > most {
        return Err(TransferError::Streams { streams, most });
    }
    if u64::from(streams).saturating_mul(block.0) > MEMORY.0 {
        return Err(TransferError::Memory { streams, block, most: MEMORY });
    }
    Ok(())
}

fn receive(session: &mut ServerSession, request: &CopyRequest, offer: &Offer, to: &To) -> Result<(), TransferError> {
    let layout = Layout::new(offer.bytes, request.block)?;
    let destination = match to {
        To::Null => None,
        To::File { path, force } => {
            let name = (!offer.name.is_empty()).then(|| offer.name.as_ref());
            Some(Destination::find(&root(session)?, Path::new(path), name, *force)?)
        }
    };
    let opening = Sink::open_apart(destination, layout, Flow::held_to(session.throttle()))?;
    let (control, streams, stopping) = session.parts();
    let mut arrivals = || streams.next(Duration::ZERO).map(Ok);
    Talk::new(control, Instant::now(), &mut arrivals, stopping, &mut |_| {}).receive(opening)?;
    Ok(())
}

fn send(session: &mut ServerSession, request: &CopyRequest, from: &From) -> Result<(), TransferError> {
    let (source, name) = match from {
        From::Random { bytes } => (Source::Random { seed: random_seed()?, bytes: *bytes }, String::new()),
        From::Zero { bytes } => (Source::Zero { bytes: *bytes }, String::new()),
        From::File { path } => {
            let path = Path::new(path);
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            (Source::File(SourceFile::open(&root(session)?, path)?), name.unwrap_or_default())
        }
    };
    let bytes = source.bytes();
    let flow = Flow::held_to(session.throttle());
    let sending = Sending::new(source, Layout::new(bytes, request.block)?, flow).into();
    let (control, streams, stopping) = session.parts();
    control.send(&FromSender::Offer(Offer { name, bytes }))?;
    let mut arrivals = || {
        let stream = streams.next(Duration::ZERO)?;
        Some(set_congestion(&stream, request.congestion.as_ref()).map(|()| stream))
    };
    Talk::new(control, Instant::now(), &mut arrivals, stopping, &mut |_| {}).send(&sending)?;
    Ok(())
}

fn root(session: &ServerSession) -> Result<Base, TransferError> {
    Base::root(session.root().ok_or(TransferError::NoRoot)?)
}

fn set_congestion(stream: &DataStream, wish: Option<&CongestionWish>) -> Result<(), TransferError> {
    let Some(wish) = wish else { return Ok(()) };
    let failed = |source| TransferError::Congestion { name: wish.name().to_owned(), source };
    congestion::set(stream.socket(), wish).map_err(failed)
}
