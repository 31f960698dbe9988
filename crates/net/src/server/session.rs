//! What a session's service is handed: the control connection, the streams as they come, and the server's limits.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::admission::Allowed;
use lfn_core::session::{Fingerprint, Rights, SessionId, TokenHash};
use lfn_core::units::BitRate;
use lfn_core::wire::copy::CopyId;
use lfn_core::wire::third::LendRequest;
use lfn_core::wire::{Refusal, RefusalCode};
use socket2::{Domain, Protocol, Socket, Type};

use super::admission::Quotas;
use super::event::Copied;
use super::live::Listed;
use super::registry::Streams;
use super::throttle::Throttle;
use super::tokens::lent::Loan;
use super::written::Written;
use super::{Datagrams, Shared, accept_until};
use crate::session::{Control, DataStream, SessionError};

/// The server's end of one session.
#[derive(Debug)]
pub struct ServerSession {
    /// The control connection.
    pub control: Control,
    streams: Streams,
    shared: Arc<Shared>,
    listed: Listed,
    over: Arc<AtomicBool>,
}

/// How often a wait for data streams looks up to see whether the client is still there.
const LOOK_UP: Duration = Duration::from_millis(100);

const OPENING: &str = "while its data streams were waited for";

/// What one session may make the server do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Data streams.
    pub streams: u16,
    /// How long a test may load the path.
    pub test_time: Duration,
    /// How long its client may say nothing.
    pub silence: Duration,
}

impl ServerSession {
    pub(super) fn new(control: Control, streams: Streams, shared: Arc<Shared>, listed: Listed) -> Self {
        ServerSession { control, streams, shared, listed, over: Arc::default() }
    }

    /// Who dialled.
    pub fn peer(&self) -> SocketAddr {
        self.listed.live.who.client
    }

    /// What this session may make the server do.
    pub fn limits(&self) -> Limits {
        let Quotas { session_streams, session_time, .. } = self.shared.config.quotas;
        let test_time = self.allowed().time.unwrap_or(session_time);
        Limits { streams: session_streams, test_time, silence: self.shared.config.connections.silence }
    }

    /// What it was granted.
    pub fn allowed(&self) -> Allowed {
        self.listed.live.grant.allowed()
    }

    /// The rate the server holds it to; none where that is no less than what its client asked to be held to.
    pub fn rate_limit(&self) -> Option<BitRate> {
        let asked = self.listed.live.who.ask.rate;
        self.allowed().rate.filter(|allowed| asked.is_none_or(|asked| *allowed < asked))
    }

    /// What every loop that moves its payload passes.
    pub fn throttle(&self) -> Arc<Throttle> {
        self.listed.live.grant.throttle()
    }

    /// An error if the session is to end: its quotas are spent, or the server is stopping. To be asked now and then.
    pub fn check(&self) -> Result<(), SessionError> {
        self.listed.live.why().map_or(Ok(()), |why| Err(SessionError::Refused(why.clone())))
    }

    /// Whether copies may go wherever the server's own user may.
    pub fn is_everywhere(&self) -> bool {
        self.shared.config.everywhere
    }

    /// The directory copies are confined to, if there is one.
    pub fn root(&self) -> Option<&Path> {
        self.listed.live.bearer.root.as_deref()
    }

    /// What its client may do.
    pub fn rights(&self) -> Rights {
        self.listed.live.bearer.rights
    }

    /// The token it showed, for names that others do not know.
    pub(crate) fn token(&self) -> (Option<&str>, &TokenHash) {
        let bearer = self.listed.live.bearer.principal();
        (bearer.name.as_deref(), &bearer.hash)
    }

    /// What the copy has written so far, in this session and those before it: of two tokens never the same.
    pub(crate) fn written(&self, copy: &CopyId) -> Arc<Written> {
        self.shared.written.of(self.listed.live.bearer.principal().hash.scope(copy.id))
    }

