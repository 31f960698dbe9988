//! The source of a third-party copy: this server uploads to a receiver that the client names.
//!
//! The copy runs on a thread of its own. Its events go to the client of the session, and the copy ends when that client
//! disconnects. A server that connects to any address on request would open its network to clients. So this needs the
//! permission of the operator ([`Config::third_party`](lfn_session::server::ServerConfig::allow_third_party)).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_results::evidence::ProgressSample;
use lfn_session::dial::Target;
use lfn_session::server::ServerSession;
use lfn_session::wire::copy::stream_change::StreamChange;
use lfn_session::wire::copy::{ALIVE_INTERVAL, CopyEnd, CopyId, EntryEvent, RemoteSource};
use lfn_session::wire::third_party::{
    MAX_ADDRESSES, MAX_EVENTS_PER_MESSAGE, OrchestratorMessage, SendRequest, SourceMessage, ThirdPartyReport,
};
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_session::{Control, Protection, SessionError, Ticket};

use crate::client::upload_with;
use crate::copy_options::{ConnectionEvent, CopyObserver, CopyOptions, CopyOutcome};
use crate::proto::open_files::CopyRole;
use crate::role::ListedTotals;
use crate::serve::{RequestedSources, check_streams};
use crate::stall::StallTimeouts;
use crate::{DeniedAction, EntryListener, StripeSet, TransferError};

/// Maximum number of queued messages. If the client reads them more slowly, the copy waits.
const MAX_QUEUED_MESSAGES: usize = 1024;

/// Interval at which a waiting session checks whether it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const WHILE_COPYING: &str = "while its third-party copy ran";

/// Serves the request until the copy ends.
#[inline(never)]
pub fn serve_source(session: &mut ServerSession, request: &SendRequest) -> Result<(), SessionError> {
    if !session.allows_third_party() {
        let text = "this server does not connect to other servers for its clients";
        let hint = "start it with `lfn serve --third-party`, or copy through this host in two steps";
        return Err(SessionError::Refused(Refusal::new(RefusalCode::Forbidden, text).hint(hint)));
    }
    check_streams(session, CopyRole::Sender, request.max_streams.max(request.streams), request.block)?;
    let files = request.from.iter().any(|from| matches!(from, RemoteSource::File { .. }));
    if files && !session.rights().read {
        return Err(TransferError::NotAllowed(DeniedAction::Download).into());
    }
    let (target, options) = (target(request)?, options(request));
    let sources = RequestedSources::of(session, &request.from, &request.selection)?;
    let limiter = session.rate_limiter();
    let (sender, queue) = sync_channel(MAX_QUEUED_MESSAGES);
    let stop = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        let (target, stop) = (&target, &stop);
        let sources = &sources;
        let copy = move || {
            let options = CopyOptions { listener: listener(&sender), ..options };
            let open = |copy: &CopyId| sources.open(Some(copy), &|| check_stopped(stop));
            let to = request.to.clone();
            let copy = Some(request.copy);
            let result = with_observer(&sender, stop, |observer| {
                upload_with(target, &open, Some(limiter), copy, to, &options, observer)
            });
            send_result(&sender, &result);
            result.ok()
        };
        let copying = scope.spawn(copy);
        let relayed = relay(session, &queue, || copying.is_finished());
        stop.store(true, Ordering::Relaxed);
        // Dropping the receiving end of the queue wakes a copy that waits for room in it.
        drop(queue);
        let outcome = copying.join().ok().flatten();
        relayed.map(|()| outcome)
    })?;
    if let Some(outcome) = outcome {
        session.update_copy_summary(|copied| {
            copied.tally = outcome.tally;
            copied.digest = outcome.digest;
        });
    }
    Ok(())
}

fn check_stopped(stop: &AtomicBool) -> Result<(), SessionError> {
    if stop.load(Ordering::Relaxed) {
        Err(SessionError::Refused(Refusal::new(RefusalCode::Stopped, "the copy was stopped")))
    } else {
        Ok(())
    }
}

