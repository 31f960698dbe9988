//! Datagram stream of a session: a connected UDP socket at each end. Only a holder of the token can create the hello
//! that opens it.
//!
//! Datagrams may be lost, and they are not encrypted. Load streams count from 0. Other streams have fixed numbers above
//! the maximum of load streams. The client repeats its hello until it is answered, and an answer may be lost; both may
//! therefore arrive late. [`DatagramStream::is_repeated_hello`] separates them from the payload.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::SessionError;
use crate::hello::{self, ClearHello};
use crate::transport::{Handle, is_timeout};
use crate::{SessionId, Token, TokenHash};

/// Number of the stream that echoes latency probes.
pub const PROBE_STREAM: u16 = 1000;
/// Number of the stream of path MTU probes.
pub const PATH_STREAM: u16 = 1001;

/// One end of a datagram stream.
#[derive(Debug)]
pub struct DatagramStream {
    stream: u16,
    socket: UdpSocket,
    peer: SocketAddr,
    tag: u64,
    /// First datagram of the peer, which the peer may repeat: the hello at the server's end, the answer at the client's
    /// end.
    peer_hello: [u8; hello::HELLO_BYTES],
    /// Answer to a repeated hello.
    answer: Option<[u8; hello::HELLO_BYTES]>,
}

impl DatagramStream {
    /// Creates the server's end: `socket` is connected to the source of the hello.
    pub(crate) fn accepted(hello: ClearHello, token: &TokenHash, socket: UdpSocket, peer: SocketAddr) -> Self {
        let peer_hello = hello.encode_datagram(token);
        let answer = Some(hello.encode_answer(token));
        DatagramStream { stream: hello.stream, socket, peer, tag: tag(&peer_hello), peer_hello, answer }
    }

    /// Returns the number of the stream in its session.
    pub fn stream(&self) -> u16 {
        self.stream
    }

    /// Returns the address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the connected UDP socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Returns a number that both ends know and that cannot be guessed off the path. Datagrams without the tag do not
    /// belong to this stream.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns whether this is a late hello or a late answer. A hello is answered again with the same bytes, once for
    /// each time it arrives.
    pub fn is_repeated_hello(&self, datagram: &[u8]) -> bool {
        let is_hello = datagram == self.peer_hello;
        if is_hello {
            self.send_answer();
        }
        is_hello
    }

    /// Confirms that the stream is open. The peer repeats its hello if the answer is lost.
    pub(crate) fn send_answer(&self) {
        if let Some(reply) = &self.answer {
            let _ = self.socket.send(reply);
        }
    }

    /// Answers repeated hellos in the receive queue, because an earlier answer was lost. Payload stays unread.
    pub fn answer_repeated_hellos(&self) {
        let mut datagram = [0; hello::HELLO_BYTES + 1];
        if self.socket.set_nonblocking(true).is_err() {
            return;
        }
        while matches!(self.socket.peek(&mut datagram), Ok(length) if datagram[..length] == self.peer_hello) {
            // Removes the datagram that was peeked, and answers it.
            let taken = self.socket.recv(&mut datagram).unwrap_or(0);
            self.is_repeated_hello(&datagram[..taken]);
        }
        let _ = self.socket.set_nonblocking(false);
    }

    /// Waits for the next payload datagram, for at most `timeout`. Returns its length. A longer datagram is cut to
    /// the size of the buffer.
    pub fn recv(&self, buffer: &mut [u8], timeout: Duration) -> io::Result<Option<usize>> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Zero would mean no time-out.
            self.socket.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;
            match self.socket.recv(buffer) {
                Ok(length) if !self.is_repeated_hello(&buffer[..length]) => return Ok(Some(length)),
                Ok(_) => {}
                Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }
}

/// Opens a stream to the server of `control`, from the same address of this host, because the server accepts a hello
/// only from the address of the control connection. `interface` binds the socket to an interface. `token` is the
/// ticket's token, or zeros for an insecure server.
pub(crate) fn open(
    control: &dyn Handle,
    token: &Token,
    session: SessionId,
    stream: u16,
    interface: Option<&str>,
    timeout: Duration,
) -> Result<DatagramStream, SessionError> {
    let failed = |source| SessionError::Io { peer: "the server", source };
    let server = control.peer_address().map_err(failed)?;
    let socket = connected(control.local_address().map_err(failed)?, server, interface).map_err(failed)?;
    let hello = ClearHello { session, stream };
    let (hello_bytes, answer) = (hello.encode_datagram(token), hello.encode_answer(token));
    let opened =
        DatagramStream { stream, socket, peer: server, tag: tag(&hello_bytes), peer_hello: answer, answer: None };
    if wait_for_answer(&opened, &hello_bytes, timeout).map_err(failed)? {
        return Ok(opened);
    }
    Err(SessionError::NoDatagrams { address: server.to_string(), after: timeout })
}

fn connected(local: SocketAddr, server: SocketAddr, interface: Option<&str>) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(server), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(name) = interface {
        socket.bind_device(Some(name.as_bytes()))?;
    }
    socket.bind(&SocketAddr::new(local.ip(), 0).into())?;
    socket.connect(&server.into())?;
    Ok(socket.into())
}

/// Sends hellos at growing intervals until one is answered.
fn wait_for_answer(stream: &DatagramStream, hello: &[u8], timeout: Duration) -> io::Result<bool> {
    const FIRST_WAIT: Duration = Duration::from_millis(100);
    const MAX_WAIT: Duration = Duration::from_secs(1);
    let deadline = Instant::now() + timeout;
    let mut wait = FIRST_WAIT;
    let mut buffer = [0; 2048];
    loop {
        // An error of the path may be temporary, so only the deadline ends the loop.
        let _ = stream.socket.send(hello);
        let until = deadline.min(Instant::now() + wait);
        wait = (2 * wait).min(MAX_WAIT);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stream.socket.set_read_timeout(Some(left))?;
            match stream.socket.recv(&mut buffer) {
                Ok(length) if buffer[..length] == stream.peer_hello => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::thread::sleep(left);
                }
                Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
    }
}

fn tag(hello: &[u8; hello::HELLO_BYTES]) -> u64 {
    // The tag comes from the MAC, so it cannot be computed without the token.
    hello.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
