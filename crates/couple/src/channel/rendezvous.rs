//! The rendezvous of the two sides: one listens, the other dials until the partner answers.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_session::dial::{self, ServerConnection, Target};
use lfn_session::identity::{self, IdentityError, ServerIdentity};
use lfn_session::limits::ServerLimits;
use lfn_session::limits::access::Access;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::server::{Server, ServerConfig, ServerEvent, ServerSession};
use lfn_session::wire::couple::CoupleRequest;
use lfn_session::wire::{Refusal, RefusalCode, Request};
use lfn_session::{DataStream, Protection, Rights, SessionError, SessionId, Token};
use lfn_sys::{clock, sysctl, tcp};

use super::connection::{self, Role};
use super::error::ChannelError;
use super::event::ChannelEvent;
use super::handshake::{agree, refusal};
use super::shared::Shared;
use super::{ListenOptions, padding, streams};
use crate::wire::Introduction;

/// Maximum wait for the data streams of a session.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum wait for the end of an older connection of the same process.
const SUPERSEDE_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval between two tries to reach the partner.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval at which a wait checks whether the run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// File of the token in the state directory.
const TOKEN_FILE: &str = "couple-token";

/// Congestion control of small fields. Every Linux host permits it to every user.
const SMALL_FIELD_CONGESTION: &str = "reno";

/// The threads that listen or dial. They end when this value is dropped.
pub struct RendezvousThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RendezvousThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on stderr.
            let _ = thread.join();
        }
    }
}

/// Listens for the partner. Returns the ticket.
pub fn listen(shared: &Arc<Shared>, options: &ListenOptions) -> Result<(RendezvousThread, String), ChannelError> {
    let (identity, token) = match &options.state {
        Some(state) => (ServerIdentity::load_or_create(state)?, load_token(state)?),
        None => (ServerIdentity::ephemeral()?, identity::new_token()?),
    };
    let config = ServerConfig {
        listen: SocketAddr::new(options.bind.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), options.port),
        identity,
        token: (!options.insecure).then_some(token),
        token_expires: None,
        token_file: None,
        rights: Rights::default(),
        audit: None,
        root: None,
        unconfined: false,
        allow_third_party: false,
        limits: ServerLimits::default(),
        connection_limits: ConnectionLimits::default(),
        access: Access::default(),
        congestion: Some(SMALL_FIELD_CONGESTION),
        drain: Duration::ZERO,
    };
    let (service, log) = (shared.clone(), shared.clone());
    let server = Server::bind(
        config,
        move |session: &mut ServerSession, request: &Request| serve(&service, session, request),
        move |event| log_refusal(&log, event),
    )?;
    let ticket =
        server.ticket(&options.ticket_host).map_err(|source| SessionError::Io { peer: "the kernel", source })?;
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopped = stop.clone();
    let thread = spawn("couple listen", move || server.run(&is_stopped, &is_stopped))?;
    Ok((RendezvousThread { stop, thread: Some(thread) }, ticket.to_string()))
}

fn load_token(state: &Path) -> Result<Token, ChannelError> {
    let path = state.join(TOKEN_FILE);
    if let Some(text) = identity::read_secret(&path)? {
        return text.trim().parse().map_err(|_| IdentityError::Damaged { path, kind: "token" }.into());
    }
    let token = identity::new_token()?;
    identity::write_secret(&path, &token.to_string())?;
    Ok(token)
}

/// Reports clients that were refused before they had a session.
fn log_refusal(shared: &Shared, event: &ServerEvent<'_>) {
    if let ServerEvent::Refused(address, reason, text) = event {
        // Port scans are not worth a message.
        if *reason == lfn_session::server::event::RefusedReason::Token {
            shared.emit(&ChannelEvent::Refused { address: *address, reason: (*text).to_owned() });
        }
    }
}

/// Serves one session of the partner.
fn serve(shared: &Arc<Shared>, session: &mut ServerSession, request: &Request) -> Result<(), SessionError> {
    let Request::Couple(CoupleRequest { streams: count }) = request else {
        let refusal = Refusal::new(RefusalCode::Forbidden, "this server is a component of a coupling");
        return Err(SessionError::Refused(
            refusal.hint("connect with lfn couple run FILE COMPONENT --dial TICKET -- CMD"),
        ));
    };
    let peer = session.peer();
    let mut streams = session.data_streams(*count, STREAM_TIMEOUT)?;
    streams.iter_mut().for_each(|stream| prepare(shared, stream, Role::Listens));
    let introduction = match supersede_and_agree(shared, session) {
        Ok(introduction) => introduction,
        Err(error) => return Err(refuse(shared, peer, error)),
    };
    let handles = streams.iter().map(|stream| stream.handle().clone()).collect();
    let number = shared.connected(&introduction, peer, handles, streams::per_direction(*count));
    let reason = connection::run(shared, number, &mut session.control, streams, Role::Listens);
    shared.disconnected(number, &reason);
    Ok(())
}

