//! Control connection: one byte per state, JSON in frames, and a deadline for every step that also holds against single
//! bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_session::transport::tcp::{TcpConnection, TcpSocket};
use lfn_session::transport::{Handle, Stream, is_timeout};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

use super::Error;
use crate::proto::iperf3::{TestState, frame};
use crate::tester::INTERRUPT_TIMEOUT;

/// Maximum bytes of a frame that are read at once, so that memory follows the received data and not the announced
/// length.
const READ_CHUNK: usize = 64 * 1024;

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct IperfControl {
    socket: TcpSocket,
    /// Name of the peer in errors.
    peer: &'static str,
    stop: Option<InterruptFlag>,
}

/// The user's interrupt. All later waits together have [`INTERRUPT_TIMEOUT`].
#[derive(Debug)]
struct InterruptFlag {
    flag: Arc<AtomicBool>,
    set_at: Option<Instant>,
}

/// Interval at which the interrupt flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl IperfControl {
    pub(super) fn new(connection: TcpConnection, peer: &'static str) -> Result<Self, Error> {
        let configured = connection.into_socket().and_then(|mut socket| {
            socket.set_session_options()?;
            Ok(socket)
        });
        let socket = configured.map_err(|source| Error::Io { peer, step: "at its beginning", source })?;
        Ok(IperfControl { socket, peer, stop: None })
    }

    /// Sets the interrupt flag. After it is set, waits end within the rest of [`INTERRUPT_TIMEOUT`].
    pub(super) fn set_interrupt_flag(&mut self, flag: Arc<AtomicBool>) {
        self.stop = Some(InterruptFlag { flag, set_at: None });
    }

    pub(super) fn handle(&self) -> &Arc<dyn Handle> {
        self.socket.handle()
    }

    /// Returns the socket for use as a data stream, without a read time-out: a reader waits until the socket is shut
    /// down.
    pub(super) fn into_socket(mut self) -> TcpSocket {
        // A closed socket reports its error at the next read.
        let _ = self.socket.set_read_timeout(None);
        self.socket
    }

    /// Reads the next state, and waits for at most `timeout`.
    pub(super) fn state(&mut self, timeout: Duration, step: &'static str) -> Result<TestState, Error> {
        let mut byte = [0];
        self.read(&mut byte, timeout, step)?;
        Ok(TestState::from_wire(byte[0])?)
    }

    /// Reads the next state, if one arrives within `timeout`.
    pub(super) fn poll(&mut self, timeout: Duration, step: &'static str) -> Result<Option<TestState>, Error> {
        if !readable(self.socket.as_fd(), timeout) {
            return Ok(None);
        }
        self.state(timeout.max(Duration::from_secs(1)), step).map(Some)
    }

    /// Reads a JSON object of at most `limit` bytes.
    pub(super) fn json(&mut self, limit: usize, timeout: Duration, step: &'static str) -> Result<Value, Error> {
        let deadline = Instant::now() + timeout;
        let mut header = [0; frame::HEADER];
        self.read_until(&mut header, deadline, timeout, step)?;
        let mut left = frame::length(header, limit)?;
        let mut bytes = Vec::new();
        while left > 0 {
            let (from, part) = (bytes.len(), left.min(READ_CHUNK));
            bytes.resize(from + part, 0);
            self.read_until(&mut bytes[from..], deadline, timeout, step)?;
            left -= part;
        }
        Ok(frame::decode(&bytes)?)
    }

    pub(super) fn read(&mut self, bytes: &mut [u8], timeout: Duration, step: &'static str) -> Result<(), Error> {
        self.read_until(bytes, Instant::now() + timeout, timeout, step)
    }

    fn read_until(
        &mut self,
        bytes: &mut [u8],
        deadline: Instant,
        timeout: Duration,
        step: &'static str,
    ) -> Result<(), Error> {
        let peer = self.peer;
        let failed = |source| Error::Io { peer, step, source };
        let mut read = 0;
        while read < bytes.len() {
            let now = Instant::now();
            let (deadline, after) = match self.interrupted_at(now).map(|seen| seen + INTERRUPT_TIMEOUT) {
                Some(end) if end < deadline => (end, INTERRUPT_TIMEOUT),
                _ => (deadline, timeout),
            };
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Err(Error::Timeout { peer, after, step });
            }
            self.socket.set_read_timeout(Some(left.min(POLL_INTERVAL))).map_err(failed)?;
            match self.socket.read(&mut bytes[read..]) {
                Ok(0) => return Err(Error::Closed { peer, step }),
                Ok(length) => read += length,
                Err(error) if error.kind() == ErrorKind::Interrupted || is_timeout(&error) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(Error::Closed { peer, step }),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Returns the time at which the interrupt was first seen.
    fn interrupted_at(&mut self, now: Instant) -> Option<Instant> {
        let stop = self.stop.as_mut().filter(|stop| stop.flag.load(Ordering::Relaxed))?;
        Some(*stop.set_at.get_or_insert(now))
    }

    pub(super) fn send(&mut self, state: TestState, step: &'static str) -> Result<(), Error> {
        self.write(&[state.wire()], step)
    }

    pub(super) fn send_json(&mut self, value: &Value, limit: usize, step: &'static str) -> Result<(), Error> {
        let bytes = frame::encode(value, limit)?;
        self.write(&bytes, step)
    }

    pub(super) fn write(&mut self, bytes: &[u8], step: &'static str) -> Result<(), Error> {
        let peer = self.peer;
        self.socket.write_all(bytes).map_err(|source| match source.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::Closed { peer, step },
            _ => Error::Io { peer, step, source },
        })
    }
}

impl AsFd for IperfControl {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns whether data or the end of the stream can be read within `timeout`.
pub(super) fn readable(socket: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = timeout.try_into().ok();
    // An interrupted wait counts as a finished one.
    poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Returns a function that converts an I/O error of a socket option.
pub(super) fn option(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Option { option: what, source }
}
