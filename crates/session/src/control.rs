//! Control connection of a session: it sends and receives messages, and every wait has a deadline.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::SessionError;
use crate::transport::{DEAD_PEER_TIMEOUT, Handle, Stream, is_timeout};
use crate::wire::{self, FrameKind, FrameReader, HELLO_LIMIT, MESSAGE_LIMIT, Refusal, RefusalCode};

/// Maximum time that the end of a session waits for the peer's end.
const LINGER_TIMEOUT: Duration = Duration::from_secs(3);

/// One end of a session's control connection, over a stream that is always encrypted.
///
/// Only one thread uses it; data threads hand their messages to that thread. Dropping `Control` ends the session: the
/// peer sees the close.
#[derive(Debug)]
pub struct Control {
    stream: Box<dyn Stream>,
    reader: FrameReader,
    /// Maximum time that a message waits for space in the send buffer.
    send_timeout: Duration,
    /// Name of the peer in errors: "the server" or "the client".
    peer: &'static str,
}

/// Result of a wait for a queue frame.
#[derive(Debug)]
pub(crate) enum QueuePoll<T> {
    Frame(T),
    /// A message or a refusal arrived and is still to be read.
    Other,
    Nothing,
}

impl Control {
    pub(crate) fn new(stream: Box<dyn Stream>, limit: usize, peer: &'static str) -> Self {
        Control { stream, reader: FrameReader::new(limit), send_timeout: DEAD_PEER_TIMEOUT, peer }
    }

    /// Returns the handle of the stream, for its addresses and counters.
    pub fn handle(&self) -> &Arc<dyn Handle> {
        self.stream.handle()
    }

