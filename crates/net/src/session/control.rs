//! The control connection: messages out, messages in, each wait with a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use lfn_core::wire::{self, FrameReader, HELLO_LIMIT, Kind, MESSAGE_LIMIT, Refusal, RefusalCode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::tls::TlsStream;
use super::{DEAD_AFTER, SessionError, timed_out};

/// How long the end of a session waits for the peer's.
const LINGER: Duration = Duration::from_secs(3);

/// One end of a session's control connection, always inside TLS.
///
/// It is used from one thread: data threads hand that thread what it should say. A session that drops its `Control`
/// ends; the peer sees the close.
#[derive(Debug)]
pub struct Control {
    stream: TlsStream,
    reader: FrameReader,
    /// How long a message may wait for room.
    patience: Duration,
    /// How errors name the other side.
    peer: &'static str,
}

/// What came while a frame of the queue was waited for.
#[derive(Debug)]
pub(crate) enum Heard<T> {
    /// One.
    Queue(T),
    /// A message or a refusal, still to be read.
    Other,
    /// Nothing.
    Nothing,
}

impl Control {
    pub(crate) fn new(stream: TlsStream, limit: usize, peer: &'static str) -> Self {
        Control { stream, reader: FrameReader::new(limit), patience: DEAD_AFTER, peer }
    }

    /// The socket, for `TCP_INFO` and addresses.
    pub fn socket(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// How errors name the other side: "the server" or "the client".
    pub fn peer(&self) -> &'static str {
        self.peer
    }

    /// Whether the other side has closed its half: it will say no more than what has come already.
    pub(crate) fn hung_up(&self) -> bool {
        let mut sockets = [PollFd::new(self.socket(), PollFlags::RDHUP)];
        poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Sends one message; waits at most [`DEAD_AFTER`] for room, or what [`Control::waits_for_room`] said.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), SessionError> {
        self.send_frame(Kind::Message, message, self.patience)
    }

    /// How long a message may wait for room from here on: what is over soon need not wait long for a peer that does not
    /// read.
    pub(crate) fn waits_for_room(&mut self, patience: Duration) {
        self.patience = patience.min(DEAD_AFTER);
    }

    /// Ends the conversation with a reason. What was already said is still delivered.
    pub fn refuse(&mut self, refusal: &Refusal) -> Result<(), SessionError> {
        self.send_frame(Kind::Refusal, refusal, LINGER)
    }

    /// The next message, or an error that says what was waited for (`while_doing` completes "closed the connection
    /// …": "before the result").
    pub fn recv<T: DeserializeOwned>(
        &mut self,
        within: Duration,
        while_doing: &'static str,
    ) -> Result<T, SessionError> {
        match self.poll(within, while_doing)? {
            Some(message) => Ok(message),
            None => Err(SessionError::Timeout { peer: self.peer, after: within, while_doing }),
        }
    }

    /// The next message if one comes within `within`, which is a millisecond at least: whoever has no time hears what
    /// is there. A refusal or a close is an error.
    pub fn poll<T: DeserializeOwned>(
        &mut self,
        within: Duration,
        while_doing: &'static str,
    ) -> Result<Option<T>, SessionError> {
        let deadline = Instant::now() + within.max(Duration::from_millis(1));
        loop {
            match self.reader.take::<T, Refusal>()? {
                Some(wire::Frame::Message(message)) => return Ok(Some(message)),
                Some(wire::Frame::Refusal(refusal)) => return Err(SessionError::Refused(refusal)),
                None => {}
            }
            if !self.fill(deadline, while_doing)? {
                return Ok(None);
            }
        }
    }

