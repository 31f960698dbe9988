//! The session of one rank: exchanges messages with the rank, and runs its data streams.

use std::sync::Arc;
use std::sync::mpsc::{Receiver as Inbox, SyncSender};
use std::time::{Duration, Instant};

use lfn_session::DataStream;
use lfn_session::server::ServerSession;
use lfn_session::wire::Refusal;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::ranks::{MAX_JOB_LENGTH, MAX_RANKS, RankRequest};
use lfn_session::wire::copy::{CopyJob, CopyRequest, RemoteDestination};

use super::download::{DownloadGroup, DownloadSources};
use super::error::{MAX_BORDER_MEMORY, RankError};
use super::event::{Applicant, CommonOptions, Event, Seat};
use super::mailbox::Mailbox;
use super::registry::{GroupKey, Groups, RankGroups, SeatedRank};
use super::settings::GroupSettings;
use super::upload::UploadGroup;
use crate::TransferError;
use crate::control_loop::{ControlLoop, StreamDemand};
use crate::receiver::Destination;
use crate::role::{CopyResult, ListedTotals, Role, SideMessage, StreamWorker};
use crate::stream_auth::authenticate_stream;
use crate::stream_set::StreamSet;

/// Serves the session of one rank that sends. `destination` opens the destination for the first rank of a group.
pub(crate) fn serve_sending_rank(
    groups: &RankGroups,
    session: &mut ServerSession,
    request: &CopyRequest,
    rank: &RankRequest,
    destination: impl Fn(&ServerSession) -> Result<Destination, TransferError>,
) -> Result<(), TransferError> {
    check(request, rank)?;
    let streams = StreamSet::rate_limited_by(session.rate_limiter());
    let settings = settings(session, request, rank);
    let start = |session: &ServerSession, events| {
        let group = UploadGroup::start(destination(session)?, settings.clone(), events)?;
        Ok(move || group.run())
    };
    serve_rank(&groups.uploads, session, request, rank, streams, |_| Ok(()), start)
}

/// Serves the session of one rank that receives. `sources` opens the sources for the first rank of a group. `prepare`
/// sets the options of a new stream.
pub(crate) fn serve_receiving_rank(
    groups: &RankGroups,
    session: &mut ServerSession,
    request: &CopyRequest,
    rank: &RankRequest,
    streams: StreamSet,
    prepare: impl Fn(&DataStream) -> Result<(), TransferError>,
    sources: impl Fn(&ServerSession) -> Result<DownloadSources, TransferError>,
) -> Result<(), TransferError> {
    check(request, rank)?;
    let settings = settings(session, request, rank);
    let start = |session: &ServerSession, events| {
        let group = DownloadGroup::start(sources(session)?, settings.clone(), events)?;
        Ok(move || group.run())
    };
    serve_rank(&groups.downloads, session, request, rank, streams, prepare, start)
}

fn settings(session: &ServerSession, request: &CopyRequest, rank: &RankRequest) -> GroupSettings {
    GroupSettings {
        request: rank.clone(),
        block: request.block,
        options: CommonOptions { transfer: (*request.transfer_options).clone(), job: request.job.clone() },
        counters: session.rank_counters(),
    }
}