/// Sends the queued messages until the copy is finished or the session ends.
fn relay(
    session: &mut ServerSession,
    queue: &Queue<SourceMessage>,
    is_finished: impl Fn() -> bool,
) -> Result<(), SessionError> {
    let silence = session.limits().silence_timeout.max(2 * ALIVE_INTERVAL);
    let (mut last_received, mut last_sent) = (Instant::now(), Instant::now());
    loop {
        session.check()?;
        let finished = is_finished();
        if last_sent.elapsed() >= ALIVE_INTERVAL {
            last_sent = Instant::now();
            session.control.send(&SourceMessage::Alive)?;
        }
        match queue.recv_timeout(POLL_INTERVAL) {
            Ok(message) => {
                last_sent = Instant::now();
                send_queued(&mut session.control, message, queue)?;
            }
            // The copy queues its last message before it finishes.
            Err(RecvTimeoutError::Timeout) if finished => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        match session.control.poll::<OrchestratorMessage>(Duration::ZERO, WHILE_COPYING)? {
            Some(OrchestratorMessage::Alive) => last_received = Instant::now(),
            None if last_received.elapsed() > silence => {
                return Err(SessionError::Timeout { peer: "the client", after: silence, while_doing: WHILE_COPYING });
            }
            None => {}
        }
    }
}

/// Sends a message and the queued messages after it. Events of entries are combined into one message.
fn send_queued(control: &mut Control, first: SourceMessage, queue: &Queue<SourceMessage>) -> Result<(), SessionError> {
    let mut events = Vec::new();
    for message in std::iter::once(first).chain(queue.try_iter().take(MAX_QUEUED_MESSAGES)) {
        if let SourceMessage::Events { entries } = &message
            && events.len() < MAX_EVENTS_PER_MESSAGE
        {
            events.extend_from_slice(entries);
            continue;
        }
        send_events(control, &mut events)?;
        control.send(&message)?;
    }
    send_events(control, &mut events)
}

fn send_events(control: &mut Control, events: &mut Vec<EntryEvent>) -> Result<(), SessionError> {
    if events.is_empty() { Ok(()) } else { control.send(&SourceMessage::Events { entries: std::mem::take(events) }) }
}

/// Calls `copy` with an observer that queues all messages. Messages for display only are dropped while the queue is
/// full.
fn with_observer<T>(
    sender: &SyncSender<SourceMessage>,
    stop: &AtomicBool,
    copy: impl FnOnce(CopyObserver<'_>) -> T,
) -> T {
    let mut observer = |extent: &ListedTotals, look: &ProgressSample| {
        let _ = sender.try_send(SourceMessage::Progress { extent: *extent, progress: Box::new(*look) });
    };
    // The queue is closed when the session is over.
    let mut change = |change: &StreamChange| drop(sender.send(SourceMessage::Changed(change.clone())));
    let mut connection = |connection: &ConnectionEvent<'_>| {
        let message = match connection {
            ConnectionEvent::Lost { cause: why, .. } => SourceMessage::Lost { reason: why.to_string() },
            ConnectionEvent::Reconnecting { without, .. } => {
                let _ = sender.try_send(SourceMessage::Reconnecting { seconds: *without });
                return;
            }
            ConnectionEvent::Reconnected { after } => SourceMessage::Reconnected { seconds: *after },
        };
        drop(sender.send(message));
    };
    copy(CopyObserver { observer: &mut observer, change: &mut change, connection: &mut connection, interrupted: stop })
}

fn listener(sender: &SyncSender<SourceMessage>) -> EntryListener {
    let (events, reset) = (sender.clone(), sender.clone());
    let notify = move |event: &EntryEvent| drop(events.send(SourceMessage::Events { entries: vec![event.clone()] }));
    EntryListener::new(notify, move || drop(reset.send(SourceMessage::Reset)), |_| ())
}

fn send_result(sender: &SyncSender<SourceMessage>, result: &Result<CopyOutcome, TransferError>) {
    let message = match result {
        Ok(outcome) => {
            for failures in outcome.failures.chunks(MAX_EVENTS_PER_MESSAGE) {
                let _ = sender.send(SourceMessage::Failures { failures: failures.to_vec() });
            }
            SourceMessage::Done(Box::new(ThirdPartyReport {
                bytes: outcome.bytes,
                digest: outcome.digest,
                path: outcome.path.clone(),
                tally: outcome.tally,
                skipped: outcome.skipped,
                progress: outcome.sample,
                replaced: outcome.replaced,
            }))
        }
        Err(error) => {
            let (what, hint, resumable) = (error.to_string(), error.hint(), error.is_resumable());
            // A session error with a refusal comes from the receiver.
            let refusal = match error {
                TransferError::Session(SessionError::Refused(refusal)) => Some(refusal.code),
                _ => None,
            };
            let end = if refusal.is_some() { CopyEnd::Receiver } else { CopyEnd::Sender };
            let forgotten = refusal == Some(RefusalCode::WrongToken);
            SourceMessage::Failed { end, message: what, hint, resumable, forgotten }
        }
    };
    let _ = sender.send(message);
}

/// Returns the receiver at the addresses that the client gave. The key identifies the receiver at any address.
fn target(request: &SendRequest) -> Result<Target, SessionError> {
    let receiver = &request.receiver;
    let Some(first) = receiver.addresses.first().filter(|_| receiver.addresses.len() <= MAX_ADDRESSES) else {
        let text = format!("{} addresses of the receiver: 1 to {MAX_ADDRESSES} expected", receiver.addresses.len());
        return Err(SessionError::Refused(Refusal::new(RefusalCode::Other, text)));
    };
    let (host, port) = (receiver.host.clone(), first.port());
    let ticket = Ticket { host, port, token: receiver.token, fingerprint: receiver.fingerprint };
    Target::with_addresses(ticket, receiver.addresses.clone())
}

fn options(request: &SendRequest) -> CopyOptions {
    CopyOptions {
        // The client may use fewer streams than it was granted.
        streams: request.streams.min(request.max_streams),
        max_streams: request.max_streams,
        block: request.block,
        protection: if request.clear { Protection::Clear } else { Protection::Tls },
        congestion: request.congestion.clone(),
        pace: request.pace,
        grows_with_list: false,
        predicted: request.predicted,
        selection: request.selection.clone(),
        retry_for: request.retry_for,
        stall_timeouts: StallTimeouts::default(),
        stripes: StripeSet::default(),
        transfer_options: (*request.transfer_options).clone(),
        listener: EntryListener::default(),
        rank: None,
        id: None,
    }
}
