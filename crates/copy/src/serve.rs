//! Server of a copy: checks the request, and then acts as sender or receiver.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::server::ServerSession;
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::{CopyId, CopyJob, CopyRequest, RemoteDestination, RemoteSource, Selection};
use lfn_session::wire::third_party::TokenRequest;
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_session::{DataStream, Rights, SessionError, WriteAccess, sender_options};
use rustix::process::{Resource, getrlimit};

use super::base_dir::BaseDir;
use super::client::{check_sources, random_seed};
use super::control_loop::{ControlLoop, StreamDemand};
use super::entry_listener::EntryListener;
use super::rank_group::{DownloadSources, RankGroups, serve_receiving_rank, serve_sending_rank};
use super::receiver::{Destination, Receiver, ReceiverOptions, ReceiverRanks, ReceiverTimeouts};
use super::sender::{Expansion, ExpansionBudget, Listing, Sender, Source, expand};
use super::stall::StallTimeouts;
use super::storage::write_only::WriteOnlyAccess;
use super::stream_auth::authenticate_stream;
use super::stream_set::StreamSet;
use super::write_only::WriteOnlyArea;
use super::{DeniedAction, TransferError};
use crate::proto::open_files::CopyRole;

/// Maximum memory of one session's block buffers: 256 streams of 1 MiB.
const MAX_BUFFER_MEMORY: Bytes = Bytes(256 << 20);

/// Maximum sources of one session, after the expansion of patterns.
const MAX_SOURCES: usize = 65_536;

/// Serves a copy session. `groups` are those of the server.
#[inline(never)]
pub fn serve(session: &mut ServerSession, request: &CopyRequest, groups: &RankGroups) -> Result<(), SessionError> {
    let role = match request.job {
        CopyJob::Put { .. } => CopyRole::Receiver,
        CopyJob::Get { .. } => CopyRole::Sender,
    };
    check_streams(session, role, request.streams, request.block)?;
    let result = match &request.job {
        CopyJob::Put { to } => match &request.rank {
            Some(rank) => serve_sending_rank(groups, session, request, rank, |session| {
                refuse_forbidden_options(session, request)?;
                open_destination(session, request, to, &mut None)
            }),
            None => receive(session, request, to),
        },
        CopyJob::Get { from, selection } => {
            check_download(session, from)?;
            match &request.rank {
                Some(rank) => {
                    let (streams, prepare) = (sending_streams(session, request), |stream: &_| prepare(stream, request));
                    serve_receiving_rank(groups, session, request, rank, streams, prepare, |session| {
                        open_sources(session, request, from, selection)
                    })
                }
                None => send(session, request, from, selection),
            }
        }
    };
    match result {
        Err(TransferError::Interrupted) => {
            Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the server was stopped")))
        }
        result => Ok(result?),
    }
}

/// Checks that the requested streams, their memory and their files are permitted.
pub(super) fn check_streams(
    session: &ServerSession,
    role: CopyRole,
    streams: u16,
    block: Bytes,
) -> Result<(), TransferError> {
    let most = session.limits().max_streams;
    if streams == 0 || streams > most {
        return Err(TransferError::Streams { streams, max: most });
    }
    if u64::from(streams).saturating_mul(block.0) > MAX_BUFFER_MEMORY.0 {
        return Err(TransferError::Memory { streams, block, max: MAX_BUFFER_MEMORY });
    }
    check_open_files(session.max_connections(), role, streams)
}

/// Checks that the process may open the connections and files of the streams. A low limit also reduces the number of
/// connections.
fn check_open_files(max_connections: usize, role: CopyRole, streams: u16) -> Result<(), TransferError> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let for_connections = ConnectionLimits::open_files(usize::from(streams) + 1);
    let has_few_connections = usize::from(streams) >= max_connections && for_connections > limit;
    let mut needed = role.open_files(streams);
    if has_few_connections {
        needed = needed.max(for_connections);
    }
    if needed <= limit {
        return Ok(());
    }
    let max_connected = u16::try_from(max_connections.saturating_sub(1)).unwrap_or(u16::MAX);
    Err(TransferError::ServerOpenFiles { needed, limit, max_streams: role.max_streams(limit).min(max_connected) })
}

