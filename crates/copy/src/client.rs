//! Client of a copy: dials all connections at once, with the request in the first flight.
//!
//! Data streams start to send as soon as their own handshake is complete. If the server refuses, its reason arrives
//! over the control connection and the streams are shut down. Threads that still dial when the copy ends run into their
//! timeouts. This module handles one session; [`super::resumable_copy`] reconnects after a lost session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, channel};
use std::time::Instant;
use std::{io, thread};

use lfn_results::evidence::ProgressSample;
use lfn_session::dial::{self, Target};
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::wire::copy::entry::{Modified, final_name};
use lfn_session::wire::copy::glob::is_pattern;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::requested_entries::RequestedEntries;
use lfn_session::wire::copy::{CopyId, CopyJob, CopyRequest, RemoteDestination, RemoteSource, Selection};
use lfn_session::wire::{HELLO_LIMIT, Refusal, Request};
use lfn_session::{Control, DEAD_PEER_TIMEOUT, DataStream, Protection, SessionError, SessionId, queue};

use super::TransferError;
use super::base_dir::BaseDir;
use super::control_loop::{ControlLoop, NewStreams, StreamDemand};
use super::copy_options::{CopyObserver, CopyOptions, CopyOutcome, LocalDestination, LocalSource, RankOptions};
use super::receiver::{Destination, RankWriter, Receiver, ReceiverOptions, ReceiverRanks, ReceiverTimeouts};
use super::resumable_copy::{POLL_INTERVAL, ResumableCopy};
use super::role::{CopyResult, ListedTotals, Role};
use super::sender::{Listing, Sender, Source};
use super::stream_pool::{StreamPool, thread_error};
use super::stream_set::StreamSet;
use super::stripe_dial;
use super::waiting_rank::WaitingRank;

/// Copies local sources to a remote host.
pub fn upload(
    target: &Target,
    from: &[LocalSource],
    to: RemoteDestination,
    options: &CopyOptions,
    watch: CopyObserver<'_>,
) -> Result<CopyOutcome, TransferError> {
    check_sources(&options.selection, from.len())?;
    let open = |id: &CopyId| Ok(from.iter().map(|from| open_source(from, options, id)).collect());
    upload_with(target, &open, None, None, to, options, watch)
}

/// Seed of the random bytes that several ranks send together.
const RANKS_SEED: u64 = 0x6c66_6e20_7261_6e6b;

/// Opens the sources; called for each session.
pub(super) type OpenSources<'a> = &'a dyn Fn(&CopyId) -> Result<Vec<Source>, TransferError>;

/// Like [`upload`], with a custom opener, a rate limiter and an explicit copy id (third-party copies).
pub(super) fn upload_with(
    target: &Target,
    open: OpenSources<'_>,
    limiter: Option<Arc<RateLimiter>>,
    id: Option<CopyId>,
    to: RemoteDestination,
    options: &CopyOptions,
    watch: CopyObserver<'_>,
) -> Result<CopyOutcome, TransferError> {
    check_request_size(&options.transfer_options.protect)?;
    let job = CopyJob::Put { to };
    let mut copy = ResumableCopy::new(target, options, watch)?;
    copy.id = id.unwrap_or(copy.id);
    copy.run(|copy| {
        let mut sent = None;
        let result = upload_once(copy, open, limiter.as_ref(), &job, &mut sent);
        if let Some(sender) = sent {
            sender.streams().shut_down();
            copy.id.since = copy.id.since.or(sender.started_at());
            copy.digest = sender.digest().or(copy.digest);
            copy.replaced += sender.streams().failed_streams();
        }
        result
    })
}

