//! Handling of one connection from its first byte. A data stream goes to its session; a control connection becomes a
//! session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::event::{RefusedReason, ServerEvent, SessionInfo};
use super::queue_wait;
use super::registry::SessionStreams;
use super::running_session::RunningSessionGuard;
use super::session::ServerSession;
use super::state::{STACK_SIZE, ServerState};
use super::tokens::TokenHolder;
use crate::hello;
use crate::limits::admission::{AdmissionOutcome, Grant};
use crate::limits::connection_table::ConnectionSlot;
use crate::transport::{Connection, Stream, tls};
use crate::wire::copy::{CopyJob, RemoteDestination, RemoteSource};
use crate::wire::{Credentials, HELLO_LIMIT, Hello, Refusal, RefusalCode, Request};
use crate::{Control, DataStream, SessionError};
use crate::{PROTOCOL, Rights, SessionId, WriteAccess};

/// Function that serves one open session to its end.
pub trait Service: Fn(&mut ServerSession, &Request) -> Result<(), SessionError> + Send + Sync + 'static {}

impl<F: Fn(&mut ServerSession, &Request) -> Result<(), SessionError> + Send + Sync + 'static> Service for F {}

/// Serves a connection to its end. An error belongs to a connection that did not join a session; the reason goes to the
/// log and the metrics.
pub(super) fn serve(
    service: &Arc<dyn Service>,
    shared: &Arc<ServerState>,
    mut connection: Box<dyn Connection>,
    peer: SocketAddr,
    slot: ConnectionSlot,
) -> Result<(), (RefusedReason, SessionError)> {
    let io_error = |source| (RefusedReason::Hello, SessionError::Io { peer: "the client", source });
    let timeout = shared.config.connection_limits.hello_timeout;
    let mut stream = connection.accept_stream(timeout).map_err(io_error)?;
    stream.set_read_timeout(Some(timeout)).map_err(io_error)?;
    let mut first = [0];
    let length = stream.peek(&mut first).or_else(|error| match error.kind() {
        std::io::ErrorKind::ConnectionReset => Ok(0),
        _ => Err(if slot.is_closed() { silent_error() } else { io_error(error) }),
    })?;
    if length == 0 {
        return Err(if slot.is_closed() { silent_error() } else { (RefusedReason::Gone, closed_error()) });
    }
    slot.note_data();
    if first[0] == hello::FIRST_BYTE {
        let (session, stream) = read_clear_hello(shared, stream)?;
        return shared.registry.deliver(session, stream, slot).map_err(|error| (RefusedReason::Hello, error));
    }
    let tls = tls::server(stream, shared.tls.clone()).map_err(|source| {
        let address = peer.to_string();
        (RefusedReason::Hello, SessionError::Tls { address, source })
    })?;
    let (control, hello, holder) = read_hello(shared, Control::new(tls, HELLO_LIMIT, "the client"), timeout, &slot)?;
    match hello {
        Hello::Data { session, stream, .. } => {
            let stream = DataStream::tls(stream, control.into_stream());
            shared
                .registry
                .deliver(holder.hash.scope(session), stream, slot)
                .map_err(|error| (RefusedReason::Hello, error))
        }
        Hello::Control { session, request, .. } => {
            if !slot.authenticate() {
                return Err((RefusedReason::Connections, refuse_full(control)));
            }
            let (shared, service) = (shared.clone(), service.clone());
            // The session runs on a new thread: the stack that the handshake used stays in memory for the life of its
            // thread.
            let work = move || {
                let (_slot, _alive) = (slot, shared.open_sessions.open());
                serve_control(&*service, &shared, control, peer, holder, session, &request);
            };
            let spawned = thread::Builder::new().name("session".into()).stack_size(STACK_SIZE).spawn(work);
            spawned.map(drop).map_err(|source| (RefusedReason::Hello, SessionError::Io { peer: "the kernel", source }))
        }
    }
}

/// Refuses a client, because there is no room for its connection.
fn refuse_full(mut control: Control) -> SessionError {
    let refusal = Refusal::new(RefusalCode::Full, "the server has reached its maximum number of connections")
        .hint("try again later");
    // The client may have closed the connection already; the refusal goes to the log.
    let _ = control.refuse(&refusal);
    control.close();
    SessionError::Refused(refusal)
}

fn silent_error() -> (RefusedReason, SessionError) {
    (RefusedReason::Silent, closed_error())
}

fn closed_error() -> SessionError {
    SessionError::Closed { peer: "the client", while_doing: "before it sent its hello" }
}

