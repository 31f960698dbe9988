//! Streams between two threads of a test, without sockets. A connection carries any number of streams.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Connection, Handle, Stream};

/// Bytes that a pipe holds before its writer waits.
const CAPACITY: usize = 64 << 10;

/// Returns both ends of a connection.
pub fn connection() -> (MemoryConnection, MemoryConnection) {
    let ((near_sender, far_receiver), (far_sender, near_receiver)) = (channel(), channel());
    let (near, far) = (Arc::<OpenStreams>::default(), Arc::<OpenStreams>::default());
    let end = |own: Arc<OpenStreams>, sender, arrivals| MemoryConnection {
        handle: own.clone(),
        own,
        opened: sender,
        arrivals,
    };
    (end(near, near_sender, near_receiver), end(far, far_sender, far_receiver))
}

/// Returns both ends of a stream.
pub fn pair() -> (MemoryStream, MemoryStream) {
    let (forth, back) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
    (MemoryStream::new(back.clone(), forth.clone()), MemoryStream::new(forth, back))
}

/// One end of a connection in memory.
#[derive(Debug)]
pub struct MemoryConnection {
    own: Arc<OpenStreams>,
    handle: Arc<dyn Handle>,
    opened: Sender<MemoryStream>,
    arrivals: Receiver<MemoryStream>,
}

/// Streams of one end of a connection.
#[derive(Debug, Default)]
struct OpenStreams(Mutex<Vec<Weak<Pipes>>>);

impl MemoryConnection {
    fn own(&self, stream: MemoryStream) -> Box<dyn Stream> {
        self.own.0.lock().push(Arc::downgrade(&stream.pipes));
        Box::new(stream)
    }
}

impl Connection for MemoryConnection {
    fn handle(&self) -> &Arc<dyn Handle> {
        &self.handle
    }

    fn open_stream(&mut self) -> io::Result<Box<dyn Stream>> {
        let (near, far) = pair();
        self.opened.send(far).map_err(|_| ErrorKind::ConnectionReset)?;
        Ok(self.own(near))
    }

    fn accept_stream(&mut self, timeout: Duration) -> io::Result<Box<dyn Stream>> {
        let stream = self.arrivals.recv_timeout(timeout).map_err(|error| match error {
            RecvTimeoutError::Timeout => ErrorKind::TimedOut,
            RecvTimeoutError::Disconnected => ErrorKind::ConnectionReset,
        })?;
        Ok(self.own(stream))
    }
}

impl Handle for OpenStreams {
    fn shut_down(&self, side: Shutdown) -> io::Result<()> {
        let pipes: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        pipes.iter().try_for_each(|pipes| pipes.shut_down(side))
    }

    fn abort(&self) {
        self.0.lock().iter().filter_map(Weak::upgrade).for_each(|pipes| pipes.abort());
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    fn peer_address(&self) -> io::Result<SocketAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    fn is_finished_by_peer(&self) -> bool {
        self.0.lock().iter().filter_map(Weak::upgrade).all(|pipes| pipes.is_finished_by_peer())
    }
}

/// One end of a stream in memory.
#[derive(Debug)]
pub struct MemoryStream {
    pipes: Arc<Pipes>,
    handle: Arc<dyn Handle>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    deadline: Option<Instant>,
}

/// Both directions of a stream, as one end sees them.
#[derive(Debug)]
struct Pipes {
    incoming: Arc<Pipe>,
    outgoing: Arc<Pipe>,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Pipe {
    state: Mutex<PipeState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    /// The writer has ended the direction.
    is_finished: bool,
    /// The reader has ended the direction.
    is_unread: bool,
    /// One end has aborted the stream.
    is_aborted: bool,
}

impl MemoryStream {
    fn new(incoming: Arc<Pipe>, outgoing: Arc<Pipe>) -> Self {
        let pipes = Arc::new(Pipes { incoming, outgoing });
        MemoryStream { handle: pipes.clone(), pipes, read_timeout: None, write_timeout: None, deadline: None }
    }