    /// Returns the name of the peer in errors: "the server" or "the client".
    pub fn peer(&self) -> &'static str {
        self.peer
    }

    /// Returns whether the peer has closed its half of the connection. Data that arrived before may still be unread.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        self.handle().is_finished_by_peer()
    }

    /// Sends one message. Waits at most [`DEAD_PEER_TIMEOUT`] for space in the send buffer, or the time of
    /// [`Control::set_send_timeout`].
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), SessionError> {
        self.send_frame(FrameKind::Message, message, self.send_timeout)
    }

    /// Sets the maximum time that a message waits for space in the send buffer. A session that ends soon should not
    /// wait long for a peer that does not read.
    pub fn set_send_timeout(&mut self, send_timeout: Duration) {
        self.send_timeout = send_timeout.min(DEAD_PEER_TIMEOUT);
    }

    /// Ends the session with a refusal. Earlier messages are still delivered.
    pub fn refuse(&mut self, refusal: &Refusal) -> Result<(), SessionError> {
        self.send_frame(FrameKind::Refusal, refusal, LINGER_TIMEOUT)
    }

    /// Returns the next message. The error names the step in which it was expected: `while_doing` completes "closed the
    /// connection …", for example "before the result".
    pub fn recv<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        while_doing: &'static str,
    ) -> Result<T, SessionError> {
        match self.poll(timeout, while_doing)? {
            Some(message) => Ok(message),
            None => Err(SessionError::Timeout { peer: self.peer, after: timeout, while_doing }),
        }
    }

    /// Returns the next message if one arrives within `timeout`. A minimum of 1 ms applies, so that zero still reads a
    /// message that has arrived. A refusal or a close is an error.
    pub fn poll<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        while_doing: &'static str,
    ) -> Result<Option<T>, SessionError> {
        let deadline = Instant::now() + timeout.max(Duration::from_millis(1));
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

    /// Returns the fields of the next message that `T` has; the message itself stays unread.
    pub(crate) fn peek<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        while_doing: &'static str,
    ) -> Result<T, SessionError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(message) = self.reader.peek()? {
                return Ok(message);
            }
            if !self.fill(deadline, while_doing)? {
                return Err(SessionError::Timeout { peer: self.peer, after: timeout, while_doing });
            }
        }
    }

    /// Returns the next queue frame if one arrives within `timeout`. Another frame stays unread.
    pub(crate) fn poll_queue<T: DeserializeOwned>(
        &mut self,
        timeout: Duration,
        while_doing: &'static str,
    ) -> Result<QueuePoll<T>, SessionError> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.reader.kind()? {
                Some(FrameKind::Queue) => {
                    if let Some(message) = self.reader.take_any()? {
                        return Ok(QueuePoll::Frame(message));
                    }
                }
                Some(FrameKind::Message | FrameKind::Refusal) => return Ok(QueuePoll::Other),
                None => {}
            }
            if !self.fill(deadline, while_doing)? {
                return Ok(QueuePoll::Nothing);
            }
        }
    }

    /// Returns whether the next unread frame is a refusal.
    pub fn is_refused(&self) -> Result<bool, SessionError> {
        Ok(self.reader.kind()? == Some(FrameKind::Refusal))
    }

    /// Skips one frame of any kind, if one arrives within `timeout`.
    pub(crate) fn skip(&mut self, timeout: Duration, while_doing: &'static str) -> Result<(), SessionError> {
        let deadline = Instant::now() + timeout;
        while self.reader.take_any::<IgnoredAny>()?.is_none() && self.fill(deadline, while_doing)? {}
        Ok(())
    }

    /// Sends a queue frame.
    pub(crate) fn send_queue<T: Serialize>(&mut self, message: &T) -> Result<(), SessionError> {
        self.send_frame(FrameKind::Queue, message, self.send_timeout)
    }

    /// Reads the data that arrives before `deadline`; returns false if none arrived.
    fn fill(&mut self, deadline: Instant, while_doing: &'static str) -> Result<bool, SessionError> {
        // A small buffer on the stack: a thousand waiting sessions have a thousand stacks.
        let mut buffer = [0; 512];
        loop {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let length = self.reader.max_read().min(buffer.len());
            self.set_deadline(deadline)?;
            match self.stream.read(&mut buffer[..length]) {
                Ok(0) => return Err(SessionError::Closed { peer: self.peer, while_doing }),
                Ok(length) => {
                    self.reader.push(&buffer[..length]);
                    return Ok(true);
                }
                Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_closed(&error) => {
                    return Err(SessionError::Closed { peer: self.peer, while_doing });
                }
                Err(source) => return Err(SessionError::Io { peer: self.peer, source }),
            }
        }
    }

    /// Ends the stream properly, so that the peer can distinguish the end from a broken connection.
    pub fn close(mut self) {
        // The connection ends here in either case.
        let _ = self.stream.set_deadline(Some(Instant::now() + LINGER_TIMEOUT));
        let _ = self.stream.finish_sending();
    }

    /// Closes the connection after a last message that must arrive. Discards the peer's data until the peer closes too,
    /// for at most [`LINGER_TIMEOUT`]. If unread data were left, the kernel would reset the connection and not
    /// retransmit a lost last message.
    pub(crate) fn linger(mut self) {
        let limited = self.stream.set_deadline(Some(Instant::now() + LINGER_TIMEOUT));
        if limited.and_then(|()| self.stream.finish_sending()).is_err() {
            return;
        }
        let mut discarded = [0; 4096];
        while self.stream.read(&mut discarded).is_ok_and(|length| length > 0) {}
    }

    pub(crate) fn allow_large_messages(&mut self) {
        self.reader.set_limit(MESSAGE_LIMIT);
    }

    /// Limits the peer's messages to the size of a hello: while a client waits in the queue, or if the answer is small.
    pub fn allow_small_messages(&mut self) {
        self.reader.set_limit(HELLO_LIMIT);
    }

    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }

    fn set_deadline(&mut self, deadline: Instant) -> Result<(), SessionError> {
        self.stream.set_deadline(Some(deadline)).map_err(|source| SessionError::Io { peer: self.peer, source })
    }

    fn send_frame<T: Serialize>(
        &mut self,
        kind: FrameKind,
        message: &T,
        timeout: Duration,
    ) -> Result<(), SessionError> {
        let bytes = wire::encode(kind, message)?;
        let peer = self.peer;
        self.set_deadline(Instant::now() + timeout)?;
        let write = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        write.map_err(|source| match source {
            source if is_timeout(&source) => {
                SessionError::Timeout { peer, after: timeout, while_doing: "while a message was sent" }
            }
            source if is_closed(&source) => SessionError::Closed { peer, while_doing: "while a message was sent" },
            source => SessionError::Io { peer, source },
        })
    }
}

/// Returns whether the error means that the connection is closed, in the terms of the kernel and of rustls.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
}

/// Converts the error of a session to the refusal that the peer receives.
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