/// Reads the hello of a TLS connection and authenticates it.
fn read_hello(
    shared: &ServerState,
    mut control: Control,
    timeout: Duration,
    slot: &ConnectionSlot,
) -> Result<(Control, Hello, Arc<TokenHolder>), (RefusedReason, SessionError)> {
    let not_understood = |control: &mut Control, error: SessionError| {
        if let SessionError::Frame(_) = error {
            let _ = control.refuse(&Refusal::from(&error));
        }
        (if slot.is_closed() { RefusedReason::Silent } else { RefusedReason::Hello }, error)
    };
    let introduction = control.peek::<Credentials>(timeout, "before it sent its hello");
    let introduction = introduction.map_err(|error| not_understood(&mut control, error))?;
    let holder = match shared.authenticate(&introduction) {
        Ok(holder) => holder,
        Err(refusal) => {
            // The client may have closed the connection already; the refusal goes to the log.
            let _ = control.refuse(&refusal);
            control.close();
            return Err((RefusedReason::Token, SessionError::Refused(refusal)));
        }
    };
    let hello =
        control.recv(timeout, "before it sent its hello").map_err(|error| not_understood(&mut control, error))?;
    control.allow_large_messages();
    Ok((control, hello, holder))
}

fn read_clear_hello(
    shared: &ServerState,
    mut stream: Box<dyn Stream>,
) -> Result<(SessionId, DataStream), (RefusedReason, SessionError)> {
    let mut bytes = [0; hello::HELLO_BYTES];
    let broke = |source| (RefusedReason::Hello, SessionError::Io { peer: "the client", source });
    stream.read_exact(&mut bytes).map_err(broke)?;
    shared.reload_tokens();
    let refused = |refusal| (RefusedReason::Token, SessionError::Refused(refusal));
    let (hello, holder) = shared.tokens.authenticate_clear_hello(&bytes).map_err(refused)?;
    Ok((holder.hash.scope(hello.session), DataStream::clear(hello.stream, stream)))
}

/// Admits a session, after a wait in the queue if necessary, and runs it.
fn serve_control(
    service: &dyn Service,
    shared: &Arc<ServerState>,
    mut control: Control,
    peer: SocketAddr,
    holder: Arc<TokenHolder>,
    id: SessionId,
    request: &Request,
) {
    let own = shared.config.identity.fingerprint();
    let info = SessionInfo::new(peer, id, request, holder.name.clone(), own);
    let requested_at = Instant::now();
    let opened = admit(shared, &mut control, id, request, &info, &holder).and_then(|(streams, grant)| {
        let opened = shared.record(ServerEvent::Opened(&info, grant.allowed(), requested_at.elapsed()));
        opened.map(|()| (streams, grant)).map_err(SessionError::Refused)
    });
    match opened {
        Ok((streams, grant)) => {
            let copy = copy_scope(&holder, request);
            let running = shared.running_sessions.add(info, grant, holder, copy);
            run_session(service, shared, control, streams, running, request);
        }
        Err(SessionError::Refused(refusal)) => {
            shared.registry.reject_streams(holder.hash.scope(id));
            shared.log(ServerEvent::Denied(&info, &refusal));
            let _ = control.refuse(&refusal);
            control.linger();
        }
        Err(_) => shared.log(ServerEvent::LeftQueue(&info, requested_at.elapsed())),
    }
}

/// Returns the data streams and the grant of a session, after the wait in the queue.
fn admit(
    shared: &Arc<ServerState>,
    control: &mut Control,
    id: SessionId,
    request: &Request,
    info: &SessionInfo,
    holder: &Arc<TokenHolder>,
) -> Result<(SessionStreams, Grant), SessionError> {
    check_rights(holder, request).map_err(SessionError::Refused)?;
    // An invalid request is refused before the queue.
    if let Request::Test(test) = request {
        test.check().map_err(|error| SessionError::Refused(Refusal::from(&error)))?;
    }
    let renews = matches!(request, Request::Copy(_));
    let open = |id, grant: Grant| {
        let streams = shared.registry.open(holder.hash.scope(id), grant.allowed().streams, renews)?;
        let grant = match (holder.rate, &holder.rate_limiter) {
            (Some(rate), Some(rate_limiter)) => grant.with_shared_rate(rate, rate_limiter.clone()),
            _ => grant,
        };
        Ok((streams, grant))
    };
    if let Some(copy) = copy_scope(holder, request) {
        // The older session of the same copy must end: the new one needs its place and its unfinished files.
        shared.running_sessions.supersede(copy);
    }
    match shared.admission.request(info.client.ip(), info.requested) {
        AdmissionOutcome::Granted(grant) => open(id, grant).map_err(SessionError::Refused),
        AdmissionOutcome::Refused(refusal) => Err(SessionError::Refused(refusal)),
        AdmissionOutcome::Queued(waiting) => {
            shared.registry.reject_streams(holder.hash.scope(id));
            shared.log(ServerEvent::Queued(info, waiting.position()));
            control.allow_small_messages();
            let (grant, session) = queue_wait::wait_for_turn(control, waiting)?;
            control.allow_large_messages();
            // The token may have expired or been revoked during the wait.
            let still_valid = shared.tokens.check_valid(holder, SystemTime::now());
            still_valid.and_then(|()| open(session, grant)).map_err(SessionError::Refused)
        }
    }
}