/// Agrees with the partner. An older connection of the same process ends first, because its threads use the same fields.
fn supersede_and_agree(shared: &Arc<Shared>, session: &mut ServerSession) -> Result<Introduction, ChannelError> {
    agree(shared, &mut session.control, clock::since_1970, |introduction| {
        let deadline = Instant::now() + SUPERSEDE_TIMEOUT;
        let mut state = shared.state.lock();
        while state.link.current.is_some() && state.partner.instance == Some(introduction.instance) {
            state.abort_connection();
            if shared.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
    })
}

/// Handles a partner that does not fit: before the first connection the run ends, later the run waits for another partner.
fn refuse(shared: &Shared, address: SocketAddr, error: ChannelError) -> SessionError {
    let refused = match &error {
        ChannelError::Session(SessionError::Refused(refusal)) => SessionError::Refused(refusal.clone()),
        ChannelError::Session(_) => SessionError::Closed { peer: "the client", while_doing: "before the run" },
        _ => SessionError::Refused(refusal(&error)),
    };
    let is_first = shared.state.lock().link.count == 0;
    match error {
        ChannelError::FilesDiffer { .. }
        | ChannelError::SameComponent { .. }
        | ChannelError::NothingToResume { .. }
            if is_first =>
        {
            shared.fail(error);
        }
        error => shared.emit(&ChannelEvent::Refused { address, reason: error.to_string() }),
    }
    refused
}

/// Dials the partner until the run is over.
pub fn dial(shared: &Arc<Shared>, target: Target, streams: Option<u16>) -> Result<RendezvousThread, ChannelError> {
    let stop = Arc::new(AtomicBool::new(false));
    let (is_stopped, shared) = (stop.clone(), shared.clone());
    let thread = spawn("couple dial", move || {
        while !is_stopped.load(Ordering::Relaxed) && !shared.is_over() {
            if let Err(error) = dial_once(&shared, &target, streams) {
                if is_final(&shared, &error) {
                    shared.fail(error);
                    return;
                }
                shared.note_reason(error.to_string());
            }
            wait(&shared, &is_stopped);
        }
    })?;
    Ok(RendezvousThread { stop, thread: Some(thread) })
}

/// Waits before the next try.
fn wait(shared: &Shared, is_stopped: &AtomicBool) {
    let mut left = RETRY_INTERVAL;
    while !left.is_zero() && !is_stopped.load(Ordering::Relaxed) && !shared.is_over() {
        thread::sleep(POLL_INTERVAL);
        left = left.saturating_sub(POLL_INTERVAL);
    }
}

/// Reports whether no later try can succeed.
fn is_final(shared: &Shared, error: &ChannelError) -> bool {
    match error {
        ChannelError::Session(SessionError::Refused(refusal)) => {
            !matches!(refusal.code, RefusalCode::Full | RefusalCode::Stopped | RefusalCode::Timeout | RefusalCode::Io)
        }
        ChannelError::Session(
            SessionError::WrongFingerprint { .. } | SessionError::Bind { .. } | SessionError::Frame(_),
        ) => true,
        ChannelError::Session(_) => false,
        // A restarted partner with another file is refused, and this end waits for the right one.
        _ => shared.state.lock().link.count == 0,
    }
}

/// Connects once, and runs the connection to its end.
fn dial_once(shared: &Arc<Shared>, target: &Target, streams: Option<u16>) -> Result<(), ChannelError> {
    let connection = ServerConnection::connect(target)?;
    let address =
        connection.handle().peer_address().map_err(|source| SessionError::Io { peer: "the server", source })?;
    let rtt = connection.min_rtt();
    let count = streams::count(&shared.state.lock().outbox, &shared.coupling, streams, rtt);
    let session = dial::new_session_id()?;
    let (control, opened) = thread::scope(|scope| {
        let data: Vec<_> =
            (0..count).map(|number| scope.spawn(move || open_stream(shared, target, session, number))).collect();
        let request = Request::Couple(CoupleRequest { streams: count });
        let control = connection.open_control(target, session, request).map_err(ChannelError::from);
        let agreed = control.and_then(|mut control| {
            let introduction = agree(shared, &mut control, clock::since_1970, |_| ())?;
            Ok((control, introduction))
        });
        let opened: Vec<Result<DataStream, SessionError>> = data.into_iter().map(join).collect();
        (agreed, opened)
    });
    let (mut control, introduction) = control?;
    let opened: Vec<DataStream> = opened.into_iter().collect::<Result<_, _>>()?;
    let handles = opened.iter().map(|stream| stream.handle().clone()).collect();
    let number = shared.connected(&introduction, address, handles, streams::per_direction(count));
    let reason = connection::run(shared, number, &mut control, opened, Role::Dials);
    shared.disconnected(number, &reason);
    control.close();
    Ok(())
}

fn open_stream(shared: &Shared, target: &Target, session: SessionId, number: u16) -> Result<DataStream, SessionError> {
    let mut stream = dial::open_data(target, session, number, Protection::Tls, None, |socket| {
        if number == 0 {
            // Without it, small fields need more time, and the run continues.
            let _ = tcp::set_congestion(socket, SMALL_FIELD_CONGESTION);
        }
        Ok(())
    })?;
    prepare(shared, &mut stream, Role::Dials);
    Ok(stream)
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T, SessionError>>) -> Result<T, SessionError> {
    let panicked = |_| Err(SessionError::Io { peer: "the kernel", source: io::Error::other("a thread panicked") });
    thread.join().unwrap_or_else(panicked)
}

/// Prepares a stream that this side writes. The stream of small fields gets padding that passes slow start while the two sides
/// agree. The other streams get the congestion control of the host, because the listening socket has that of small fields.
fn prepare(shared: &Shared, stream: &mut DataStream, role: Role) {
    let own = u16::from(role == Role::Listens);
    if stream.stream() % 2 != own {
        return;
    }
    if stream.stream() != own {
        let default = sysctl::read("net.ipv4.tcp_congestion_control").unwrap_or_default();
        let _ = stream.handle().socket().map(|socket| tcp::set_congestion(socket, default.trim()));
        return;
    }
    // A broken stream is noticed by the thread that owns it.
    let bytes = padding::bytes(shared, stream.handle().min_rtt()).min(padding::FIRST_BYTES);
    let _ = stream.write_all(&padding::frames(bytes)).and_then(|()| stream.flush());
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ChannelError> {
    let failed = |source| SessionError::Io { peer: "the kernel", source };
    Ok(thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)?)
}
