//! A stream of UDP datagrams of a session: a connected socket at each end, opened by a hello that only a bearer of the
//! token can make.
//!
//! Nothing here is reliable and nothing is encrypted. Streams of load count from 0; what runs beside it has fixed
//! numbers that no test has streams enough to reach. A hello is sent again until it is answered, and an answer may be
//! lost: both may come at any time later, and [`DatagramStream::is_opening`] tells them from what the stream carries.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lfn_core::session::hello::{self, ClearHello};
use lfn_core::session::{SessionId, Token, TokenHash};
use socket2::{Domain, Protocol, Socket, Type};

use super::{SessionError, timed_out};

/// The stream that echoes latency probes.
pub const PROBES: u16 = 1000;
/// The stream of path MTU probes.
pub const PATH: u16 = 1001;

/// One end of a stream of datagrams.
#[derive(Debug)]
pub struct DatagramStream {
    stream: u16,
    socket: UdpSocket,
    peer: SocketAddr,
    tag: u64,
    /// What the peer opened it with, and may say again: the server's end has the hello, the client's the answer.
    opening: [u8; hello::LENGTH],
    /// What is to be said to that.
    reply: Option<[u8; hello::LENGTH]>,
}

impl DatagramStream {
    /// The server's end: `socket` is connected to where the hello came from.
    pub(crate) fn accepted(hello: ClearHello, token: &TokenHash, socket: UdpSocket, peer: SocketAddr) -> Self {
        let opening = hello.encode_datagram(token);
        let reply = Some(hello.encode_answer(token));
        DatagramStream { stream: hello.stream, socket, peer, tag: tag(&opening), opening, reply }
    }

    /// Its number in its session.
    pub fn stream(&self) -> u16 {
        self.stream
    }

    /// Whom it is connected to.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connected socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// A number both ends know and nobody off the path can guess: what does not carry it is no datagram of this stream.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Whether this is a hello or an answer come (again) late. A hello is then answered again, byte for byte as often as
    /// it came.
    pub fn is_opening(&self, datagram: &[u8]) -> bool {
        let is = datagram == self.opening;
        if is {
            self.answer();
        }
        is
    }

    /// Says that it is open. A lost answer is asked for again.
    pub(crate) fn answer(&self) {
        if let Some(reply) = &self.reply {
            let _ = self.socket.send(reply);
        }
    }

    /// Answers hellos that are waiting: the answer to an earlier one was lost. What the stream carries is left to be read.
    pub(crate) fn answer_again(&self) {
        let mut datagram = [0; hello::LENGTH + 1];
        if self.socket.set_nonblocking(true).is_err() {
            return;
        }
        while matches!(self.socket.peek(&mut datagram), Ok(length) if datagram[..length] == self.opening) {
            // Read as it was seen, and answered.
            let taken = self.socket.recv(&mut datagram).unwrap_or(0);
            self.is_opening(&datagram[..taken]);
        }
        let _ = self.socket.set_nonblocking(false);
    }

    /// The next datagram that is no opening, at most `within` from now; what is longer than `buffer` is cut off.
    pub fn recv(&self, buffer: &mut [u8], within: Duration) -> io::Result<Option<usize>> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Zero would mean "for ever".
            self.socket.set_read_timeout(Some(left.max(Duration::from_micros(1))))?;
            match self.socket.recv(buffer) {
                Ok(length) if !self.is_opening(&buffer[..length]) => return Ok(Some(length)),
                Ok(_) => {}
                Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }
}

/// Opens a stream to the server that `control` is connected with, from the same address of this host: the server takes a
/// hello only from where the control connection comes from. It leaves by `interface` if one is said. `token` is the
/// ticket's, or zeros of an insecure server.
pub(crate) fn open(
    control: &TcpStream,
    token: &Token,
    session: SessionId,
    (stream, interface): (u16, Option<&str>),
    within: Duration,
) -> Result<DatagramStream, SessionError> {
    let failed = |source| SessionError::Io { peer: "the server", source };
    let server = control.peer_addr().map_err(failed)?;
    let socket = connected(control.local_addr().map_err(failed)?, server, interface).map_err(failed)?;
    let hello = ClearHello { session, stream };
    let (ask, answer) = (hello.encode_datagram(token), hello.encode_answer(token));
    let opened = DatagramStream { stream, socket, peer: server, tag: tag(&ask), opening: answer, reply: None };
    if answered(&opened, &ask, within).map_err(failed)? {
        return Ok(opened);
    }
    Err(SessionError::NoDatagrams { address: server.to_string(), after: within })
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

/// Says hello until it is answered, ever more rarely.
fn answered(stream: &DatagramStream, hello: &[u8], within: Duration) -> io::Result<bool> {
    const FIRST_WAIT: Duration = Duration::from_millis(100);
    const LONGEST_WAIT: Duration = Duration::from_secs(1);
    let deadline = Instant::now() + within;
    let mut wait = FIRST_WAIT;
    let mut buffer = [0; 2048];
    loop {
        // What the path says against it may change: only the deadline ends it.
        let _ = stream.socket.send(hello);
        let until = deadline.min(Instant::now() + wait);
        wait = (2 * wait).min(LONGEST_WAIT);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stream.socket.set_read_timeout(Some(left))?;
            match stream.socket.recv(&mut buffer) {
                Ok(length) if buffer[..length] == stream.opening => return Ok(true),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    std::thread::sleep(left);
                }
                Err(error) if timed_out(&error) || error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
    }
}

fn tag(hello: &[u8; hello::LENGTH]) -> u64 {
    // Of the MAC: nobody without the token knows it before it was seen.
    hello.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