    /// Lends a token for somebody else's upload, in the name of this session's client.
    pub(crate) fn lend(&self, request: &LendRequest) -> Result<Loan, SessionError> {
        self.shared.tokens.lend(&self.listed.live.bearer, request).map_err(SessionError::Refused)
    }

    /// What the token it showed was lent for, if it was.
    pub(crate) fn loan(&self) -> Option<&LendRequest> {
        self.listed.live.bearer.loan()
    }

    /// Whether it dials out where a client asks it to.
    pub(crate) fn is_sent_out(&self) -> bool {
        self.shared.config.third_party
    }

    /// By which clients know this server.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.shared.config.identity.fingerprint()
    }

    /// The session's name among those of all tokens.
    pub(crate) fn scope(&self) -> SessionId {
        self.streams.session()
    }

    /// Notes what became of a copy, for the log.
    pub(crate) fn copied(&self, change: impl FnOnce(&mut Copied)) {
        change(self.listed.live.copied.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default());
    }

    /// Waits for `count` data streams, and gives them in the order of their numbers. A client that hangs up meanwhile is
    /// not waited for.
    pub fn data_streams(&self, count: u16, within: Duration) -> Result<Vec<DataStream>, SessionError> {
        let most = self.limits().streams;
        if count > most {
            return Err(SessionError::Refused(
                Refusal::new(RefusalCode::Limit, format!("{count} streams asked for, the server allows {most}"))
                    .hint(format!("use --streams {most} or fewer")),
            ));
        }
        let deadline = Instant::now() + within;
        let mut streams = Vec::with_capacity(count.into());
        while streams.len() < usize::from(count) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.streams.next(left.min(LOOK_UP)) {
                Some(stream) => streams.push(stream),
                None if left.is_zero() => {
                    return Err(SessionError::Timeout { peer: "the client", after: within, while_doing: OPENING });
                }
                None if self.control.hung_up() => {
                    return Err(SessionError::Closed { peer: "the client", while_doing: OPENING });
                }
                None => self.check()?,
            }
        }
        streams.sort_by_key(DataStream::stream);
        Ok(streams)
    }

    /// Takes streams of datagrams of these numbers from now on, until what is returned is dropped. A client opens them
    /// when it has the answer to its request, so this comes first. One stream of load takes one number, from 0.
    pub fn expect_datagrams(&self, numbers: Range<u16>) -> Datagrams {
        self.shared.datagrams.expect(self.streams.session(), self.peer().ip(), numbers)
    }

    /// Opens a listener of this session's own, for data streams whose socket options must be set before the SYN
    /// comes (the window scale follows the receive buffer of the listening socket); returns its port. It takes the
    /// same hellos as the main port and is gone with the session. `multipath` makes it one of Multipath TCP, which takes
    /// plain connections too.
    pub fn listen_apart(
        &self,
        multipath: bool,
        prepare: impl Fn(&Socket) -> io::Result<()>,
    ) -> Result<u16, SessionError> {
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        let protocol = if multipath { Protocol::MPTCP } else { Protocol::TCP };
        let local = self.control.socket().local_addr().map_err(failed)?;
        let listen = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(protocol))?;
            prepare(&socket)?;
            socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
            socket.listen(i32::from(self.limits().streams))?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        let listener = listen().map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let (shared, over) = (self.shared.clone(), self.over.clone());
        thread::Builder::new()
            .name("session listener".into())
            .spawn(move || accept_until(&listener, &shared, || over.load(Ordering::Relaxed)))
            .map_err(failed)?;
        Ok(port)
    }

    /// What a service works with at the same time: the control connection, the data streams as they arrive, and the
    /// flag that says that the session is to end.
    pub(crate) fn parts(&mut self) -> (&mut Control, &Streams, &AtomicBool) {
        (&mut self.control, &self.streams, &self.listed.live.ending)
    }

    pub(crate) fn close(self) {
        let ServerSession { control, streams, over, listed, .. } = self;
        over.store(true, Ordering::Relaxed);
        // The place is free before the last words have arrived.
        drop((streams, listed));
        control.linger();
    }
}
