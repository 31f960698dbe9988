//! One connection from its first byte: a data stream goes to its session, a control connection becomes one.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::hello::{self, ClearHello};
use lfn_core::session::{PROTOCOL, SessionId, Token};
use lfn_core::wire::{HELLO_LIMIT, Hello, Refusal, RefusalCode, Request};

use super::admission::{Entry, Grant};
use super::doors::Watch;
use super::event::{Event, Reason, Who};
use super::registry::Streams;
use super::{STACK, ServerSession, Shared, turn};
use crate::session::dial::set_liveness;
use crate::session::{Control, DataStream, SessionError, TlsStream};
use crate::tester::TestError;

/// Serves it to its end. An error is of a connection that did not become part of a session, with the reason.
pub(super) fn serve(
    shared: &Arc<Shared>,
    socket: TcpStream,
    peer: SocketAddr,
    watch: Watch,
) -> Result<(), (Reason, SessionError)> {
    let io_error = |source| (Reason::Hello, SessionError::Io { peer: "the client", source });
    socket.set_nonblocking(false).and_then(|()| set_liveness(&socket)).map_err(io_error)?;
    let within = shared.config.connections.hello_within;
    socket.set_read_timeout(Some(within)).map_err(io_error)?;
    let mut first = [0];
    let length = socket.peek(&mut first).or_else(|error| match error.kind() {
        std::io::ErrorKind::ConnectionReset => Ok(0),
        _ => Err(if watch.is_closed() { silent() } else { io_error(error) }),
    })?;
    if length == 0 {
        return Err(if watch.is_closed() { silent() } else { (Reason::Gone, closed()) });
    }
    watch.spoke();
    if first[0] == hello::FIRST_BYTE {
        let (session, stream) = clear_stream(shared, socket)?;
        return shared.registry.deliver(session, stream, watch).map_err(|error| (Reason::Hello, error));
    }
    let tls = TlsStream::server(socket, shared.tls.clone()).map_err(|source| {
        let address = peer.to_string();
        (Reason::Hello, SessionError::Tls { address, source })
    })?;
    let (control, hello) = introduced(shared, Control::new(tls, HELLO_LIMIT, "the client"), within, &watch)?;
    match hello {
        Hello::Data { session, stream, .. } => {
            let stream = DataStream::tls(stream, control.into_stream());
            shared.registry.deliver(session, stream, watch).map_err(|error| (Reason::Hello, error))
        }
        Hello::Control { session, request, .. } => {
            if !watch.known() {
                return Err((Reason::Connections, turned_away(control)));
            }
            let shared = shared.clone();
            // On a thread of its own: the stack that a handshake has used stays in memory as long as its thread lives.
            let work = move || {
                let (_watch, _alive) = (watch, shared.alive());
                session_of(&shared, control, peer, session, &request);
            };
            let spawned = thread::Builder::new().name("session".into()).stack_size(STACK).spawn(work);
            spawned.map(drop).map_err(|source| (Reason::Hello, SessionError::Io { peer: "the kernel", source }))
        }
    }
}

/// Tells a client that there is no room for its connection.
fn turned_away(mut control: Control) -> SessionError {
    let refusal = Refusal::new(RefusalCode::Full, "the server has as many connections as it takes")
        .hint("try again when others have ended");
    // It may be gone already; the refusal is what is reported.
    let _ = control.refuse(&refusal);
    control.close();
    SessionError::Refused(refusal)
}

fn silent() -> (Reason, SessionError) {
    (Reason::Silent, closed())
}

fn closed() -> SessionError {
    SessionError::Closed { peer: "the client", while_doing: "before its hello" }
}

/// Reads the hello of a TLS connection, and whether it is good.
fn introduced(
    shared: &Shared,
    mut control: Control,
    within: Duration,
    watch: &Watch,
) -> Result<(Control, Hello), (Reason, SessionError)> {
    let hello: Hello = match control.recv(within, "before its hello") {
        Ok(hello) => hello,
        Err(error) => {
            if let SessionError::Frame(_) = error {
                let _ = control.refuse(&Refusal::from(&error));
            }
            let reason = if watch.is_closed() { Reason::Silent } else { Reason::Hello };
            return Err((reason, error));
        }
    };
    if let Err(refusal) = shared.trusts(&hello) {
        // The client may be gone already; the refusal is what is reported.
        let _ = control.refuse(&refusal);
        control.close();
        return Err((Reason::Token, SessionError::Refused(refusal)));
    }
    control.known();
    Ok((control, hello))
}