fn upload_once(
    copy: &mut ResumableCopy<'_>,
    open: OpenSources<'_>,
    limiter: Option<&Arc<RateLimiter>>,
    job: &CopyJob,
    sent: &mut Option<Sender>,
) -> Result<CopyResult, TransferError> {
    let (options, id) = (&copy.options.clone(), copy.id);
    let begin = || -> Result<Sender, TransferError> {
        let sources = open(&id)?;
        let streams = limiter
            .cloned()
            .map_or_else(StreamSet::default, StreamSet::rate_limited_by)
            .with_stall_timeouts(options.stall_timeouts)
            .with_stripes(&options.stripes)
            .with_congestion(options.congestion.as_ref());
        // All ranks generate the same file.
        let generated_at = if options.rank.is_some() { Modified::default() } else { id.began };
        let mut listing = Listing::new(&options.selection)
            .with_generated_time(Some(generated_at))
            .with_options(&options.transfer_options);
        listing.rank_board = options.rank.as_ref().map(|rank| rank.board.clone());
        let sender = Sender::start(sources, listing, options.block, streams)?;
        sender.set_listener(options.listener.clone());
        Ok(sender)
    };
    let (mut sender, mut was_admitted) = (begin()?, false);
    let session = dial::new_session_id()?;
    let mut dialled = PendingSession::start(copy, session, job.clone());
    let wanted = copy.target_count.clone();
    let mut pool = StreamPool::start(&copy.target, session, options, &wanted, deliver_to(&sender))?;
    let result = dialled.await_admission(copy, || sender.streams().shut_down()).and_then(|(control, turn)| {
        if let Some(session) = turn {
            sender = begin()?;
            pool = StreamPool::start(&copy.target, session, options, &wanted, deliver_to(&sender))?;
        }
        was_admitted = true;
        let mut arrivals = |demand: StreamDemand<'_>| maintain_streams(&mut pool, demand).err().map(Err);
        run_control_loop(copy, control, &mut arrivals, &mut sender)
    });
    sender.streams().shut_down();
    *sent = was_admitted.then_some(sender);
    dialled.end(result)
}

/// Copies remote sources to this host.
pub fn download(
    target: &Target,
    from: Vec<RemoteSource>,
    to: &LocalDestination,
    options: &CopyOptions,
    watch: CopyObserver<'_>,
) -> Result<CopyOutcome, TransferError> {
    check_sources(&options.selection, from.len())?;
    check_request_size(&(&from, &options.selection))?;
    let single = options.selection.names.is_none() && matches!(from.as_slice(), [only] if is_single(only));
    let job = CopyJob::Get { from, selection: options.selection.clone() };
    ResumableCopy::new(target, options, watch)?.run(|copy| {
        let mut received = None;
        let result =
            download_once(copy, &job, || local_destination(to, single, options.selection.preserve), &mut received);
        if let Some(receiver) = received {
            copy.id.since = copy.id.since.or(Some(receiver.started_at()));
            copy.digest = receiver.digest().or(copy.digest);
            copy.replaced += receiver.streams().failed_streams();
        }
        result
    })
}

fn download_once(
    copy: &mut ResumableCopy<'_>,
    job: &CopyJob,
    destination: impl Fn() -> Destination,
    received: &mut Option<Receiver>,
) -> Result<CopyResult, TransferError> {
    let (options, since) = (&copy.options.clone(), copy.id.since);
    let (deliver, mut streams) = stream_channel();
    let session = dial::new_session_id()?;
    let mut dialled = PendingSession::start(copy, session, job.clone());
    let wanted = copy.target_count.clone();
    let mut pool = StreamPool::start(&copy.target, session, options, &wanted, deliver.clone())?;
    let result = dialled.await_admission(copy, || ()).and_then(|(control, turn)| {
        if let Some(session) = turn {
            let (deliver, anew) = stream_channel();
            // Streams that were dialled before are closed together with their channel.
            streams = anew;
            pool = StreamPool::start(&copy.target, session, options, &wanted, deliver)?;
        }
        let CopyJob::Get { from, selection } = job else { return Err(TransferError::Incomplete) };
        let requested = RequestedEntries::new(from, selection);
        let mut arrivals = |demand: StreamDemand<'_>| match maintain_streams(&mut pool, demand) {
            Ok(()) => streams.try_recv().ok().map(Ok),
            Err(error) => Some(Err(error)),
        };
        let stream_set =
            StreamSet::default().with_stall_timeouts(options.stall_timeouts).with_stripes(&options.stripes);
        let mut ranks = ReceiverRanks::None;
        if let Some(RankOptions { board, .. }) = &options.rank {
            if !await_appointment(copy, control)? {
                let (transfer, board) = (&options.transfer_options, board.clone());
                let mut writer =
                    RankWriter::start(destination(), requested, transfer, options.block, board, stream_set)?;
                let result = run_control_loop(copy, control, &mut arrivals, &mut writer);
                writer.close();
                return result;
            }
            ranks = ReceiverRanks::Receiving(board.clone());
        }
        let receiver_options = ReceiverOptions {
            transfer: options.transfer_options.clone(),
            listener: options.listener.clone(),
            since,
            block_size: options.block,
            timeouts: ReceiverTimeouts::default(),
            ranks,
        };
        let receiver = received.insert(Receiver::start(destination(), receiver_options, stream_set)?);
        receiver.accept_only(requested);
        let result = run_control_loop(copy, control, &mut arrivals, receiver);
        receiver.close();
        result
    });
    dialled.end(result)
}

