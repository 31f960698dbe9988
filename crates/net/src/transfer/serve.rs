//! The server's end of a copy: checks what is asked, and is then a sender or a receiver like any other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_core::session::{Rights, SessionId, Writing};
use lfn_core::transfer::manner::Manner;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{CopyId, CopyRequest, From, Job, Pick, To};
use lfn_core::wire::seal::{Seal, StreamSecret};
use lfn_core::wire::third::LendRequest;
use lfn_core::wire::{Refusal, RefusalCode};

use super::TransferError;
use super::client::{check_sources, random_seed};
use super::flow::Flow;
use super::guest::{DropBox, Guest};
use super::pacing;
use super::place::Base;
use super::receiver::{Aim, Receiver};
use super::sender::{Budget, Expanded, Listing, Sender, Source, expand};
use super::talk::Talk;
use super::teller::Teller;
use crate::server::ServerSession;
use crate::session::congestion;
use crate::session::{DataStream, Protection, SessionError};

/// What one session's block buffers may hold; 256 streams of 1 MiB.
const MEMORY: Bytes = Bytes(256 << 20);

/// Most sources of one session, those that patterns stand for among them.
const MOST_SOURCES: usize = 65_536;

/// The server's side.
pub(crate) fn serve(session: &mut ServerSession, request: &CopyRequest) -> Result<(), SessionError> {
    check_streams(session, request.streams, request.block)?;
    let result = match &request.job {
        Job::Put { to } => receive(session, request, to),
        Job::Get { from, pick } => send(session, request, from, pick),
    };
    match result {
        Err(TransferError::Interrupted) => {
            Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server was stopped")))
        }
        result => Ok(result?),
    }
}

/// Whether so many streams are granted, and their memory.
pub(super) fn check_streams(session: &ServerSession, streams: u16, block: Bytes) -> Result<(), TransferError> {
    let most = session.limits().streams;
    if streams == 0 || streams > most {
        return Err(TransferError::Streams { streams, most });
    }
    if u64::from(streams).saturating_mul(block.0) > MEMORY.0 {
        return Err(TransferError::Memory { streams, block, most: MEMORY });
    }
    Ok(())
}

fn receive(session: &mut ServerSession, request: &CopyRequest, to: &To) -> Result<(), TransferError> {
    let mut dropped = None;
    let blind = !session.rights().read;
    if let Some(asked) = what_is_there(&request.manner).filter(|_| blind) {
        return Err(TransferError::NotAllowed(asked));
    }
    let aim = match to {
        To::Null => Aim::Null,
        To::File { path, allowed, single, keep } => {
            let base = match session.rights() {
                Rights { write: Writing::No, .. } => return Err(TransferError::NotAllowed("uploads")),
                Rights { write: Writing::Drop, .. } => {
                    let made = dropped.insert(drop_box(session, request.copy.as_deref())?);
                    session.copied(|copied| copied.into = Some(made.name().to_owned()));
                    made.base(session.token().1)?
                }
                Rights { read: false, .. } if allowed.delete => return Err(TransferError::NotAllowed("--delete")),
                Rights { read: false, .. } => {
                    let guest = Guest::of(session.token().1);
                    let written = request.copy.as_ref().map(|copy| session.written(copy));
                    root(session)?.kept_from(guest, written).ok_or(TransferError::NoRoot)?
                }
                Rights { .. } => root(session)?,
            };
            let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
            Aim::Path { base, path, allowed: *allowed, single: *single, keep: *keep }
        }
    };
    let secret = request.stream_secret;
    let scope = session.scope();
    let loan = session.loan();
    let since = request.copy.as_ref().and_then(|copy| copy.since);
    // Whoever sends by a lent token takes nothing for its own that was there before that.
    let since = since.map(|since| since.max(loan.and_then(|loan| loan.since).unwrap_or(since)));
    let flow = Flow::held_to(session.throttle());
    let receiving = Receiver::start(aim, (*request.manner).clone(), Teller::default(), since, request.block, flow)?;
    if let Some(asked) = loan.and_then(LendRequest::asked) {
        receiving.take_only(asked);
    }
    let (control, streams, stopping) = session.parts();
    let mut arrivals = || streams.next(Duration::ZERO).map(|stream| sealed(stream, secret.as_ref(), scope));
    let held = Talk::new(control, Instant::now(), &mut arrivals, stopping, &mut |_| {}).hold(&receiving);
    receiving.close();
    session.copied(|copied| {
        copied.tally = receiving.tally();
        copied.digest = held.as_ref().ok().and_then(|ended| ended.digest);
    });
    drop(dropped);
    held.map(drop)
}

/// The option by which the receiver would tell, or do, what depends on what is there already.
fn what_is_there(manner: &Manner) -> Option<&'static str> {
    let asked = [
        (manner.dry_run, "--dry-run"),
        (manner.delete, "--delete"),
        (manner.digests, "--manifest"),
        (manner.tell, "telling what is there"),
    ];
    asked.into_iter().find_map(|(asked, option)| asked.then_some(option))
}