/// Checks the token's rights to the request, without a look at the file system.
fn check_rights(holder: &TokenHolder, request: &Request) -> Result<(), Refusal> {
    holder.check_delegation(request)?;
    let Rights { test, read, write } = holder.rights;
    let may_write_to =
        |to: &RemoteDestination| write > WriteAccess::No || (test && matches!(to, RemoteDestination::Null));
    let may_read_from =
        |from: &[RemoteSource]| read || (test && !from.iter().any(|from| matches!(from, RemoteSource::File { .. })));
    let (allowed, what) = match request {
        // The service of a hub checks the name of the token. Only a component of a coupling serves its partner.
        Request::Path(_) | Request::Addresses(_) | Request::Mesh(_) | Request::Couple(_) => (true, ""),
        Request::Test(_) => (test, "tests"),
        Request::Facts(_) => (test, "facts of the host"),
        // A measurement reads and writes as a copy does.
        Request::Disk(_) => (read || write > WriteAccess::No, "measurements of the disk"),
        Request::IssueToken(token_request) => (may_write_to(&token_request.to), "uploads"),
        Request::Copy(copy) => match &copy.job {
            CopyJob::Put { to } => (may_write_to(to), "uploads"),
            CopyJob::Get { from, .. } => (may_read_from(from), "downloads"),
        },
        Request::Send(send) => (may_read_from(&send.from), "downloads"),
    };
    if allowed {
        return Ok(());
    }
    if holder.rights == Rights::default() {
        // A hub, or a component of a coupling.
        let text = format!("this server has another purpose, and permits no {what}");
        return Err(Refusal::new(RefusalCode::Forbidden, text).hint("use a ticket of lfn serve"));
    }
    // The server's own ticket has every right that the server gives, so no other ticket can have more.
    let (subject, hint) = match holder.name.is_some() {
        true => ("this ticket", "ask the operator of the server for another ticket: lfn token add NAME --rights …"),
        false => (
            "this server",
            "this is a server setting (--read-only, --write-only or --create-only); a new ticket does not help",
        ),
    };
    let text = format!("{subject} does not allow {what}; allowed: {}", holder.rights);
    Err(Refusal::new(RefusalCode::Forbidden, text).hint(hint))
}

/// Returns the id of the session's copy, if the client gave one. The ids of two tokens always differ.
fn copy_scope(holder: &TokenHolder, request: &Request) -> Option<SessionId> {
    match request {
        Request::Copy(request) => request.copy.as_ref().map(|copy| holder.principal().hash.scope(copy.id)),
        _ => None,
    }
}

fn run_session(
    service: &dyn Service,
    shared: &Arc<ServerState>,
    control: Control,
    streams: SessionStreams,
    running: RunningSessionGuard,
    request: &Request,
) {
    let began = Instant::now();
    let running_session = running.session.clone();
    let (info, rate_limiter) = (&running_session.info, running_session.grant.rate_limiter());
    let mut session = ServerSession::new(control, streams, shared.clone(), running);
    let result = service(&mut session, request);
    // A session that the server ended reports that reason, not the error of its own threads.
    let result = match (running_session.end_reason(), result) {
        (Some(reason), Err(_)) => Err(SessionError::Refused(reason.clone())),
        (None, Err(error)) if rate_limiter.is_exhausted() => {
            Err(running_session.grant.check().map_or_else(SessionError::Refused, |()| error))
        }
        (_, result) => result,
    };
    if let Err(error) = &result {
        // The client may have closed the connection already.
        let _ = session.control.refuse(&Refusal::from(error));
    }
    let (bytes, time) = (rate_limiter.bytes_moved(), began.elapsed());
    let copy_summary = running_session.copy_summary.lock().take();
    let error = result.as_ref().err();
    shared.log(ServerEvent::Ended { info, bytes, time, error, copy_summary: copy_summary.as_ref() });
    drop(running_session);
    session.close();
}

impl ServerState {
    /// Returns the holder of the token in a hello, if the protocol version and the token are valid.
    fn authenticate(&self, Credentials { protocol, token }: &Credentials) -> Result<Arc<TokenHolder>, Refusal> {
        if *protocol != PROTOCOL {
            return Err(Refusal::new(
                RefusalCode::Protocol,
                format!("the client speaks version {protocol} of the protocol, this server version {PROTOCOL}"),
            )
            .hint("use the same version of lfn at both ends"));
        }
        self.reload_tokens();
        self.tokens.authenticate(token.as_ref())
    }
}
