//! A copy before its start: the options, the direction, the servers and the plan of the streams.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::proto::streams::{CountReason, StreamPlan};
use lfn_copy::{CopyOptions, EntryListener, RankBoard, RankOptions, StallTimeouts};
use lfn_queue::QueueOptions;
use lfn_results::evidence::TypedArgument;
use lfn_session::Protection;
use lfn_session::dial::{ServerConnection, Target};
use lfn_session::transport::tcp::has_multipath;
use lfn_session::wire::copy::Selection;
use lfn_session::wire::copy::blocks::DEFAULT_BLOCK;
use lfn_session::wire::copy::options::TransferOptions;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::ranks::RankRequest;

use super::error::CopyError;
use super::open_files::{check_open_files, reduce_to_open_files};
use super::places::{CopyPlaceError, Direction, direction, refuse_missing_colon};
use super::queue_sources::check_direction;
use super::streams::{self, StreamOptions, Transport};
use super::stripes::{check_stripes, resolve_stripes};
use crate::emulator_env::EmulatorEnvironment;
use crate::prediction::Predictor;
use crate::resolve::{ReachedServer, ServerResolver};

/// Options of a copy.
#[derive(Debug, Clone, Default)]
pub struct CopyRequest {
    /// Sources, then the destination, each as `lfn copy` takes it.
    pub places: Vec<OsString>,
    /// Rules for existing files.
    pub overwrite: OverwritePolicy,
    /// Filter of the entries, and attributes to preserve.
    pub selection: Selection,
    /// Verification, syncing and reporting.
    pub transfer: TransferOptions,
    pub streams: StreamOptions,
    /// The place of this host among the ranks of the copy. `None` if it copies alone.
    pub rank: Option<RankRequest>,
    /// The queue that this host shares with other movers. `None` if it copies alone.
    pub queue: Option<QueueOptions>,
    /// Flags that repeat the copy on a command line, for the remedies of findings.
    pub typed_flags: Vec<TypedArgument>,
    /// Receives the results of entries, on several threads.
    pub entries: EntryListener,
}

/// A copy whose servers are reached and whose streams are planned.
#[derive(Debug)]
pub struct PreparedCopy {
    pub(super) places: Vec<OsString>,
    pub(super) direction: Direction,
    /// Flags that repeat the copy, for the remedies of findings.
    pub(super) typed_flags: Vec<TypedArgument>,
    pub(super) queue: Option<QueueOptions>,
    pub(super) far: ReachedServer,
    /// Receiving server of a third-party copy.
    pub(super) other: Option<ReachedServer>,
    pub options: CopyOptions,
    /// Pairs of addresses that `--stripe auto` tried without success, with the reason.
    pub failed_pairs: Vec<String>,
    /// Transport of the data streams, as requested.
    pub transport: Transport,
    /// Settings of the streams with their reasons.
    pub choice: StreamPlan,
    pub predictor: Predictor,
    /// Bytes that a send buffer of the sender holds, if known.
    pub send_buffer: Option<Bytes>,
}

/// Returns the direction of the copy. Refuses places that are probably mistakes, before a server is reached.
pub fn find_direction(request: &CopyRequest, resolver: &ServerResolver) -> Result<Direction, CopyError> {
    if request.places.len() < 2 {
        return Err(CopyPlaceError::NoPlaces.into());
    }
    refuse_missing_colon(&request.places, &resolver.environment)?;
    let mut direction = direction(&request.places, request.overwrite, &request.selection)?;
    direction.start_at_home(|host| resolver.is_over_ssh(host))?;
    request.streams.check()?;
    check_rank(request, &direction)?;
    check_queue(request, &direction)?;
    check_stripes(&request.streams.stripes, &direction)?;
    Ok(direction)
}

/// Refuses what several ranks cannot do together.
fn check_rank(request: &CopyRequest, direction: &Direction) -> Result<(), CopyError> {
    let Some(rank) = &request.rank else { return Ok(()) };
    let options = [
        ("--delete", request.overwrite.delete || request.transfer.delete),
        ("--checksum", request.overwrite.checksum),
        ("--hard-links", request.selection.preserve.hard_links),
        ("--dry-run", request.transfer.dry_run),
    ];
    if let Some((option, _)) = options.iter().find(|(_, is_set)| *is_set) {
        return Err(CopyError::RankOption(option));
    }
    if direction.is_local() || direction.other_host().is_some() {
        return Err(CopyError::RankDirection);
    }
    if rank.offset.is_some() && matches!(direction, Direction::Download(..)) {
        return Err(CopyError::RankPieceOfDownload);
    }
    if rank.offset.is_some() && request.places.len() != 2 {
        return Err(CopyError::RankPieces);
    }
    Ok(())
}

/// Refuses what a queue cannot do.
fn check_queue(request: &CopyRequest, direction: &Direction) -> Result<(), CopyError> {
    if request.queue.is_none() {
        return Ok(());
    }
    let options = [
        ("--ranks", request.rank.is_some()),
        ("--delete", request.overwrite.delete || request.transfer.delete),
        ("--dry-run", request.transfer.dry_run),
        ("--hard-links", request.selection.preserve.hard_links),
    ];
    match options.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) => Err(CopyError::QueueOption(option)),
        None => check_direction(direction),
    }
}

