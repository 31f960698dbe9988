//! A client connection of the control server: reads the request, then writes the response.
//!
//! Nothing here blocks, so that the [`server`](super::server) can serve any number of connections at once. A request is
//! one line of limited length. A client has one second to send the request and one second to read the response.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::MAX_REQUEST;
use crate::network::SideName;

/// Bytes that are read at a time.
const READ_CHUNK: usize = 64 << 10;
/// Maximum time for a request, and for reading its response.
pub(super) const PEER_TIMEOUT: Duration = Duration::from_secs(1);

/// A connected client of the control server.
pub(super) struct Peer {
    stream: UnixStream,
    state: PeerState,
    /// Side of the link that the client is on, if it is on one.
    pub(super) side: Option<SideName>,
    /// Time when the connection is closed.
    pub(super) deadline: Instant,
}

enum PeerState {
    /// The part of the line that has arrived.
    ReadingRequest(Vec<u8>),
    /// The part of the response that is not written yet.
    WritingResponse(Vec<u8>),
}

impl Peer {
    /// Accepts a connection without a request yet.
    pub(super) fn new(stream: UnixStream, side: Option<SideName>, now: Instant) -> io::Result<Peer> {
        stream.set_nonblocking(true)?;
        Ok(Peer { stream, state: PeerState::ReadingRequest(Vec::new()), side, deadline: now + PEER_TIMEOUT })
    }

    /// Returns the event to wait for.
    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        let flags = match self.state {
            PeerState::ReadingRequest(_) => PollFlags::IN,
            PeerState::WritingResponse(_) => PollFlags::OUT,
        };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Continues as far as possible without waiting. Calls `respond` once, with the complete request line. Returns
    /// false when the connection is finished.
    pub(super) fn advance(&mut self, respond: impl FnOnce(&[u8]) -> Vec<u8>) -> io::Result<bool> {
        if let PeerState::ReadingRequest(line) = &mut self.state {
            match read_line(&self.stream, line)? {
                LineProgress::Incomplete => return Ok(true),
                LineProgress::Invalid => return Ok(false),
                LineProgress::Complete => self.state = PeerState::WritingResponse(respond(line)),
            }
            self.deadline = Instant::now() + PEER_TIMEOUT;
        }
        match &mut self.state {
            PeerState::ReadingRequest(_) => Ok(true),
            PeerState::WritingResponse(remaining) => write_some(&self.stream, remaining),
        }
    }
}

/// State of the request line.
enum LineProgress {
    Incomplete,
    /// Complete, without the line end.
    Complete,
    /// End of file, or too long.
    Invalid,
}

fn read_line(mut stream: &UnixStream, line: &mut Vec<u8>) -> io::Result<LineProgress> {
    let mut part = vec![0; READ_CHUNK];
    while line.len() < MAX_REQUEST {
        let length = match stream.read(&mut part) {
            Ok(0) => return Ok(LineProgress::Invalid),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(LineProgress::Incomplete),
            Err(error) => return Err(error),
        };
        let end = part[..length].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(length)]);
        if end.is_some() {
            return Ok(LineProgress::Complete);
        }
    }
    Ok(LineProgress::Invalid)
}

/// Writes a part of the response. Returns false when nothing remains.
fn write_some(mut stream: &UnixStream, remaining: &mut Vec<u8>) -> io::Result<bool> {
    while !remaining.is_empty() {
        match stream.write(remaining) {
            Ok(0) => return Ok(false),
            Ok(length) => drop(remaining.drain(..length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, Peer) {
        let (client, other) = UnixStream::pair().unwrap();
        (client, Peer::new(other, None, Instant::now()).unwrap())
    }

    fn no_response(_: &[u8]) -> Vec<u8> {
        panic!("no request was sent")
    }

    #[test]
    fn request_and_response_may_arrive_in_parts() {
        let (mut client, mut peer) = pair();
        assert!(peer.advance(no_response).unwrap());
        client.write_all(b"how ").unwrap();
        assert!(peer.advance(no_response).unwrap());
        client.write_all(b"are you?\nand").unwrap();
        let long = vec![b'x'; 4 << 20];
        let respond = |line: &[u8]| {
            assert_eq!(line, b"how are you?");
            long.clone()
        };
        let old_deadline = peer.deadline;
        assert!(peer.advance(respond).unwrap(), "a socket does not hold so much");
        assert!(peer.deadline > old_deadline);
        let mut received = vec![0; long.len()];
        let reading = std::thread::spawn(move || client.read_exact(&mut received).map(|()| received));
        while peer.advance(no_response).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(reading.join().unwrap().unwrap(), long);
    }

    #[test]
    fn closed_or_endless_requests_are_dropped() {
        let (client, mut peer) = pair();
        drop(client);
        assert!(!peer.advance(no_response).unwrap());
        let (mut client, mut peer) = pair();
        let writing = std::thread::spawn(move || client.write_all(&vec![b'x'; 2 * MAX_REQUEST]));
        while peer.advance(no_response).unwrap() {
            std::thread::yield_now();
        }
        drop(peer);
        assert!(writing.join().unwrap().is_err());
    }
}