    /// Returns the end of a wait that starts now.
    fn end_of_wait(&self, timeout: Option<Duration>) -> Option<Instant> {
        self.deadline.or_else(|| timeout.map(|timeout| Instant::now() + timeout))
    }

    /// Waits for data or the end, and passes both to `take`.
    fn take_bytes(&self, take: impl FnOnce(&mut VecDeque<u8>) -> usize) -> io::Result<usize> {
        let end = self.end_of_wait(self.read_timeout);
        let is_ready =
            |pipe: &PipeState| !pipe.bytes.is_empty() || pipe.is_finished || pipe.is_unread || pipe.is_aborted;
        let mut pipe = self.pipes.incoming.wait(end, is_ready)?;
        if pipe.is_aborted {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let taken = take(&mut pipe.bytes);
        drop(pipe);
        self.pipes.incoming.changed.notify_all();
        Ok(taken)
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.pipes.incoming.change(|pipe| pipe.is_unread = true);
        self.pipes.outgoing.change(|pipe| pipe.is_finished = true);
    }
}

impl Stream for MemoryStream {
    fn handle(&self) -> &Arc<dyn Handle> {
        &self.handle
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout = timeout;
        Ok(())
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout = timeout;
        Ok(())
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        Ok(())
    }

    fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.take_bytes(|bytes| {
            let length = bytes.len().min(buffer.len());
            buffer.iter_mut().zip(&*bytes).for_each(|(to, from)| *to = *from);
            length
        })
    }

    fn finish_sending(&mut self) -> io::Result<()> {
        self.pipes.shut_down(Shutdown::Write)
    }
}

impl Read for MemoryStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // `VecDeque` never fails to read.
        self.take_bytes(|bytes| bytes.read(buffer).unwrap_or(0))
    }
}

impl Write for MemoryStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.end_of_wait(self.write_timeout);
        let is_ready =
            |pipe: &PipeState| pipe.bytes.len() < CAPACITY || pipe.is_finished || pipe.is_unread || pipe.is_aborted;
        let mut pipe = self.pipes.outgoing.wait(end, is_ready)?;
        if pipe.is_finished || pipe.is_unread || pipe.is_aborted {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let length = bytes.len().min(CAPACITY - pipe.bytes.len());
        pipe.bytes.extend(&bytes[..length]);
        drop(pipe);
        self.pipes.outgoing.changed.notify_all();
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Handle for Pipes {
    fn shut_down(&self, side: Shutdown) -> io::Result<()> {
        if matches!(side, Shutdown::Read | Shutdown::Both) {
            self.incoming.change(|pipe| pipe.is_unread = true);
        }
        if matches!(side, Shutdown::Write | Shutdown::Both) {
            self.outgoing.change(|pipe| pipe.is_finished = true);
        }
        Ok(())
    }

    fn abort(&self) {
        self.incoming.change(|pipe| pipe.is_aborted = true);
        self.outgoing.change(|pipe| pipe.is_aborted = true);
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    fn peer_address(&self) -> io::Result<SocketAddr> {
        Err(ErrorKind::Unsupported.into())
    }

    fn is_finished_by_peer(&self) -> bool {
        let pipe = self.incoming.state.lock();
        pipe.is_finished || pipe.is_aborted
    }
}

impl Pipe {
    fn change(&self, change: impl FnOnce(&mut PipeState)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    /// Waits until the pipe is ready; the error is a time-out.
    fn wait(
        &self,
        end: Option<Instant>,
        is_ready: impl Fn(&PipeState) -> bool,
    ) -> io::Result<MutexGuard<'_, PipeState>> {
        let mut pipe = self.state.lock();
        while !is_ready(&pipe) {
            match end {
                None => self.changed.wait(&mut pipe),
                Some(end) if end <= Instant::now() => return Err(ErrorKind::TimedOut.into()),
                Some(end) => {
                    self.changed.wait_until(&mut pipe, end);
                }
            }
        }
        Ok(pipe)
    }
}