/// Reaches the servers and plans the streams.
pub fn prepare(
    direction: Direction,
    request: &CopyRequest,
    resolver: &ServerResolver,
    interrupted: &Arc<AtomicBool>,
) -> Result<PreparedCopy, CopyError> {
    let find_or_start = |host, allow_third_party| {
        let reached = resolver.find_or_start(host, allow_third_party, interrupted);
        // The terminal interrupts ssh too, so that the connection fails at the same time.
        reached.map_err(|error| if interrupted.load(Ordering::Relaxed) { CopyError::Interrupted } else { error.into() })
    };
    // Some options are known only after the direction.
    check_rank(request, &direction)?;
    check_queue(request, &direction)?;
    check_open_files(&direction, request.streams.streams)?;
    let is_local = direction.is_local();
    let mut far = find_or_start(direction.host(), direction.other_host().is_some())?;
    let transport = request.streams.transport;
    if transport == Transport::Mptcp && has_multipath() {
        far.target = far.target.multipath_everywhere();
    }
    let other = direction.other_host().map(|host| find_or_start(host, false)).transpose()?;
    let is_one_server = other.as_ref().is_some_and(|other| other.target.is_same_server(&far.target));
    let mut transfer_options = request.transfer.clone();
    // The check costs one RTT over a network, and without it a deletion could delete the source.
    transfer_options.same_host = is_local
        || direction.is_on_one_host()
        || is_one_server
        || transfer_options.delete
        || far.target.has_local_address();
    // The ranks must agree on the options, and at most one of them is on the host of the server.
    transfer_options.same_host &= request.rank.is_none();
    transfer_options.multiple_sources = direction.has_several_sources();
    let streams = &request.streams;
    let (stripes, failed_pairs) = resolve_stripes(&streams.stripes, &far.target)?;
    let path =
        if is_local { None } else { path_profile(&direction, streams.rate, &far.target, &resolver.environment)? };
    // The send buffer of the other host is unknown before the session.
    let send_buffer = if direction.near_sends() { streams::send_buffer() } else { None };
    let choice = streams.plan_streams(path.as_ref(), direction.size(), send_buffer, stripes.stripes().len());
    let choice = reduce_to_open_files(&direction, choice);
    // No other user can read data that stays on this host, unless that user can read the files.
    let protection = if is_local { Protection::Clear } else { streams.protection() };
    let congestion = choice.congestion.unwrap_or_default();
    let predictor =
        Predictor { path, rate: streams.rate, congestion, streams: choice.streams, protection: Some(protection) };
    let stall_timeouts = if stripes.has_alternatives() { StallTimeouts::STRIPES } else { StallTimeouts::default() };
    let options = CopyOptions {
        streams: choice.streams,
        max_streams: choice.max_streams,
        grows_with_list: choice.streams_reason == CountReason::UnknownSize,
        // The ranks must agree on the block size, and each knows only its own part.
        block: if request.rank.is_some() { streams.block_size.unwrap_or(DEFAULT_BLOCK) } else { choice.block },
        protection,
        congestion: streams.congestion_request(&choice),
        pace: choice.pace,
        predicted: predictor.predict(Bytes(0), None).map(|predicted| predicted.goodput),
        selection: request.selection.clone(),
        transfer_options,
        listener: request.entries.clone(),
        retry_for: streams.retry_for,
        rank: request.rank.clone().map(|request| RankOptions { request, board: RankBoard::default() }),
        id: None,
        stall_timeouts,
        stripes,
    };
    Ok(PreparedCopy {
        places: request.places.clone(),
        direction,
        typed_flags: request.typed_flags.clone(),
        queue: request.queue.clone(),
        far,
        other,
        options,
        failed_pairs,
        transport,
        choice,
        predictor,
        send_buffer,
    })
}

impl PreparedCopy {
    /// Reports whether this host sends; in a third-party copy, whether the first server sends.
    pub fn near_sends(&self) -> bool {
        self.direction.near_sends()
    }
}

/// Returns the figures of the path before the copy, as far as known: those of the emulator, or the capacity of `rate`
/// with the RTT of one extra connection.
fn path_profile(
    direction: &Direction,
    rate: Option<BitRate>,
    target: &Target,
    emulator: &EmulatorEnvironment,
) -> Result<Option<PathProfile>, CopyError> {
    // A sending server uses the return path.
    let known = match direction {
        Direction::Upload(..) => emulator.path()?,
        Direction::Download(..) => emulator.return_path()?,
        // The path between two servers is unknown here, and this host's RTT does not apply to it.
        Direction::ThirdParty { .. } => return Ok(None),
    };
    let Some(capacity) = rate else { return Ok(known) };
    if let Some(path) = known {
        return Ok(Some(PathProfile { capacity, ..path }));
    }
    // An unreachable server is dialled again by the copy itself, which then reports the error.
    Ok(ServerConnection::connect(target).ok().map(|connection| PathProfile::new(capacity, connection.min_rtt())))
}