    /// What the next message says, as far as `T` asks for it; the message itself stays to be received.
    pub(crate) fn look<T: DeserializeOwned>(
        &mut self,
        within: Duration,
        while_doing: &'static str,
    ) -> Result<T, SessionError> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(said) = self.reader.look()? {
                return Ok(said);
            }
            if !self.fill(deadline, while_doing)? {
                return Err(SessionError::Timeout { peer: self.peer, after: within, while_doing });
            }
        }
    }

    /// The next frame of the queue if one comes within `within`; that something else came first is an error of its
    /// own, and leaves it to be read.
    pub(crate) fn poll_queue<T: DeserializeOwned>(
        &mut self,
        within: Duration,
        while_doing: &'static str,
    ) -> Result<Heard<T>, SessionError> {
        let deadline = Instant::now() + within;
        loop {
            match self.reader.kind()? {
                Some(Kind::Queue) => {
                    if let Some(said) = self.reader.take_any()? {
                        return Ok(Heard::Queue(said));
                    }
                }
                Some(Kind::Message | Kind::Refusal) => return Ok(Heard::Other),
                None => {}
            }
            if !self.fill(deadline, while_doing)? {
                return Ok(Heard::Nothing);
            }
        }
    }

    /// Whether what came last and was not read yet is a refusal.
    pub(crate) fn is_refused(&self) -> Result<bool, SessionError> {
        Ok(self.reader.kind()? == Some(Kind::Refusal))
    }

    /// Reads past one frame, whatever is in it, if one comes within `within`.
    pub(crate) fn skip(&mut self, within: Duration, while_doing: &'static str) -> Result<(), SessionError> {
        let deadline = Instant::now() + within;
        while self.reader.take_any::<IgnoredAny>()?.is_none() && self.fill(deadline, while_doing)? {}
        Ok(())
    }

    /// Sends a frame of the queue.
    pub(crate) fn send_queue<T: Serialize>(&mut self, message: &T) -> Result<(), SessionError> {
        self.send_frame(Kind::Queue, message, self.patience)
    }

    /// Reads what comes before `deadline`; false if nothing did.
    fn fill(&mut self, deadline: Instant, while_doing: &'static str) -> Result<bool, SessionError> {
        // On the stack, and small: a thousand sessions that wait for something hold a thousand stacks.
        let mut buffer = [0; 512];
        loop {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let wanted = self.reader.wants().min(buffer.len());
            self.stream.wait_until(deadline);
            match self.stream.read(&mut buffer[..wanted]) {
                Ok(0) => return Err(SessionError::Closed { peer: self.peer, while_doing }),
                Ok(length) => {
                    self.reader.push(&buffer[..length]);
                    return Ok(true);
                }
                Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_closed(&error) => {
                    return Err(SessionError::Closed { peer: self.peer, while_doing });
                }
                Err(source) => return Err(SessionError::Io { peer: self.peer, source }),
            }
        }
    }

    /// Says goodbye properly, so that the peer can tell an end from a cut.
    pub fn close(mut self) {
        self.stream.wait_until(Instant::now() + LINGER);
        self.stream.close_notify();
    }

    /// Closes after a last word that must arrive: what the peer still says is read until it closes too, for at most
    /// [`LINGER`]. Closed with its words unread, the connection would be reset, and a lost last word not sent again.
    pub(crate) fn linger(mut self) {
        let deadline = Instant::now() + LINGER;
        self.stream.wait_until(deadline);
        self.stream.close_notify();
        let socket = self.stream.socket();
        if socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut unheard = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match { socket }.read(&mut unheard) {
                Ok(length) if length > 0 => {}
                _ => return,
            }
        }
    }

    pub(crate) fn known(&mut self) {
        self.reader.set_limit(MESSAGE_LIMIT);
    }

    /// While it waits for its turn nothing large is to be said.
    pub(crate) fn waits(&mut self) {
        self.reader.set_limit(HELLO_LIMIT);
    }

    pub(crate) fn into_stream(self) -> TlsStream {
        self.stream
    }

    fn send_frame<T: Serialize>(&mut self, kind: Kind, message: &T, within: Duration) -> Result<(), SessionError> {
        let bytes = wire::encode(kind, message)?;
        let peer = self.peer;
        self.stream.wait_until(Instant::now() + within);
        let write = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        write.map_err(|source| match source {
            source if timed_out(&source) => {
                SessionError::Timeout { peer, after: within, while_doing: "to take a message" }
            }
            source if is_closed(&source) => SessionError::Closed { peer, while_doing: "while being told something" },
            source => SessionError::Io { peer, source },
        })
    }
}

/// A connection that is gone, in the words the kernel and rustls have for it.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
}

/// The refusal to send when a session ended with `error`: what the other side should know of it.
impl From<&SessionError> for Refusal {
    fn from(error: &SessionError) -> Refusal {
        let code = match error {
            SessionError::Refused(refusal) => return refusal.clone(),
            SessionError::Timeout { .. } => RefusalCode::Timeout,
            SessionError::Frame(_) => RefusalCode::BadMessage,
            _ => RefusalCode::Io,
        };
        Refusal { code, message: error.to_string(), hint: error.hint() }
    }
}
