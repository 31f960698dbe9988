//! The client of a third-party copy: gets a temporary token from the destination, passes it to the source, and observes
//! the copy.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_results::evidence::ProgressSample;
use lfn_session::dial::{self, Target};
use lfn_session::wire::Request;
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::stream_change::StreamChange;
use lfn_session::wire::copy::{ALIVE_INTERVAL, CopyEnd, EntryFailure, MAX_FAILURES, RemoteDestination, RemoteSource};
use lfn_session::wire::third_party::{
    MAX_ADDRESSES, OrchestratorMessage, ReceiverAddress, SendRequest, SourceMessage, ThirdPartyReport, TokenReply,
    TokenRequest,
};
use lfn_session::{Control, DEAD_PEER_TIMEOUT, Protection, SessionError, queue};
use serde::de::IgnoredAny;

use crate::TransferError;
use crate::client::{check_request_size, check_sources};
use crate::copy_options::{ConnectionEvent, CopyObserver, CopyOptions, CopyOutcome};
use crate::resumable_copy::{ResumableCopy, resolve_target};
use crate::role::{CopyResult, ListedTotals};
use crate::stall::STALL_TIMEOUT;

/// Interval at which a waiting client checks whether it was interrupted.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// `TCP_CA_NAME_MAX`: maximum length of the name of a congestion control.
const MAX_CONGESTION_NAME: usize = 16;

const WHILE_WATCHING: &str = "while the third-party copy ran";

/// Copies from the server `source` to the server `destination`. If a connection is lost, asks both servers again.
///
/// # Errors
/// [`TransferError::End`] names the server of the failed session. [`TransferError::LoopbackDestination`] if the source
/// cannot reach the address of the destination.
pub fn third_party_copy(
    source: &Target,
    from: Vec<RemoteSource>,
    destination: &Target,
    to: RemoteDestination,
    options: &CopyOptions,
    observer: CopyObserver<'_>,
) -> Result<CopyOutcome, TransferError> {
    check_sources(&options.selection, from.len())?;
    let mut receiver = destination.clone();
    ResumableCopy::new(source, options, observer)?.watch_only().run(|copy| {
        if !copy.is_first() {
            receiver = resolve_target(&receiver);
        }
        run_session(copy, &from, &receiver, &to)
    })
}

fn run_session(
    copy: &mut ResumableCopy<'_>,
    from: &[RemoteSource],
    receiver: &Target,
    to: &RemoteDestination,
) -> Result<CopyResult, TransferError> {
    let (interrupted, sender) = (copy.interrupted, copy.target.clone());
    let options = copy.options.clone();
    let transfer_options = Box::new(options.transfer_options.clone());
    let (since, selection) = (copy.id.since, options.selection.clone());
    let token_request = TokenRequest {
        to: to.clone(),
        transfer_options: transfer_options.clone(),
        from: from.to_vec(),
        selection,
        since,
    };
    check_request_size(&token_request)?;
    let opened = open(receiver, Request::IssueToken(Box::new(token_request)), interrupted);
    let (mut destination, _) = opened.map_err(at_end(CopyEnd::Receiver))?;
    let (address, since) =
        wait_for_token(&mut destination, receiver, interrupted).map_err(at_end(CopyEnd::Receiver))?;
    if let Some(address) =
        address.addresses.first().filter(|address| address.ip().is_loopback() && !sender.is_loopback())
    {
        return Err(TransferError::LoopbackDestination { address: *address });
    }
    let CopyOptions { streams, max_streams, block, pace, predicted, retry_for, .. } = options;
    let request = SendRequest {
        from: from.to_vec(),
        selection: options.selection,
        receiver: address,
        to: to.clone(),
        streams,
        max_streams,
        block,
        clear: options.protection == Protection::Clear,
        congestion: options.congestion,
        pace,
        predicted,
        copy: copy.id,
        retry_for,
        transfer_options,
    };
    check_request_size(&request)?;
    let request = Request::Send(Box::new(request));
    // The source may let this client wait in its queue.
    let requested_at = Instant::now();
    let send = with_keepalive(&mut destination, || open(&sender, request, interrupted));
    let (source, waited) = send.map_err(at_end(CopyEnd::Sender))?;
    if waited {
        copy.on_admitted(requested_at.elapsed());
    }
    let started = Instant::now();
    copy.server_reached = true;
    copy.id.since.get_or_insert(since);
    copy.enter();
    let mut connections =
        ControlConnections { source, destination, last_sent: Instant::now(), last_received: Instant::now() };
    let result = connections.watch(copy);
    if started.elapsed() > STALL_TIMEOUT {
        // The source itself ends a copy without progress for this time.
        copy.last_progress_at = copy.last_progress_at.max(connections.last_received);
    }
    // Close the source first: it ends the copy cleanly while its token is still valid.
    let ControlConnections { source, destination, .. } = connections;
    source.close();
    destination.close();
    result
}

