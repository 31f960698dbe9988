//! The server's end of a session, as a service uses it: the control connection, the data streams and the server's
//! limits.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use lfn_base::units::BitRate;
use socket2::{Domain, Protocol, Socket, Type};

use super::accept::StopSignal;
use super::event::CopySummary;
use super::expected_streams::DatagramStreams;
use super::metrics::RankCounters;
use super::registry::SessionStreams;
use super::running_session::RunningSessionGuard;
use super::state::ServerState;
use super::tokens::temporary::TemporaryToken;
use crate::limits::rate_limiter::RateLimiter;
use crate::limits::{ResourceGrant, ServerLimits};
use crate::transport::tcp::Listener;
use crate::wire::copy::CopyId;
use crate::wire::third_party::TokenRequest;
use crate::wire::{Refusal, RefusalCode};
use crate::written_files::WrittenFiles;
use crate::{Control, DataStream, Fingerprint, Rights, SessionError, SessionId, TokenHash};

/// The server's end of one session.
#[derive(Debug)]
pub struct ServerSession {
    pub control: Control,
    streams: SessionStreams,
    shared: Arc<ServerState>,
    running: RunningSessionGuard,
    is_over: Arc<AtomicBool>,
}

/// Interval at which a wait for data streams checks whether the client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

const WAITING_FOR_STREAMS: &str = "while the server waited for its data streams";

/// Limits of one session.
#[derive(Debug, Clone, Copy)]
pub struct SessionLimits {
    pub max_streams: u16,
    /// Maximum time that a test may load the path.
    pub max_test_time: Duration,
    /// Maximum time without a message from the client.
    pub silence_timeout: Duration,
}

impl ServerSession {
    pub(super) fn new(
        control: Control,
        streams: SessionStreams,
        shared: Arc<ServerState>,
        running: RunningSessionGuard,
    ) -> Self {
        ServerSession { control, streams, shared, running, is_over: Arc::default() }
    }

    /// Returns the client's address.
    pub fn peer(&self) -> SocketAddr {
        self.running.session.info.client
    }

    /// Returns the limits of this session.
    pub fn limits(&self) -> SessionLimits {
        let ServerLimits { session_streams, test_time, .. } = self.shared.config.limits;
        let max_test_time = self.allowed().time.unwrap_or(test_time);
        SessionLimits {
            max_streams: session_streams,
            max_test_time,
            silence_timeout: self.shared.config.connection_limits.silence_timeout,
        }
    }

    /// Returns the maximum number of connections of the server.
    pub fn max_connections(&self) -> usize {
        self.shared.config.connection_limits.max_connections
    }

    /// Returns the streams, rate, bytes and time that the session was granted.
    pub fn allowed(&self) -> ResourceGrant {
        self.running.session.grant.allowed()
    }

    /// Returns the rate limit of the server, unless the client requested the same limit or a lower one.
    pub fn rate_limit(&self) -> Option<BitRate> {
        let requested = self.running.session.info.requested.rate;
        self.allowed().rate.filter(|allowed| requested.is_none_or(|requested| *allowed < requested))
    }

    /// Returns the rate limiter of the session. Every loop that moves payload calls it.
    pub fn rate_limiter(&self) -> Arc<RateLimiter> {
        self.running.session.grant.rate_limiter()
    }

    /// Returns an error if the session must end, because a quota is exhausted or the server stops. Call it regularly.
    pub fn check(&self) -> Result<(), SessionError> {
        self.running.session.end_reason().map_or(Ok(()), |reason| Err(SessionError::Refused(reason.clone())))
    }

    /// Returns whether copies may use every path that the server's user may use.
    pub fn is_unconfined(&self) -> bool {
        self.shared.config.unconfined
    }

    /// Returns the directory that confines copies, if there is one.
    pub fn root(&self) -> Option<&Path> {
        self.running.session.holder.root.as_deref()
    }

    /// Returns the rights of the client's token.
    pub fn rights(&self) -> Rights {
        self.running.session.holder.rights
    }

    /// Returns the name and the hash of the token, to derive file names that other clients cannot guess.
    pub fn token(&self) -> (Option<&str>, &TokenHash) {
        let holder = self.running.session.holder.principal();
        (holder.name.as_deref(), &holder.hash)
    }

    /// Returns the files that the copy has written so far, in this session and in earlier ones. The files of two tokens
    /// are separate.
    pub fn written_files(&self, copy: &CopyId) -> Arc<WrittenFiles> {
        self.shared.written_files.of(self.running.session.holder.principal().hash.scope(copy.id))
    }

    /// Issues a temporary token: another host may do this one upload in the name of this session's client.
    pub fn issue_temporary_token(&self, request: &TokenRequest) -> Result<TemporaryToken, SessionError> {
        self.shared.tokens.issue_temporary(&self.running.session.holder, request).map_err(SessionError::Refused)
    }

