//! The control connection: one byte a state, JSON in frames, and a deadline on every step, however slowly the other end
//! talks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_core::iperf3::{State, frame};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

use super::Error;
use crate::session::dial::set_liveness;
use crate::session::timed_out;
use crate::tester::AFTER_STOP;

/// What is read at once of a frame: memory follows what came, not what was announced.
const PART: usize = 64 * 1024;

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct Control {
    socket: TcpStream,
    /// How to name the other end.
    peer: &'static str,
    stop: Option<Stop>,
}

/// The user's word that it is enough: whatever is still to come has [`AFTER_STOP`] in all.
#[derive(Debug)]
struct Stop {
    flag: Arc<AtomicBool>,
    seen: Option<Instant>,
}

/// How often that is looked for.
const LOOK_UP: Duration = Duration::from_millis(100);

impl Control {
    pub(super) fn new(socket: TcpStream, peer: &'static str) -> Result<Self, Error> {
        let made = socket.set_nonblocking(false).and_then(|()| set_liveness(&socket));
        made.map_err(|source| Error::Io { peer, doing: "at its beginning", source })?;
        Ok(Control { socket, peer, stop: None })
    }

    /// From when this is set on, no wait takes longer than is left of [`AFTER_STOP`].
    pub(super) fn stops_at(&mut self, flag: Arc<AtomicBool>) {
        self.stop = Some(Stop { flag, seen: None });
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The socket, as a data stream: a reader of it waits until it is shut down, however long nothing comes.
    pub(super) fn into_socket(self) -> TcpStream {
        // A socket that is gone says so when it is read.
        let _ = self.socket.set_read_timeout(None);
        self.socket
    }

    /// The next state, which must come within `within`.
    pub(super) fn state(&mut self, within: Duration, doing: &'static str) -> Result<State, Error> {
        let mut byte = [0];
        self.read(&mut byte, within, doing)?;
        Ok(State::from_wire(byte[0])?)
    }

    /// The next state, if it comes within `within`.
    pub(super) fn poll(&mut self, within: Duration, doing: &'static str) -> Result<Option<State>, Error> {
        if !readable(self.socket.as_fd(), within) {
            return Ok(None);
        }
        self.state(within.max(Duration::from_secs(1)), doing).map(Some)
    }

    /// An object of at most `limit` bytes.
    pub(super) fn json(&mut self, limit: usize, within: Duration, doing: &'static str) -> Result<Value, Error> {
        let deadline = Instant::now() + within;
        let mut header = [0; frame::HEADER];
        self.read_until(&mut header, deadline, within, doing)?;
        let mut left = frame::length(header, limit)?;
        let mut bytes = Vec::new();
        while left > 0 {
            let (from, part) = (bytes.len(), left.min(PART));
            bytes.resize(from + part, 0);
            self.read_until(&mut bytes[from..], deadline, within, doing)?;
            left -= part;
        }
        Ok(frame::decode(&bytes)?)
    }

    pub(super) fn read(&mut self, bytes: &mut [u8], within: Duration, doing: &'static str) -> Result<(), Error> {
        self.read_until(bytes, Instant::now() + within, within, doing)
    }

    fn read_until(
        &mut self,
        bytes: &mut [u8],
        deadline: Instant,
        within: Duration,
        doing: &'static str,
    ) -> Result<(), Error> {
        let peer = self.peer;
        let failed = |source| Error::Io { peer, doing, source };
        let mut read = 0;
        while read < bytes.len() {
            let now = Instant::now();
            let (deadline, after) = match self.stopped(now).map(|seen| seen + AFTER_STOP) {
                Some(end) if end < deadline => (end, AFTER_STOP),
                _ => (deadline, within),
            };
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Err(Error::Timeout { peer, after, doing });
            }
            self.socket.set_read_timeout(Some(left.min(LOOK_UP))).map_err(failed)?;
            match self.socket.read(&mut bytes[read..]) {
                Ok(0) => return Err(Error::Closed { peer, doing }),
                Ok(length) => read += length,
                Err(error) if error.kind() == ErrorKind::Interrupted || timed_out(&error) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Err(Error::Closed { peer, doing }),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// When the user's word that it is enough was first seen.
    fn stopped(&mut self, now: Instant) -> Option<Instant> {
        let stop = self.stop.as_mut().filter(|stop| stop.flag.load(Ordering::Relaxed))?;
        Some(*stop.seen.get_or_insert(now))
    }

    pub(super) fn send(&mut self, state: State, doing: &'static str) -> Result<(), Error> {
        self.write(&[state.wire()], doing)
    }

    pub(super) fn send_json(&mut self, value: &Value, limit: usize, doing: &'static str) -> Result<(), Error> {
        let bytes = frame::encode(value, limit)?;
        self.write(&bytes, doing)
    }

    pub(super) fn write(&mut self, bytes: &[u8], doing: &'static str) -> Result<(), Error> {
        let peer = self.peer;
        self.socket.write_all(bytes).map_err(|source| match source.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Error::Closed { peer, doing },
            _ => Error::Io { peer, doing, source },
        })
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether there is something to read, or an end, within `within`.
pub(super) fn readable(socket: BorrowedFd<'_>, within: Duration) -> bool {
    let within = within.try_into().ok();
    // An interrupted wait is as good as one that ended.
    poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], within.as_ref()).is_ok_and(|ready| ready > 0)
}

/// An error of the kernel's as one of ours.
pub(super) fn option(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |source| Error::Option { what, source }
}