/// Waits until the server has appointed the lead of the ranks. Returns whether this rank is the lead.
fn await_appointment(copy: &ResumableCopy<'_>, control: &mut Control) -> Result<bool, TransferError> {
    let mut waiting = WaitingRank::default();
    let mut ignored = |_, _: &ProgressSample| {};
    ControlLoop::new(control, copy.started, &mut |_| None, copy.interrupted, &mut ignored).run(&mut waiting)?;
    Ok(waiting.is_lead())
}

/// Opens missing streams while there is work for them.
fn maintain_streams<D: Fn(DataStream) + Clone + Send + 'static>(
    pool: &mut StreamPool<D>,
    demand: StreamDemand<'_>,
) -> Result<(), TransferError> {
    if demand.is_needed { pool.maintain(demand.streams, Instant::now()) } else { Ok(()) }
}

/// Runs the control loop of one session.
fn run_control_loop<S: Role>(
    copy: &mut ResumableCopy<'_>,
    control: &mut Control,
    arrivals: NewStreams<'_>,
    side: &mut S,
) -> Result<CopyResult, TransferError> {
    let (interrupted, started) = (copy.interrupted, copy.started);
    let mut observer = |listed: ListedTotals, sample: &ProgressSample| copy.observe(listed, sample);
    let (result, moved) = {
        let mut control_loop = ControlLoop::new(control, started, arrivals, interrupted, &mut observer);
        (control_loop.run(side), control_loop.last_progress())
    };
    copy.last_progress_at = moved.map_or(copy.last_progress_at, |moved| moved.max(copy.last_progress_at));
    result
}

/// Returns a function that runs each new stream on the sender.
fn deliver_to(sender: &Sender) -> impl Fn(DataStream) + Clone + Send + use<> {
    let worker = sender.stream_worker();
    move |stream| worker(stream)
}

/// Returns a function that queues new streams, and the queue.
fn stream_channel() -> (impl Fn(DataStream) + Clone + Send + 'static, mpsc::Receiver<DataStream>) {
    let (queue, streams) = channel();
    let deliver = move |stream| {
        // A finished copy no longer reads the queue.
        let _ = queue.send(stream);
    };
    (deliver, streams)
}

/// Returns a random seed that differs for every copy.
pub(crate) fn random_seed() -> Result<u64, TransferError> {
    let seed = getrandom::u64();
    seed.map_err(|e| SessionError::Io { peer: "the kernel", source: io::Error::other(e) }.into())
}

fn open_source(from: &LocalSource, options: &CopyOptions, id: &CopyId) -> Source {
    // All ranks generate the same bytes.
    let seed = if options.rank.is_some() { RANKS_SEED } else { id.seed() };
    let offset = options.rank.as_ref().and_then(|rank| rank.request.offset);
    match (from, &options.selection.names) {
        (LocalSource::File(path), None) if offset.is_some() => {
            let base = Arc::new(BaseDir::Local);
            Source::Piece { base, path: path.clone(), offset: offset.unwrap_or_default() }
        }
        (LocalSource::File(path), names) => Source::new(Arc::new(BaseDir::Local), path.clone(), names.as_ref()),
        (LocalSource::Entries { directory, names }, _) => {
            let base = Arc::new(BaseDir::Local);
            Source::Entries { base, path: directory.clone(), names: names.clone() }
        }
        (LocalSource::Random(bytes), _) => Source::Random { seed, bytes: *bytes },
        (LocalSource::Zero(bytes), _) => Source::Zero { bytes: *bytes },
    }
}

/// Reports whether a source is a single object by its name: neither the contents of a directory nor a pattern.
fn is_single(from: &RemoteSource) -> bool {
    match from {
        RemoteSource::File { path } => final_name(path.as_bytes()).is_some() && !is_pattern(path.as_bytes()),
        RemoteSource::Random { .. } | RemoteSource::Zero { .. } => true,
    }
}

/// Checks that patterns and names fit into the first message. Its length is limited, because the client is not
/// authenticated yet.
pub(super) fn check_request_size(request: &impl serde::Serialize) -> Result<(), TransferError> {
    const MAX_LENGTH: usize = HELLO_LIMIT - 4096;
    let bytes = serde_json::to_vec(request).map_or(usize::MAX, |json| json.len());
    if bytes > MAX_LENGTH { Err(TransferError::RequestTooLarge { bytes, max: MAX_LENGTH }) } else { Ok(()) }
}