    /// Returns the request for which the client's temporary token was issued; `None` for an ordinary token.
    pub fn temporary_token_request(&self) -> Option<&TokenRequest> {
        self.running.session.holder.delegated_request()
    }

    /// Returns whether a client may ask this server to dial another server (`--third-party`).
    pub fn allows_third_party(&self) -> bool {
        self.shared.config.allow_third_party
    }

    /// Returns the fingerprint of the server's key, as in its tickets.
    pub fn fingerprint(&self) -> Fingerprint {
        self.shared.config.identity.fingerprint()
    }

    /// Returns the id of the session, unique over all tokens.
    pub fn scoped_id(&self) -> SessionId {
        self.streams.session()
    }

    /// Returns the counters of the copies that several ranks send.
    pub fn rank_counters(&self) -> Arc<RankCounters> {
        self.shared.metrics.ranks.clone()
    }

    /// Updates the summary of the copy for the log and the audit log.
    pub fn update_copy_summary(&self, change: impl FnOnce(&mut CopySummary)) {
        change(self.running.session.copy_summary.lock().get_or_insert_default());
    }

    /// Waits for `count` data streams and returns them in the order of their numbers. The wait ends early if the client
    /// closes the control connection.
    pub fn data_streams(&self, count: u16, timeout: Duration) -> Result<Vec<DataStream>, SessionError> {
        let most = self.limits().max_streams;
        if count > most {
            return Err(SessionError::Refused(
                Refusal::new(RefusalCode::Limit, format!("{count} streams requested; the server allows {most}"))
                    .hint(format!("use --streams {most} or fewer")),
            ));
        }
        let deadline = Instant::now() + timeout;
        let mut streams = Vec::with_capacity(count.into());
        while streams.len() < usize::from(count) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.streams.next(left.min(POLL_INTERVAL)) {
                Some(stream) => streams.push(stream),
                None if left.is_zero() => {
                    return Err(SessionError::Timeout {
                        peer: "the client",
                        after: timeout,
                        while_doing: WAITING_FOR_STREAMS,
                    });
                }
                None if self.control.is_closed_by_peer() => {
                    return Err(SessionError::Closed { peer: "the client", while_doing: WAITING_FOR_STREAMS });
                }
                None => self.check()?,
            }
        }
        streams.sort_by_key(DataStream::stream);
        Ok(streams)
    }

    /// Accepts datagram streams of these numbers until the returned value is dropped. Call it before you answer the
    /// client's request, because the client opens the streams when it has the answer. Each stream of load has one
    /// number, from 0.
    pub fn expect_datagrams(&self, numbers: Range<u16>) -> DatagramStreams {
        self.shared.expected_datagrams.expect(self.streams.session(), self.peer().ip(), numbers)
    }

    /// Opens a listener for this session alone, and returns its port. Its sockets get options that must be set before
    /// the SYN arrives: the window scale follows the receive buffer of the listening socket. The listener accepts the
    /// same hellos as the main port and closes with the session. With `multipath` it uses Multipath TCP, which accepts
    /// plain TCP connections too.
    pub fn open_listener(
        &self,
        multipath: bool,
        prepare: impl Fn(&Socket) -> io::Result<()>,
    ) -> Result<u16, SessionError> {
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        let protocol = if multipath { Protocol::MPTCP } else { Protocol::TCP };
        let local = self.control.handle().local_address().map_err(failed)?;
        let listen = || -> io::Result<Listener> {
            let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(protocol))?;
            prepare(&socket)?;
            socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
            socket.listen(i32::from(self.limits().max_streams))?;
            Listener::from_socket(socket)
        };
        let listener = listen().map_err(failed)?;
        let port = listener.local_address().map_err(failed)?.port();
        let (shared, is_over) = (self.shared.clone(), self.is_over.clone());
        thread::Builder::new()
            .name("session listener".into())
            .spawn(move || {
                let is_over = || is_over.load(Ordering::Relaxed);
                shared.accept_loop().run(&[listener], StopSignal::When(&is_over));
            })
            .map_err(failed)?;
        Ok(port)
    }

    /// Returns separate references for a service: the control connection, the data streams, and the flag that is set
    /// when the session must end.
    pub fn split_mut(&mut self) -> (&mut Control, &SessionStreams, &AtomicBool) {
        (&mut self.control, &self.streams, &self.running.session.must_end)
    }

    pub(crate) fn close(self) {
        let ServerSession { control, streams, is_over, running, .. } = self;
        is_over.store(true, Ordering::Relaxed);
        // The slot becomes free before the last messages arrive at the client.
        drop((streams, running));
        control.linger();
    }
}