/// Adds the name of the server to an error.
fn at_end(end: CopyEnd) -> impl Fn(TransferError) -> TransferError {
    move |error| match error {
        TransferError::Interrupted => TransferError::Interrupted,
        error => TransferError::End { end, source: Box::new(error) },
    }
}

/// Opens a session and waits until it is admitted. Returns whether the session had to wait in a queue.
fn open(target: &Target, request: Request, interrupted: &AtomicBool) -> Result<(Control, bool), TransferError> {
    let mut control = dial::open_control(target, dial::new_session_id()?, request)?;
    // A new session id matters only for data streams, and this session has none.
    let turn = queue::wait_for_admission(&mut control, &target.queue, DEAD_PEER_TIMEOUT, Some(interrupted), || ())?;
    if control.is_refused()? {
        // Reading the refusal returns it as the error.
        control.poll::<IgnoredAny>(POLL_INTERVAL, "before it admitted the copy")?;
    }
    Ok((control, turn.is_some()))
}

/// Runs `work`, and keeps the session of `control` alive meanwhile.
fn with_keepalive<T>(control: &mut Control, work: impl FnOnce() -> T) -> T {
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        let keepalive = scope.spawn(|| {
            // If the connection is lost, the next read reports the reason.
            while !finished.load(Ordering::Relaxed) && control.send(&OrchestratorMessage::Alive).is_ok() {
                thread::park_timeout(ALIVE_INTERVAL);
            }
        });
        let result = work();
        finished.store(true, Ordering::Relaxed);
        keepalive.thread().unpark();
        result
    })
}

/// Waits for the token. Returns the address of the receiver for the source, and the start of the copy by the receiver's
/// clock.
fn wait_for_token(
    control: &mut Control,
    target: &Target,
    interrupted: &AtomicBool,
) -> Result<(ReceiverAddress, Modified), TransferError> {
    let deadline = Instant::now() + DEAD_PEER_TIMEOUT;
    while Instant::now() < deadline {
        if interrupted.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let message = control.poll(POLL_INTERVAL, "before it issued a token")?;
        let Some(TokenReply::Issued { token, fingerprint, since, .. }) = message else { continue };
        // Use the address that this client reached. A server behind address translation does not know its external
        // port.
        let reached: Vec<SocketAddr> = control.handle().peer_address().into_iter().collect();
        let other_addresses = target.addresses().iter().filter(|address| !reached.contains(address)).copied();
        let addresses = reached.iter().copied().chain(other_addresses).take(MAX_ADDRESSES).collect();
        return Ok((ReceiverAddress { host: target.host().to_owned(), addresses, token, fingerprint }, since));
    }
    let (peer, after) = (control.peer(), DEAD_PEER_TIMEOUT);
    Err(SessionError::Timeout { peer, after, while_doing: "before it issued a token" }.into())
}

/// The control connections to both servers during a copy.
struct ControlConnections {
    source: Control,
    destination: Control,
    last_sent: Instant,
    last_received: Instant,
}