/// Checks that a list of names has exactly one source directory.
pub(super) fn check_sources(selection: &Selection, sources: usize) -> Result<(), TransferError> {
    if selection.names.is_some() && sources != 1 {
        Err(TransferError::MultipleSourcesWithNames { sources })
    } else {
        Ok(())
    }
}

fn local_destination(to: &LocalDestination, single: bool, preserve: Preserve) -> Destination {
    match to {
        LocalDestination::Null => Destination::Null,
        LocalDestination::File { path, allowed } => Destination::Path {
            base: BaseDir::Local,
            path: path.clone(),
            overwrite: *allowed,
            single,
            preserve,
            write_only: None,
        },
    }
}

/// The control connection of a session.
struct PendingSession {
    dialling: mpsc::Receiver<Result<Control, TransferError>>,
    control: Option<Control>,
}

impl PendingSession {
    /// Starts to dial the control connection.
    fn start(copy: &ResumableCopy<'_>, session: SessionId, job: CopyJob) -> Self {
        let (sender, dialling) = channel();
        let CopyOptions { max_streams: streams, block, congestion, pace, .. } = copy.options.clone();
        let clear = copy.options.protection == Protection::Clear;
        let stream_secret = clear.then(|| copy.target.stream_secret());
        let mut transfer_options = copy.options.transfer_options.clone();
        if matches!(job, CopyJob::Get { .. }) {
            // The filter rules of a download apply on this host.
            transfer_options.protect = Box::default();
        }
        let id = Some(Box::new(copy.id));
        let request = CopyRequest {
            job,
            streams,
            block,
            congestion,
            pace,
            stream_secret,
            stripes: u16::try_from(copy.options.stripes.stripes().len()).unwrap_or(u16::MAX),
            copy: id,
            rank: copy.options.rank.as_ref().map(|rank| Box::new(rank.request.clone())),
            transfer_options: Box::new(transfer_options),
        };
        let (target, stripes, failed) = (copy.target.clone(), copy.options.stripes.clone(), sender.clone());
        let dial = move || {
            let request = Request::Copy(request);
            let control = if stripes.stripes().is_empty() {
                dial::open_control(&target, session, request).map_err(TransferError::from)
            } else {
                stripe_dial::open_control(&stripes, &target, session, &request)
            };
            // An interrupted copy no longer reads the result.
            let _ = sender.send(control);
        };
        if let Err(source) = thread::Builder::new().name("control".into()).spawn(dial) {
            // The channel is open, because this function holds its other end.
            let _ = failed.send(Err(thread_error(source)));
        }
        PendingSession { dialling, control: None }
    }

    fn control(&mut self, copy: &mut ResumableCopy<'_>) -> Result<&mut Control, TransferError> {
        loop {
            if copy.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            match self.dialling.recv_timeout(POLL_INTERVAL) {
                Ok(control) => {
                    let control = self.control.insert(control?);
                    copy.server_reached = true;
                    return Ok(control);
                }
                Err(RecvTimeoutError::Timeout) => copy.tick(),
                Err(RecvTimeoutError::Disconnected) => return Err(TransferError::Interrupted),
            }
        }
    }

    /// Waits until the server admits the session. Returns the control connection, and a new session id for the data
    /// streams if the session had to wait. Calls `waits` if it must wait.
    fn await_admission(
        &mut self,
        copy: &mut ResumableCopy<'_>,
        waits: impl FnOnce(),
    ) -> Result<(&mut Control, Option<SessionId>), TransferError> {
        let control = self.control(copy)?;
        let (interrupted, asked) = (copy.interrupted, Instant::now());
        let (queue_patience, was_admitted) = (copy.target.queue, &mut copy.was_admitted);
        let waits = || {
            *was_admitted = true;
            waits();
        };
        let turn = queue::wait_for_admission(control, &queue_patience, DEAD_PEER_TIMEOUT, Some(interrupted), waits)?;
        if interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        if turn.is_some() {
            copy.on_admitted(asked.elapsed());
        }
        if !control.is_refused()? {
            copy.enter();
        }
        Ok((control, turn))
    }

    /// Reports the result to the server and closes the connection.
    fn end<T>(&mut self, result: Result<T, TransferError>) -> Result<T, TransferError> {
        let Some(mut control) = self.control.take() else { return result };
        let result = match result {
            Err(error @ TransferError::Session(SessionError::Refused(_) | SessionError::Closed { .. })) => Err(error),
            Err(error) => {
                // If the server is still connected, it learns the reason.
                let _ = control.refuse(&Refusal::from(&error));
                Err(error)
            }
            Ok(value) => Ok(value),
        };
        control.close();
        result
    }
}
