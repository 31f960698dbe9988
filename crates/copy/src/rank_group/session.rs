//! The session of one rank: exchanges messages with the rank, and runs its data streams.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use lfn_session::server::ServerSession;
use lfn_session::wire::Refusal;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::ranks::{MAX_JOB_LENGTH, MAX_RANKS, RankRequest};
use lfn_session::wire::copy::{CopyRequest, Progress, ReceiverMessage, RemoteDestination, SenderMessage};

use super::error::{MAX_BORDER_MEMORY, RankError};
use super::event::{Applicant, Event, Seat};
use super::mailbox::Mailbox;
use super::registry::{GroupKey, RankGroups};
use super::settings::{CommonOptions, GroupSettings};
use crate::TransferError;
use crate::control_loop::{ControlLoop, StreamDemand};
use crate::receiver::Destination;
use crate::role::{CopyResult, ListedTotals, Role, StreamWorker};
use crate::stream_auth::authenticate_stream;
use crate::stream_set::StreamSet;

/// Serves the session of one rank. `destination` opens the destination for the first rank of a group.
pub(crate) fn serve_rank(
    groups: &RankGroups,
    session: &mut ServerSession,
    request: &CopyRequest,
    rank: &RankRequest,
    to: &RemoteDestination,
    destination: impl Fn(&ServerSession) -> Result<Destination, TransferError>,
) -> Result<(), TransferError> {
    check(request, rank, to)?;
    let streams = Arc::new(StreamSet::rate_limited_by(session.rate_limiter()));
    let options = CommonOptions { transfer: (*request.transfer_options).clone(), to: to.clone() };
    let settings = GroupSettings {
        request: rank.clone(),
        block: request.block,
        options: options.clone(),
        counters: session.rank_counters(),
    };
    let (address, copy) = (session.peer().ip(), request.copy.as_ref().map_or(session.scoped_id(), |copy| copy.id));
    let key = GroupKey::new(session.token().1.0, to, rank.ranks, rank.job.as_deref());
    let applicant = |answer: SyncSender<Result<Seat, Refusal>>| Applicant {
        request: rank.clone(),
        copy,
        block: request.block,
        options: options.clone(),
        address,
        streams: streams.clone(),
        answer,
    };
    let (seat, events) = groups.join(&key, &settings, applicant, || destination(session))?;
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
        arriving.next(Duration::ZERO).map(|stream| authenticate_stream(stream, secret.as_ref(), scope))
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
fn check(request: &CopyRequest, rank: &RankRequest, to: &RemoteDestination) -> Result<(), TransferError> {
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
    match to {
        RemoteDestination::File { allowed: OverwritePolicy { checksum: true, .. }, .. } => unsupported("--checksum"),
        RemoteDestination::File { preserve, .. } if preserve.hard_links => unsupported("--hard-links"),
        _ => Ok(()),
    }
}

/// One rank, as the control loop of its session sees it.
struct RankSide {
    rank: u16,
    seat: u64,
    mailbox: Arc<Mailbox>,
    worker: StreamWorker,
    streams: Arc<StreamSet>,
    events: SyncSender<Event>,
}

impl Role for RankSide {
    type Outgoing = ReceiverMessage;
    type Incoming = SenderMessage;
    const IS_SENDER: bool = false;

    fn alive_message(progress: Progress) -> ReceiverMessage {
        ReceiverMessage::Alive(Box::new(progress))
    }

    fn peer_progress(message: &SenderMessage) -> Option<Progress> {
        match message {
            SenderMessage::Alive(progress) => Some(**progress),
            _ => None,
        }
    }

    fn is_progress(message: &SenderMessage) -> bool {
        !matches!(message, SenderMessage::Lost { .. })
    }

    fn streams(&self) -> &StreamSet {
        &self.streams
    }

    fn listed(&self) -> ListedTotals {
        ListedTotals::default()
    }

    fn take_messages(&mut self, _now: Instant) -> Vec<ReceiverMessage> {
        self.mailbox.take()
    }

    fn on_message(&mut self, message: SenderMessage, now: Instant) -> Result<(), TransferError> {
        if let SenderMessage::Lost { stalled: true, .. } = &message {
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