fn send(session: &mut ServerSession, request: &CopyRequest, from: &[From], pick: &Pick) -> Result<(), TransferError> {
    let files = from.iter().any(|from| matches!(from, From::File { .. }));
    if files && !session.rights().read {
        return Err(TransferError::NotAllowed("downloads"));
    }
    let secret = request.stream_secret;
    let scope = session.scope();
    let sources = Sources::of(session, from, pick)?.open(request.copy.as_deref(), &|| session.check())?;
    let flow = Flow::held_to(session.throttle()).controlled_by(request.congestion.as_ref());
    let listing = Listing::of(pick).made(request.copy.as_ref().map(|copy| copy.began)).in_manner(&request.manner);
    let sending = Sender::start(sources, listing, request.block, flow)?;
    let (control, streams, stopping) = session.parts();
    let mut arrivals = || {
        let stream = streams.next(Duration::ZERO)?;
        Some(sealed(stream, secret.as_ref(), scope).and_then(|stream| prepare(&stream, request).map(|()| stream)))
    };
    Talk::new(control, Instant::now(), &mut arrivals, stopping, &mut |_| {}).hold(&sending).map(|ended| {
        session.copied(|copied| (copied.tally, copied.digest) = (ended.tally, ended.digest));
    })
}

/// What is asked for, below the root of the session that asks.
pub(super) struct Sources<'a> {
    from: &'a [From],
    pick: &'a Pick,
    /// None where nothing of it is a file.
    base: Option<Arc<Base>>,
}

impl<'a> Sources<'a> {
    /// What `from` and `pick` mean in that session.
    pub(super) fn of(session: &ServerSession, from: &'a [From], pick: &'a Pick) -> Result<Self, TransferError> {
        check_sources(pick, from.len())?;
        let files = from.iter().any(|from| matches!(from, From::File { .. }));
        let base = files.then(|| root(session)).transpose()?.map(Arc::new);
        Ok(Sources { from, pick, base })
    }

    /// Opens them; `check` says when that is to end early.
    pub(super) fn open(
        &self,
        copy: Option<&CopyId>,
        check: &dyn Fn() -> Result<(), SessionError>,
    ) -> Result<Vec<Source>, TransferError> {
        let mut sources = Vec::new();
        let mut budget = Budget::new(check);
        for from in self.from {
            sources.extend(self.open_one(from, copy, &mut budget)?);
            if sources.len() > MOST_SOURCES {
                let pattern = "what is asked for".to_owned();
                return Err(TransferError::Matches { pattern, most: MOST_SOURCES });
            }
        }
        Ok(sources)
    }

    /// What one of them stands for: several, where it is a pattern.
    fn open_one(
        &self,
        from: &From,
        copy: Option<&CopyId>,
        budget: &mut Budget<'_>,
    ) -> Result<Vec<Source>, TransferError> {
        let path = match from {
            From::Random { bytes } => {
                let seed = copy.map_or_else(random_seed, |copy| Ok(copy.seed()))?;
                return Ok(vec![Source::Random { seed, bytes: *bytes }]);
            }
            From::Zero { bytes } => return Ok(vec![Source::Zero { bytes: *bytes }]),
            From::File { path } => path.as_bytes(),
        };
        let (base, names) = (self.base.clone().ok_or(TransferError::NoRoot)?, self.pick.names.as_ref());
        if names.is_some() {
            return Ok(vec![Source::of(base, OsStr::from_bytes(path).into(), names)]);
        }
        let Expanded { paths, unread } = expand(&base, path, budget)?;
        let there = paths.into_iter().map(|path| Source::of(base.clone(), path, None));
        Ok(there.chain(unread.into_iter().map(|(path, error)| Source::Unread { path, error })).collect())
    }
}

/// A stream in the clear has to be sealed: what its headers say is the client's word, or ours.
fn sealed(
    mut stream: DataStream,
    secret: Option<&StreamSecret>,
    scope: SessionId,
) -> Result<DataStream, TransferError> {
    if stream.protection() == Protection::Clear {
        let secret = secret.ok_or(TransferError::Unsealed)?;
        stream.seal(Seal::new(secret, scope, stream.stream()));
    }
    Ok(stream)
}

fn drop_box(session: &ServerSession, copy: Option<&CopyId>) -> Result<DropBox, TransferError> {
    let path = session.root().ok_or(TransferError::NoRoot)?;
    let Base::Root(root) = Base::root(path)? else { return Err(TransferError::NoRoot) };
    DropBox::make(root, session.token(), copy)
}

pub(super) fn root(session: &ServerSession) -> Result<Base, TransferError> {
    if session.is_everywhere() {
        return Ok(Base::Here);
    }
    Base::root(session.root().ok_or(TransferError::NoRoot)?)
}

/// Sets what was asked of a stream that sends.
fn prepare(stream: &DataStream, request: &CopyRequest) -> Result<(), TransferError> {
    let paced = pacing::set(stream.socket(), request.pace);
    paced.map_err(|source| TransferError::Stream { stream: stream.stream(), source })?;
    let Some(wish) = &request.congestion else { return Ok(()) };
    let failed = |source| TransferError::Congestion { name: wish.name().to_owned(), source };
    congestion::set(stream.socket(), wish).map_err(failed)
}
