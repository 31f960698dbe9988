//! Plain TCP, and Multipath TCP: the listener, the connection, and its only stream.

#![allow(clippy::disallowed_types, reason = "this module is the transport over TCP sockets")]

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_base::tcp_info::TcpInfo;
use lfn_sys::tcp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::{Connection, DEAD_PEER_TIMEOUT, Handle, Stream};

/// Backlog of the standard library, for listeners without a flood of connections.
pub const DEFAULT_BACKLOG: i32 = 128;

/// A listening TCP socket. It never blocks: wait for it with poll(2).
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// Listens on an address. `backlog` connections may wait for accept(2); the kernel limits the value to
    /// `net.core.somaxconn` (4096).
    pub fn bind(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        // A second listen(2) only changes the backlog.
        rustix::net::listen(&listener, backlog)?;
        listener.set_nonblocking(true)?;
        Ok(Listener(listener))
    }

    /// Listens like [`bind`](Self::bind), also for Multipath TCP if the kernel has it. Connections of plain TCP become
    /// plain sockets, as fast as those of a plain listener.
    pub fn bind_multipath(address: SocketAddr, backlog: i32) -> io::Result<Self> {
        let Ok(socket) = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::MPTCP)) else {
            return Listener::bind(address, backlog);
        };
        // As the standard library does.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(backlog)?;
        Listener::from_socket(socket)
    }

    /// Listens like [`bind`](Self::bind), and gives accepted connections this congestion control, if the host permits it. A change
    /// after accept(2) is not the same: a connection that began with BBR keeps the pacing of the kernel.
    pub fn bind_with_congestion(address: SocketAddr, backlog: i32, name: &str) -> io::Result<Self> {
        let listener = Listener::bind(address, backlog)?;
        // Without it, the connections have the congestion control of the host.
        let _ = tcp::set_congestion(&listener, name);
        Ok(listener)
    }

    /// Takes a socket that listens already, for options that must be set before.
    pub fn from_socket(socket: Socket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Listener(socket.into()))
    }

    /// Returns the address and port of the listener.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Returns the next connection and the address of its peer. The error is `WouldBlock` if none waits.
    pub fn accept(&self) -> io::Result<(TcpConnection, SocketAddr)> {
        let (socket, peer) = self.0.accept()?;
        Ok((TcpConnection::new(TcpSocket::new(socket)), peer))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns whether the kernel of this host has Multipath TCP.
pub fn has_multipath() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).is_ok()
}

/// A TCP connection. It carries one stream, which belongs to the end that asks for it first.
#[derive(Debug)]
pub struct TcpConnection {
    handle: Arc<dyn Handle>,
    stream: Option<TcpSocket>,
}

impl TcpConnection {
    fn new(stream: TcpSocket) -> Self {
        TcpConnection { handle: stream.handle.clone(), stream: Some(stream) }
    }

    /// Connects to an address.
    pub fn connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        TcpConnection::connect_socket(socket, address, timeout)
    }

    /// Connects a socket whose options are set.
    pub fn connect_socket(socket: Socket, address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        socket.connect_timeout(&address.into(), timeout)?;
        let mut stream = TcpSocket::new(socket.into());
        stream.set_session_options()?;
        Ok(TcpConnection::new(stream))
    }

    /// Returns the socket, for protocols that are defined over TCP. Options of an accepted socket are the kernel's.
    pub fn into_socket(self) -> io::Result<TcpSocket> {
        self.stream.ok_or_else(no_more_streams)
    }
}

impl Connection for TcpConnection {
    fn handle(&self) -> &Arc<dyn Handle> {
        &self.handle
    }

    fn open_stream(&mut self) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.stream.take().ok_or_else(no_more_streams)?))
    }

    fn accept_stream(&mut self, _timeout: Duration) -> io::Result<Box<dyn Stream>> {
        let mut stream = self.stream.take().ok_or_else(no_more_streams)?;
        stream.set_session_options()?;
        Ok(Box::new(stream))
    }
}

fn no_more_streams() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a TCP connection carries one stream")
}

/// The stream of a TCP connection.
///
/// A shared reference reads and writes too, with the time-outs and without the deadline.
#[derive(Debug)]
pub struct TcpSocket {
    socket: Arc<SharedSocket>,
    /// The same socket, for other threads.
    handle: Arc<dyn Handle>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    deadline: Option<Instant>,
}

/// A connected socket, shared by its stream and its handles.
#[derive(Debug)]
struct SharedSocket(TcpStream);

