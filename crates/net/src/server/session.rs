//! What a session's service is handed: the control connection, the streams as they come, and the server's limits.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::wire::{Refusal, RefusalCode};
use socket2::{Domain, Protocol, Socket, Type};

use super::registry::Streams;
use super::{Limits, Shared, accept_until};
use crate::session::{Control, DataStream, SessionError};

/// The server's end of one session.
#[derive(Debug)]
pub struct ServerSession {
    /// The control connection.
    pub control: Control,
    streams: Streams,
    shared: Arc<Shared>,
    peer: SocketAddr,
    over: Arc<AtomicBool>,
}

/// A session that the server's end waits for.
#[derive(Debug)]
pub(crate) struct TidyUp(Arc<Shared>);

impl Drop for TidyUp {
    fn drop(&mut self) {
        self.0.tidying.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ServerSession {
    pub(crate) fn new(control: Control, streams: Streams, shared: Arc<Shared>, peer: SocketAddr) -> Self {
        ServerSession { control, streams, shared, peer, over: Arc::default() }
    }

    /// Who dialled.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What this session may make the server do.
    pub fn limits(&self) -> Limits {
        self.shared.config.limits
    }

    /// The directory copies are confined to, if the server has one.
    pub fn root(&self) -> Option<&Path> {
        self.shared.root().map(|root| root.as_path())
    }

    /// Waits for `count` data streams, and gives them in the order of their numbers.
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
            let stream = self.streams.next(left).ok_or(SessionError::Timeout {
                peer: "the client",
                after: within,
                while_doing: "to open its data streams",
            })?;
            streams.push(stream);
        }
        streams.sort_by_key(DataStream::stream);
        Ok(streams)
    }

    /// Opens a listener of this session's own, for data streams whose socket options must be set before the SYN
    /// comes (the window scale follows the receive buffer of the listening socket); returns its port. It takes the
    /// same hellos as the main port and is gone with the session.
    pub fn listen_apart(&self, prepare: impl Fn(&Socket) -> io::Result<()>) -> Result<u16, SessionError> {
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        let local = self.control.socket().local_addr().map_err(failed)?;
        let listen = || -> io::Result<TcpListener> {
            let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
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
    /// flag that says that the server is being stopped.
    pub(crate) fn parts(&mut self) -> (&mut Control, &Streams, &AtomicBool) {
        (&mut self.control, &self.streams, &self.shared.stopping)
    }

    /// Says that this session has something to tidy up when the server is stopped, until the guard is dropped.
    pub(crate) fn tidies_up(&self) -> TidyUp {
        self.shared.tidying.fetch_add(1, Ordering::SeqCst);
        TidyUp(self.shared.clone())
    }

    pub(crate) fn close(self) {
        let ServerSession { control, streams, over, .. } = self;
        over.store(true, Ordering::Relaxed);
        // The place is free before the last words have arrived.
        drop(streams);
        control.linger();
    }
}
