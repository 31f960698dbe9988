//! One connection from its first byte: a data stream goes to its session, a control connection becomes one.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::session::hello;
use lfn_core::session::{PROTOCOL, Rights, SessionId, Writing};
use lfn_core::wire::copy::{From, Job, To};
use lfn_core::wire::{HELLO_LIMIT, Hello, Introduction, Refusal, RefusalCode, Request};

use super::admission::{Entry, Grant};
use super::doors::Watch;
use super::event::{Event, Reason, Who};
use super::registry::Streams;
use super::tokens::Bearer;
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
    let (control, hello, bearer) = introduced(shared, Control::new(tls, HELLO_LIMIT, "the client"), within, &watch)?;
    match hello {
        Hello::Data { session, stream, .. } => {
            let stream = DataStream::tls(stream, control.into_stream());
            shared.registry.deliver(bearer.hash.scope(session), stream, watch).map_err(|error| (Reason::Hello, error))
        }
        Hello::Control { session, request, .. } => {
            if !watch.known() {
                return Err((Reason::Connections, turned_away(control)));
            }
            let shared = shared.clone();
            // On a thread of its own: the stack that a handshake has used stays in memory as long as its thread lives.
            let work = move || {
                let (_watch, _alive) = (watch, shared.alive());
                session_of(&shared, control, (peer, bearer), session, &request);
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
) -> Result<(Control, Hello, Arc<Bearer>), (Reason, SessionError)> {
    let not_understood = |control: &mut Control, error: SessionError| {
        if let SessionError::Frame(_) = error {
            let _ = control.refuse(&Refusal::from(&error));
        }
        (if watch.is_closed() { Reason::Silent } else { Reason::Hello }, error)
    };
    let said = control.look::<Introduction>(within, "before its hello");
    let said = said.map_err(|error| not_understood(&mut control, error))?;
    let bearer = match shared.trusts(&said) {
        Ok(bearer) => bearer,
        Err(refusal) => {
            // The client may be gone already; the refusal is what is reported.
            let _ = control.refuse(&refusal);
            control.close();
            return Err((Reason::Token, SessionError::Refused(refusal)));
        }
    };
    let hello = control.recv(within, "before its hello").map_err(|error| not_understood(&mut control, error))?;
    control.known();
    Ok((control, hello, bearer))
}

fn clear_stream(shared: &Shared, mut socket: TcpStream) -> Result<(SessionId, DataStream), (Reason, SessionError)> {
    let mut bytes = [0; hello::LENGTH];
    let broke = |source| (Reason::Hello, SessionError::Io { peer: "the client", source });
    socket.read_exact(&mut bytes).map_err(broke)?;
    shared.look_at_tokens();
    let refused = |refusal| (Reason::Token, SessionError::Refused(refusal));
    let (hello, bearer) = shared.tokens.clear_hello(&bytes).map_err(refused)?;
    Ok((bearer.hash.scope(hello.session), DataStream::clear(hello.stream, socket)))
}

/// A session: asks for its place, waits for it if it must, and is served.
fn session_of(
    shared: &Arc<Shared>,
    mut control: Control,
    (peer, bearer): (SocketAddr, Arc<Bearer>),
    id: SessionId,
    request: &Request,
) {
    let own = shared.config.identity.fingerprint();
    let who = Who::new(peer, id, request, bearer.name.clone(), own);
    let asked = Instant::now();
    let opened = place(shared, &mut control, id, request, &who, &bearer).and_then(|(streams, grant)| {
        let opened = shared.account(Event::Opened(&who, grant.allowed(), asked.elapsed()));
        opened.map(|()| (streams, grant)).map_err(SessionError::Refused)
    });
    match opened {
        Ok((streams, grant)) => run(shared, control, streams, (who, bearer), grant, request),
        Err(SessionError::Refused(refusal)) => {
            shared.registry.hold(bearer.hash.scope(id));
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
    bearer: &Arc<Bearer>,
) -> Result<(Streams, Grant), SessionError> {
    permits(bearer, request).map_err(SessionError::Refused)?;
    // What makes no sense need not wait.
    if let Request::Test(test) = request {
        test.check().map_err(|error| SessionError::Refused(Refusal::from(&TestError::Request(error))))?;
    }
    let renews = matches!(request, Request::Copy(_));
    let open = |id, grant: Grant| {
        let streams = shared.registry.open(bearer.hash.scope(id), grant.allowed().streams, renews)?;
        let grant = match (bearer.rate, &bearer.throttle) {
            (Some(rate), Some(throttle)) => grant.sharing(rate, throttle.clone()),
            _ => grant,
        };
        Ok((streams, grant))
    };
    if let Some(copy) = copy_of(bearer, request) {
        // Its place is free for the new one, and what it has half-done too.
        shared.lives.supersede(copy);
    }
    match shared.admission.enter(who.client.ip(), who.ask) {
        Entry::Granted(grant) => open(id, grant).map_err(SessionError::Refused),
        Entry::Refused(refusal) => Err(SessionError::Refused(refusal)),
        Entry::Queued(ticket) => {
            shared.registry.hold(bearer.hash.scope(id));
            shared.log(Event::Queued(who, ticket.expected()));
            control.waits();
            let (grant, session) = turn::wait(control, ticket)?;
            control.known();
            // Its token may have gone meanwhile.
            let stands = shared.tokens.stands(bearer, SystemTime::now());
            stands.and_then(|()| open(session, grant)).map_err(SessionError::Refused)
        }
    }
}

/// Whether the bearer may have what is asked for, as far as that can be told before it begins. What is there or not there is
/// not looked at.
fn permits(bearer: &Bearer, request: &Request) -> Result<(), Refusal> {
    bearer.lent_for(request)?;
    let Rights { test, read, write } = bearer.rights;
    let puts = |to: &To| write > Writing::No || (test && matches!(to, To::Null));
    let gets = |from: &[From]| read || (test && !from.iter().any(|from| matches!(from, From::File { .. })));
    let (may, what) = match request {
        Request::Path(_) => (true, ""),
        Request::Test(_) => (test, "tests"),
        Request::Clean(clean) if !clean.rule.remove || !read => (read, "reading, which copy --clean is"),
        Request::Clean(_) => (write == Writing::Yes, "writing, which copy --clean --force is"),
        Request::Lend(lend) => (puts(&lend.to), "uploads"),
        Request::Copy(copy) => match &copy.job {
            Job::Put { to } => (puts(to), "uploads"),
            Job::Get { from, .. } => (gets(from), "downloads"),
        },
        Request::Send(send) => (gets(&send.from), "downloads"),
    };
    if may {
        return Ok(());
    }
    // The server's own ticket has every right that the server gives: no other could have more.
    let (whose, hint) = match bearer.name.is_some() {
        true => ("this ticket", "ask whoever runs the server for a ticket that is: lfn token add NAME --rights …"),
        false => ("this server", "no ticket changes that: it was started so (--read-only, --write-only or --drop-box)"),
    };
    let text = format!("{whose} is not for {what}, only for: {}", bearer.rights);
    Err(Refusal::new(RefusalCode::Forbidden, text).hint(hint))
}

/// Which copy a session is of, if its client says so: of two tokens never the same.
fn copy_of(bearer: &Bearer, request: &Request) -> Option<SessionId> {
    match request {
        Request::Copy(request) => request.copy.as_ref().map(|copy| bearer.principal().hash.scope(copy.id)),
        _ => None,
    }
}

fn run(
    shared: &Arc<Shared>,
    control: Control,
    streams: Streams,
    (who, bearer): (Who, Arc<Bearer>),
    grant: Grant,
    request: &Request,
) {
    let began = Instant::now();
    let throttle = grant.throttle();
    let copy = copy_of(&bearer, request);
    let listed = shared.lives.list(who.clone(), grant, (bearer, copy));
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
    let copied = live.copied.lock().unwrap_or_else(PoisonError::into_inner).take();
    let error = result.as_ref().err();
    shared.log(Event::Ended { who: &who, bytes, time, error, copied: copied.as_ref() });
    drop(live);
    session.close();
}

impl Shared {
    /// Whose a hello is, if its version and token are good.
    fn trusts(&self, Introduction { protocol, token }: &Introduction) -> Result<Arc<Bearer>, Refusal> {
        if *protocol != PROTOCOL {
            return Err(Refusal::new(
                RefusalCode::Protocol,
                format!("the client speaks version {protocol} of the protocol, this server version {PROTOCOL}"),
            )
            .hint("use the same version of lfn at both ends"));
        }
        self.look_at_tokens();
        self.tokens.known(token.as_ref())
    }
}