impl TcpSocket {
    fn new(socket: TcpStream) -> Self {
        let socket = Arc::new(SharedSocket(socket));
        TcpSocket { handle: socket.clone(), socket, read_timeout: None, write_timeout: None, deadline: None }
    }

    /// Sets the options of the connections of sessions, at both ends: no Nagle delay, and detection of a dead peer.
    pub fn set_session_options(&mut self) -> io::Result<()> {
        self.socket.0.set_nodelay(true)?;
        self.set_write_timeout(Some(DEAD_PEER_TIMEOUT))?;
        let socket = SockRef::from(&self.socket.0);
        let keepalive = TcpKeepalive::new().with_time(DEAD_PEER_TIMEOUT / 3).with_interval(DEAD_PEER_TIMEOUT / 6);
        // Multipath TCP lacks some of these options. The thread that waits for a stream then notices a dead peer.
        let unless_unknown = |result: io::Result<()>| match result {
            Err(error) if error.raw_os_error() == Some(Errno::NOPROTOOPT.raw_os_error()) => Ok(()),
            result => result,
        };
        unless_unknown(socket.set_tcp_keepalive(&keepalive))?;
        unless_unknown(socket.set_tcp_user_timeout(Some(DEAD_PEER_TIMEOUT)))
    }

    /// Sets or removes the Nagle delay (`TCP_NODELAY`).
    pub fn set_no_delay(&self, no_delay: bool) -> io::Result<()> {
        self.socket.0.set_nodelay(no_delay)
    }

    /// Returns the maximum time of the next wait, if there is a deadline. After the deadline it returns a time-out
    /// error.
    fn time_left(&self) -> io::Result<Option<Duration>> {
        let Some(deadline) = self.deadline else { return Ok(None) };
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::WouldBlock.into()),
            // The kernel could round a smaller value to zero, which means no time-out.
            left => Ok(Some(left.max(Duration::from_millis(1)))),
        }
    }

    /// Applies the deadline to the next read.
    fn limit_read(&self) -> io::Result<()> {
        self.time_left()?.map_or(Ok(()), |left| self.socket.0.set_read_timeout(Some(left)))
    }

    /// Applies the deadline to the next write.
    fn limit_write(&self) -> io::Result<()> {
        self.time_left()?.map_or(Ok(()), |left| self.socket.0.set_write_timeout(Some(left)))
    }
}

impl Stream for TcpSocket {
    fn handle(&self) -> &Arc<dyn Handle> {
        &self.handle
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout = timeout;
        self.socket.0.set_read_timeout(timeout)
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout = timeout;
        self.socket.0.set_write_timeout(timeout)
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.deadline.is_some() && deadline.is_none() {
            self.socket.0.set_read_timeout(self.read_timeout)?;
            self.socket.0.set_write_timeout(self.write_timeout)?;
        }
        self.deadline = deadline;
        Ok(())
    }

    fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit_read()?;
        self.socket.0.peek(buffer)
    }

    fn finish_sending(&mut self) -> io::Result<()> {
        self.socket.0.shutdown(Shutdown::Write)
    }

    fn payload_socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.0.as_fd())
    }
}

impl Read for TcpSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit_read()?;
        (&self.socket.0).read(buffer)
    }
}

impl Write for TcpSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit_write()?;
        (&self.socket.0).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.limit_write()?;
        (&self.socket.0).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &TcpSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.socket.0).read(buffer)
    }
}

impl Write for &TcpSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.socket.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }
}

impl Handle for SharedSocket {
    fn shut_down(&self, side: Shutdown) -> io::Result<()> {
        self.0.shutdown(side)
    }

    fn abort(&self) {
        // The peer may have closed the connection before.
        let _ = SockRef::from(&self.0).set_linger(Some(Duration::ZERO));
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    fn peer_address(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    fn is_finished_by_peer(&self) -> bool {
        let mut sockets = [PollFd::new(&self.0, PollFlags::RDHUP)];
        poll(&mut sockets, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn info(&self) -> Option<TcpInfo> {
        tcp::info(&self.0).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok())
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Returns both ends of a connection over loopback, for tests.
#[cfg(any(test, feature = "test-support"))]
pub fn pair() -> (TcpSocket, TcpSocket) {
    #![allow(clippy::unwrap_used, reason = "a helper of tests")]
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (TcpSocket::new(near), TcpSocket::new(listener.accept().unwrap().0))
}