/// Seats the rank in its group, and exchanges messages with it until the end of the copy.
fn serve_rank<I: SideMessage, O: SideMessage, R: 'static, G: FnOnce() -> R + Send + 'static>(
    groups: &Groups<I, O>,
    session: &mut ServerSession,
    request: &CopyRequest,
    rank: &RankRequest,
    streams: StreamSet,
    prepare: impl Fn(&DataStream) -> Result<(), TransferError>,
    start: impl Fn(&ServerSession, Inbox<Event<I, O>>) -> Result<G, TransferError>,
) -> Result<(), TransferError> {
    let streams = Arc::new(streams);
    let options = CommonOptions { transfer: (*request.transfer_options).clone(), job: request.job.clone() };
    let (address, copy) = (session.peer().ip(), request.copy.as_ref().map_or(session.scoped_id(), |copy| copy.id));
    let key = GroupKey::new(session.token().1.0, &request.job, rank);
    let applicant = |answer: SyncSender<Result<Seat<O>, Refusal>>| Applicant {
        request: rank.clone(),
        copy,
        block: request.block,
        options: options.clone(),
        address,
        streams: streams.clone(),
        answer,
    };
    let SeatedRank { seat, events } = groups.join(&key, applicant, |inbox| start(session, inbox))?;
    let (secret, scope) = (request.stream_secret, session.scoped_id());
    let mut side = RankSide {
        rank: rank.rank,
        seat: seat.number,
        mailbox: seat.mailbox,
        worker: seat.worker,
        streams: streams.clone(),
        events,
    };
    let (control, arriving, stopping) = session.split_mut();
    let mut arrivals = |_: StreamDemand<'_>| {
        let authenticated = authenticate_stream(arriving.next(Duration::ZERO)?, secret.as_ref(), scope);
        Some(authenticated.and_then(|stream| prepare(&stream).map(|()| stream)))
    };
    let result = ControlLoop::new(control, Instant::now(), &mut arrivals, stopping, &mut |_, _| {}).run(&mut side);
    // A group that has ended needs no notice.
    let _ = side.events.send(Event::Left { rank: side.rank, seat: side.seat });
    session.update_copy_summary(|copied| {
        if let Ok(ended) = &result {
            copied.tally = ended.tally;
            copied.digest = ended.digest;
        }
    });
    result.map(drop)
}

/// Checks the parts of a request that concern one rank alone.
fn check(request: &CopyRequest, rank: &RankRequest) -> Result<(), TransferError> {
    let RankRequest { rank: number, ranks, job, offset, .. } = rank;
    let unsupported = |option| Err(RankError::Unsupported(option).into());
    if *ranks == 0 || *ranks > MAX_RANKS {
        return Err(RankError::Count(*ranks).into());
    }
    if number >= ranks {
        return Err(RankError::OutOfRange { rank: *number, ranks: *ranks }.into());
    }
    if let Some(job) = job.as_ref().filter(|job| job.len() > MAX_JOB_LENGTH) {
        return Err(RankError::JobName(job.len()).into());
    }
    let options = &request.transfer_options;
    if options.delete {
        return unsupported("--delete");
    }
    if options.dry_run {
        return unsupported("--dry-run");
    }
    let borders = u64::from(*ranks).saturating_mul(request.block.0);
    if offset.is_some_and(|offset| !offset.0.is_multiple_of(request.block.0)) && borders > MAX_BORDER_MEMORY.0 {
        return Err(RankError::TooManyBorders { ranks: *ranks, block: request.block }.into());
    }
    match &request.job {
        CopyJob::Put { to: RemoteDestination::File { allowed: OverwritePolicy { checksum: true, .. }, .. } } => {
            unsupported("--checksum")
        }
        CopyJob::Put { to: RemoteDestination::File { preserve, .. } } if preserve.hard_links => {
            unsupported("--hard-links")
        }
        CopyJob::Get { .. } if offset.is_some() => unsupported("--offset in a download"),
        _ => Ok(()),
    }
}

/// One rank, as the control loop of its session sees it.
struct RankSide<I, O> {
    rank: u16,
    seat: u64,
    mailbox: Arc<Mailbox<O>>,
    worker: StreamWorker,
    streams: Arc<StreamSet>,
    events: SyncSender<Event<I, O>>,
}

impl<I: SideMessage, O: SideMessage> Role for RankSide<I, O> {
    type Outgoing = O;
    type Incoming = I;

    /// A rank waits for the others.
    const MAX_IDLE_TIME: Duration = Duration::MAX;

    fn streams(&self) -> &StreamSet {
        &self.streams
    }

    fn listed(&self) -> ListedTotals {
        ListedTotals::default()
    }

    fn take_messages(&mut self, _now: Instant) -> Vec<O> {
        self.mailbox.take()
    }

    fn on_message(&mut self, message: I, now: Instant) -> Result<(), TransferError> {
        if message.reports_stall() {
            self.streams.record_stall(now);
        }
        let event = Event::Message { rank: self.rank, seat: self.seat, message: Box::new(message) };
        self.events.send(event).map_err(|_| TransferError::Interrupted)
    }

    fn stream_worker(&self) -> StreamWorker {
        self.worker.clone()
    }

    fn needs_streams(&self) -> bool {
        self.mailbox.result().is_none()
    }

    fn should_be_moving(&mut self) -> bool {
        self.mailbox.has_work()
    }

    fn result(&self) -> Option<CopyResult> {
        self.mailbox.result()
    }
}