fn receive(session: &mut ServerSession, request: &CopyRequest, to: &RemoteDestination) -> Result<(), TransferError> {
    let mut area = None;
    refuse_forbidden_options(session, request)?;
    let destination = open_destination(session, request, to, &mut area)?;
    let secret = request.stream_secret;
    let scope = session.scoped_id();
    let temporary = session.temporary_token_request();
    let since = request.copy.as_ref().and_then(|copy| copy.since);
    // With a temporary token, files from before the token was issued do not count as this copy's own.
    let since = since.map(|since| since.max(temporary.and_then(|temporary| temporary.since).unwrap_or(since)));
    let stream_set = StreamSet::rate_limited_by(session.rate_limiter());
    let options = ReceiverOptions {
        transfer: (*request.transfer_options).clone(),
        listener: EntryListener::default(),
        since,
        block_size: request.block,
        timeouts: ReceiverTimeouts::default(),
        ranks: ReceiverRanks::None,
    };
    let mut receiver = Receiver::start(destination, options, stream_set)?;
    if let Some(asked) = temporary.and_then(TokenRequest::requested_entries) {
        receiver.accept_only(asked);
    }
    let (control, streams, stopping) = session.split_mut();
    let mut arrivals = |_: StreamDemand<'_>| {
        streams.next(Duration::ZERO).map(|stream| authenticate_stream(stream, secret.as_ref(), scope))
    };
    let result = ControlLoop::new(control, Instant::now(), &mut arrivals, stopping, &mut |_, _| {}).run(&mut receiver);
    receiver.close();
    session.update_copy_summary(|copied| {
        copied.tally = receiver.tally();
        copied.digest = result.as_ref().ok().and_then(|ended| ended.digest);
    });
    drop(area);
    result.map(drop)
}

/// Refuses options that would reveal or change existing files, if the client may not do that.
fn refuse_forbidden_options(session: &ServerSession, request: &CopyRequest) -> Result<(), TransferError> {
    let is_write_only = !session.rights().read;
    match forbidden_option(&request.transfer_options).filter(|_| is_write_only) {
        Some(asked) => Err(TransferError::NotAllowed(asked)),
        None => Ok(()),
    }
}

/// Returns the destination of an upload. A client that may only create files writes into its own `area`.
fn open_destination(
    session: &ServerSession,
    request: &CopyRequest,
    to: &RemoteDestination,
    area: &mut Option<WriteOnlyArea>,
) -> Result<Destination, TransferError> {
    Ok(match to {
        RemoteDestination::Null => Destination::Null,
        RemoteDestination::File { path, allowed, single, preserve } => {
            let token = *session.token().1;
            let (base, write_only) = match session.rights() {
                Rights { write: WriteAccess::No, .. } => return Err(TransferError::NotAllowed(DeniedAction::Upload)),
                Rights { write: WriteAccess::CreateOnly, .. } => {
                    let made = area.insert(open_write_only_area(session, request.copy.as_deref())?);
                    session.update_copy_summary(|copied| copied.directory = Some(made.name().to_owned()));
                    (made.base_dir()?, Some(WriteOnlyAccess::to_own_area(&token)))
                }
                Rights { read: false, .. } if allowed.delete => {
                    return Err(TransferError::NotAllowed(DeniedAction::Delete));
                }
                Rights { read: false, .. } => {
                    let written = request.copy.as_ref().map(|copy| session.written_files(copy));
                    (served_root(session)?, Some(WriteOnlyAccess::to_shared_root(&token, written)))
                }
                Rights { .. } => (root(session)?, None),
            };
            let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
            Destination::Path { base, path, overwrite: *allowed, single: *single, preserve: *preserve, write_only }
        }
    })
}

/// Returns the requested option that would reveal or change existing files, if there is one.
fn forbidden_option(transfer_options: &TransferOptions) -> Option<DeniedAction> {
    let asked = [
        (transfer_options.dry_run, DeniedAction::DryRun),
        (transfer_options.delete, DeniedAction::Delete),
        (transfer_options.report_digests, DeniedAction::Manifest),
        (transfer_options.report_unchanged, DeniedAction::ReportUnchanged),
    ];
    asked.into_iter().find_map(|(asked, action)| asked.then_some(action))
}

fn check_download(session: &ServerSession, from: &[RemoteSource]) -> Result<(), TransferError> {
    let has_files = from.iter().any(|from| matches!(from, RemoteSource::File { .. }));
    if has_files && !session.rights().read {
        return Err(TransferError::NotAllowed(DeniedAction::Download));
    }
    Ok(())
}

/// Opens the sources of a download.
fn open_sources(
    session: &ServerSession,
    request: &CopyRequest,
    from: &[RemoteSource],
    selection: &Selection,
) -> Result<DownloadSources, TransferError> {
    let sources = RequestedSources::of(session, from, selection)?.open(request.copy.as_deref(), &|| session.check())?;
    let listing = Listing::new(selection)
        .with_generated_time(request.copy.as_ref().map(|copy| copy.began))
        .with_options(&request.transfer_options);
    Ok(DownloadSources { sources, listing })
}

/// Returns the streams of a session that sends.
fn sending_streams(session: &ServerSession, request: &CopyRequest) -> StreamSet {
    let streams = StreamSet::rate_limited_by(session.rate_limiter()).with_congestion(request.congestion.as_ref());
    if request.stripes > 1 { streams.with_stall_timeouts(StallTimeouts::STRIPES) } else { streams }
}