impl ControlConnections {
    fn watch(&mut self, copy: &mut ResumableCopy<'_>) -> Result<CopyResult, TransferError> {
        let (mut failures, mut moved, mut listed) = (Vec::<EntryFailure>::new(), Bytes(0), ListedTotals::default());
        let mut listener = copy.options.listener.clone();
        let patience = copy.options.retry_for;
        loop {
            if copy.interrupted.load(Ordering::Relaxed) {
                return Err(TransferError::Interrupted);
            }
            self.send_keepalive()?;
            let message = self
                .source
                .poll::<SourceMessage>(POLL_INTERVAL, WHILE_WATCHING)
                .map_err(|e| at_end(CopyEnd::Sender)(e.into()))?;
            let Some(message) = message else {
                if self.last_received.elapsed() > DEAD_PEER_TIMEOUT {
                    let (peer, after) = (self.source.peer(), DEAD_PEER_TIMEOUT);
                    let error = SessionError::Timeout { peer, after, while_doing: WHILE_WATCHING };
                    return Err(at_end(CopyEnd::Sender)(error.into()));
                }
                continue;
            };
            self.last_received = Instant::now();
            match message {
                SourceMessage::Alive => {}
                SourceMessage::Progress { extent, progress: look } => {
                    if look.bytes > moved {
                        moved = look.bytes;
                        copy.last_progress_at = Instant::now();
                    }
                    listed = extent;
                    copy.observe(extent, &ProgressSample { at: copy.started.elapsed(), ..*look });
                }
                SourceMessage::Changed(change) => {
                    let congestion = change.congestion.filter(|name| name.len() <= MAX_CONGESTION_NAME);
                    copy.changed(StreamChange { congestion, ..change });
                }
                SourceMessage::Lost { reason: why } => {
                    let why = &TransferError::RemoteFailure {
                        end: CopyEnd::Sender,
                        message: why,
                        hint: None,
                        resumable: true,
                    };
                    copy.connection(&ConnectionEvent::Lost { cause: why, retry_for: patience });
                }
                SourceMessage::Reconnecting { seconds } => {
                    copy.connection(&ConnectionEvent::Reconnecting { without: seconds, retry_for: patience });
                }
                SourceMessage::Reconnected { seconds } => {
                    copy.connection(&ConnectionEvent::Reconnected { after: seconds })
                }
                SourceMessage::Events { entries } => entries.iter().for_each(|event| listener.notify(event)),
                SourceMessage::Reset => listener.reset_for_session(),
                SourceMessage::Failures { failures: more } => {
                    failures.extend(more);
                    failures.truncate(MAX_FAILURES);
                }
                // The destination has restarted, or has lost this client. Ask for another token.
                SourceMessage::Failed { forgotten: true, .. } => {
                    let error = SessionError::Closed { peer: self.destination.peer(), while_doing: WHILE_WATCHING };
                    return Err(at_end(CopyEnd::Receiver)(error.into()));
                }
                SourceMessage::Failed { end, message: what, hint, resumable, .. } => {
                    return Err(TransferError::RemoteFailure { end, message: what, hint, resumable });
                }
                SourceMessage::Done(report) => {
                    let ThirdPartyReport { bytes, digest, path, tally, skipped, progress: look, replaced, .. } =
                        *report;
                    copy.observe(listed, &ProgressSample { at: copy.started.elapsed(), ..look });
                    copy.replaced += replaced;
                    return Ok(CopyResult { tally, digest, path, bytes, failures, skipped });
                }
            }
        }
    }

    /// Sends keep-alive messages to both servers, and checks the connection to the destination.
    fn send_keepalive(&mut self) -> Result<(), TransferError> {
        if self.last_sent.elapsed() >= ALIVE_INTERVAL {
            self.last_sent = Instant::now();
            self.source.send(&OrchestratorMessage::Alive).map_err(|e| at_end(CopyEnd::Sender)(e.into()))?;
            self.destination.send(&OrchestratorMessage::Alive).map_err(|e| at_end(CopyEnd::Receiver)(e.into()))?;
        }
        // The destination sends no further message except the reason for its end.
        let message = self.destination.poll::<TokenReply>(Duration::ZERO, WHILE_WATCHING);
        message.map(drop).map_err(|e| at_end(CopyEnd::Receiver)(e.into()))
    }
}