fn clear_stream(shared: &Shared, mut socket: TcpStream) -> Result<(SessionId, DataStream), (Reason, SessionError)> {
    let mut bytes = [0; hello::LENGTH];
    let broke = |source| (Reason::Hello, SessionError::Io { peer: "the client", source });
    socket.read_exact(&mut bytes).map_err(broke)?;
    let token = shared.config.token.unwrap_or(Token::from_bytes([0; 16]));
    let refused = |refusal| (Reason::Token, SessionError::Refused(refusal));
    let hello = ClearHello::decode(&bytes, &token)
        .map_err(|error| refused(Refusal::new(RefusalCode::WrongToken, error.to_string())))?;
    if shared.expired() {
        return Err(refused(shared.expired_refusal()));
    }
    Ok((hello.session, DataStream::clear(hello.stream, socket)))
}

/// A session: asks for its place, waits for it if it must, and is served.
fn session_of(shared: &Arc<Shared>, mut control: Control, peer: SocketAddr, id: SessionId, request: &Request) {
    let who = Who::new(peer, id, request);
    let asked = Instant::now();
    match place(shared, &mut control, id, request, &who) {
        Ok((streams, grant)) => {
            shared.log(Event::Opened(&who, grant.allowed(), asked.elapsed()));
            run(shared, control, streams, who, grant, request);
        }
        Err(SessionError::Refused(refusal)) => {
            shared.registry.hold(id);
            shared.log(Event::Denied(&who, &refusal));
            let _ = control.refuse(&refusal);
            control.linger();
        }
        Err(_) => shared.log(Event::Left(&who, asked.elapsed())),
    }
}

/// The session's place and its streams, however long that takes.
fn place(
    shared: &Arc<Shared>,
    control: &mut Control,
    id: SessionId,
    request: &Request,
    who: &Who,
) -> Result<(Streams, Grant), SessionError> {
    // What makes no sense need not wait.
    if let Request::Test(test) = request {
        test.check().map_err(|error| SessionError::Refused(Refusal::from(&TestError::Request(error))))?;
    }
    let open = |id, grant: &Grant| shared.registry.open(id, grant.allowed().streams).map_err(SessionError::Refused);
    match shared.admission.enter(who.client.ip(), who.ask) {
        Entry::Granted(grant) => Ok((open(id, &grant)?, grant)),
        Entry::Refused(refusal) => Err(SessionError::Refused(refusal)),
        Entry::Queued(ticket) => {
            shared.registry.hold(id);
            shared.log(Event::Queued(who, ticket.expected()));
            control.waits();
            let (grant, session) = turn::wait(control, ticket)?;
            control.known();
            Ok((open(session, &grant)?, grant))
        }
    }
}

fn run(shared: &Arc<Shared>, control: Control, streams: Streams, who: Who, grant: Grant, request: &Request) {
    let began = Instant::now();
    let throttle = grant.throttle();
    let listed = shared.lives.list(who.clone(), grant);
    let live = listed.live.clone();
    let mut session = ServerSession::new(control, streams, shared.clone(), listed);
    let result = (shared.service)(&mut session, request);
    // What was ended from outside says so, whatever its own threads made of it.
    let result = match (live.why(), result) {
        (Some(why), Err(_)) => Err(SessionError::Refused(why.clone())),
        (None, Err(error)) if throttle.is_spent() => {
            Err(live.grant.check().map_or_else(SessionError::Refused, |()| error))
        }
        (_, result) => result,
    };
    if let Err(error) = &result {
        // The client may be gone; if it is not, it is told why.
        let _ = session.control.refuse(&Refusal::from(error));
    }
    let (bytes, time) = (throttle.moved(), began.elapsed());
    shared.log(Event::Ended { who: &who, bytes, time, error: result.as_ref().err() });
    drop(live);
    session.close();
}

impl Shared {
    /// Whether the hello's version and token are good.
    fn trusts(&self, hello: &Hello) -> Result<(), Refusal> {
        let (Hello::Control { protocol, token, .. } | Hello::Data { protocol, token, .. }) = hello;
        if *protocol != PROTOCOL {
            return Err(Refusal::new(
                RefusalCode::Protocol,
                format!("the client speaks version {protocol} of the protocol, this server version {PROTOCOL}"),
            )
            .hint("use the same version of lfn at both ends"));
        }
        let Some(expected) = &self.config.token else { return Ok(()) };
        if !token.is_some_and(|shown| shown.matches(expected)) {
            return Err(Refusal::new(RefusalCode::WrongToken, "the ticket's token is not this server's")
                .hint("take the ticket that `lfn serve` prints now"));
        }
        if self.expired() {
            return Err(self.expired_refusal());
        }
        Ok(())
    }
}