fn send(
    session: &mut ServerSession,
    request: &CopyRequest,
    from: &[RemoteSource],
    selection: &Selection,
) -> Result<(), TransferError> {
    let secret = request.stream_secret;
    let scope = session.scoped_id();
    let DownloadSources { sources, listing } = open_sources(session, request, from, selection)?;
    let mut sender = Sender::start(sources, listing, request.block, sending_streams(session, request))?;
    let (control, streams, stopping) = session.split_mut();
    let mut arrivals = |_: StreamDemand<'_>| {
        let stream = streams.next(Duration::ZERO)?;
        Some(
            authenticate_stream(stream, secret.as_ref(), scope)
                .and_then(|stream| prepare(&stream, request).map(|()| stream)),
        )
    };
    ControlLoop::new(control, Instant::now(), &mut arrivals, stopping, &mut |_, _| {}).run(&mut sender).map(|ended| {
        session.update_copy_summary(|copied| {
            copied.tally = ended.tally;
            copied.digest = ended.digest;
        });
    })
}

/// The requested sources, below the root of the session.
pub(super) struct RequestedSources<'a> {
    from: &'a [RemoteSource],
    selection: &'a Selection,
    /// `None` if no source is a file.
    base: Option<Arc<BaseDir>>,
}

impl<'a> RequestedSources<'a> {
    /// Resolves the requested sources in the session.
    pub(super) fn of(
        session: &ServerSession,
        from: &'a [RemoteSource],
        selection: &'a Selection,
    ) -> Result<Self, TransferError> {
        check_sources(selection, from.len())?;
        let files = from.iter().any(|from| matches!(from, RemoteSource::File { .. }));
        let base = files.then(|| root(session)).transpose()?.map(Arc::new);
        Ok(RequestedSources { from, selection, base })
    }

    /// Opens the sources. `check` reports when to stop early.
    pub(super) fn open(
        &self,
        copy: Option<&CopyId>,
        check: &dyn Fn() -> Result<(), SessionError>,
    ) -> Result<Vec<Source>, TransferError> {
        let mut sources = Vec::new();
        let mut budget = ExpansionBudget::new(check);
        for from in self.from {
            sources.extend(self.open_one(from, copy, &mut budget)?);
            if sources.len() > MAX_SOURCES {
                let pattern = "what is asked for".to_owned();
                return Err(TransferError::TooManyMatches { pattern, max: MAX_SOURCES });
            }
        }
        Ok(sources)
    }

    /// Opens one source; a pattern returns several sources.
    fn open_one(
        &self,
        from: &RemoteSource,
        copy: Option<&CopyId>,
        budget: &mut ExpansionBudget<'_>,
    ) -> Result<Vec<Source>, TransferError> {
        let path = match from {
            RemoteSource::Random { bytes } => {
                let seed = copy.map_or_else(random_seed, |copy| Ok(copy.seed()))?;
                return Ok(vec![Source::Random { seed, bytes: *bytes }]);
            }
            RemoteSource::Zero { bytes } => return Ok(vec![Source::Zero { bytes: *bytes }]),
            RemoteSource::File { path } => path.as_bytes(),
        };
        let (base, names) = (self.base.clone().ok_or(TransferError::NoRoot)?, self.selection.names.as_ref());
        if names.is_some() {
            return Ok(vec![Source::new(base, OsStr::from_bytes(path).into(), names)]);
        }
        let Expansion { paths, unreadable } = expand(&base, path, budget)?;
        let there = paths.into_iter().map(|path| Source::new(base.clone(), path, None));
        Ok(there.chain(unreadable.into_iter().map(|(path, error)| Source::Unreadable { path, error })).collect())
    }
}

fn open_write_only_area(session: &ServerSession, copy: Option<&CopyId>) -> Result<WriteOnlyArea, TransferError> {
    let path = session.root().ok_or(TransferError::NoRoot)?;
    let BaseDir::Root(root) = BaseDir::root(path)? else { return Err(TransferError::NoRoot) };
    {
        let (holder, token) = session.token();
        WriteOnlyArea::create(root, holder, token, copy)
    }
}

pub(super) fn root(session: &ServerSession) -> Result<BaseDir, TransferError> {
    if session.is_unconfined() { Ok(BaseDir::Local) } else { served_root(session) }
}

/// Returns the root that the server serves, which no path can leave.
pub(super) fn served_root(session: &ServerSession) -> Result<BaseDir, TransferError> {
    BaseDir::root(session.root().ok_or(TransferError::NoRoot)?)
}

/// Sets the requested pacing and congestion control of a sending stream.
fn prepare(stream: &DataStream, request: &CopyRequest) -> Result<(), TransferError> {
    // Without a socket, the transport has its own pacing and congestion control.
    let socket = stream.handle().socket();
    let paced = socket.map_or(Ok(()), |socket| sender_options::set_pacing_rate(socket, request.pace));
    paced.map_err(|source| TransferError::Stream { stream: stream.stream(), source })?;
    let Some(wish) = &request.congestion else { return Ok(()) };
    if socket.is_none() && wish.requested().is_none() {
        return Ok(());
    }
    let failed = |source| TransferError::Congestion { name: wish.name().to_owned(), source };
    stream
        .handle()
        .require_socket()
        .and_then(|socket| sender_options::set_congestion_control(socket, wish))
        .map_err(failed)
}
